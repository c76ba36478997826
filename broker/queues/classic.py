"""A classic queue at its home: the machine runs here, its ledger goes to disk.

A transient message, or any message of a transient queue, is confirmed at once; a persistent one
after the sync that makes it durable (docs/protocol-rules.md P15). Deliveries do not wait for the
sync, as in RabbitMQ: a persistent message may be consumed before it is on disk, and one that is
settled before it is written is never written.

Channels of this node call the handle directly; other nodes send batches of commands (`receive`) and
get replies. Both use the same machine. The master of a mirrored queue is such a queue with a
`Replication` beside its disk: it confirms every publish only when the ledger has come round the
ring and is on disk here, and this node holds the lease (P19, P4).

Invariants:
1. The ledger of a batch is handed to the journal before any reply to that batch leaves.
2. After a restart every persistent message that was confirmed and not settled is back, in order,
   marked as redelivered (P16); after an orderly stop only those that had been delivered are.
3. While a conditional delete is proposed, the queue accepts nothing (P5).
4. While a queue is paused (`pause`, or without the lease), nothing happens in it.
   Requests that arrive during 3, 4 or a read from disk wait in order (`gate`).
5. Messages that are not in memory are read before the machine needs them (`paging.queue_pager`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from broker.counters import MessageCounts
from broker.errors import Refusal
from broker.fifo.commands import (
    Cancel,
    ChannelCommand,
    Checkout,
    CommandBatch,
    Discard,
    Drop,
    Get,
    Purge,
    Release,
    Requeue,
    SetActive,
    SetPrefetch,
    Settle,
    numbers_of,
)
from broker.fifo.effects import Dead, Effects, Reply, Verdict
from broker.fifo.machine import QueueMachine
from broker.message import Message
from broker.metadata.queue_settings import QueueSettings
from broker.metadata.records import Queue
from broker.ports import ConsumerPort, Done, PublisherPort, QueueDetails, QueueLook
from broker.queues.confirm_tracker import AppliedBatch, ConfirmTracker
from broker.queues.dead_letters import DeadLetters, DeadLetterSource, SafeDeaths
from broker.queues.disk_copy import DiskCopy
from broker.queues.envelopes import replies_by_node
from broker.queues.flow import FlowMark, lag_slowdown_us
from broker.queues.gate import (
    AttachRequest,
    Delete,
    EndBoots,
    Follow,
    Gate,
    LinkUp,
    PublishRequest,
    Request,
    Submit,
    WhenDrained,
    pass_on,
)
from broker.queues.local_consumers import LocalConsumers
from broker.queues.machine_settings import config_of, rules_of
from broker.queues.node import NodeContext, QueueHost
from broker.queues.paging.queue_pager import QueuePager
from broker.queues.queue_expiry import expiry_of
from broker.queues.refusals import gone, in_use, not_empty, settle_lost
from broker.queues.replication import QueueClient, Replication
from broker.queues.timing import DueTimer


def _nothing() -> None:
    """No-op: the caller does not wait for the delete."""


class ClassicQueue:
    """`QueueHandle` of a classic queue that this node serves.

    Args:
        record: The queue.
        settings: What its arguments and policies ask of it.
        node: The node that serves it.
        host: Deletes it when it is unused.
        dead_letters: Takes messages that died.
        machine: The machine of a promoted mirror; None: restore the queue from the disk.

    Attributes:
        record: As given; replaced when it changes.
        settings: As given; replaced when policies change (`follow`).
        pager: Decides which of its messages are in memory.
        is_direct: Channels of this node call this handle directly. False at a mirrored queue's
            master, which they reach by batches, as channels of other nodes do.
    """

    __slots__ = (
        "_client",
        "_clock",
        "_clogged",
        "_confirm_tracker",
        "_consumers",
        "_dead_letters",
        "_expiry",
        "_flow",
        "_gate",
        "_host",
        "_is_deleted",
        "_journal",
        "_looks_again",
        "_node",
        "_timer",
        "_unsynced",
        "_wanted",
        "is_direct",
        "machine",
        "pager",
        "record",
        "settings",
    )

    def __init__(
        self,
        record: Queue,
        settings: QueueSettings,
        node: NodeContext,
        host: QueueHost,
        dead_letters: DeadLetters,
        machine: QueueMachine | None = None,
    ) -> None:
        self.record = record
        self.settings = self._wanted = settings
        self.is_direct = record.ring is None
        self._node = node
        self._host = host
        self._dead_letters = dead_letters
        self._clock = node.clock
        self._journal = node.journal
        self._flow = FlowMark()
        self._clogged: set[str] = set()
        self._consumers = LocalConsumers()
        self._gate = Gate()
        self._unsynced: deque[int] = deque()  # positions of the machine, each of a sync under way
        self._client: QueueClient | None = None  # set when another node serves the queue
        self._looks_again = False  # the next tick checks again whether the queue is unused
        self._is_deleted = False
        self._confirm_tracker = ConfirmTracker(node.journal, durable=record.durable)
        self._timer = DueTimer(node.clock, node.after, self._rang)
        self._expiry = expiry_of(record, settings, node.clock)
        is_restored = machine is None and record.durable
        self.machine = QueueMachine(config_of(record, settings)) if machine is None else machine
        disk = DiskCopy(node.store, record.uid, durable=record.durable)
        self.pager = QueuePager(
            record, self.machine, disk, node, dead_letters, self, is_lazy=settings.is_lazy
        )
        if is_restored:
            self.machine.set_time(node.clock.now_ms())
            self.pager.restore()
        if self._expiry.expires_ms is not None or self.machine.has_ready:
            node.defer(self._rang)  # deferred, so that a mirrored queue has its master

    @property
    def disk(self) -> DiskCopy:
        """Its messages on this disk; a promoted mirror brings its own."""
        return self.pager.disk

    @disk.setter
    def disk(self, disk: DiskCopy) -> None:
        self.pager.disk = disk

    # For channels of this node (`broker.queues.handle.QueueHandle`).

    @property
    def is_congested(self) -> bool:
        """True while the disk or ring is behind, or calls wait: publishers' sockets aren't read."""
        gate = self._gate
        if not gate.is_open and (gate.is_deleting or gate.is_paused):
            return True
        return self._is_behind()

    @property
    def slowdown_us(self) -> int:
        """Microseconds that a publisher pauses because consumers lag (`lag_slowdown_us`)."""
        machine = self.machine
        ready = len(machine.messages.ready) if machine.consumers.count else 0
        return lag_slowdown_us(ready) if ready else 0

    def has_room(self, messages: list[Message]) -> bool:
        """Always True: this node holds no commands for a queue that it serves."""
        del messages
        return True

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call back when everything pending now is durable and replicated."""
        if self._gate.is_open or self._lets_in(WhenDrained(resume)):
            self._confirm_tracker.when_drained(resume)

    def publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> bool:
        """Enqueue; confirm transient messages now, and the rest once they are durable.

        A mirrored queue confirms all of them only when they are safe at its mirrors too.
        """
        if self._gate.is_open or self._lets_in(PublishRequest(messages, seqnos, publisher)):
            return self._publish(messages, seqnos, publisher)
        return True

    def attach(self, checkout: Checkout, port: ConsumerPort, done: Done) -> None:
        """Attach a consumer of this node."""
        if self._gate.is_open or self._lets_in(AttachRequest(checkout, port, done)):
            self._attach(checkout, port, done)

    def submit(self, command: ChannelCommand, done: Done | None = None) -> None:
        """Execute a command now, or when the queue is no longer paused."""
        if self._gate.is_open or self._lets_in(Submit(command, done)):
            self._SUBMITTED[type(command)](self, command, done)

    def _lets_in(self, request: Request) -> bool:
        """True if a request may be executed now; others are kept, or passed to the serving node."""
        if self._client is not None:
            pass_on(request, self._client)
            return False
        return not self._gate.stops(request)

    def _go_on(self) -> None:
        """Execute the requests that waited, until the gate stops one again."""
        for request in self._gate.runnable():
            self._perform(request)

    def _perform(self, request: Request) -> None:
        match request:
            case Submit():
                self._SUBMITTED[type(request.command)](self, request.command, request.done)
            case PublishRequest():
                self._publish(request.messages, request.seqnos, request.publisher)
            case AttachRequest():
                self._attach(request.checkout, request.port, request.done)
            case CommandBatch():
                self._receive(request)
            case WhenDrained():
                self._confirm_tracker.when_drained(request.resume)
            case Delete():
                self._delete(request)
            case EndBoots():
                self._end_boots(request.is_over)
            case LinkUp():
                self._redeliver(request.node)
            case Follow():
                self._follow()

    def _publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> bool:
        if self._is_deleted:
            if seqnos is not None:
                publisher.confirmed(seqnos)  # as RabbitMQ does for a queue that was deleted
            return False
        machine, refused, has_messages = self.machine, [], False
        if len(messages) != 1 or not self._hand_over(messages[0]):
            machine.messages.set_time(self._clock.now_ms())
            refused = machine.enqueue(messages)
            # At the machine's time, or a message with TTL 0 may be a millisecond late.
            has_messages = self._serve(is_timed=True)
        if seqnos is not None:
            self._confirm_tracker.confirm(messages, seqnos, refused, publisher)
        return (
            has_messages
            or self.record.durable
            or self.pager.is_paging
            or machine.messages.limits.rules.is_dead_lettered
            or not self._gate.is_open  # mirrors may be behind
        )

    def _hand_over(self, message: Message) -> bool:
        """Deliver a publish to the consumer that waits for it; False if it is to be enqueued."""
        machine = self.machine
        if self.pager.is_over or not self._gate.is_open or not machine.capacity.is_able:
            return False
        handed = machine.consumers.hand_over(machine.messages, message)
        if handed is None:
            return False
        consumer, items = handed
        port = self._consumers.port(consumer.key)
        if port is None:  # on another node
            machine.recorder.effects.deliveries[consumer.key] = items
            self._serve()
        else:
            port.deliver(consumer.tag, items)
            if not consumer.no_ack or self.pager.is_paging:
                self.pager.enforce_memory_limit()
        return True

    def _attach(self, checkout: Checkout, port: ConsumerPort, done: Done) -> None:
        if self._refuses(done):
            return
        refusal = self.machine.apply_command(checkout)
        if refusal is None:
            self._consumers.attach(checkout, port)
        done(refusal)
        self._serve()
        self._check_unused()

    def _cancel(self, command: Cancel, done: Done | None) -> None:
        """Detach a consumer of this node; if that deletes the queue, `done` is called after it."""
        done = done or _ignore
        if self._refuses(done):
            return
        self.machine.apply_command(command)
        self._serve()  # deliveries from before the cancel come first
        self._consumers.detach(command.channel_id, command.tag)
        self._check_unused(partial(done, None))

    def _settle(self, command: Settle | Requeue | Discard, done: Done | None) -> None:
        """Report the outcome once the settle is as safe as a confirmed publish (P18)."""
        if type(command) is Requeue:
            self.machine.set_time(self._clock.now_ms())
        is_held = self.machine.apply_command(command)
        self._serve()
        if done is None:
            return
        lost = settle_lost(self.record)
        if is_held:
            self._confirm_tracker.settled(done, lost)
        else:
            done(lost)

    def _release(self, command: Release, _done: Done | None) -> None:
        """End a channel of this node."""
        self.machine.set_time(self._clock.now_ms())
        self.machine.apply_command(command)
        self._consumers.release(command.channel_id)
        self._serve()
        self._check_unused()

    def _set_active(self, command: SetActive, _done: Done | None) -> None:
        self.machine.apply_command(command)
        self._consumers.set_active(command.channel_id, command.tag, active=command.active)
        if command.active:
            self._serve()

    def _set_prefetch(self, command: SetPrefetch, _done: Done | None) -> None:
        self.machine.apply_command(command)
        self._consumers.set_prefetch(command.channel_id, command.tag, command.prefetch)
        self._serve()

    def _get(self, command: Get, done: Done | None) -> None:
        done = done or _ignore
        if self._refuses(done):
            return
        self._expiry.used()
        self.machine.set_time(self._clock.now_ms())
        if self.machine.paging.is_paged and self._waits_for_head(Submit(command, done)):
            return
        result = self.machine.apply_command(command)
        self._serve()
        done(result)

    def _waits_for_head(self, request: Submit | CommandBatch) -> bool:
        """True if a request is kept because reading the head takes more than one turn."""
        if self.pager.bring_head():
            return False
        self._gate.wait_for_head(request)
        self._node.defer(self._head_came)
        self._serve(is_timed=True)
        return True

    def _head_came(self) -> None:
        self._gate.head_came()
        self._go_on()

    def _remove(self, command: Purge | Drop, done: Done | None) -> None:
        done = done or _ignore
        if self._refuses(done):
            return
        count = self.machine.apply_command(command)
        self._serve()
        done(count)

    # Any: the key is the type of the command that a method takes; typing can't say so of a dict.
    _SUBMITTED: ClassVar[dict[type, Callable[[Any, Any, Done | None], None]]] = {
        Settle: _settle,
        Requeue: _settle,
        Discard: _settle,
        Cancel: _cancel,
        Release: _release,
        SetActive: _set_active,
        SetPrefetch: _set_prefetch,
        Get: _get,
        Purge: _remove,
        Drop: _remove,
    }

    @property
    def counts(self) -> MessageCounts:
        """What happened to its messages here."""
        return self.machine.messages.counts

    def details(self, now_ms: int) -> QueueDetails:
        """As `QueuePager.details`."""
        return self.pager.details(now_ms)

    def look(self, now_ms: int) -> QueueLook:
        """As `QueuePager.look`."""
        return self.pager.look(now_ms)

    def stat(self, done: Done, *, is_declare: bool = False) -> None:
        """Return the queue's counts; a declare renews its x-expires."""
        if is_declare:
            self._expiry.used()
        if self._is_deleted:
            done(gone(self.record))
            return
        copies = self._confirm_tracker.copies
        state = "running" if copies is None else copies.state
        if state == "running" and (
            self._is_behind() or self._flow.is_on(self._clock.monotonic_ms())
        ):
            state = "flow"
        stat = self.machine.stat(state)
        done(self.pager.stat(stat)._replace(active=self.machine.consumers.active_key()))

    # For other nodes and group 0.

    def receive(self, batch: CommandBatch) -> None:
        """Apply a node's batch; replies go to the nodes they concern."""
        if self._gate.is_open or self._lets_in(batch):
            self._receive(batch)

    def _receive(self, batch: CommandBatch) -> None:
        if self._is_deleted:
            return
        machine, copies = self.machine, self._confirm_tracker.copies
        machine.set_time(self._clock.now_ms())
        has_gets = machine.paging.is_paged and any(type(each) is Get for each in batch.commands)
        if has_gets and self._waits_for_head(batch):
            return
        self.pager.apply_batch(batch, self._clock.now_ms())
        cancels = self._take_cancels(batch)
        last = machine.position
        verdicts: list[Verdict] = []
        if copies is not None:  # verdicts on settles promise as much as confirms, and wait too
            verdicts, machine.effects.verdicts = machine.effects.verdicts, verdicts
        has_ledger = bool(machine.effects.ledger)
        self._serve()
        if copies is not None:
            if has_ledger or verdicts:
                copies.when_replicated(AppliedBatch(self.machine, last, verdicts))
        elif has_ledger or self.settings.dedup_size:  # a duplicate waits for its original's sync
            self._unsynced.append(last)
            self._journal.when_synced(self._synced)
        if self._expiry.is_limited and any(type(each) is Get for each in batch.commands):
            self._expiry.used()
        self._check_unused(partial(self._reply, cancels))

    def end_boots(self, is_over: Callable[[str, str], bool]) -> None:
        """End the consumers and sessions of every boot that is over (P1, P6).

        Args:
            is_over: Tells whether (node, boot) has ended according to group 0.
        """
        if self._gate.is_open or self._lets_in(EndBoots(is_over)):
            self._end_boots(is_over)

    def _end_boots(self, is_over: Callable[[str, str], bool]) -> None:
        over = [each for each in self.machine.boots() if is_over(*each)]
        for node, boot in over:
            self.machine.end_boot(node, boot)
        if over:
            self._serve()
            self._check_unused()

    def tick(self) -> None:
        """Once a second: propose a due delete again whose proposal had failed."""
        if not self._gate.is_paused:
            self._expiry.tick()
        if self._looks_again:
            self._check_unused()

    def follow(self, settings: QueueSettings) -> None:
        """Apply other settings: a policy was set, changed or cleared."""
        self._wanted = settings
        if self._gate.is_open or self._lets_in(Follow()):
            self._follow()

    def _follow(self) -> None:
        settings = self._wanted
        if settings == self.settings:
            return  # changed back before the queue went on
        self.settings = settings
        self._expiry.change(settings.expires_ms)
        self.machine.set_time(self._clock.now_ms())
        self.machine.set_rules(rules_of(self.record, settings))
        self.pager.follow(is_lazy=settings.is_lazy)
        self._serve()
        self._check_unused()

    def link_up(self, node: str) -> None:
        """A link was opened anew: send the node again what its consumers hold (P17)."""
        if self._gate.is_open or self._lets_in(LinkUp(node)):
            self._redeliver(node)

    def _redeliver(self, node: str) -> None:
        if node != self._node.node and not self._is_deleted:
            self.machine.redeliver_checked_out(node)
            self.pager.fill_deliveries()
            self._serve()

    def drained(self, node: str) -> None:
        """The link to a node has room again: serve its consumers."""
        if node in self._clogged:
            self._clogged.discard(node)
            self.machine.consumers.set_reachable(node, reachable=True)
            self._serve()

    def _delete(self, request: Delete) -> None:
        """Execute a further delete, now that the first is decided."""
        self._host.delete(
            request.queue, request.done, if_unused=request.if_unused, if_empty=request.if_empty
        )

    def waits_for_delete(self, request: Delete) -> bool:
        """Keep a further delete until the one under way is decided; False if there is none."""
        if self._gate.is_deleting:
            self._gate.wait_for_delete(request)
        return self._gate.is_deleting

    def begin_delete(self, *, if_unused: bool, if_empty: bool) -> Refusal | int | None:
        """Stop accepting, so that a delete can be proposed (P5).

        Args:
            if_unused: Refuse when there are consumers.
            if_empty: Refuse when there are ready messages.

        Returns:
            The number of ready messages, or a 406 refusal (and the queue goes on). None if it is
            not known yet whether there are consumers: call again with the next tick.
        """
        if self._is_deleted or self._gate.is_deleting:
            return gone(self.record)
        stat = self.machine.stat()
        if if_unused and stat.consumers:
            return in_use(self.record)
        if if_empty and stat.ready:
            return not_empty(self.record)
        if if_unused and self._expiry.awaits_consumers:
            return None
        self._gate.begin_delete()
        return stat.ready

    def resume(self) -> None:
        """The delete was not committed: execute the requests that waited."""
        self._gate.end_delete()
        self._go_on()

    def stop(self) -> None:
        """Stop with the node: no timer and no callback acts from now on.

        After an orderly stop, the next start knows which messages were never delivered (P16).
        """
        self._timer.end()
        self.pager.end()
        self.note_fresh()

    def note_fresh(self) -> None:
        """Record which messages are fresh; none is delivered from now on."""
        self.disk.note_fresh(self.machine.messages.fresh())

    def deleted(self) -> None:
        """Group 0 has deleted the queue: end everything here, records included."""
        self._is_deleted = True
        self._timer.end()
        self.pager.end()
        self._confirm_tracker.copies = None
        self._gate.end()
        self._go_on()
        self.disk.erase()
        here = set(self._consumers.lost())
        away = Effects()
        away.lost_consumers = [key for key in self.machine.consumers.attached() if key not in here]
        for node, reply in replies_by_node(self.record.uid, self._epoch, away).items():
            self._node.transport.send_queue_reply(node, reply)

    # For a mirrored queue's master (`mirrored.master.Master`).

    def replicate(self, copies: Replication) -> None:
        """Send the ledger to mirrors too from now on."""
        self._confirm_tracker.copies = copies
        self._gate.guard(copies)
        self.machine.set_ledger("all")

    def replicate_no_more(self) -> None:
        """Stop replicating: the policy is gone, this is a plain classic queue again."""
        self.hand_in_ledger()
        self._confirm_tracker.copies = None
        self.machine.set_ledger("persistent" if self.record.durable else "none")
        self._gate.guard(None)
        self._go_on()
        self._serve()

    def hand_in_ledger(self) -> None:
        """Write and replicate the ledger so far; `when_replicated` waits for what was handed in."""
        effects = self.machine.recorder.effects
        if effects.dead:
            self.pager.fill_dead()
        if effects.unpaged:
            self.pager.unpage()
        if effects.ledger:
            records, effects.ledger = effects.ledger, []
            is_written = self.disk.write(records)
            if self._confirm_tracker.copies is not None:
                self._confirm_tracker.copies.record(records, is_written=is_written)

    def pause(self, why: str) -> None:
        """Pause a mirrored queue until `unpause` of the same reason: requests wait in order."""
        self._gate.pause(why)

    def unpause(self, why: str) -> None:
        """End one reason for the pause; after the last one, waiting requests are executed."""
        if self._gate.is_paused:
            self._gate.unpause(why)
            self._go_on()
            self.serve()

    def serve(self) -> None:
        """Serve consumers and send due answers, after verdicts have become due."""
        if not self._gate.is_paused:
            self._serve()

    def leave(self, client: QueueClient) -> None:
        """Stop being the master: this node decides and confirms nothing from now on.

        Args:
            client: The queue's handle from now on: gets this node's directly attached consumers
                and all waiting requests.
        """
        self._confirm_tracker.copies = None
        self._timer.end()
        self.pager.end()
        self._client = client
        for consumer in self._consumers.take():
            client.adopt(consumer.checkout, consumer.port, is_active=consumer.is_active)
        for request in self._gate.leave():
            if isinstance(request, Delete):
                self._delete(request)
            else:
                pass_on(request, client)

    # Parts.

    def _is_behind(self) -> bool:
        """True if publishers must wait for the store, the mirrors or dead-letter targets."""
        is_behind = self._confirm_tracker.is_behind(is_paging=self.pager.is_paging) or (
            self.machine.messages.limits.rules.is_dead_lettered and self._dead_letters.is_behind
        )
        if is_behind:
            self._flow.note(self._clock.monotonic_ms())
        return is_behind

    @property
    def _epoch(self) -> int:
        """The epoch of this machine's replies; never lower than before, also for a past master."""
        copies = self._confirm_tracker.copies
        return self.record.past_epoch if copies is None else copies.epoch

    def _serve(self, *, is_timed: bool = False) -> bool:
        """Serve consumers once, at the machine's time if `is_timed`, and execute its effects.

        Returns:
            False if no message is left here.
        """
        machine, pager = self.machine, self.pager
        if pager.is_over:
            return True
        if not self._gate.is_open and not self._gate.is_free():
            self.hand_in_ledger()
            pager.enforce_memory_limit()
            return True  # its answers stay in the machine's effects
        if not is_timed:
            machine.set_time(self._clock.now_ms())
        pager.pump()
        effects = machine.recorder.effects
        if effects.ledger or effects.dead or effects.unpaged:
            self.hand_in_ledger()
            effects = machine.recorder.effects
        due = self._consumers.take_due(effects.deliveries) if effects.deliveries else ()
        if effects:
            self._answer(machine.take_effects())
        for port, tag, deliveries in due:  # last: a consumer that answers at once comes here again
            port.deliver(tag, deliveries)
        if machine.messages.is_timed and (due_ms := machine.due_ms()) is not None:
            self._timer.set(due_ms - machine.now_ms + 1)
        has_messages = not machine.messages.is_empty
        if has_messages or pager.is_paging:
            pager.enforce_memory_limit()
        return has_messages

    def _rang(self) -> None:
        """The timer fired: the head or the queue itself may expire."""
        if not self._is_deleted:
            self.serve()
            self._check_unused()

    def _dead_letter(self, dead: list[Dead]) -> None:
        """Have dead messages published, once the mirrors know that they died."""
        source = DeadLetterSource(self.record, self.settings, _holds_none)
        deaths = SafeDeaths(self._dead_letters, source, dead)
        if self._confirm_tracker.copies is None:
            deaths.safe()
        else:
            self._confirm_tracker.copies.when_replicated(deaths)

    def _answer(self, effects: Effects) -> None:
        for node, reply in replies_by_node(self.record.uid, self._epoch, effects).items():
            self._node.transport.send_queue_reply(node, reply)
            if reply.deliveries and self._node.transport.is_clogged(node):
                self._clogged.add(node)
                self.machine.consumers.set_reachable(node, reachable=False)
        if effects.died:
            strategy = self.settings.dead_letter_strategy
            self._node.counts.died(self.record.type, strategy, effects.died)
        if effects.dead:  # last: it may go on serving, and answers keep their order
            self._dead_letter(effects.dead)

    def _synced(self) -> None:
        """One batch of another node is durable; syncs are done in their order."""
        position = self._unsynced.popleft()
        if not self._is_deleted:
            self.machine.mark_durable(position)
            self.serve()

    def _take_cancels(self, batch: CommandBatch) -> list[Reply]:
        """Remove and return due replies to cancels, if the queue may be deleted with them."""
        if not self._expiry.is_limited:
            return []
        cancels = numbers_of(Cancel, batch)
        if not cancels:
            return []
        effects = self.machine.effects
        taken = [each for each in effects.replies if each.session == batch.session]
        taken = [each for each in taken if each.number in cancels]
        effects.replies = [each for each in effects.replies if each not in taken]
        return taken

    def _reply(self, replies: list[Reply]) -> None:
        """Send replies that waited until it was known whether the queue is deleted.

        If it is, none need be sent: each node answers its channels when it learns of the delete.
        """
        if replies and not self._is_deleted:
            self.machine.effects.replies += replies
            self.serve()

    def _check_unused(self, then: Callable[[], None] = _nothing) -> None:
        """Have the queue deleted if it is unused, or set the timer for that.

        Args:
            then: Called once the queue is deleted; if it is not, at once, or after the 5 s of a
                proposal (P3).
        """
        if not self._expiry.is_limited or self._is_deleted:
            then()
            return
        self._looks_again = self._gate.is_deleting or not self._gate.is_free()
        if self._looks_again:
            then()
            return
        is_over = self._expiry.is_over(self.machine.consumer_count)
        self._looks_again = is_over or self._expiry.awaits_consumers
        if is_over:
            self._host.unused(self.record.uid, then)
            return
        if (left_ms := self._expiry.left_ms()) is not None:
            self._timer.set(left_ms)
        then()

    def _refuses(self, done: Done) -> bool:
        """Refuse a request to a deleted queue."""
        if self._is_deleted:
            done(gone(self.record))
        return self._is_deleted


def _holds_none(numbers: list[int]) -> None:
    """No-op: a classic queue holds no dead messages, as it dead-letters at most once."""
    del numbers


def _ignore(result: object) -> None:
    """No-op: the caller does not wait for the outcome."""
