"""The handle of a queue that another node may serve: remote classic, mirrored, or quorum.

One publisher session per node and queue carries every command of this node's channels, in order
and numbered (`broker.queues.client.pending_commands`). Commands without an answer are sent again to
the next leader or master, so a publish in flight when a leader dies is neither lost nor duplicated
(docs/protocol-rules.md P10-P12).

Other commands depend on how the queue is replicated:

- The next leader of a quorum queue knows everything that the last one knew: nothing changes.
- A mirrored queue's next master knows the messages and the publishes, but no consumers and no
  checked-out messages (P15, P16). Settles in flight are given up (P18), consumers are attached
  again without notice to their clients, and gets and purges are sent again. Without a master,
  commands wait.
- A classic queue without mirrors depends on its home. When the home's boot ends, all held publishes
  are rejected and consumers are cancelled.

Invariants:
1. Every publish gets exactly one verdict, every `done` one call.
2. Consume-ok precedes the first message, even if the reply was lost with a link.
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
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import ConsumerPort, Done, PublisherPort
from broker.queues.client.consumers import Asked, RemoteConsumers
from broker.queues.client.pending_commands import (
    HELD_MS_MAX,
    UNANSWERED_MAX,
    CommandOutcome,
    PendingCommands,
    ReissuableCommand,
)
from broker.queues.client.redelivery_filter import PendingSettlement
from broker.queues.client.routes import HomeRoute, LeaderRoute, Server
from broker.queues.client.stats import StatQuestions
from broker.queues.client.tokens import (
    CancelToken,
    GetToken,
    PublishToken,
    SettleToken,
    with_refusal,
)
from broker.queues.envelopes import QueueReply
from broker.queues.flow import Waiters, has_room, lag_slowdown_us, unanswered_max
from broker.queues.node import NodeContext
from broker.queues.quorum import SETTLES_WAIT_S
from broker.queues.refusals import damaged, gone, settle_lost, unavailable

_log = logging.getLogger(__name__)

SILENCE_MS: Final = 1_500
"""Unanswered batches go out again after this long: the answer or the batch was lost."""

SILENCE_MS_MAX: Final = 12_000
"""For a mirrored queue's master the interval grows up to this: it says when it begins to serve, and
one whose queue is paused (P26) must not get the same 16 MiB every second."""

STAT_MS_MAX: Final = 5_000
"""How long a question for counts waits for a leader, as long as a proposal does (P3); if most
members are dead, any question waits no longer."""


class RemoteQueue:
    """`QueueHandle` of a queue whose machine answers through messages.

    Args:
        record: The queue.
        node: This node.

    Attributes:
        is_damaged: The log of its only replica is damaged: it waits for an operator.
    """

    def __init__(self, record: Queue, node: NodeContext) -> None:
        self.is_damaged = False
        kind = HomeRoute if record.type == "classic" else LeaderRoute
        self._route: HomeRoute | LeaderRoute = kind(record, node.catalogue)
        self._clock = node.clock
        self._transport = node.transport
        self._counters = node.counts
        self._defer = node.defer
        self._later = node.later
        self._stirred = node.stirred
        self._uid = record.uid
        self._most = UNANSWERED_MAX["mirrored" if self._is_mirrored else record.type]
        self._pending = PendingCommands(node.node, node.boot, record.uid, unanswered_max=self._most)
        self._consumers = RemoteConsumers(self._route.epoch)
        self._is_due = False
        self._is_patient = False
        self._flushes = 0  # by which `_end_patience` knows that its settles were sent
        self._is_deleted = False
        self._heard_ms = 0
        self._lowest = 0
        self._lowest_ms = 0
        self._silence_ms = SILENCE_MS
        self._lag = self._pace_us = 0
        self._dropped = 0
        self._waiters = Waiters(node.clock)
        self._wanted: list[Message] = []  # found no room: publishers wait until these fit
        self._gets: dict[str, list[GetToken]] = {}  # by channel_id
        self._stats = StatQuestions(record.uid, node.transport, self._route)
        self._renewed_for: Server | None = None
        self._channels: set[str] = set()  # that may hold something at the home, by channel_id
        self._unended: set[str] = set()  # that the next home is to end (`_end_channels`)

    @property
    def record(self) -> Queue:
        """The queue; call `retarget` after setting it."""
        return self._route.record

    @record.setter
    def record(self, record: Queue) -> None:
        self._route.record = record

    # For channels (`broker.queues.handle.QueueHandle`).

    @property
    def is_congested(self) -> bool:
        """True while over half of the allowed bytes is held, or a publisher waits for room.

        In the second case, others would otherwise take the room that a large message waits for.
        """
        return self._pending.is_congested or bool(self._wanted)

    def has_room(self, messages: list[Message]) -> bool:
        """False if a publish must wait with its publisher: here it would be refused (P12)."""
        is_taken = has_room(self._pending.held_bytes, messages)
        if not is_taken and not self._wanted:
            self._wanted = messages
            self._stirred.add(self._uid)
        return is_taken

    @property
    def slowdown_us(self) -> int:
        """The slowdown by the consumers' lag in the queue's last answer."""
        return lag_slowdown_us(self._lag, self._pace_us)

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call back when enough commands have been answered."""
        self._waiters.add(resume)
        self._stirred.add(self._uid)

    @property
    def is_in_flow(self) -> bool:
        """True while publishers of this node wait for the queue's store or peers, or did lately."""
        return self._waiters.is_in_flow

    def publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> bool:
        """Hold and send messages; reject them at once if there is no room or no server (P12)."""
        return self._publish(commands.Enqueue(messages), seqnos, publisher)

    def _publish(
        self, command: commands.Enqueue, seqnos: list[int] | None, publisher: PublisherPort
    ) -> bool:
        if self._is_deleted:
            if seqnos is not None:
                publisher.confirmed(seqnos)  # as RabbitMQ does for a queue that was deleted
            return False
        token = PublishToken(publisher, seqnos)
        if self._is_down() or not self._add(command, token):
            self._end([CommandOutcome(token, 0, len(command.messages), False, None)])
        return True

    def attach(self, checkout: commands.Checkout, port: ConsumerPort, done: Done) -> None:
        """Attach a consumer."""
        if not self._refuses(done):
            asked = self._consumers.attach(checkout, port, done)
            self._channels.add(checkout.channel_id)
            self._add(checkout, asked)

    def adopt(
        self, checkout: commands.Checkout, port: ConsumerPort, *, is_active: bool = True
    ) -> None:
        """Attach a consumer of a queue that was served here, after its master has moved away.

        The client is told only if the consumer is lost: if its arguments end it with its master.

        Args:
            checkout: The consume as requested, with the present prefetch.
            port: The channel, which gets deliveries.
            is_active: False while its socket is full.
        """
        if self._is_deleted:
            port.consumer_lost(checkout.tag)
            return
        self._channels.add(checkout.channel_id)
        for command, token in self._consumers.adopt(checkout, port, is_active=is_active):
            self._add(command, token)

    def submit(self, command: commands.ChannelCommand, done: Done | None = None) -> None:
        """Number and send a command, after its effect on this node's consumers."""
        self._SUBMITTED[type(command)](self, command, done)

    def _cancel(self, command: commands.Cancel, done: Done | None) -> None:
        """Detach a consumer; it may get messages until the cancel is answered."""
        token = CancelToken(
            self._consumers.find((command.channel_id, command.tag)), done or _ignore
        )
        if not self._add(command, token):
            self._cancelled(token, None)

    def _settle(
        self, command: commands.Settle | commands.Requeue | commands.Discard, done: Done | None
    ) -> None:
        channel_id, tag, given = command.channel_id, command.tag, command.numbers
        numbers = self._consumers.numbers(given)
        if len(numbers) < len(given):
            # The others are of a machine that has ended (P18): their numbers may be reused by now.
            if done is not None:
                done(None if self._is_deleted else settle_lost(self.record))
                done = None
            if not numbers:
                return
        if numbers is not given:
            command = type(command)(channel_id, tag, numbers)
        pending_settlement = self._consumers.pending_settlement(channel_id, tag, numbers)
        token = pending_settlement if done is None else SettleToken(pending_settlement, done)
        is_urgent = (
            done is not None
            or type(command) is not commands.Settle
            or self._lag > 0
            or self._consumers.is_credit_short(channel_id, tag)
        )
        is_asked = self._add(command, token, is_urgent=is_urgent)
        if done is not None and not is_asked:
            done(None if self._is_deleted else settle_lost(self.record))

    @property
    def consumer_count(self) -> int:
        """Consumers of this node."""
        return self._consumers.count

    def _release(self, command: commands.Release, _done: Done | None) -> None:
        self._consumers.release(command.channel_id)
        self._channels.discard(command.channel_id)
        for got in self._gets.pop(command.channel_id, ()):
            got.is_over = True
        self._add(command, None)

    def _set_active(self, command: commands.SetActive, _done: Done | None) -> None:
        self._consumers.set_active((command.channel_id, command.tag), active=command.active)
        self._add(command, None)

    def _set_prefetch(self, command: commands.SetPrefetch, _done: Done | None) -> None:
        self._consumers.set_prefetch((command.channel_id, command.tag), command.prefetch)
        self._add(command, None)

    def _get(self, command: commands.Get, done: Done | None) -> None:
        done = done or _ignore
        if not self._refuses(done):
            got = GetToken(command.channel_id, done)
            self._gets.setdefault(command.channel_id, []).append(got)
            self._channels.add(command.channel_id)
            self._add(command, got)

    def _remove(self, command: commands.Purge | commands.Drop, done: Done | None) -> None:
        done = done or _ignore
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
        """Ask the serving node for the queue's counts; wait a little for one to be elected."""
        if not self._refuses(done):
            wait_ms = HELD_MS_MAX if self._is_mirrored else STAT_MS_MAX
            self._stats.ask(done, self._clock.monotonic_ms() + wait_ms, is_declare=is_declare)
            self._stirred.add(self._uid)

    def _ask_stats_again(self) -> None:
        late = self._unavailable()
        refusal = late if self._is_down() and not self._is_mirrored else None
        self._stats.again(self._clock.monotonic_ms(), refusal, late)

    # For the registry.

    def receive(self, node: str, reply: QueueReply) -> None:
        """Handle a reply of the queue."""
        if not self._counts(node, reply):
            return
        self._heard_ms = self._clock.monotonic_ms()
        self._pace_us = reply.pace_us
        if reply.lag != self._lag:
            self._lag = reply.lag
            self._pending.unanswered_max = unanswered_max(self._most, reply.lag)
        if self._pending.session in reply.session_lost:
            self._forgotten()
        self._take_replies(reply)
        for channel_id, tag in reply.lost_consumers:
            self._consumers.lose((channel_id, tag))
        if self._stats:
            self._ask_stats_again()
        self._resume_drained()

    def _counts(self, node: str, reply: QueueReply) -> bool:
        """Learn from a reply which node serves; True if the reply is from that node."""
        route = self._route
        if isinstance(route, HomeRoute):
            is_admitted = route.admits(node, reply.epoch)
            if is_admitted and reply.is_bare:  # batches from before it was ready are lost
                self._send_again()
            return is_admitted
        if route.hear(node, reply):
            self._send_again()
        return reply.leader is None

    def _resume_drained(self) -> None:
        if self._pending.is_congested or not has_room(self._pending.held_bytes, self._wanted):
            return
        self._wanted = []  # set again if a publisher finds no room
        if self._waiters:
            self._waiters.release(lambda: not has_room(self._pending.held_bytes, self._wanted))

    def _take_replies(self, reply: QueueReply) -> None:
        for verdict in reply.verdicts:
            self._end(self._pending.answered(Verdict(*verdict)))
        last: list[CommandOutcome] = []  # cancels: deliveries from before them come first
        for session, number, packed in reply.replies:
            outcome = self._pending.replied(Reply(session, number, unpack_value(packed)))
            if outcome is not None and type(outcome.token) is CancelToken:
                last.append(outcome)
            elif outcome is not None:
                self._end([outcome])
        for session, expected in reply.expected:
            if self._pending.out_of_sequence(session, expected):
                self._schedule()
        if isinstance(self._route, HomeRoute) or reply.epoch >= self._route.term:
            for channel_id, tag, deliveries in reply.deliveries:
                back = self._consumers.deliver(channel_id, tag, deliveries)
                if back is not None:
                    self._give_back(back)
        self._end(last)

    def _give_back(self, pending_settlement: PendingSettlement) -> None:
        """Give back deliveries for a consumer that has ended, and cancel it at the queue."""
        channel_id, tag = pending_settlement.channel_id, pending_settlement.tag
        self._add(commands.Cancel(channel_id, tag), None)
        numbers = [number for number, _ in pending_settlement.seen]
        self._add(commands.Requeue(channel_id, tag, numbers), pending_settlement)

    def retarget(self) -> None:
        """Nodes, members or the record changed: send everything again, to the present server."""
        asked = self._route.target
        self._look()
        if not self._is_mirrored or self._route.target != asked:
            self._silence_ms = SILENCE_MS
            self._send_again()

    def link_up(self, node: str) -> None:
        """The link to a node was opened anew: batches may have been lost with the old one."""
        if node == self._route.target:
            self._send_again()

    def drained(self, node: str) -> None:
        """The link to a node has room again: send what waited for it."""
        if len(self._pending) and node == self._route.target:
            self._schedule()

    def check_home(self) -> None:
        """Compare the boot of a classic queue's server with the one that was asked (P6).

        If that boot has ended, so have all requests to it: a plain queue's publishes are nacked and
        its consumers are cancelled, those of a mirrored queue wait for the next master.
        """
        self._look()

    def deleted(self) -> None:
        """Group 0 has deleted the queue."""
        self._is_deleted = True
        self._stats.end(gone(self.record))
        is_lost = isinstance(self._route, HomeRoute) and self._route.server is None
        for outcome in self._pending.session_lost(self._pending.session):
            # The queue was deleted normally, unless its last copy was lost.
            is_done = isinstance(outcome.token, PublishToken | SettleToken) and not is_lost
            value = None if is_done else gone(self.record)
            ended = CommandOutcome(outcome.token, outcome.offset, outcome.count, is_done, value)
            self._end([ended])
        self._consumers.lose_all()
        self._resume_drained()

    def tick(self) -> bool:
        """Once a second: nack what waited too long, send again what was not answered.

        Returns:
            True if the next second's round must come here, too (`NodeContext.stirred`).
        """
        is_busy = len(self._pending) or self._stats or self._dropped
        if not (is_busy or self._waiters or self._wanted):
            self._silence_ms = SILENCE_MS
            return False  # of thousands of queues most are idle
        now_ms = self._clock.monotonic_ms()
        if self._stats:
            self._ask_stats_again()
        is_hopeless = isinstance(self._route, LeaderRoute) and self._route.is_leaderless
        expired = self._pending.expire(now_ms, STAT_MS_MAX if is_hopeless else None)
        if self._is_mirrored or is_hopeless:
            expired = [with_refusal(each, self._unavailable()) for each in expired]
        self._end(expired)
        if self._dropped:
            place = {"vhost": self.record.vhost, "queue": self.record.name}
            _log.warning("queue.publishes_dropped", extra={**place, "count": self._dropped})
            self._dropped = 0
        self._resume_drained()
        if self._pending.lowest != self._lowest or not len(self._pending):
            self._lowest, self._lowest_ms = self._pending.lowest, now_ms
            self._silence_ms = SILENCE_MS
            return True
        if now_ms - self._lowest_ms > self._silence_ms:
            self._lowest_ms = now_ms
            if self._is_mirrored:
                self._silence_ms = min(2 * self._silence_ms, SILENCE_MS_MAX)
            if isinstance(self._route, LeaderRoute) and now_ms - self._heard_ms > SILENCE_MS:
                self._route.forget()
            self._send_again()
        return True

    # Parts.

    def _add(
        self, command: commands.SessionCommand, token: object, *, is_urgent: bool = True
    ) -> bool:
        if self._is_deleted:
            return False
        if not isinstance(command, commands.Enqueue) and not self._is_mirrored and self._is_down():
            return False  # nothing is checked out there any more
        now_ms = self._clock.monotonic_ms()
        if not len(self._pending):
            self._stirred.add(self._uid)
            self._heard_ms = self._lowest_ms = now_ms
            self._lowest = self._pending.lowest
        if not self._pending.add(command, now_ms, token):
            return False
        if is_urgent or self._later is None:
            self._schedule()
        elif not self._is_due and not self._is_patient:
            self._is_patient = True
            self._later(SETTLES_WAIT_S, partial(self._end_patience, self._flushes))
        return True

    def _end_patience(self, began: int) -> None:
        """Send settles that no other command came for, unless they were sent meanwhile."""
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
        for batch in self._pending.to_send():
            self._transport.send_commands(target, uid, batch)

    def _send_again(self) -> None:
        if len(self._pending):
            self._counters.resends += 1
            self._pending.retarget()
            self._schedule()

    def _end(self, outcomes: list[CommandOutcome]) -> None:
        for outcome in outcomes:
            token = outcome.token
            if type(token) is PublishToken:
                if token.seqnos is not None:
                    token.tell(token.seqnos, outcome)
                elif not outcome.ok:
                    self._dropped += outcome.count
                    self._stirred.add(self._uid)
            elif type(token) is PendingSettlement or type(token) is SettleToken:
                self._settled(token, outcome)
            elif type(token) is CancelToken:
                self._cancelled(token, outcome.value)
            elif type(token) is Asked:
                self._consumers.answered(token, outcome.value)
            elif type(token) is GetToken:
                self._got(token, outcome.value)
            elif callable(token):
                token(outcome.value)

    def _got(self, token: GetToken, value: object) -> None:
        if not token.is_over:
            self._gets[token.channel_id].remove(token)
        token.done(self._consumers.got(value))

    def _cancelled(self, token: CancelToken, value: object) -> None:
        self._consumers.detach(token.consumer)
        token.done(None if isinstance(value, Refusal) else value)

    def _settled(self, token: PendingSettlement | SettleToken, outcome: CommandOutcome) -> None:
        if isinstance(token, PendingSettlement):
            self._consumers.forget(token)
            return
        self._consumers.forget(token.pending_settlement)
        token.done(None if outcome.ok else settle_lost(self.record))

    def _look(self) -> None:
        """Check whether the machine that was asked has ended, and handle it if so."""
        if self._route.look():
            if self._is_mirrored:
                self._move(self._pending.fail_over())
            else:
                self._lost()
            self._ask_stats_again()
        elif self._unended:
            self._end_channels()
        if self._is_mirrored and self._is_down():
            self._end(self._pending.give_up_publishes())
            self._resume_drained()

    def _forgotten(self) -> None:
        """Handle that the queue does not know this node's session."""
        server = self._route.server if isinstance(self._route, HomeRoute) else None
        if not self._is_mirrored or self._renewed_for == server:
            self._lost()  # a mirrored queue refuses a session twice only if its boot has ended
            return
        self._renewed_for = server
        nacks, reissuable = self._pending.renew(self._pending.session)
        self._move(reissuable)
        self._end(nacks)

    def _move(self, reissuable: list[ReissuableCommand]) -> None:
        """Send the next master what the last one left unanswered: consumes, gets and purges.

        Args:
            reissuable: All commands without an answer, except publishes.
        """
        consumers, now_ms = self._consumers, self._clock.monotonic_ms()
        for each in reissuable:
            if type(each.token) is CancelToken:
                consumers.detach(each.token.consumer)
        told, again = consumers.move()
        for command, token in again:
            self._pending.add(command, now_ms, token)
        outcomes: list[CommandOutcome] = []
        for command, waits, since_ms in reissuable:
            if type(command) is commands.Checkout and consumers.is_attached(
                (command.channel_id, command.tag)
            ):
                continue  # `again` has it
            is_get = type(waits) is GetToken and not waits.is_over
            if is_get or type(command) is commands.Purge:
                self._pending.add(command, since_ms, waits)
            elif waits is not None:
                value = None if type(command) is commands.Cancel else self._unavailable()
                outcomes.append(CommandOutcome(waits, 0, 1, False, value))
        self._schedule()
        self._end(outcomes)
        consumers.tell_moved(told)
        self._resume_drained()

    def _lost(self) -> None:
        """The queue has forgotten this node: reject all publishes, end the consumers."""
        self._consumers.begin_anew()
        outcomes = self._pending.session_lost(self._pending.session)
        if isinstance(self._route, HomeRoute):
            self._unended |= self._channels
            self._end_channels()
        self._channels.clear()
        for each in outcomes:
            if type(each.token) is CancelToken:
                self._consumers.detach(each.token.consumer)
        lost = self._consumers.take_attached()
        self._end(outcomes)  # a channel may consume anew within this call
        for found in lost:
            found.port.consumer_lost(found.checkout.tag)
        self._resume_drained()

    def _end_channels(self) -> None:
        """Have a classic queue's next home end what this node's channels had at the last one.

        A home that restarts may have carried out what was sent to its last boot, and have been
        heard, before this node knew of the next one. It would keep what it handed out until those
        channels close.
        """
        route = self._route
        if isinstance(route, HomeRoute) and route.server is not None:
            unended, self._unended = self._unended, set()
            for channel_id in sorted(unended):
                self._add(commands.Release(channel_id), None)

    def _refuses(self, done: Done) -> bool:
        if self._is_deleted:
            done(gone(self.record))
            return True
        if not self._is_mirrored and self._is_down():
            done(self._unavailable())
            return True
        return False

    @property
    def _is_mirrored(self) -> bool:
        return self._route.record.ring is not None

    def _unavailable(self) -> Refusal:
        return damaged(self.record) if self.is_damaged else unavailable(self.record)

    def _is_down(self) -> bool:
        return self.is_damaged or (isinstance(self._route, HomeRoute) and self._route.is_down())


def _ignore(result: object) -> None:
    """No-op: the caller does not wait for the outcome."""
