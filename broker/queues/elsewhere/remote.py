"""The handle of a queue that another node may serve: classic elsewhere, mirrored, quorum.

One publisher session per node and queue carries everything this node's channels ask of the queue,
in order, numbered (`broker.fifo.offers`). What has no answer is offered again to whoever serves
next; so a publish in flight when a leader dies is neither lost nor doubled (docs/protocol-rules.md
P10-P12).

What becomes of the rest depends on how the queue is replicated:

- The next leader of a quorum queue knows all that the last one did: nothing changes.
- A mirrored queue's next master knows the messages and what was published, but no consumers and
  nothing checked out (P15, P16). Settles under way are given up (P18), consumers are attached again
  without a word to their clients, questions are asked again. Without a master everything waits.
- A classic queue lives and dies with its home. When the home's boot ends, everything held is nacked
  and consumers are told that they are gone; there is nobody to offer to.

Invariants:
1. Every publish given gets exactly one verdict, every `done` one call.
2. Consume-ok precedes the first message, also where the reply was lost with a link.
3. Answers of an earlier leader or master are dropped, and so are deliveries that were seen before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

from broker.errors import Refusal
from broker.fifo import commands
from broker.fifo.effects import Reply, Verdict, unpack_value
from broker.fifo.offers import HELD_MS_MAX, UNANSWERED_MAX, Offers, Outcome, Unasked
from broker.fifo.redelivery_filter import PendingSettlement
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import ConsumerPort, Done, PublisherPort
from broker.queues.elsewhere.consumers import Asked, RemoteConsumers
from broker.queues.elsewhere.routes import HomeRoute, LeaderRoute, Server
from broker.queues.elsewhere.stats import StatQuestions
from broker.queues.elsewhere.tokens import Cancelled, Got, Publish, Settled, said
from broker.queues.envelopes import Answer
from broker.queues.flow import Waiters, has_room, lag_slowdown_us, unanswered_max
from broker.queues.node import NodeContext
from broker.queues.quorum import SETTLES_WAIT_S
from broker.queues.refusals import gone, settle_lost, unavailable

_log = logging.getLogger(__name__)

SILENCE_MS: Final = 1_500
"""Unanswered offers go out again after this long: the answer or the offer was lost."""

SILENCE_MS_MAX: Final = 12_000
"""To a mirrored queue's master they go ever less often: it says when it begins to serve, and one
that stands still (P26) need not hear the same 16 MiB every second."""

STAT_MS_MAX: Final = 5_000
"""How long a question for counts waits for a leader, as long as a proposal does (P3); where most
members are dead, every question."""


class RemoteQueue:
    """`QueueHandle` of a queue whose machine answers through messages.

    Args:
        record: The queue.
        node: This node.
    """

    def __init__(self, record: Queue, node: NodeContext) -> None:
        kind = HomeRoute if record.type == "classic" else LeaderRoute
        self._route: HomeRoute | LeaderRoute = kind(record, node.catalogue)
        self._clock = node.clock
        self._transport = node.transport
        self._defer = node.defer
        self._later = node.later
        self._most = UNANSWERED_MAX["mirrored" if self._is_mirrored else record.type]
        self._offers = Offers(node.node, node.boot, record.uid, unanswered_max=self._most)
        self._consumers = RemoteConsumers(self._route.epoch)
        self._is_due = False
        self._is_patient = False
        self._flushes = 0  # a timer begun before one of them must not hurry what came after
        self._is_deleted = False
        self._heard_ms = 0
        self._lowest = 0
        self._lowest_ms = 0
        self._silence_ms = SILENCE_MS
        self._lag = self._pace_us = 0
        self._dropped = 0
        self._waiters = Waiters(node.clock)
        self._wanted: list[Message] = []  # found no room: publishers wait until these have it
        self._gets: dict[str, list[Got]] = {}  # by holder
        self._stats = StatQuestions(record.uid, node.transport, self._route)
        self._renewed_for: Server | None = None

    @property
    def record(self) -> Queue:
        """The queue; after it was set, `retarget` makes the most of it."""
        return self._route.record

    @record.setter
    def record(self, record: Queue) -> None:
        self._route.record = record

    # What channels ask (`broker.queues.handle.QueueHandle`).

    @property
    def is_congested(self) -> bool:
        """True while half of what may be held for the queue is held, or somebody found no room.

        Else a message that needs all of the room would wait for ever beside steady publishers.
        """
        return self._offers.is_congested or bool(self._wanted)

    def has_room(self, messages: list[Message]) -> bool:
        """False where a publish shall wait at who has it: here it would be refused (P12)."""
        is_taken = has_room(self._offers.held_bytes, messages)
        if not is_taken and not self._wanted:
            self._wanted = messages
        return is_taken

    @property
    def slowdown_us(self) -> int:
        """By what the queue's last answer said of its consumers' lag."""
        return lag_slowdown_us(self._lag, self._pace_us)

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call back when enough was answered."""
        self._waiters.add(resume)

    @property
    def is_in_flow(self) -> bool:
        """True while publishers of this node wait for the queue's store or peers, or did lately."""
        return self._waiters.is_in_flow

    def publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> None:
        """Hold and offer; what does not fit, or has nowhere to go, is nacked at once (P12)."""
        if self._is_deleted:
            if seqnos is not None:
                publisher.confirmed(seqnos)  # as RabbitMQ: the queue went in good order
            return
        token = Publish(publisher, seqnos)
        if self._is_down() or not self._add(commands.Enqueue(messages), token):
            self._end([Outcome(token, 0, len(messages), False, None)])

    def attach(self, checkout: commands.Checkout, port: ConsumerPort, done: Done) -> None:
        """Attach a consumer."""
        if not self._refuses(done):
            asked = self._consumers.attach(checkout, port, done)
            self._add(checkout, asked)

    def adopt(
        self, checkout: commands.Checkout, port: ConsumerPort, *, is_active: bool = True
    ) -> None:
        """Attach a consumer that a queue served here has had, now that its master has moved away.

        It hears nothing if all goes well; it is lost where it asked to end with its master.

        Args:
            checkout: As it was asked for, with the prefetch it has now.
            port: The channel's ear.
            is_active: False while its socket is full.
        """
        if self._is_deleted:
            port.consumer_lost(checkout.tag)
            return
        for command, token in self._consumers.adopt(checkout, port, is_active=is_active):
            self._add(command, token)

    def submit(self, command: commands.ChannelCommand, done: Done | None = None) -> None:
        """Number a command and offer it, after what it means for the consumers here."""
        self._SUBMITTED[type(command)](self, command, done)

    def _cancel(self, command: commands.Cancel, done: Done | None) -> None:
        """Detach a consumer; it may still get messages until that is done."""
        token = Cancelled(self._consumers.find((command.holder, command.tag)), done or _nobody)
        if not self._add(command, token):
            self._cancelled(token, None)

    def _settle(
        self, command: commands.Settle | commands.Requeue | commands.Discard, done: Done | None
    ) -> None:
        holder, tag, given = command.holder, command.tag, command.numbers
        numbers = self._consumers.numbers(given)
        if len(numbers) < len(given):
            # Handed out by a machine that has ended since (P18): its numbers may mean others now.
            if done is not None:
                done(None if self._is_deleted else settle_lost(self.record))
                done = None
            if not numbers:
                return
        if numbers is not given:
            command = type(command)(holder, tag, numbers)
        pending_settlement = self._consumers.pending_settlement(holder, tag, numbers)
        token = pending_settlement if done is None else Settled(pending_settlement, done)
        is_urgent = (
            done is not None
            or type(command) is not commands.Settle
            or self._lag > 0
            or self._consumers.is_credit_short(holder, tag)
        )
        is_asked = self._add(command, token, is_urgent=is_urgent)
        if done is not None and not is_asked:
            done(None if self._is_deleted else settle_lost(self.record))

    @property
    def consumer_count(self) -> int:
        """Consumers of this node."""
        return self._consumers.count

    def _release(self, command: commands.Release, _done: Done | None) -> None:
        self._consumers.release(command.holder)
        for got in self._gets.pop(command.holder, ()):
            got.is_over = True
        self._add(command, None)

    def _set_active(self, command: commands.SetActive, _done: Done | None) -> None:
        self._consumers.set_active((command.holder, command.tag), active=command.active)
        self._add(command, None)

    def _set_prefetch(self, command: commands.SetPrefetch, _done: Done | None) -> None:
        self._consumers.set_prefetch((command.holder, command.tag), command.prefetch)
        self._add(command, None)

    def _get(self, command: commands.Get, done: Done | None) -> None:
        done = done or _nobody
        if not self._refuses(done):
            got = Got(command.holder, done)
            self._gets.setdefault(command.holder, []).append(got)
            self._add(command, got)

    def _remove(self, command: commands.Purge | commands.Drop, done: Done | None) -> None:
        done = done or _nobody
        if not self._refuses(done):
            self._add(command, done)

    # Any: the key is the type of the command that a method takes; typing can't say so of a dict.
    _SUBMITTED: ClassVar[dict[type, Callable[[Any, Any, Done | None], None]]] = {
        commands.Settle: _settle,
        commands.Requeue: _settle,
        commands.Discard: _settle,
        commands.Cancel: _cancel,
        commands.Release: _release,
        commands.SetActive: _set_active,
        commands.SetPrefetch: _set_prefetch,
        commands.Get: _get,
        commands.Purge: _remove,
        commands.Drop: _remove,
    }

    def stat(self, done: Done, *, is_declare: bool = False) -> None:
        """Ask the node that serves the queue; wait a little for one that is being elected."""
        if not self._refuses(done):
            wait_ms = HELD_MS_MAX if self._is_mirrored else STAT_MS_MAX
            self._stats.ask(done, self._clock.monotonic_ms() + wait_ms, is_declare=is_declare)

    def _ask_stats_again(self) -> None:
        late = unavailable(self.record)
        refusal = late if self._is_down() and not self._is_mirrored else None
        self._stats.again(self._clock.monotonic_ms(), refusal, late)

    # What the node tells.

    def receive(self, node: str, answer: Answer) -> None:
        """Take an answer of the queue's machine."""
        if not self._counts(node, answer):
            return
        self._heard_ms = self._clock.monotonic_ms()
        self._pace_us = answer.pace_us
        if answer.lag != self._lag:
            self._lag = answer.lag
            self._offers.unanswered_max = unanswered_max(self._most, answer.lag)
        if self._offers.session in answer.session_lost:
            self._forgotten()
        self._take_answers(answer)
        for holder, tag in answer.lost_consumers:
            self._consumers.lose((holder, tag))
        if self._stats:
            self._ask_stats_again()
        self._resume_drained()

    def _counts(self, node: str, answer: Answer) -> bool:
        """Find out who serves, and whether it is who has answered."""
        route = self._route
        if isinstance(route, HomeRoute):
            is_admitted = route.admits(node, answer.epoch)
            if is_admitted and answer.is_bare:  # what came before it was ready is lost
                self._offer_again()
            return is_admitted
        if route.hear(node, answer):
            self._offer_again()
        return answer.leader is None

    def _resume_drained(self) -> None:
        if self._offers.is_congested or not has_room(self._offers.held_bytes, self._wanted):
            return
        self._wanted = []  # who finds no room after all says so again
        if self._waiters:
            self._waiters.release(lambda: not has_room(self._offers.held_bytes, self._wanted))

    def _take_answers(self, answer: Answer) -> None:
        for verdict in answer.verdicts:
            self._end(self._offers.answered(Verdict(*verdict)))
        last: list[Outcome] = []  # cancels: what was handed out before them comes first
        for session, number, packed in answer.replies:
            outcome = self._offers.replied(Reply(session, number, unpack_value(packed)))
            if outcome is not None and type(outcome.token) is Cancelled:
                last.append(outcome)
            elif outcome is not None:
                self._end([outcome])
        for session, expected in answer.expected:
            if self._offers.out_of_sequence(session, expected):
                self._schedule()
        if isinstance(self._route, HomeRoute) or answer.epoch >= self._route.term:
            for holder, tag, deliveries in answer.deliveries:
                back = self._consumers.deliver(holder, tag, deliveries)
                if back is not None:
                    self._give_back(back)
        self._end(last)

    def _give_back(self, pending_settlement: PendingSettlement) -> None:
        """Give back deliveries for a consumer that has ended, and cancel it at the queue."""
        holder, tag = pending_settlement.holder, pending_settlement.tag
        self._add(commands.Cancel(holder, tag), None)
        numbers = [number for number, _ in pending_settlement.seen]
        self._add(commands.Requeue(holder, tag, numbers), pending_settlement)

    def retarget(self) -> None:
        """Nodes, members or the record changed: offer again, to whoever serves now."""
        asked = self._route.target
        self._look()
        if not self._is_mirrored or self._route.target != asked:
            self._silence_ms = SILENCE_MS
            self._offer_again()

    def link_up(self, node: str) -> None:
        """The link to a node was opened anew: offers may have been lost with the old one."""
        if node == self._route.target:
            self._offer_again()

    def drained(self, node: str) -> None:
        """The link to a node has room again."""
        if len(self._offers) and node == self._route.target:
            self._schedule()

    def check_home(self) -> None:
        """Compare the boot of a classic queue's server with the one that was asked (P6).

        When it is over, all that was asked of it is over too: a plain queue's publishes are nacked
        and its consumers told, a mirrored one's wait for the next master.
        """
        self._look()

    def deleted(self) -> None:
        """Group 0 has deleted the queue."""
        self._is_deleted = True
        self._stats.end(gone(self.record))
        is_lost = isinstance(self._route, HomeRoute) and self._route.server is None
        for outcome in self._offers.session_lost(self._offers.session):
            # It went in good order, unless it went with its last copy.
            is_done = isinstance(outcome.token, Publish | Settled) and not is_lost
            value = None if is_done else gone(self.record)
            ended = Outcome(outcome.token, outcome.offset, outcome.count, is_done, value)
            self._end([ended])
        self._consumers.lose_all()
        self._resume_drained()

    def tick(self) -> None:
        """Once a second: nack what waited too long, offer again what was not answered."""
        now_ms = self._clock.monotonic_ms()
        if self._stats:
            self._ask_stats_again()
        is_hopeless = isinstance(self._route, LeaderRoute) and self._route.is_leaderless
        expired = self._offers.expire(now_ms, STAT_MS_MAX if is_hopeless else None)
        if self._is_mirrored or is_hopeless:
            expired = [said(each, unavailable(self.record)) for each in expired]
        self._end(expired)
        if self._dropped:
            place = {"vhost": self.record.vhost, "queue": self.record.name}
            _log.warning("queue.publishes_dropped", extra={**place, "count": self._dropped})
            self._dropped = 0
        self._resume_drained()
        if self._offers.lowest != self._lowest or not len(self._offers):
            self._lowest, self._lowest_ms = self._offers.lowest, now_ms
            self._silence_ms = SILENCE_MS
            return
        if now_ms - self._lowest_ms > self._silence_ms:
            self._lowest_ms = now_ms
            if self._is_mirrored:
                self._silence_ms = min(2 * self._silence_ms, SILENCE_MS_MAX)
            if isinstance(self._route, LeaderRoute) and now_ms - self._heard_ms > SILENCE_MS:
                self._route.forget()
            self._offer_again()

    # Parts.

    def _add(
        self, command: commands.SessionCommand, token: object, *, is_urgent: bool = True
    ) -> bool:
        if self._is_deleted:
            return False
        if not isinstance(command, commands.Enqueue) and not self._is_mirrored and self._is_down():
            return False  # nobody holds anything there any more
        now_ms = self._clock.monotonic_ms()
        if not len(self._offers):
            self._heard_ms = self._lowest_ms = now_ms
            self._lowest = self._offers.lowest
        if not self._offers.add(command, now_ms, token):
            return False
        if is_urgent or self._later is None:
            self._schedule()
        elif not self._is_due and not self._is_patient:
            self._is_patient = True
            self._later(SETTLES_WAIT_S, partial(self._end_patience, self._flushes))
        return True

    def _end_patience(self, began: int) -> None:
        """Send settles that found no company, unless they have long been sent."""
        if self._is_patient and self._flushes == began:
            self._flush()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._defer(self._flush)

    def _flush(self) -> None:
        self._is_due = self._is_patient = False
        self._flushes += 1
        target = self._route.target
        if target is None or self._is_deleted or self._transport.is_clogged(target):
            return
        uid = self.record.uid
        for offer in self._offers.to_send():
            self._transport.send_offer(target, uid, offer)

    def _offer_again(self) -> None:
        if len(self._offers):
            self._offers.retarget()
            self._schedule()

    def _end(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            token = outcome.token
            if type(token) is Publish:
                if token.seqnos is not None:
                    token.tell(token.seqnos, outcome)
                elif not outcome.ok:
                    self._dropped += outcome.count
            elif type(token) is PendingSettlement or type(token) is Settled:
                self._settled(token, outcome)
            elif type(token) is Cancelled:
                self._cancelled(token, outcome.value)
            elif type(token) is Asked:
                self._consumers.answered(token, outcome.value)
            elif type(token) is Got:
                self._got(token, outcome.value)
            elif callable(token):
                token(outcome.value)

    def _got(self, token: Got, value: object) -> None:
        if not token.is_over:
            self._gets[token.holder].remove(token)
        token.done(self._consumers.got(value))

    def _cancelled(self, token: Cancelled, value: object) -> None:
        self._consumers.detach(token.consumer)
        token.done(None if isinstance(value, Refusal) else value)

    def _settled(self, token: PendingSettlement | Settled, outcome: Outcome) -> None:
        if isinstance(token, PendingSettlement):
            self._consumers.forget(token)
            return
        self._consumers.forget(token.pending_settlement)
        token.done(None if outcome.ok else settle_lost(self.record))

    def _look(self) -> None:
        """Find out whether the machine that was asked has ended, and do what follows from it."""
        if self._route.look():
            if self._is_mirrored:
                self._move(self._offers.fail_over())
            else:
                self._lost()
            self._ask_stats_again()
        if self._is_mirrored and self._is_down():
            self._end(self._offers.give_up_publishes())
            self._resume_drained()

    def _forgotten(self) -> None:
        """The queue does not know this node's session."""
        server = self._route.server if isinstance(self._route, HomeRoute) else None
        if not self._is_mirrored or self._renewed_for == server:
            self._lost()  # a mirrored queue refuses twice only what comes from a boot that ended
            return
        self._renewed_for = server
        nacks, unasked = self._offers.renew(self._offers.session)
        self._move(unasked)
        self._end(nacks)

    def _move(self, unasked: list[Unasked]) -> None:
        """Ask the next master what the last one has not answered, as far as that makes sense.

        Args:
            unasked: What waits for an answer, publishes excepted.
        """
        consumers, now_ms = self._consumers, self._clock.monotonic_ms()
        for each in unasked:
            if type(each.token) is Cancelled:
                consumers.detach(each.token.consumer)
        told, again = consumers.move()
        for command, token in again:
            self._offers.add(command, now_ms, token)
        outcomes: list[Outcome] = []
        for command, waits, since_ms in unasked:
            if type(command) is commands.Checkout and consumers.is_attached(
                (command.holder, command.tag)
            ):
                continue  # it is asked again already
            is_get = type(waits) is Got and not waits.is_over
            if is_get or type(command) is commands.Purge:
                self._offers.add(command, since_ms, waits)
            elif waits is not None:
                value = None if type(command) is commands.Cancel else unavailable(self.record)
                outcomes.append(Outcome(waits, 0, 1, False, value))
        self._schedule()
        self._end(outcomes)
        consumers.tell_moved(told)
        self._resume_drained()

    def _lost(self) -> None:
        """The queue forgot this node: nack all that is held, tell consumers."""
        self._consumers.begin_anew()
        outcomes = self._offers.session_lost(self._offers.session)
        for each in outcomes:
            if type(each.token) is Cancelled:
                self._consumers.detach(each.token.consumer)
        lost = self._consumers.take_attached()
        self._end(outcomes)  # who is told may consume anew at once
        for found in lost:
            found.port.consumer_lost(found.checkout.tag)
        self._resume_drained()

    def _refuses(self, done: Done) -> bool:
        if self._is_deleted:
            done(gone(self.record))
            return True
        if not self._is_mirrored and self._is_down():
            done(unavailable(self.record))
            return True
        return False

    @property
    def _is_mirrored(self) -> bool:
        return self._route.record.ring is not None

    def _is_down(self) -> bool:
        return isinstance(self._route, HomeRoute) and self._route.is_down()


def _nobody(result: object) -> None:
    """Nobody waits for this outcome."""
