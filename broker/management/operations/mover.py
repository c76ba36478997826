"""Carries messages from a queue to others, in order, and acknowledges what has arrived.

What goes where is the business of its `Ways`: a migration has one target, a redrive asks for each
message. A message without a way is kept: held unacknowledged, and back at its place in the end.

Invariants:
1. A message is acknowledged at the source only after all its targets have confirmed it. So whatever
   ends the carrying loses nothing; what was under way then may be in source and target.
2. Messages are published in the order in which they were delivered.
3. After the last refusal that is borne (`refusals_max`) nothing more is published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from broker.fifo.commands import Cancel, Checkout, Release, SetPrefetch, Settle
from broker.message import Delivery, Message
from broker.ports import Done
from broker.queues.handle import QueueHandle

TAG: Final = "warren.migration"
NO_LIMIT: Final = 1 << 60

Parcels = Sequence[tuple[Message, QueueHandle]]
"""A message as each of its targets gets it; they all have to confirm it."""


class Ways(Protocol):
    """Where messages go."""

    def way(self, delivery: Delivery) -> Parcels:
        """Return what to publish where; nothing: the message stays in the source."""
        ...

    def forget(self) -> None:
        """All messages that were kept come again: what was counted of them does not hold."""
        ...


class OneQueue:
    """All messages go to one queue, as they were published to the source.

    Args:
        target: That queue.
    """

    def __init__(self, target: QueueHandle) -> None:
        self._target = target

    def way(self, delivery: Delivery) -> Parcels:
        """Return the message; its time to live begins again."""
        return [(_renewed(delivery.message), self._target)]

    def forget(self) -> None:
        """Nothing is kept."""


class Mover:
    """A consumer of one queue (`ConsumerPort`) and a publisher to others (`PublisherPort`).

    Args:
        source: Where messages come from.
        ways: Where they go.
        channel_id: The channel that holds them meanwhile, see `Checkout.channel_id`.
        defer: `loop.call_soon`: queues are not called from their own callbacks.
        look_max: Most messages to look at; later ones are left alone.
        send_max: Most messages to publish.
        refusals_max: Most refusals by targets that are borne.
        turn_max: Most messages to look at in one turn of the loop.

    Attributes:
        moved: Messages that have arrived.
        refused: Messages that a target refused, or of which it told nothing; they are kept.
        doubted: Messages that have arrived, and of which the source did not confirm that it has let
            them go: they may come again.
        kept: Messages without a way, the refused among them.
        allowed: Messages that may be published now; None is without limit (`allow`).
        failure: Why it can't go on, "" while it can.
    """

    def __init__(
        self,
        source: QueueHandle,
        ways: Ways,
        channel_id: str,
        *,
        defer: Callable[[Callable[[], None]], object],
        look_max: int = NO_LIMIT,
        send_max: int = NO_LIMIT,
        refusals_max: int = 0,
        turn_max: int = NO_LIMIT,
    ) -> None:
        self.moved = self.refused = self.doubted = self.kept = 0
        self.allowed: int | None = None
        self.failure = ""
        self._source = source
        self._ways = ways
        self._channel_id = channel_id
        self._defer = defer
        self._look_left = look_max
        self._send_left = send_max
        self._refusals_max = refusals_max
        self._turn_max = turn_max
        self._prefetch = 0
        self._seqno = 0
        self._waiting: list[Delivery] = []
        self._under_way: dict[int, int] = {}  # seqno -> number in the source
        self._copies: dict[int, int] = {}  # number -> how many targets have not spoken
        self._spoilt: set[int] = set()  # numbers that a target refused while others have not spoken
        self._arrived: list[int] = []
        self._settling = 0  # acknowledged, and the source has not answered
        self._is_due = False

    @property
    def is_idle(self) -> bool:
        """True while nothing is under way, and nothing waits that may go."""
        may_go = self._waiting and not self.is_over
        return not (may_go or self.under_way)

    @property
    def is_over(self) -> bool:
        """True once as many were looked at, or published, as may be."""
        return self._look_left <= 0 or self._send_left <= 0

    @property
    def held(self) -> int:
        """Messages that it holds and that are not under way."""
        return self.kept + len(self._waiting)

    @property
    def under_way(self) -> int:
        """Messages that targets, or the acknowledgements of the source, are waited for."""
        return len(self._copies) + len(self._arrived) + self._settling

    def begin(self, prefetch: int, done: Done) -> None:
        """Attach to the source.

        Args:
            prefetch: Most messages under way at a time.
            done: Called with None, or with a `Refusal`.
        """
        self._prefetch = prefetch
        checkout = Checkout(self._channel_id, TAG, False, False, prefetch, 0, {})
        self._source.attach(checkout, self, done)

    def allow(self, count: int | None) -> None:
        """Publish at most so many messages from now on, those allowed before not counted.

        Args:
            count: None is without limit.
        """
        self.allowed = count
        if self._waiting:
            self._soon()

    def leave(self, done: Done) -> None:
        """Stop consuming; `done(None)` when the source knows."""
        self._source.submit(Cancel(self._channel_id, TAG), done)

    def end(self) -> None:
        """End: unacknowledged messages are ready in the source again, at their old places."""
        self._drop_held()
        self._source.submit(Release(self._channel_id))

    # From the source.

    def deliver(self, _consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        """Take messages to carry."""
        self._waiting += deliveries
        self._soon()

    def consumer_lost(self, _consumer_tag: str) -> None:
        """Stop: the source was deleted, or its node is down."""
        self._fail("the source has ended this consumer")

    def consumer_moved(self, _consumer_tag: str) -> None:
        """Note that the source has another master: unacknowledged messages come again."""
        again = len(self._copies) + len(self._arrived)
        self.doubted += again
        self._look_left += again + self.kept
        self._send_left += len(self._copies)
        self.kept = 0
        self._drop_held()
        self._ways.forget()

    # From the targets.

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """Acknowledge messages that all their targets have confirmed."""
        for seqno in seqnos:
            self._spoke(seqno)
        self._soon()

    def rejected(self, seqnos: Sequence[int]) -> None:
        """Handle messages that a target nacked, or whose outcome is unknown."""
        for seqno in seqnos:
            number = self._under_way.get(seqno)
            if number is not None:
                self._spoilt.add(number)
                self._spoke(seqno)
        if self.refused + len(self._spoilt) > self._refusals_max:
            self._fail("the target has refused a message, or has no majority")

    # Parts.

    def _spoke(self, seqno: int) -> None:
        number = self._under_way.pop(seqno, None)
        if number is None:
            return
        self._copies[number] -= 1
        if self._copies[number]:
            return
        del self._copies[number]
        if number not in self._spoilt:
            self._arrived.append(number)
            return
        self._spoilt.remove(number)
        self.refused += 1
        self._keep(1)

    def _drop_held(self) -> None:
        self._waiting.clear()
        self._under_way.clear()
        self._copies.clear()
        self._spoilt.clear()
        self._arrived.clear()

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why
        self._waiting.clear()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._defer(self._carry)

    def _keep(self, count: int) -> None:
        """Hold some to the end; the source may deliver as many more."""
        self.kept += count
        if not self.is_over:
            prefetch = self._prefetch + self.kept
            self._source.submit(SetPrefetch(self._channel_id, TAG, prefetch))

    def _carry(self) -> None:
        self._is_due = False
        arrived, self._arrived = self._arrived, []
        if arrived:
            self._settle(sorted(arrived))
        waiting, self._waiting = self._waiting, []
        if waiting and not self.failure:
            # A source in this process delivers more while `_send` tells it that there is room.
            self._waiting = [*self._send(waiting), *self._waiting]

    def _settle(self, numbers: list[int]) -> None:
        def settled(result: object) -> None:
            self._settling -= len(numbers)
            if result is not None:
                self.doubted += len(numbers)
                self._look_left += len(numbers)  # they may come again, and are no others

        self._settling += len(numbers)
        self._source.submit(Settle(self._channel_id, TAG, numbers), settled)
        self.moved += len(numbers)

    def _send(self, waiting: list[Delivery]) -> list[Delivery]:
        """Publish messages as far as that is allowed; return the others."""
        batches: dict[int, tuple[QueueHandle, list[Message], list[int]]] = {}
        looked = kept = 0
        for delivery in waiting:
            if self.is_over or self.allowed == 0:
                break
            if looked == self._turn_max:
                self._soon()
                break
            looked += 1
            self._look_left -= 1
            parcels = self._ways.way(delivery)
            if not parcels:
                kept += 1
                continue
            self._send_left -= 1
            self.allowed = None if self.allowed is None else self.allowed - 1
            self._copies[delivery.number] = len(parcels)
            for message, target in parcels:
                self._seqno += 1
                self._under_way[self._seqno] = delivery.number
                _, messages, seqnos = batches.setdefault(id(target), (target, [], []))
                messages.append(message)
                seqnos.append(self._seqno)
        if kept:
            self._keep(kept)
        for target, messages, seqnos in batches.values():
            target.publish(messages, seqnos, self)
        return waiting[looked:]


def _renewed(message: Message) -> Message:
    """Return the message as it was published: its TTL begins again in the target queue."""
    return replace(message, expires_ms=0) if message.expires_ms else message
