from __future__ import annotations

from broker.amqp import spec
from broker.metadata import commands
from tests.unit.server.rig import Node, virtually


@virtually
async def test_a_proposal_that_raises_is_answered_all_the_same() -> None:
    """Every `done` is called once; else the channel would wait for ever."""
    node = Node()
    client = await node.client().with_channel()

    async def propose(command: commands.AnyCommand) -> object:
        raise RuntimeError("a bug")

    node.propose = propose  # type: ignore[method-assign]
    client.send(spec.QueueDeclare(queue="q"), channel=1)
    (close,) = await client.heard()
    assert isinstance(close, spec.ConnectionClose)
    assert close.reply_code == 541
