from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.amqp import spec
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import method_frame
from broker.fifo.commands import ChannelCommand, Get
from broker.metadata import commands
from broker.ports import GetResult
from broker.session.reply_to import ReplyAddress, encode_address
from tests.unit.server.rig import Node, turn, virtually


@virtually
async def test_a_proposal_that_raises_is_answered_all_the_same() -> None:
    """Every `done` is called once; else the channel would wait for ever."""
    node = Node()
    client = await node.client().with_channel()

    async def propose(command: commands.AnyCommand, /, **_by: object) -> object:
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

    def attach(checkout: Any, given: Any, done: Callable[[object], None]) -> None:
        nonlocal port
        port = given
        done(None)

    node.sink.attach = attach  # type: ignore[method-assign]
    client.send(spec.QueueDeclare("q"), spec.BasicConsume("q", "tag"), channel=1)
    assert isinstance((await client.heard())[-1], spec.BasicConsumeOk)
    port.deliver("tag", ["no delivery"])
    (close,) = await client.heard()
    assert isinstance(close, spec.ConnectionClose)
    assert close.reply_code == 541


@virtually
async def test_a_consumer_of_a_connection_that_just_ended_is_released() -> None:
    """An answer that comes at once ends the connection; the chunk's consume is behind it."""
    node = Node()
    client = await node.client().with_channel()
    client.send(spec.ChannelOpen(), channel=2)
    client.send(spec.QueueDeclare("q"), channel=1)
    await client.heard()
    happened: list[str] = []
    attach, submit = node.sink.attach, node.sink.submit

    def noted(command: ChannelCommand, done: Callable[[object], None] | None) -> None:
        happened.append(type(command).__name__.lower())
        if isinstance(command, Get) and done is not None:
            done(GetResult(None, 0))
        else:
            submit(command, done)

    node.sink.attach = lambda *given: (happened.append("attach"), attach(*given))  # type: ignore
    node.sink.submit = noted  # type: ignore[method-assign]
    client.send(
        method_frame(1, spec.BasicGet("q")),
        method_frame(1, spec.ChannelFlow(active=False)),
        method_frame(2, spec.BasicConsume("q", "tag")),
    )
    assert isinstance((await client.heard())[-1], spec.ConnectionClose)
    assert happened[:2] == ["get", "attach"]
    assert happened.count("release") >= 1


class CloggedWay:
    """The way of direct replies to another node, as `NodeService` hands it out."""

    def __init__(self) -> None:
        self.is_congested = True
        self.waiting: list[Callable[[], None]] = []

    def when_drained(self, resume: Callable[[], None]) -> None:
        self.waiting.append(resume)


@virtually
async def test_who_replies_over_a_clogged_link_is_not_read_until_it_has_drained() -> None:
    """Nothing else held a replier back: its replies filled the link until that broke, for all."""
    node = Node()
    way = CloggedWay()
    node.context.send_reply = lambda *_: way
    client = await node.client().with_channel()
    address = encode_address(ReplyAddress("rabbit@b", "boot", 1, 1, "key"), b"secret")
    reply = build_message("", address, Properties(), b"reply", channel=1)
    published = method_frame(1, spec.BasicPublish("", address)) + reply.content
    client.send(published + published)
    await turn()
    assert not client.wire.is_reading
    assert len(way.waiting) == 1, "one wait, however many replies a read has brought"
    assert client.shell.state == "flow"
    way.is_congested = False
    way.waiting.pop()()
    assert client.wire.is_reading
