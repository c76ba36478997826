"""A classic queue at its home: the machine runs here, its ledger goes to disk.

A publish is confirmed at once when it is transient or the queue is, and after the sync that made
it durable otherwise (docs/protocol-rules.md P15). Deliveries do not wait for the sync, as in
RabbitMQ: a persistent message may be consumed before it is on disk, and one that is settled before
it was written is never written.

Channels of this node call the handle directly; those of other nodes come as offers (`receive`)
and get answers. Both meet in the same machine. The master of a mirrored queue is such a queue with
a `Replication` beside its disk: there a publish is confirmed, whatever it is, when its ledger has
come round the ring and is on disk here, and this node holds the lease (P19, P4).

Invariants:
1. The ledger of a batch is handed to the journal before any answer of that batch leaves.
2. After a restart every persistent message that was confirmed and not settled is back, in order,
   marked as delivered before (P16); after an orderly stop only what was.
3. While a conditional delete is being proposed nothing is accepted (P5).
4. While a queue is paused (`block`, or without the lease) nothing at all happens in it.
   What is asked of it in 3, in 4 and while the disk is read waits in its order (`gate`).
5. What is not in memory is read before the machine needs it (`paging.window`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from broker.errors import Refusal
from broker.fifo.commands import (
    Cancel,
    ChannelCommand,
    Checkout,
    Discard,
    Drop,
    Get,
    Offer,
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
from broker.ports import ConsumerPort, Done, PublisherPort
from broker.queues.confirm_tracker import ConfirmTracker
from broker.queues.dead_letters import DeadLetters, Way
from broker.queues.disk_copy import DiskCopy
from broker.queues.envelopes import answers_by_node
from broker.queues.flow import FlowMark, lag_slowdown_us
from broker.queues.gate import (
    Attach,
    Delete,
    EndBoots,
    Follow,
    Gate,
    LinkUp,
    Publish,
    Request,
    Submit,
    WhenDrained,
)
from broker.queues.local_consumers import LocalConsumers
from broker.queues.machine_settings import config_of, rules_of
from broker.queues.node import NodeContext, QueueHost
from broker.queues.paging.window import Window
from broker.queues.queue_expiry import expiry_of
from broker.queues.refusals import gone, in_use, not_empty, settle_lost
from broker.queues.replication import QueueClient, Replication
from broker.queues.timing import DueTimer


def _nothing() -> None:
    """Nobody is told: unanswered offers come again, and what died dies at the next master."""


class ClassicQueue:
    """`QueueHandle` of a classic queue that this node serves.

    Args:
        record: The queue.
        settings: What its arguments and policies ask of it.
        node: Where it lives.
        host: Has it deleted for want of use.
        dead_letters: Takes what dies.
        machine: What a promoted mirror has; None: what the disk holds.

    Attributes:
        record: As given; replaced when it changes.
        settings: As given; replaced when policies change (`follow`).
        window: What of it is in memory.
        is_direct: Channels of this node call the handle itself. False at a mirrored queue's
            master, which they reach by offers as all others do.
    """

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
        self._client: QueueClient | None = None  # then another node serves the queue
        self._looks_again = False  # at whether it is used: with the next tick
        self._is_deleted = False
        self._confirm_tracker = ConfirmTracker(node.journal, durable=record.durable)
        self._timer = DueTimer(node.clock, node.after, self._rang)
        self._expiry = expiry_of(record, settings, node.clock)
        is_restored = machine is None and record.durable
        self.machine = QueueMachine(config_of(record, settings)) if machine is None else machine
        disk = DiskCopy(node.store, record.uid, durable=record.durable)
        self.window = Window(
            *(record, self.machine, disk, node, dead_letters, self.hand_in_ledger, self.serve),
            is_lazy=settings.is_lazy,
        )
        if is_restored:
            self.machine.set_time(node.clock.now_ms())
            self.window.restore()
        if self._expiry.expires_ms is not None or self.machine.has_ready:
            node.defer(self._rang)  # by then a mirrored queue has its master

    @property
    def disk(self) -> DiskCopy:
        """Its messages on this disk; a promoted mirror brings its own."""
        return self.window.disk

    @disk.setter
    def disk(self, disk: DiskCopy) -> None:
        self.window.disk = disk

    # What channels of this node ask (`broker.queues.handle.QueueHandle`).

    @property
    def is_congested(self) -> bool:
        """True while the disk or the ring is behind or calls wait: do not read publishers."""
        if self._gate.is_deleting or self._gate.is_paused:
            return True
        return self._is_behind()

    @property
    def slowdown_us(self) -> int:
        """Microseconds that a publisher pauses because consumers lag (`lag_slowdown_us`)."""
        return lag_slowdown_us(self.machine.ready_count) if self.machine.consumer_count else 0

    def has_room(self, messages: list[Message]) -> bool:
        """Always: nothing is held for a queue that is here."""
        del messages
        return True

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call back when what is pending now is safe."""
        if self._gate.is_open or self._lets_in(WhenDrained(resume)):
            self._confirm_tracker.when_drained(resume)

    def publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> None:
        """Enqueue; confirm now what is transient, and the rest once it is durable.

        A mirrored queue confirms everything once it is safe at its mirrors too.
        """
        if self._gate.is_open or self._lets_in(Publish(messages, seqnos, publisher)):
            self._publish(messages, seqnos, publisher)

    def attach(self, checkout: Checkout, port: ConsumerPort, done: Done) -> None:
        """Attach a consumer of this node."""
        if self._gate.is_open or self._lets_in(Attach(checkout, port, done)):
            self._attach(checkout, port, done)

    def submit(self, command: ChannelCommand, done: Done | None = None) -> None:
        """Have the machine do something now, or when the queue goes on."""
        if self._gate.is_open or self._lets_in(Submit(command, done)):
            self._SUBMITTED[type(command)](self, command, done)

    def _lets_in(self, request: Request) -> bool:
        """True for what may be done now; all else is kept, or led to where the queue is served."""
        if self._client is not None:
            _pass_on(request, self._client)
            return False
        return not self._gate.stops(request)

    def _go_on(self) -> None:
        """Do what waited, as far as nothing stops it again."""
        for request in self._gate.runnable():
            self._perform(request)

    def _perform(self, request: Request) -> None:
        match request:
            case Submit():
                self._SUBMITTED[type(request.command)](self, request.command, request.done)
            case Publish():
                self._publish(request.messages, request.seqnos, request.publisher)
            case Attach():
                self._attach(request.checkout, request.port, request.done)
            case Offer():
                self._receive(request)
            case WhenDrained():
                self._confirm_tracker.when_drained(request.resume)
            case Delete():
                request.again()
            case EndBoots():
                self._end_boots(request.is_over)
            case LinkUp():
                self._redeliver(request.node)
            case Follow():
                self._follow()

    def _publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> None:
        if self._is_deleted:
            if seqnos is not None:
                publisher.confirmed(seqnos)  # as RabbitMQ: the queue went in good order
            return
        machine = self.machine
        machine.set_time(self._clock.now_ms())
        refused = machine.enqueue(messages)
        self._serve(is_timed=True)  # else a message with TTL 0 may be a millisecond late
        if seqnos is not None:
            self._confirm_tracker.confirm(messages, seqnos, refused, publisher)

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
        """Detach a consumer of this node; where the queue goes with it, `done` is called then."""
        done = done or _nobody
        if self._refuses(done):
            return
        self.machine.apply_command(command)
        self._serve()  # what was due to it before comes first
        self._consumers.detach(command.holder, command.tag)
        self._check_unused(partial(done, None))

    def _settle(self, command: Settle | Requeue | Discard, done: Done | None) -> None:
        """Tell the outcome once it is as safe as a confirm would be (P18)."""
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
        self._consumers.release(command.holder)
        self._serve()
        self._check_unused()

    def _set_active(self, command: SetActive, _done: Done | None) -> None:
        self.machine.apply_command(command)
        self._consumers.set_active(command.holder, command.tag, active=command.active)
        if command.active:
            self._serve()

    def _set_prefetch(self, command: SetPrefetch, _done: Done | None) -> None:
        self.machine.apply_command(command)
        self._consumers.set_prefetch(command.holder, command.tag, command.prefetch)
        self._serve()

    def _get(self, command: Get, done: Done | None) -> None:
        done = done or _nobody
        if self._refuses(done):
            return
        self._expiry.used()
        self.machine.set_time(self._clock.now_ms())
        if self.machine.paging.is_paged and self._waits_for_head(Submit(command, done)):
            return
        result = self.machine.apply_command(command)
        self._serve()
        done(result)

    def _waits_for_head(self, request: Submit | Offer) -> bool:
        """Keep what takes the head where that has to be read for more than a turn."""
        if self.window.bring_head():
            return False
        self._gate.wait_for_head(request)
        self._node.defer(self._head_came)
        self._serve(is_timed=True)
        return True

    def _head_came(self) -> None:
        self._gate.head_came()
        self._go_on()

    def _remove(self, command: Purge | Drop, done: Done | None) -> None:
        done = done or _nobody
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

    def stat(self, done: Done, *, is_declare: bool = False) -> None:
        """Count what is here; a declare renews the queue's life."""
        if is_declare:
            self._expiry.used()
        if self._is_deleted:
            done(gone(self.record))
            return
        state = (
            "running"
            if self._confirm_tracker.copies is None
            else self._confirm_tracker.copies.state
        )
        if state == "running" and (
            self._is_behind() or self._flow.is_on(self._clock.monotonic_ms())
        ):
            state = "flow"
        stat = self.machine.stat(state)
        done(self.window.stat(stat)._replace(active=self.machine.consumers.active_key()))

    # What other nodes and group 0 ask.

    def receive(self, offer: Offer) -> None:
        """Apply a node's offer; answers go to the nodes they concern."""
        if self._gate.is_open or self._lets_in(offer):
            self._receive(offer)

    def _receive(self, offer: Offer) -> None:
        if self._is_deleted:
            return
        machine, copies = self.machine, self._confirm_tracker.copies
        machine.set_time(self._clock.now_ms())
        has_gets = machine.paging.is_paged and any(type(each) is Get for each in offer.commands)
        if has_gets and self._waits_for_head(offer):
            return
        self.window.apply_offer(offer, self._clock.now_ms())
        cancels = self._take_cancels(offer)
        last = machine.position
        verdicts: list[Verdict] = []
        if copies is not None:  # a verdict on a settle is as good as a confirm: it waits too
            verdicts, machine.effects.verdicts = machine.effects.verdicts, verdicts
        has_ledger = bool(machine.effects.ledger)
        self._serve()
        if copies is not None:
            if has_ledger or verdicts:
                copies.when_replicated(partial(self._safe, last, verdicts), _nothing)
        elif has_ledger or self.settings.dedup_size:  # doubles wait for what others wrote
            self._journal.when_synced(partial(self._durable, last))
        if self._expiry.is_limited and any(type(each) is Get for each in offer.commands):
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
        """Live by other settings: a policy was set, changed or cleared."""
        self._wanted = settings
        if self._gate.is_open or self._lets_in(Follow()):
            self._follow()

    def _follow(self) -> None:
        settings = self._wanted
        if settings == self.settings:
            return  # what was taken back before the queue went on never acts
        self.settings = settings
        self._expiry.change(settings.expires_ms)
        self.machine.set_time(self._clock.now_ms())
        self.machine.set_rules(rules_of(self.record, settings))
        self.window.follow(is_lazy=settings.is_lazy)
        self._serve()
        self._check_unused()

    def link_up(self, node: str) -> None:
        """What was sent to a node may be lost with its link: send what it holds again (P17)."""
        if self._gate.is_open or self._lets_in(LinkUp(node)):
            self._redeliver(node)

    def _redeliver(self, node: str) -> None:
        if node != self._node.node and not self._is_deleted:
            self.machine.redeliver_checked_out(node)
            self.window.fill_deliveries()
            self._serve()

    def drained(self, node: str) -> None:
        """The link to a node has room again: serve its consumers."""
        if node in self._clogged:
            self._clogged.discard(node)
            self.machine.consumers.set_reachable(node, reachable=True)
            self._serve()

    def waits_for_delete(self, again: Callable[[], None]) -> bool:
        """Keep a further delete until the one under way is decided; False where there is none."""
        if self._gate.is_deleting:
            self._gate.wait_for_delete(again)
        return self._gate.is_deleting

    def begin_delete(self, *, if_unused: bool, if_empty: bool) -> Refusal | int | None:
        """Stop accepting, so that a delete can be proposed (P5).

        Args:
            if_unused: Refuse when there are consumers.
            if_empty: Refuse when there are ready messages.

        Returns:
            The number of ready messages, or a 406 refusal (and the queue goes on). None where
            it is not known yet whether there are consumers: ask again, with the next tick.
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
        """The delete was not committed: go on with what waited."""
        self._gate.end_delete()
        self._go_on()

    def stop(self) -> None:
        """This node serves nobody any more: nothing happens here by itself.

        What nobody was handed is known at the next start as new, if this stop ends well (P16).
        """
        self._timer.end()
        self.window.end()
        self.note_fresh()

    def note_fresh(self) -> None:
        """Note what nobody was handed; nothing more is from now on."""
        self.disk.note_fresh(self.machine.messages.fresh())

    def deleted(self) -> None:
        """Group 0 has deleted the queue: end everything here, records included."""
        self._is_deleted = True
        self._timer.end()
        self.window.end()
        self._confirm_tracker.copies = None
        self._gate.end()
        self._go_on()
        self.disk.erase()
        here = set(self._consumers.lost())
        away = Effects()
        away.lost_consumers = [key for key in self.machine.consumers.attached() if key not in here]
        for node, answer in answers_by_node(self.record.uid, self._epoch, away).items():
            self._node.transport.send_answer(node, answer)

    # What a mirrored queue's master asks (`mirrored.master.Master`).

    def replicate(self, copies: Replication) -> None:
        """From now on the ledger goes to mirrors too."""
        self._confirm_tracker.copies = copies
        self._gate.guard(copies)
        self.machine.set_ledger("all")

    def replicate_no_more(self) -> None:
        """The policy is gone: a plain classic queue again."""
        self.hand_in_ledger()
        self._confirm_tracker.copies = None
        self.machine.set_ledger("persistent" if self.record.durable else "none")
        self._gate.guard(None)
        self._go_on()
        self._serve()

    def hand_in_ledger(self) -> None:
        """Write and replicate what has happened: `when_replicated` is about what was handed in."""
        effects = self.machine.effects
        if effects.dead:
            self.window.fill_dead()
        if effects.unpaged:
            self.window.unpage()
        if effects.ledger:
            records, effects.ledger = effects.ledger, []
            is_written = self.disk.write(records)
            if self._confirm_tracker.copies is not None:
                self._confirm_tracker.copies.record(records, is_written=is_written)

    def block(self, why: str) -> None:
        """Pause a mirrored queue until `unblock` of the same reason: requests wait in order."""
        self._gate.pause(why)

    def unblock(self, why: str) -> None:
        """End a reason for the pause; with the last one all that waited goes on."""
        if self._gate.is_paused:
            self._gate.unpause(why)
            self._go_on()
            self.serve()

    def serve(self) -> None:
        """Serve consumers and tell what is due: verdicts became so."""
        if not self._gate.is_paused:
            self._serve()

    def leave(self, client: QueueClient) -> None:
        """This node is the master no more: nothing is decided or told here from now on.

        Args:
            client: The queue's handle from now on: gets the consumers of this node that called
                directly, and all that waited.
        """
        self._confirm_tracker.copies = None
        self._timer.end()
        self.window.end()
        self._client = client
        for consumer in self._consumers.take():
            client.adopt(consumer.checkout, consumer.port, is_active=consumer.is_active)
        for request in self._gate.leave():
            _pass_on(request, client)

    # Parts.

    def _is_behind(self) -> bool:
        """Whether publishers shall wait for the store, mirrors or targets of dead letters."""
        is_behind = self._confirm_tracker.is_behind(is_paging=self.window.is_paging) or (
            self.machine.rules.is_dead_lettered and self._dead_letters.is_behind
        )
        if is_behind:
            self._flow.note(self._clock.monotonic_ms())
        return is_behind

    @property
    def _epoch(self) -> int:
        """Of this machine's answers: never less than those it gave as a master before."""
        return (
            self.record.past_epoch
            if self._confirm_tracker.copies is None
            else self._confirm_tracker.copies.epoch
        )

    def _serve(self, *, is_timed: bool = False) -> None:
        """Serve consumers once, at the time told if `is_timed`, and run what the machine wants."""
        machine = self.machine
        if self.window.is_over:
            return
        if not self._gate.is_open and not self._gate.is_free():
            self.hand_in_ledger()
            self.window.keep_to_level()
            return  # what is due stays in the machine's effects
        if not is_timed:
            machine.set_time(self._clock.now_ms())
        self.window.pump()
        self.hand_in_ledger()
        effects = machine.take_effects()
        if effects.deliveries:
            self._consumers.deliver(effects.deliveries)
        if effects:
            self._answer(effects)
        if (due_ms := machine.due_ms()) is not None:
            self._timer.set(due_ms - machine.now_ms + 1)
        self.window.keep_to_level()

    def _rang(self) -> None:
        """Something is due: a message at the head, or the queue itself."""
        if not self._is_deleted:
            self.serve()
            self._check_unused()

    def _dead_letter(self, dead: list[Dead]) -> None:
        """Have what died published; once mirrors know, or the next master might do it again."""
        way = Way(self.record, self.settings, _holds_none)
        take = partial(self._dead_letters.take, way, dead)
        if self._confirm_tracker.copies is None:
            take()
        else:
            self._confirm_tracker.copies.when_replicated(take, _nothing)

    def _answer(self, effects: Effects) -> None:
        for node, answer in answers_by_node(self.record.uid, self._epoch, effects).items():
            self._node.transport.send_answer(node, answer)
            if answer.deliveries and self._node.transport.is_clogged(node):
                self._clogged.add(node)
                self.machine.consumers.set_reachable(node, reachable=False)
        if effects.dead:  # last: it may go on serving, and answers keep their order
            self._dead_letter(effects.dead)

    def _safe(self, position: int, verdicts: list[Verdict]) -> None:
        """What an offer brought is safe; `serve` follows."""
        self.machine.mark_durable(position)
        self.machine.effects.verdicts += verdicts

    def _durable(self, position: int) -> None:
        if not self._is_deleted:
            self.machine.mark_durable(position)
            self.serve()

    def _take_cancels(self, offer: Offer) -> list[Reply]:
        """Take the answers to cancels out of what is due, where the queue may go with them."""
        if not self._expiry.is_limited:
            return []
        cancels = numbers_of(Cancel, offer)
        if not cancels:
            return []
        effects = self.machine.effects
        taken = [each for each in effects.replies if each.session == offer.session]
        taken = [each for each in taken if each.number in cancels]
        effects.replies = [each for each in effects.replies if each not in taken]
        return taken

    def _reply(self, replies: list[Reply]) -> None:
        """Give the answers that waited until it was known whether the queue goes.

        When it has gone nobody need be told: each node ends what its channels asked of the queue.
        """
        if replies and not self._is_deleted:
            self.machine.effects.replies += replies
            self.serve()

    def _check_unused(self, then: Callable[[], None] = _nothing) -> None:
        """Ask for the queue's end where nobody uses it any more, or set the timer for that.

        Args:
            then: Called once the queue is gone; at once, or after the 5 s of a proposal (P3), where
                it does not go.
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
        """Refuse what a queue that is deleted can't answer."""
        if self._is_deleted:
            done(gone(self.record))
        return self._is_deleted


def _pass_on(request: Request, client: QueueClient) -> None:
    """Lead a request to where the queue is served; what was for this node's machine is over."""
    match request:
        case Submit():
            client.submit(request.command, request.done)
        case Publish():
            client.publish(request.messages, request.seqnos, request.publisher)
        case Attach():
            client.attach(request.checkout, request.port, request.done)
        case WhenDrained():
            client.when_drained(request.resume)
        case Delete():
            request.again()
        case _:
            pass


def _holds_none(numbers: list[int]) -> None:
    """A classic queue forgets what died: it dead-letters at most once."""
    del numbers


def _nobody(result: object) -> None:
    """Nobody waits for this outcome."""
