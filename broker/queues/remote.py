"""The way to a queue's machine from any node: classic queues elsewhere, quorum queues everywhere.

One publisher session per node and queue carries everything this node's channels ask of the queue,
in order, numbered (`broker.fifo.offers`). What has no answer is offered again to whoever serves
next; so a publish in flight when a leader dies is neither lost nor doubled (protocol.md P10-P12).

A classic queue lives and dies with its home. When the home's boot ends, everything held is nacked
and consumers are told that they are gone; there is nobody to offer to.

Invariants:
1. Every publish given gets exactly one verdict, every `done` one call.
2. Consume-ok precedes the first message, also where the reply was lost with a link.
3. Deliveries of an older leader, and those seen before, are dropped (`broker.fifo.inbox`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.errors import Refusal, ReplyCode, quoted
from broker.fifo import commands
from broker.fifo.effects import Reply, Verdict, unpack_value
from broker.fifo.inbox import ConsumerInbox, Leaving
from broker.fifo.offers import Offers, Outcome
from broker.fifo.queue import GET_TAG
from broker.message import Message
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import Clock, ConsumerPort, ConsumerSpec, Done, PublisherPort
from broker.queues.classic import Defer, lag_slowdown_us, settle_lost
from broker.queues.envelopes import Answer
from broker.queues.quorum import SETTLES_WAIT_S, Later

CREDIT_SHARE: Final = 4
"""Settles wait for company only while less than a fourth of the consumer's credit is used."""

SILENCE_MS: Final = 1_500
"""Unanswered offers go out again after this long: the answer or the offer was lost."""


STAT_MS_MAX: Final = 5_000
"""How long a question for counts waits for a leader, as long as a proposal does (P3)."""


class SendOffer(Protocol):
    """Carries an offer to the node that serves a queue."""

    def __call__(self, node: str, uid: int, offer: commands.Offer, /) -> None:
        """Send; dropped when the node is not reachable."""
        ...


class _Publish(NamedTuple):
    """Whose verdicts an enqueue's are; `seqnos` None wants none."""

    publisher: PublisherPort
    seqnos: list[int] | None


class _Consume(NamedTuple):
    """Who asked for a consumer."""

    key: tuple[str, str]
    done: Done


class _Settled(NamedTuple):
    """Who waits for the outcome of a settle."""

    leaving: Leaving
    done: Done


class _Port(NamedTuple):
    """An attached consumer."""

    port: ConsumerPort
    no_ack: bool
    prefetch: int


class RemoteQueue:
    """`QueueHandle` of a queue whose machine answers through messages.

    Args:
        record: The queue; replaced when its members or leader hint change.
        node: This node.
        boot: Its boot id.
        clock: For how long things are held.
        catalogue: Says who is alive.
        send: Carries offers.
        is_clogged: Tells whether offers to a node shall wait here (P14).
        ask_stat: Asks a node for a queue's counts.
        defer: `loop.call_soon`: what a turn of the loop gathers leaves together.
        later: `loop.call_later`; None: settles never wait for company.
    """

    def __init__(
        self,
        record: Queue,
        *,
        node: str,
        boot: str,
        clock: Clock,
        catalogue: Catalogue,
        send: SendOffer,
        is_clogged: Callable[[str], bool],
        ask_stat: Callable[[str, int, Done], None],
        defer: Defer,
        later: Later | None = None,
    ) -> None:
        self.record = record
        self._later = later
        self._is_patient = False
        self._flushes = 0  # a timer begun before one of them must not hurry what came after
        self._clock = clock
        self._catalogue = catalogue
        self._send = send
        self._is_clogged = is_clogged
        self._ask_stat = ask_stat
        self._defer = defer
        self._offers = Offers(node, boot, record.uid)
        self._inbox = ConsumerInbox()
        self._ports: dict[tuple[str, str], _Port] = {}
        self._asking: dict[tuple[str, str], _Consume] = {}
        self._leader: str | None = None
        self._is_due = False
        self._is_deleted = False
        self._heard_ms = 0
        self._lowest = 0
        self._lowest_ms = 0
        self._lag = 0
        self._drained: list[Callable[[], None]] = []
        self._stats: list[tuple[Done, int]] = []
        self._home_boot = self._boot_of_home()

    # What channels ask (`broker.ports.QueueHandle`).

    @property
    def is_congested(self) -> bool:
        """True while half of what may be held for the queue is held."""
        return self._offers.is_congested

    @property
    def slowdown_us(self) -> int:
        """By what the queue's last answer said of its consumers' lag."""
        return lag_slowdown_us(self._lag)

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call back when enough was answered."""
        self._drained.append(resume)

    def publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> None:
        """Hold and offer; what does not fit, or has nowhere to go, is nacked at once (P12)."""
        if self._is_deleted:
            if seqnos is not None:
                publisher.confirmed(seqnos)  # as RabbitMQ: the queue went in good order
            return
        token = _Publish(publisher, seqnos)
        is_held = not self._is_down() and self._add(commands.Enqueue(messages), token)
        if not is_held and seqnos is not None:
            publisher.rejected(seqnos)

    def consume(self, spec: ConsumerSpec, port: ConsumerPort, done: Done) -> None:
        """Attach a consumer."""
        if self._refuses(done):
            return
        key = (spec.holder, spec.tag)
        self._ports[key] = _Port(port, spec.no_ack, spec.prefetch)
        self._asking[key] = _Consume(key, done)
        self._add(commands.Checkout(*spec), self._asking[key])

    def cancel(self, holder: str, tag: str, done: Done) -> None:
        """Detach a consumer."""
        if self._is_deleted or self._is_down():
            self._ports.pop((holder, tag), None)
            done(None)
            return

        def cancelled(result: object) -> None:
            self._ports.pop((holder, tag), None)
            done(None if isinstance(result, Refusal) else result)

        self._add(commands.Cancel(holder, tag), cancelled)

    def settle(self, holder: str, tag: str, numbers: list[int], done: Done | None = None) -> None:
        """Remove acknowledged messages."""
        self._settle(commands.Settle(holder, tag, numbers), done)

    def requeue(self, holder: str, tag: str, numbers: list[int], done: Done | None = None) -> None:
        """Put messages back."""
        self._settle(commands.Requeue(holder, tag, numbers), done)

    def discard(self, holder: str, tag: str, numbers: list[int], done: Done | None = None) -> None:
        """Reject messages without requeue."""
        self._settle(commands.Discard(holder, tag, numbers), done)

    def _settle(
        self, command: commands.Settle | commands.Requeue | commands.Discard, done: Done | None
    ) -> None:
        leaving = self._inbox.leaving(command.holder, command.tag, command.numbers)
        if command.tag != GET_TAG and len(leaving.seen) < len(command.numbers):
            # Handed out by a queue that has ended since (P18): its numbers may mean others now.
            command = type(command)(command.holder, command.tag, [n for n, _ in leaving.seen])
            if done is not None:
                done(None if self._is_deleted else settle_lost(self.record))
                done = None
            if not command.numbers:
                return
        token = leaving if done is None else _Settled(leaving, done)
        is_urgent = done is not None or self._is_credit_short(command)
        is_asked = self._add(command, token, is_urgent=is_urgent)
        if done is not None and not is_asked:
            done(None if self._is_deleted else settle_lost(self.record))

    def release(self, holder: str) -> None:
        """End a channel."""
        for key in [key for key in self._ports if key[0] == holder]:
            del self._ports[key]
        self._inbox.forget_holder(holder)
        self._add(commands.Release(holder), None)

    def set_active(self, holder: str, tag: str, *, active: bool) -> None:
        """Pause or resume a consumer."""
        self._add(commands.SetActive(holder, tag, active), None)

    def set_prefetch(self, holder: str, tag: str, prefetch: int) -> None:
        """Change a consumer's credit limit."""
        self._add(commands.SetPrefetch(holder, tag, prefetch), None)

    def get(self, holder: str, *, no_ack: bool, done: Done) -> None:
        """Take one message."""
        if not self._refuses(done):
            self._add(commands.Get(holder, no_ack), done)

    def purge(self, done: Done) -> None:
        """Remove all ready messages."""
        if not self._refuses(done):
            self._add(commands.Purge(), done)

    def stat(self, done: Done) -> None:
        """Ask the node that serves the queue; wait a little for one that is being elected."""
        if not self._refuses(done):
            self._ask_for_stat(done, self._clock.monotonic_ms() + STAT_MS_MAX)

    def _ask_for_stat(self, done: Done, until_ms: int) -> None:
        target = self._target()
        if target is None:
            self._stats.append((done, until_ms))
            return

        def answered(stat: object) -> None:
            if isinstance(stat, Refusal) and not self._is_deleted:
                self._stats.append((done, until_ms))  # between two leaders, or about to serve
            else:
                done(stat)

        self._ask_stat(target, self.record.uid, answered)

    def _ask_stats_again(self) -> None:
        waiting, self._stats = self._stats, []
        now_ms = self._clock.monotonic_ms()
        for done, until_ms in waiting:
            if now_ms >= until_ms or self._is_down():
                done(self._unavailable())
            else:
                self._ask_for_stat(done, until_ms)

    # What the node tells.

    def receive(self, node: str, answer: Answer) -> None:
        """Take an answer of the queue's machine."""
        if answer.leader is not None:
            self._redirected(node, answer)
            return
        self._heard_ms = self._clock.monotonic_ms()
        self._lag = answer.lag
        if answer.epoch > self._inbox.term or self._leader is None:
            self._inbox.term = max(self._inbox.term, answer.epoch)
            self._lead_by(node)
        if self._offers.session in answer.session_lost:
            self._lost()
        self._take_answers(answer)
        self._take_deliveries(answer)
        if self._stats:
            self._ask_stats_again()
        self._resume_drained()

    def _resume_drained(self) -> None:
        if self._drained and not self._offers.is_congested:
            drained, self._drained = self._drained, []
            for resume in drained:
                resume()

    def _take_answers(self, answer: Answer) -> None:
        for verdict in answer.verdicts:
            self._end(self._offers.answered(Verdict(*verdict)))
        for session, number, packed in answer.replies:
            outcome = self._offers.replied(Reply(session, number, unpack_value(packed)))
            if outcome is not None:
                self._end([outcome])
        for session, expected in answer.expected:
            if self._offers.out_of_sequence(session, expected):
                self._schedule()

    def _take_deliveries(self, answer: Answer) -> None:
        for holder, tag, deliveries in answer.deliveries:
            found = self._ports.get((holder, tag))
            if found is not None:
                fresh = self._inbox.accept(
                    answer.epoch, holder, tag, deliveries, no_ack=found.no_ack
                )
                if fresh:
                    self._attached((holder, tag), None)  # if the reply was lost on its way
                    found.port.deliver(tag, fresh)
        for key in answer.lost_consumers:
            lost = self._ports.pop((key[0], key[1]), None)
            if lost is not None:
                lost.port.consumer_lost(key[1])

    def _attached(self, key: tuple[str, str], value: object) -> None:
        """A consume was answered: say so once, before anything is delivered."""
        asked = self._asking.pop(key, None)
        found = self._ports.pop(key, None) if isinstance(value, Refusal) else None
        if asked is not None:
            asked.done(value)
        elif found is not None:
            found.port.consumer_lost(key[1])

    def retarget(self) -> None:
        """Nodes or members changed: offer again, to whoever serves now."""
        if self._leader is not None and not self._is_alive(self._leader):
            self._leader = None
        if len(self._offers):
            self._offers.retarget()
            self._schedule()

    def link_up(self, node: str) -> None:
        """The link to a node was opened anew: offers may have been lost with the old one."""
        if node == self._target():
            self.retarget()

    def drained(self, node: str) -> None:
        """The link to a node has room again."""
        if len(self._offers) and node == self._target():
            self._schedule()

    def check_home(self) -> None:
        """Compare the boot of a classic queue's home with the one that was asked (P6).

        When it is over, all that was asked of it is over too: what is held is nacked, consumers
        are told.
        """
        boot = self._boot_of_home()
        if boot == self._home_boot:
            return
        asked, self._home_boot = self._home_boot, boot
        if asked is not None:
            self._lost()
            self._ask_stats_again()

    def deleted(self) -> None:
        """Group 0 has deleted the queue."""
        self._is_deleted = True
        stats, self._stats = self._stats, []
        for done, _ in stats:
            done(self._gone())
        for outcome in self._offers.session_lost(self._offers.session):
            is_done = isinstance(outcome.token, _Publish | _Settled)  # it went in good order
            value = None if is_done else self._gone()
            ended = Outcome(outcome.token, outcome.offset, outcome.count, is_done, value)
            self._end([ended])
        self._lose_consumers()
        self._resume_drained()

    def tick(self) -> None:
        """Once a second: nack what waited too long, offer again what was not answered."""
        now_ms = self._clock.monotonic_ms()
        if self._stats:
            self._ask_stats_again()
        self._end(self._offers.expire(now_ms))
        self._resume_drained()
        if self._offers.lowest != self._lowest or not len(self._offers):
            self._lowest, self._lowest_ms = self._offers.lowest, now_ms
            return
        if now_ms - self._lowest_ms > SILENCE_MS:
            self._lowest_ms = now_ms
            if now_ms - self._heard_ms > SILENCE_MS:
                self._leader = None
            self._offers.retarget()
            self._schedule()

    # Parts.

    def _add(
        self, command: commands.SessionCommand, token: object, *, is_urgent: bool = True
    ) -> bool:
        if self._is_deleted or (self._is_down() and not isinstance(command, commands.Enqueue)):
            return False  # nobody holds anything there any more
        if not len(self._offers):
            self._heard_ms = self._lowest_ms = self._clock.monotonic_ms()
            self._lowest = self._offers.lowest
        if not self._offers.add(command, self._clock.monotonic_ms(), token):
            return False
        if is_urgent or self._later is None:
            self._schedule()
        elif not self._is_due and not self._is_patient:
            self._is_patient = True
            self._later(SETTLES_WAIT_S, partial(self._end_patience, self._flushes))
        return True

    def _is_credit_short(
        self, command: commands.Settle | commands.Requeue | commands.Discard
    ) -> bool:
        """Whether a consumer may soon want the credit that a settle gives.

        While it has plenty and no message waits, acknowledgements go with the next command, or
        after a while: each on its own would cost the queue's node as much as a publish.
        """
        found = self._ports.get((command.holder, command.tag))
        if found is None or self._lag or type(command) is not commands.Settle:
            return True
        used = self._inbox.outstanding(command.holder, command.tag)
        return 0 < found.prefetch < used * CREDIT_SHARE

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
        target = self._target()
        if target is None or self._is_deleted or self._is_clogged(target):
            return
        for offer in self._offers.to_send():
            self._send(target, self.record.uid, offer)

    def _target(self) -> str | None:
        """Who serves the queue, as well as known; None when nobody can."""
        if self.record.type == "classic":
            return self.record.home if self._is_alive(self.record.home) else None
        if self._leader is not None:
            return self._leader
        if self._is_alive(self.record.home):
            return self.record.home
        for member in self.record.members:
            if self._is_alive(member):
                return member
        return None

    def _redirected(self, node: str, answer: Answer) -> None:
        """The node asked does not lead the queue.

        A follower may not know of the term it redirects to, so its word counts as long as there
        is nobody better to ask; but two confused ones must not send us to and fro.
        """
        was_asked_as_leader = self._leader == node
        if was_asked_as_leader:
            self._leader = None
        if not answer.leader or answer.leader == node:
            return
        is_stale = answer.epoch < self._inbox.term
        if is_stale and (was_asked_as_leader or self._leader is not None):
            return
        if self._leader != answer.leader:
            self._lead_by(answer.leader)

    def _lead_by(self, node: str) -> None:
        self._leader = node
        if len(self._offers):
            self._offers.retarget()
            self._schedule()

    def _end(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            token = outcome.token
            if type(token) is _Publish:
                _tell_publisher(token, outcome)
            elif type(token) is Leaving:
                self._inbox.forget(token)
            elif type(token) is _Settled:
                self._inbox.forget(token.leaving)
                token.done(None if outcome.ok else settle_lost(self.record))
            elif type(token) is _Consume:
                if self._asking.get(token.key) is token or isinstance(outcome.value, Refusal):
                    self._attached(token.key, outcome.value)
            elif callable(token):
                token(outcome.value)

    def _lost(self) -> None:
        """The queue forgot this node: nack all that is held, tell consumers."""
        self._inbox = ConsumerInbox()
        self._end(self._offers.session_lost(self._offers.session))
        self._lose_consumers()
        self._resume_drained()

    def _lose_consumers(self) -> None:
        ports, self._ports = self._ports, {}
        for (_, tag), found in ports.items():
            found.port.consumer_lost(tag)

    def _refuses(self, done: Done) -> bool:
        if self._is_deleted:
            done(self._gone())
            return True
        if self._is_down():
            done(self._unavailable())
            return True
        return False

    def _boot_of_home(self) -> str | None:
        home = self._catalogue.node(self.record.home) if self.record.type == "classic" else None
        return None if home is None else home.boot

    def _is_down(self) -> bool:
        return self.record.type == "classic" and not self._is_alive(self.record.home)

    def _is_alive(self, node: str) -> bool:
        found = self._catalogue.node(node)
        return found is not None and found.alive

    def _gone(self) -> Refusal:
        where = quoted("queue", self.record.name, self.record.vhost)
        return Refusal(ReplyCode.NOT_FOUND, f"no {where}")

    def _unavailable(self) -> Refusal:
        return unavailable(self.record)


def _tell_publisher(token: _Publish, outcome: Outcome) -> None:
    seqnos = token.seqnos
    if seqnos is None:
        return
    if outcome.count != len(seqnos):
        seqnos = seqnos[outcome.offset : outcome.offset + outcome.count]
    if outcome.ok:
        token.publisher.confirmed(seqnos)
    else:
        token.publisher.rejected(seqnos)


def unavailable(queue: Queue) -> Refusal:
    """RabbitMQ's answer for a queue that nobody serves now."""
    where = quoted("queue", queue.name, queue.vhost)
    if queue.type == "classic":
        text = f"home node '{queue.home}' of durable {where} is down or inaccessible"
        return Refusal(ReplyCode.NOT_FOUND, text)
    return Refusal(ReplyCode.INTERNAL_ERROR, f"{where} has no leader: too few members answer")
