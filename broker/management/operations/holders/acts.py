"""Gives messages back and cancels consumers, at the node that their client is connected to.

Whoever holds a message holds it by a channel, and only the channel's node knows the delivery tags.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from broker.management.answers import plain
from broker.management.control import NodeControl
from broker.management.operations.remote import (
    OperationResult,
    RemoteOperation,
    RemoteOperations,
)
from broker.management.report import connections_of
from broker.server.connection import AmqpConnection
from broker.session.channel import Channel
from broker.session.holders.acts import CancelConsumer, GiveBack, Given, Step
from broker.session.listing import holders_of_channel

_LIST: Final = "holders.list"
_GIVE_BACK: Final = "holders.give_back"
_CANCEL: Final = "holders.cancel"

LISTED_MAX: Final = 100
"""Messages that are listed of one holder, the oldest."""

VERDICT_S: Final = 5.0
"""How long a queue may take to answer: it may be without a leader for a moment."""


class WhichHolder(msgspec.Struct, array_like=True, frozen=True):
    """Who is meant, and of what.

    Attributes:
        connection: Name of the connection.
        channel: Number of the channel.
        tag: Consumer tag as listings show it; "" for basic.get.
        delivery_tags: Of the messages; None for all.
    """

    connection: str
    channel: int
    tag: str
    delivery_tags: tuple[int, ...] | None = None


class HeldMessage(msgspec.Struct, array_like=True, frozen=True):
    """One message that a client holds.

    Attributes:
        delivery_tag: What the client calls it.
        held_ms: How long it has been with the client, exact to a second.
    """

    delivery_tag: int
    held_ms: int


class HolderAnswer(msgspec.Struct, array_like=True, frozen=True):
    """What came of it.

    Attributes:
        messages: What is held, the oldest `LISTED_MAX`; where that was asked.
        given_back: How many messages went back to the queue.
        is_told: The client hears that its consumer was cancelled: it declared that it understands
            basic.cancel from a server.
    """

    messages: tuple[HeldMessage, ...] = ()
    given_back: int = 0
    is_told: bool = False


_encode = msgspec.json.Encoder().encode
_decode_which = msgspec.json.Decoder(WhichHolder).decode
_decode_answer = msgspec.json.Decoder(HolderAnswer).decode


class Holders:
    """What operators do to those who hold messages.

    Args:
        control: The node.
        remote: The way to the others.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        remote.on(_LIST, self._list)
        remote.on(_GIVE_BACK, self._give_back)
        remote.on(_CANCEL, self._cancel)

    async def messages(self, node: str, uid: int, which: WhichHolder) -> HolderAnswer | str:
        """List what somebody holds of a queue.

        Args:
            node: Where the client is connected.
            uid: The queue's incarnation.
            which: Who.

        Returns:
            The answer; or why there is none.
        """
        return await self._ask(node, _LIST, uid, which)

    async def give_back(self, node: str, uid: int, which: WhichHolder) -> HolderAnswer | str:
        """Give messages back to their queue; arguments and result as for `messages`."""
        return await self._ask(node, _GIVE_BACK, uid, which)

    async def cancel(self, node: str, uid: int, which: WhichHolder) -> HolderAnswer | str:
        """Cancel a consumer; arguments and result as for `messages`."""
        return await self._ask(node, _CANCEL, uid, which)

    async def _ask(self, node: str, name: str, uid: int, which: WhichHolder) -> HolderAnswer | str:
        operation = RemoteOperation(name, uid, _encode(which).decode())
        result = await self._remote.ask(node, operation)
        return _decode_answer(result.text) if result.is_done else result.text

    # At the client's node

    async def _list(self, operation: RemoteOperation) -> OperationResult:
        which = _decode_which(operation.argument)
        now_ms = self._control.clock.monotonic_ms()
        found: list[HeldMessage] = []
        for _, channel in self._channels(which):
            for tag in _tags(channel, operation.uid, which):
                held = channel.unacked.held(operation.uid, tag, LISTED_MAX, channel.next_tag)
                found += [HeldMessage(each, now_ms - since_ms) for each, since_ms in held]
        return _done(HolderAnswer(tuple(found[:LISTED_MAX])))

    async def _give_back(self, operation: RemoteOperation) -> OperationResult:
        which = _decode_which(operation.argument)
        if not self._has_lease():
            return _failed(NO_LEASE)
        count, verdicts = 0, _Verdicts()
        only = None if which.delivery_tags is None else frozenset(which.delivery_tags)
        for connection, channel in self._channels(which):
            through = channel.next_tag - 1  # what comes back at once is not given back again
            for tag in _tags(channel, operation.uid, which):
                step = GiveBack(operation.uid, tag, through, only, verdicts)
                while (given := self._run(connection, channel, step)).messages:
                    count += given.messages
                    verdicts.expect(given.requests)
                    await asyncio.sleep(0)  # others have their turn
                if given.is_full:
                    return _failed(FULL.format(count))
        if not await verdicts.have_come():
            return _failed(SLOW_GIVING.format(count))
        return _done(HolderAnswer(given_back=count))

    async def _cancel(self, operation: RemoteOperation) -> OperationResult:
        which = _decode_which(operation.argument)
        if not self._has_lease():
            return _failed(NO_LEASE)
        verdicts, told = _Verdicts(), False
        for connection, channel in self._channels(which):
            for tag in _tags(channel, operation.uid, which):
                step = CancelConsumer(operation.uid, tag, verdicts)
                verdicts.expect(self._run(connection, channel, step).requests)
                told = channel.context.facts.consumer_cancel_notify
        if not await verdicts.have_come():
            return _failed(SLOW_CANCEL)
        if not verdicts.asked:
            return _failed("it is cancelled already: look at the holders again")
        return _done(HolderAnswer(is_told=told))

    def _has_lease(self) -> bool:
        serving = self._control.serving
        now_ms = self._control.clock.monotonic_ms()
        return serving is not None and serving.context.lease.is_valid(now_ms)

    def _channels(self, which: WhichHolder) -> list[tuple[AmqpConnection, Channel]]:
        return [
            (connection, channel)
            for connection in connections_of(self._control, which.connection)
            for channel in (() if connection.session is None else connection.session.channels())
            if channel.number == which.channel and not channel.is_closing
        ]

    def _run(self, connection: AmqpConnection, channel: Channel, step: Step) -> Given:
        """Run a step of a channel; nothing comes of it where that has ended meanwhile."""
        session, runner = connection.session, connection.effect_runner
        if session is None or runner is None or channel.is_closing:
            return Given()
        given, effects = session.act(channel, step, self._control.clock.monotonic_ms())
        runner.run_and_write(effects)
        return given


NO_LEASE: Final = "it has lost the majority of the cluster: nothing is given back or cancelled now"
FULL: Final = (
    "{} messages were given back; the channel can't remember more of what was: close its connection"
)
SLOW_GIVING: Final = (
    f"the queue has not answered within {VERDICT_S:g} s: {{}} messages go back when it does, or "
    "when the channel ends"
)
SLOW_CANCEL: Final = (
    f"the queue has not answered within {VERDICT_S:g} s: the consumer ends when it does; "
    "look at the holders again"
)


class _Verdicts:
    """Answers of queues that are to come.

    Attributes:
        asked: How many there will have been.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._came = 0
        self._news = asyncio.Event()

    def expect(self, count: int) -> None:
        self.asked += count

    def came(self, _result: object, /) -> None:
        self._came += 1
        self._news.set()

    async def have_come(self) -> bool:
        """Wait for all of them; False if they don't come in time."""
        try:
            async with asyncio.timeout(VERDICT_S):
                while self._came < self.asked:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True


def _done(answer: HolderAnswer) -> OperationResult:
    return OperationResult(is_done=True, text=_encode(answer).decode())


def _failed(text: str) -> OperationResult:
    return OperationResult(is_done=False, text=text)


def _tags(channel: Channel, uid: int, which: WhichHolder) -> list[str]:
    """Tags as the client sent them that listings show so."""
    found = {each.tag for each in holders_of_channel(channel, uid)}
    return sorted(tag for tag in found if str(plain(tag)) == which.tag)
