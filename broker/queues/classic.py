"""A classic queue at its home: the machine runs here, its ledger goes to disk.

A publish is confirmed at once when it is transient or the queue is, and after the sync that made
it durable otherwise (protocol.md "never report early"). Deliveries do not wait for the sync, as in
RabbitMQ: a persistent message may be consumed before it is on disk, and one that is settled before
it was written is never written.

Channels of this node call the handle directly; those of other nodes come as offers (`receive`)
and get answers. Both meet in the same machine.

Invariants:
1. The ledger of a batch is handed to the journal before any answer of that batch leaves.
2. After a restart every persistent message that was confirmed and not settled is back, in order,
   marked as delivered before (P16).
3. While a conditional delete is being proposed nothing is accepted (P5): it waits in `_held`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.errors import Refusal, ReplyCode, quoted
from broker.fifo import ledger
from broker.fifo.commands import Offer
from broker.fifo.config import classic_config
from broker.fifo.effects import Effects
from broker.fifo.machine import QueueMachine
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import Clock, ConsumerPort, ConsumerSpec, Done, Journal, PublisherPort
from broker.queues.envelopes import Answer, answers_by_node
from broker.storage.message_store import MessageStore

Post = Callable[[str, Answer], None]
"""Send an answer to a node; dropped when the node is not reachable (it will offer again)."""

Defer = Callable[[Callable[[], None]], object]
"""Run something in the event loop's next turn."""

NO_EPOCH: Final = 0

JOURNAL_BEHIND_BYTES: Final = 16 * 1024 * 1024
"""Unsynced bytes above which publishers wait: about a tenth of a second of this disk."""


SLOWDOWN_US_MAX: Final = 40
"""A publisher is never held below 25,000 messages/s by consumers that lag."""

LAG_PER_US: Final = 250
"""Waiting messages for each microsecond of slowdown: the maximum is reached at 10,000."""


def lag_slowdown_us(ready: int) -> int:
    """How much publishers wait per message while consumers are this far behind.

    Args:
        ready: Messages that wait although consumers are attached.
    """
    return min(SLOWDOWN_US_MAX, ready // LAG_PER_US)


def settle_lost(queue: Queue) -> Refusal:
    """What was to be settled is not held any more: it has gone back to the queue (P18)."""
    where = quoted("queue", queue.name, queue.vhost)
    return Refusal(
        ReplyCode.PRECONDITION_FAILED, f"{where} does not hold these deliveries any more"
    )


class ClassicQueue:
    """`QueueHandle` of a classic queue that lives on this node.

    Args:
        record: The queue.
        node: This node's name.
        clock: For the time stamps of commands.
        journal: Tells when records are durable.
        store: Where persistent messages of a durable queue go, and come from at a restart.
        post: Answers to other nodes.
        is_clogged: Tells whether more deliveries to a node shall wait here (P14).
        defer: `loop.call_soon`.
        unused: Called with this queue when auto-delete is due.
    """

    def __init__(
        self,
        record: Queue,
        *,
        node: str,
        clock: Clock,
        journal: Journal,
        store: MessageStore,
        post: Post,
        is_clogged: Callable[[str], bool],
        defer: Defer,
        unused: Callable[[ClassicQueue], None],
    ) -> None:
        self.record = record
        self._node = node
        self._clock = clock
        self._journal = journal
        self._store = store
        self._post = post
        self._is_clogged = is_clogged
        self._clogged: set[str] = set()
        self._defer = defer
        self._unused = unused
        self._ports: dict[tuple[str, str], ConsumerPort] = {}
        self._held: list[Callable[[], None]] | None = None
        self._had_consumer = False
        self._is_serving_on = False
        self._is_deleted = False
        self._machine = QueueMachine(
            classic_config(record.name, record.vhost, durable=record.durable)
        )
        if record.durable:
            self._machine.restore_messages(store.recover(record.uid), store.next_number(record.uid))

    # What channels of this node ask (`broker.ports.QueueHandle`).

    @property
    def is_congested(self) -> bool:
        """True while the disk is behind or publishes are held back: do not read publishers."""
        is_behind = self.record.durable and self._journal.pending_bytes > JOURNAL_BEHIND_BYTES
        return is_behind or self._held is not None

    @property
    def slowdown_us(self) -> int:
        """See `lag_slowdown_us`."""
        stat = self._machine.stat()
        return lag_slowdown_us(stat.ready) if stat.consumers else 0

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call back when the journal has caught up with what is pending now."""
        if self._held is not None:
            self._held.append(resume)
        else:
            self._journal.when_synced(resume)

    def publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> None:
        """Enqueue; confirm now what is transient, and the rest once it is durable."""
        if self._held is not None:
            self._held.append(partial(self.publish, messages, seqnos, publisher))
            return
        if self._is_deleted:
            if seqnos is not None:
                publisher.confirmed(seqnos)  # as RabbitMQ: the queue went in good order
            return
        self._machine.enqueue(messages, 0)
        self._serve()
        if seqnos is None:
            return
        if not self.record.durable:
            publisher.confirmed(seqnos)
            return
        durable = [
            seqno for seqno, message in zip(seqnos, messages, strict=True) if message.persistent
        ]
        if len(durable) < len(seqnos):
            waits = set(durable)
            publisher.confirmed([seqno for seqno in seqnos if seqno not in waits])
        if durable:
            self._journal.when_synced(partial(publisher.confirmed, durable))

    def consume(self, spec: ConsumerSpec, port: ConsumerPort, done: Done) -> None:
        """Attach a consumer of this node."""
        if self._wait_or_gone(partial(self.consume, spec, port, done), done):
            return
        refusal = self._machine.checkout(
            spec.holder,
            spec.tag,
            no_ack=spec.no_ack,
            exclusive=spec.exclusive,
            prefetch=spec.prefetch,
            priority=spec.priority,
            arguments=spec.arguments,
        )
        if refusal is None:
            self._had_consumer = True
            self._ports[spec.holder, spec.tag] = port
        done(refusal)
        self._serve()

    def cancel(self, holder: str, tag: str, done: Done) -> None:
        """Detach a consumer of this node."""
        if self._wait_or_gone(partial(self.cancel, holder, tag, done), done):
            return
        self._machine.cancel(holder, tag)
        self._ports.pop((holder, tag), None)
        self._serve()
        done(None)
        self._check_unused()

    def settle(self, holder: str, tag: str, numbers: list[int], done: Done | None = None) -> None:
        """Remove acknowledged messages."""
        is_held = self._machine.settle(holder, tag, numbers)
        self._serve()
        if done is not None:
            self._settled(done, is_held=is_held)

    def requeue(self, holder: str, tag: str, numbers: list[int], done: Done | None = None) -> None:
        """Put messages back at their places."""
        is_held = self._machine.requeue(holder, tag, numbers)
        self._serve()
        if done is not None:
            self._settled(done, is_held=is_held)

    def discard(self, holder: str, tag: str, numbers: list[int], done: Done | None = None) -> None:
        """Reject messages without requeue."""
        is_held = self._machine.discard(holder, tag, numbers)
        self._serve()
        if done is not None:
            self._settled(done, is_held=is_held)

    def _settled(self, done: Done, *, is_held: bool) -> None:
        """Tell the outcome of a settle once it is as safe as a confirm would be (P18)."""
        if not is_held:
            done(settle_lost(self.record))
        elif self.record.durable:
            self._journal.when_synced(partial(done, None))
        else:
            done(None)

    def release(self, holder: str) -> None:
        """End a channel of this node."""
        self._machine.release(holder)
        for key in [key for key in self._ports if key[0] == holder]:
            del self._ports[key]
        if self._held is not None:  # a consume of this channel may be held back
            self._held.append(partial(self.release, holder))
        self._serve()
        self._check_unused()

    def set_active(self, holder: str, tag: str, *, active: bool) -> None:
        """Pause or resume a consumer."""
        self._machine.set_active(holder, tag, active=active)
        if self._held is not None:
            self._held.append(partial(self.set_active, holder, tag, active=active))
        if active:
            self._serve()

    def set_prefetch(self, holder: str, tag: str, prefetch: int) -> None:
        """Change a consumer's credit limit."""
        self._machine.set_prefetch(holder, tag, prefetch)
        if self._held is not None:
            self._held.append(partial(self.set_prefetch, holder, tag, prefetch))
        self._serve()

    def get(self, holder: str, *, no_ack: bool, done: Done) -> None:
        """Take one message."""
        if self._wait_or_gone(partial(self.get, holder, no_ack=no_ack, done=done), done):
            return
        result = self._machine.get(holder, no_ack=no_ack)
        self._serve()
        done(result)

    def purge(self, done: Done) -> None:
        """Remove all ready messages."""
        if self._wait_or_gone(partial(self.purge, done), done):
            return
        count = self._machine.purge()
        self._serve()
        done(count)

    def stat(self, done: Done) -> None:
        """Count what is here."""
        done(self._gone() if self._is_deleted else self._machine.stat())

    # What other nodes and group 0 ask.

    def receive(self, offer: Offer) -> None:
        """Apply another node's offer; answers go to the nodes they concern."""
        if self._held is not None:
            self._held.append(partial(self.receive, offer))
            return
        if self._is_deleted:
            return
        self._machine.apply_offer(offer, 0)
        last = self._machine.position
        has_ledger = bool(self._machine.effects.ledger)
        self._serve()
        self._had_consumer = self._had_consumer or self._machine.stat().consumers > 0
        if has_ledger:
            self._journal.when_synced(partial(self._durable, last))
        self._check_unused()

    def end_boots(self, is_over: Callable[[str, str], bool]) -> None:
        """End the consumers and sessions of every boot that is over (P1, P6).

        Args:
            is_over: Tells whether (node, boot) has ended according to group 0.
        """
        over = [each for each in self._machine.boots() if is_over(*each)]
        for node, boot in over:
            self._machine.end_boot(node, boot)
        if over:
            self._serve()
            self._check_unused()

    def tick(self) -> None:
        """Once a second: propose a due delete again whose proposal had failed."""
        self._check_unused()

    def link_up(self, node: str) -> None:
        """What was sent to a node may be lost with its link: send what it holds again (P17)."""
        if node != self._node and not self._is_deleted:
            self._machine.redeliver_checked_out(node)
            self._serve()

    def drained(self, node: str) -> None:
        """The link to a node has room again: serve its consumers."""
        if node in self._clogged:
            self._clogged.discard(node)
            self._machine.set_reachable(node, reachable=True)
            self._serve()

    def begin_delete(self, *, if_unused: bool, if_empty: bool) -> Refusal | int:
        """Stop accepting, so that a delete can be proposed (P5).

        Args:
            if_unused: Refuse when there are consumers.
            if_empty: Refuse when there are ready messages.

        Returns:
            The number of ready messages, or a 406 refusal (and the queue goes on).
        """
        if self._is_deleted or self._held is not None:
            return self._gone()
        stat = self._machine.stat()
        where = quoted("queue", self.record.name, self.record.vhost)
        if if_unused and stat.consumers:
            return Refusal(ReplyCode.PRECONDITION_FAILED, f"{where} in use")
        if if_empty and stat.ready:
            return Refusal(ReplyCode.PRECONDITION_FAILED, f"{where} not empty")
        self._held = []
        return stat.ready

    def resume(self) -> None:
        """The delete was not committed: go on with what waited."""
        held, self._held = self._held or [], None
        for call in held:
            call()

    def deleted(self) -> None:
        """Group 0 has deleted the queue: end everything here, records included."""
        self._is_deleted = True
        self.resume()
        self._store.delete_queue(self.record.uid)
        ports, self._ports = self._ports, {}
        for (_, tag), port in ports.items():
            port.consumer_lost(tag)
        away = Effects()
        away.lost_consumers = [key for key in self._machine.consumer_keys() if key not in ports]
        for node, answer in answers_by_node(self.record.uid, NO_EPOCH, away).items():
            self._post(node, answer)

    # Parts.

    def _serve(self) -> None:
        """Serve consumers once and run what the machine wants done."""
        machine = self._machine
        if machine.pump() and not self._is_serving_on:
            self._is_serving_on = True
            self._defer(self._serve_on)
        effects = machine.take_effects()
        if effects.ledger:
            self._record(effects.ledger)
            effects.ledger.clear()
        deliveries = effects.deliveries
        if deliveries:
            ports = self._ports
            for key in list(deliveries):
                port = ports.get(key)
                if port is not None:
                    port.deliver(key[1], deliveries.pop(key))
        if effects:
            self._answer(effects)

    def _serve_on(self) -> None:
        self._is_serving_on = False
        self._serve()

    def _answer(self, effects: Effects) -> None:
        for node, answer in answers_by_node(self.record.uid, NO_EPOCH, effects).items():
            if node != self._node:
                self._post(node, answer)
                if answer.deliveries and self._is_clogged(node):
                    self._clogged.add(node)
                    self._machine.set_reachable(node, reachable=False)

    def _record(self, records: list[ledger.LedgerRecord]) -> None:
        uid, store = self.record.uid, self._store
        for record in records:
            if type(record) is ledger.Enqueued:
                store.put_many(uid, zip(record.numbers, record.messages, strict=True))
            elif type(record) is ledger.Settled or type(record) is ledger.Removed:
                store.settle(uid, record.numbers)

    def _durable(self, position: int) -> None:
        if not self._is_deleted:
            self._machine.mark_durable(position)
            self._serve()

    def _check_unused(self) -> None:
        if (
            self.record.auto_delete
            and self._had_consumer
            and self._held is None
            and not self._is_deleted
            and not self._machine.stat().consumers
        ):
            self._unused(self)

    def _wait_or_gone(self, again: Callable[[], None], done: Done) -> bool:
        """Hold a call back while a delete is proposed, or refuse it after the end."""
        if self._held is not None:
            self._held.append(again)
            return True
        if self._is_deleted:
            done(self._gone())
            return True
        return False

    def _gone(self) -> Refusal:
        where = quoted("queue", self.record.name, self.record.vhost)
        return Refusal(ReplyCode.NOT_FOUND, f"no {where}")
