"""Messages that an x-delayed-message exchange keeps: looking at them, and cancelling delays.

Looking is a remote operation at the leader of the exchange's store, which alone knows exactly.
Cancelling is a command to the store as a publish is, from whichever node is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from broker.amqp.fields import valid_text
from broker.errors import Refusal, ReplyCode
from broker.management.control import NodeControl
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.message import Delivery
from broker.metadata.records import Queue
from broker.ports import Done

PEEK: Final = "peek_delayed"

PAGE_MAX: Final = 1_000
"""Messages told in one answer: some 200 kB."""

ELECTION_MS = 4_000
AGAIN_S: Final = 0.1
"""How long a listing waits for a leader, and how often it asks."""

CANCEL_TIMEOUT_S: Final = 6.0
"""A little longer than an election of the store's leader may take."""


class Delayed(msgspec.Struct):
    """A message that is kept, as operators see it.

    Attributes:
        number: Names it, for as long as its exchange lives.
        due: When its time has come, in milliseconds since the epoch.
        exchange: What it was published to; the exchange that keeps it may be bound to that.
        routing_key: What it was published with.
        payload_bytes: Size of its body.
    """

    number: int
    due: int
    exchange: str
    routing_key: str
    payload_bytes: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Delayed]).decode


class Delays:
    """Lists and cancels delayed messages for operators.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        remote.on(PEEK, self._peek)

    async def show(self, store: Queue, first: int, count: int) -> list[Delayed] | str:
        """Show messages in the order in which they are due.

        Args:
            store: The exchange's store.
            first: How many to pass over.
            count: How many to show, at most `PAGE_MAX`.

        Returns:
            The messages, or a refusal that says why they are not known now.
        """
        operation = RemoteOperation(PEEK, store.uid, f"{first} {count}")
        clock = self._control.clock
        until_ms = clock.monotonic_ms() + ELECTION_MS
        while True:
            result = await self._ask_members(store, operation)
            if result.is_done:
                return _decode(result.text)
            if clock.monotonic_ms() >= until_ms:
                return result.text
            await asyncio.sleep(AGAIN_S)  # a new store, or the leader has just died

    async def _ask_members(self, store: Queue, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        if serving is None:
            return OperationResult(
                is_done=False, text="the broker on this node is stopped: start it with start_app"
            )
        leader = serving.queues.leader_of(store)
        others = [node for node in store.members if node != leader]
        first: OperationResult | None = None
        for node in (leader, *others):  # the leader may have changed
            result = await self._remote.ask(node, operation)
            if result.is_done:
                return result
            first = first or result
        assert first is not None, "the leader was asked"
        return first

    async def cancel(self, store: Queue, numbers: list[int] | None) -> int | Refusal:
        """Forget messages before they are due.

        Args:
            store: The exchange's store.
            numbers: Which; None for all. Those that are gone are passed over.

        Returns:
            How many were forgotten. They reach no queue any more.
        """
        serving = self._control.serving
        if serving is None:
            return Refusal(
                ReplyCode.INTERNAL_ERROR,
                "the broker on this node is stopped: start it with start_app",
            )
        cancel = partial(serving.queues.cancel_delays, store, numbers)
        found = await _asked(cancel)
        if isinstance(found, int | Refusal):
            return found
        return Refusal(ReplyCode.INTERNAL_ERROR, "the delays' store did not answer in time")

    async def _peek(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        first, count = map(int, operation.argument.split())
        store = None if serving is None else serving.queues.quorum_here(operation.uid)
        if store is None:
            why = f"{self._control.name} does not lead the delays' store: try again"
            return OperationResult(is_done=False, text=why)
        return OperationResult(
            is_done=True, text=_encode([_shown(each) for each in store.peek(first, count)]).decode()
        )


def _shown(delivery: Delivery) -> Delayed:
    message = delivery.message
    return Delayed(
        delivery.number,
        message.expires_ms,
        valid_text(message.exchange),
        valid_text(message.routing_key),
        message.body_size,
    )


async def _asked(ask: Callable[[Done], None]) -> object:
    """Ask a queue; None if the answer takes too long."""
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def done(value: object) -> None:
        if not answer.done():
            answer.set_result(value)

    ask(done)
    try:
        async with asyncio.timeout(CANCEL_TIMEOUT_S):
            return await answer
    except TimeoutError:
        return None
