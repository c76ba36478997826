from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


@virtually
async def test_a_bug_in_one_connection_does_not_reach_the_queue() -> None:
    """Else it would stop there, and whoever else it serves would get nothing."""
    node = Node()
    client = await node.client().with_channel()
    port: Any = None

    def consume(spec: Any, given: Any, done: Callable[[object], None]) -> None:
        nonlocal port
        port = given
        done(None)

    node.sink.consume = consume  # type: ignore[method-assign]
    client.send(spec.QueueDeclare("q"), spec.BasicConsume("q", "tag"), channel=1)
    assert isinstance((await client.heard())[-1], spec.BasicConsumeOk)
    port.deliver("tag", ["no delivery"])
    (close,) = await client.heard()
    assert isinstance(close, spec.ConnectionClose)
    assert close.reply_code == 541
