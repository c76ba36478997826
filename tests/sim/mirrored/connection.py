"""A client's connection inside a node: what `broker.server.connection` does about the lease (P4).

Commands wait while there is no lease; what queues have to say is written at the end of a turn, and
waits too. A closed connection releases what it holds in its queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.fifo.commands import Cancel, Checkout, Release, SetActive
from broker.message import Delivery
from broker.queues.handle import QueueHandle
from tests.sim.mirrored.options import PLAIN_EPOCHS

if TYPE_CHECKING:
    from tests.sim.mirrored.client import Client
    from tests.sim.mirrored.serving import Serving


class Connection:
    """One connection with one channel at a time. A `PublisherPort` and a `ConsumerPort`."""

    def __init__(self, serving: Serving, number: int, client: Client) -> None:
        self._serving = serving
        self._process = serving.process
        self._number = number
        self._client = client
        self._generation = 1
        self._stalled: list[Callable[[], None]] = []
        self._out: list[tuple[Callable[[], None], int]] = []
        self._is_marked = False
        self._is_mute = False
        self._tags: set[str] = set()
        self.is_closed = False

    @property
    def channel_id(self) -> str:
        """The channel open now, as queues know it."""
        boot = self._serving.boot
        return f"{self._process.name}/{boot}/{self._number}/1.{self._generation}"

    @property
    def epoch(self) -> int:
        """Of the master that speaks now: the answer's, or of a queue that lives here directly."""
        epoch = self._serving.epoch
        return self._serving.epoch_here() if epoch is None else epoch

    @property
    def boot(self) -> str:
        """The node's boot that this connection belongs to."""
        return self._serving.boot

    @property
    def is_promise(self) -> bool:
        """Whether a settle that is answered now is done for good: a plain queue elsewhere does not
        wait for its disk (`broker.ports.QueueHandle.settle`)."""
        return self._serving.epoch is None or self._serving.epoch % PLAIN_EPOCHS == 0

    # What the client asks: each runs in the node, in order, when the lease is there

    def perform(self, action: Callable[[], None]) -> None:
        self._process.soon(self._handle, action)

    def _handle(self, action: Callable[[], None]) -> None:
        if self.is_closed:
            return
        if self._stalled or not self._serving.is_valid():
            self._stalled.append(action)
        else:
            action()
            self._mark()

    def queue(self) -> QueueHandle | None:
        """The queue as this node knows it now; None when it does not exist."""
        record = self._process.catalogue.queue_by_uid(self._serving.world.uid)
        return None if record is None else self._serving.queues.open(record)

    def consume(self, spec: Checkout, done: Callable[[object], None]) -> None:
        queue = self.queue()
        if queue is None:
            self._say(lambda: done("gone"))
            return
        self._tags.add(spec.tag)
        queue.attach(spec, self, lambda result: self._say(lambda: done(result)))

    def cancel(self, tag: str, done: Callable[[object], None]) -> None:
        queue = self.queue()
        self._tags.discard(tag)
        if queue is not None:
            queue.submit(
                Cancel(self.channel_id, tag), lambda result: self._say(lambda: done(result))
            )

    def reopen_channel(self) -> None:
        """Close the channel and open another."""
        self._release()
        self._generation += 1

    def _release(self) -> None:
        self._tags.clear()
        queue = self._serving.queues.find(self._serving.world.uid)
        if queue is not None:
            queue.submit(Release(self.channel_id))

    def say(self, what: Callable[[], None]) -> None:
        """Have the client hear something."""
        self._say(what)

    # What queues say

    def confirmed(self, seqnos: Sequence[int]) -> None:
        numbers, epoch = list(seqnos), self.epoch
        self._say(lambda: self._client.answered(numbers, "ok", epoch))

    def rejected(self, seqnos: Sequence[int]) -> None:
        numbers, epoch = list(seqnos), self.epoch
        self._say(lambda: self._client.answered(numbers, "nack", epoch))

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        some, epoch = list(deliveries), self.epoch
        is_direct = self._serving.epoch is None

        def got() -> None:
            self._client.got(consumer_tag, some, epoch)

        self._say(got, epoch if is_direct else 0)

    def consumer_lost(self, consumer_tag: str) -> None:
        self._tags.discard(consumer_tag)
        self._say(lambda: self._client.consumer_lost(consumer_tag))

    def consumer_moved(self, consumer_tag: str) -> None:
        self._serving.world.counts["consumer moved"] += 1

    def _say(self, what: Callable[[], None], direct_epoch: int = 0) -> None:
        if not self.is_closed:
            self._out.append((what, direct_epoch))
            self._mark()

    def _write(self) -> None:
        out, self._out = self._out, []
        for what, direct_epoch in out:
            if direct_epoch:  # delivered by a queue that lives here, without an answer
                self._serving.world.handed_out(self._serving, direct_epoch)
            self._client.hears(self, what)

    def _mark(self) -> None:
        if not self._is_marked:
            self._is_marked = True
            self._process.soon(self._flush)

    def _flush(self) -> None:
        """The end of a turn: write, if this node may speak."""
        self._is_marked = False
        if self.is_closed or not self._out:
            return
        if self._serving.is_valid():
            self._write()
        elif not self._is_mute:
            self._is_mute = True
            self._set_active(active=False)

    def resume(self) -> None:
        """The lease is there."""
        stalled, self._stalled = self._stalled, []
        for action in stalled:
            self._handle(action)
        if self._is_mute:
            self._is_mute = False
            self._set_active(active=True)
        self._mark()

    def _set_active(self, *, active: bool) -> None:
        queue = self._serving.queues.find(self._serving.world.uid)
        if queue is not None:
            for tag in sorted(self._tags):
                queue.submit(SetActive(self.channel_id, tag, active=active))

    # The end

    def close(self) -> None:
        """The node closes it: without the lease what was to be said is not said."""
        if self.is_closed:
            return
        if self._serving.is_valid():
            self._write()
        self.is_closed = True
        self._client.hears(self, self._client.disconnected)
        self._serving.connections.pop(self._number, None)
        self._release()

    def cut(self) -> None:
        """The process is gone."""
        if not self.is_closed:
            self.is_closed = True
            self._serving.connections.pop(self._number, None)
            self._client.hears(self, self._client.disconnected)
