"""One member of one ring, without IO: views, messages and broadcasts in, `MemberEffects` out.

See effects.py for what the host must do with them, and the package's docstring for the rules and
why they hold. What this class does not do: read a clock, log, raise for anything a peer can cause.

Invariants:
    1. Of each publisher a member knows 1..last without a gap, from where it joined on.
    2. What is `forwarded` was durable here first, or needed not be.
    3. Everything for the right neighbour leaves in order, after a catch-up that covers all before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from gm.core import parts
from gm.core.effects import Counters, MemberEffects, RingDelivery, Send, no_effects
from gm.core.heir import Heir
from gm.core.held import Held
from gm.core.ledger import Ledger
from gm.core.limits import MemberLimits
from gm.core.messages import (
    MARK,
    Activity,
    Catchup,
    Item,
    Message,
    Need,
    PublisherState,
)
from gm.core.outbox import NeighbourOutbox
from gm.core.view import MemberId, View
from gm.errors import InvariantViolated


class Member:
    """One member of one ring.

    Args:
        me: This member, alive in `view`.
        view: The view that added it, or a later one.
        founder: It begins with an empty state instead of waiting for its neighbour's: the first
            member of a ring, or one that recovered from disk as the only one.
        limits: Bounds.

    Raises:
        ValueError: If `me` does not live in `view`.
    """

    def __init__(
        self, me: MemberId, view: View, *, founder: bool, limits: MemberLimits | None = None
    ) -> None:
        self.me = me
        self.view = view
        self.counters = Counters()
        self.is_live = founder
        self.is_stopped = False
        self.in_flight_bytes = 0
        self._limits = limits or MemberLimits()
        self._left = self._right = me
        self._heir = Heir()
        self._is_alone = True
        self._is_awaiting = not founder  # a catch-up: nothing else of the left neighbour counts
        # Of a catch-up that is not all here; None where none has begun.
        self._parts: dict[MemberId, PublisherState] | None = None
        self._adopted = 0  # ticket of what a joiner took over; before that is synced it is mute
        self._step_in = 0
        self._step_out = 0
        self._own = Ledger()
        self._ledgers: dict[MemberId, Ledger] = {me: self._own}
        self._ticket = 0
        self._synced = 0
        # What waits to be durable before it is forwarded: ticket, publisher, first number, pubs.
        self._unsynced: deque[tuple[int, MemberId, int, Sequence[bytes]]] = deque()
        self._is_catchup_due = False
        self._outbox = NeighbourOutbox(self._limits.message_bytes_max)
        self._held = Held(self._limits.held_bytes_max)
        self._effects = no_effects()
        self._settle_into()

    # -- inputs -------------------------------------------------------------------------------

    def view_changed(self, view: View) -> None:
        """Take a later view; views may be skipped, and an old one changes nothing."""
        if self.is_stopped or view.version <= self.view.version:
            return
        before = self.view.known()
        self.view = view
        if not view.contains_alive(self.me):
            self._stop()
            return
        known = view.known()
        self._effects.births += [member for member in known if member not in before]
        for member in before:
            if member not in known:
                self._effects.deaths.append(member)
                self._ledgers.pop(member, None)
        self._settle_into()
        self._release_held()

    def receive(self, sender: MemberId, view_version: int, message: Message) -> None:
        """Take what a member sent to this one in the view `view_version` of its own.

        Stale and foreign messages are counted and dropped (P21).
        """
        if self.is_stopped:
            self.counters.foreign += 1
        elif view_version > self.view.version:
            if self._held.put(sender, view_version, message):
                self.counters.held_newer += 1
            else:
                self.counters.future_overflow += 1
        else:
            self._take(sender, view_version, message)

    def broadcast(self, payload: bytes) -> int:
        """Send a payload to all members of the view, this one excepted; its number.

        It comes back in `MemberEffects.returned`, at once where there is nobody else.

        Args:
            payload: 1 to `payload_bytes_max` bytes.

        Raises:
            ValueError: If it is empty or too long.
            InvariantViolated: If this member is not live, or has stopped: then it speaks for
                nobody.
        """
        if not 0 < len(payload) <= self._limits.payload_bytes_max:
            raise ValueError(
                f"a broadcast has 1 to {self._limits.payload_bytes_max} bytes, not {len(payload)}"
            )
        if self.is_stopped or not self.is_live:
            raise InvariantViolated(f"{self.me} broadcasts before it is live or after its end")
        return self._publish(payload)

    def link_up(self, node: str) -> None:
        """A new data stream to or from a node: what was on the way on the old one may be lost."""
        if self.is_stopped or self._is_alone:
            return
        if self._right.node == node:
            self._is_catchup_due = True
        if self._left.node == node:
            self._ask_left()

    def synced(self, ticket: int) -> None:
        """The owner is done with all deliveries up to this ticket: they are forwarded."""
        self._synced = max(self._synced, ticket)
        if not self.is_stopped:
            self._forward_synced()
            self._tend_heritage()

    def take_effects(self) -> MemberEffects:
        """Return the effects since the last call."""
        if self._is_source and not self._is_alone and not self.is_stopped:
            if self._is_catchup_due:
                self._send_catchup()
            if self._outbox:
                for items in self._outbox.take(self._is_dead):
                    self._send_right(Activity(self._next_step(), items))
        effects, self._effects = self._effects, no_effects()
        return effects

    @property
    def _is_source(self) -> bool:
        """True if it may send to the right: a joiner first makes durable what it took over.

        What it took over may be acknowledged without it, since it is older than its joining. Were
        only a part of that forwarded, a joiner on its right would miss what all others forgot.
        """
        return self.is_live and self._adopted <= self._synced

    def erasures_due(self) -> tuple[MemberId, ...]:
        """All dead members this one may have erased; what a host repeats from time to time."""
        return tuple(self._heir.complete)

    # -- the place in the ring ----------------------------------------------------------------

    def _settle_into(self) -> None:
        """Find the neighbours in the view, and do what a change of them demands."""
        left, right = self.view.left(self.me), self.view.right(self.me)
        is_left_new, is_right_new = left != self._left, right != self._right
        self._left, self._right = left, right
        self._is_alone = right == self.me
        if self._is_alone:
            self._be_alone()
        elif is_right_new:
            self._is_catchup_due = True
        if is_left_new and not self._is_alone:
            self._left_changed()
        self._inherit(self.view.aliases(self.me))

    def _left_changed(self) -> None:
        self._ask_left()

    def _ask_left(self) -> None:
        """Take nothing from the left neighbour before a catch-up (P21)."""
        self._is_awaiting = True
        self._parts = None
        self.counters.needs_sent += 1
        self._effects.sends.append(Send(self._left, self.view.version, Need()))

    def _be_alone(self) -> None:
        """Finish everything that is under way: this member is alone."""
        self._outbox.clear()
        self._unsynced.clear()
        self._is_catchup_due = False
        if self.is_live:
            self._is_awaiting = False
            self._came_round(self._own.last)
            self._ledgers = {self.me: self._own}

    def _inherit(self, dead: tuple[MemberId, ...]) -> None:
        for member in self._heir.inherit(dead):
            self.counters.takeovers += 1
            ledger = self._ledgers.get(member)
            if ledger is not None and ledger.pubs:
                self.counters.takeovers_in_flight += 1
        self._tend_heritage()

    def _tend_heritage(self) -> None:
        """Send a mark behind all that is here of the dead; see heir.py."""
        if not self._heir.is_waiting or not self.is_live:
            return
        unmarked = [
            member
            for member in self._heir.unmarked()
            if (ledger := self._ledgers.get(member)) is None or ledger.forwarded == ledger.last
        ]
        if unmarked:
            self.counters.marks += 1
            self._heir.marked(unmarked, self._publish(MARK))
        for member in self._heir.came_round(self._own.done):
            self._completed(member)

    def _completed(self, dead: MemberId) -> None:
        self.counters.erasures += 1
        self._effects.erase_due.append(dead)
        ledger = self._ledgers.get(dead)
        if ledger is not None and ledger.last > ledger.done:
            ledger.settle(ledger.last)
            self._ack(dead, ledger.last)

    def _stop(self) -> None:
        self.is_stopped = True
        self._effects.stopped = True
        self._held.clear()
        self._unsynced.clear()
        self._outbox.clear()

    def _is_dead(self, member: MemberId) -> bool:
        return not self.view.contains_alive(member)

    # -- messages -----------------------------------------------------------------------------

    def _release_held(self) -> None:
        for sender, view_version, message in self._held.release(self.view.version):
            self._take(sender, view_version, message)
        for sender in list(self._held.overflowed):
            del self._held.overflowed[sender]
            # What it said is lost, like on a broken link, and is got back like there.
            if sender == self._left and not self._is_alone:
                self._ask_left()
            if sender == self._right and not self._is_alone:
                self._is_catchup_due = True

    def _take(self, sender: MemberId, view_version: int, message: Message) -> None:
        if isinstance(message, Need):
            if sender == self._right and not self._is_alone:
                self.counters.needs_answered += 1
                self._is_catchup_due = True
            else:
                self._drop(sender)
            return
        if not self._is_from_left(sender):
            self._drop(sender)
            return
        if view_version < self.view.version:
            self.counters.older_processed += 1
        if isinstance(message, Catchup):
            self._take_catchup(message)
        elif self._is_awaiting:
            self.counters.before_catchup += 1
        else:
            self._take_activity(message)
        self._forward_synced()
        self._tend_heritage()

    def _is_from_left(self, sender: MemberId) -> bool:
        return sender == self._left and not self._is_alone

    def _drop(self, sender: MemberId) -> None:
        if sender in self.view.known():
            self.counters.stale += 1
        else:
            self.counters.foreign += 1

    def _take_activity(self, activity: Activity) -> None:
        step = self._step_in + 1
        if activity.step != step:
            if activity.step < step:
                self.counters.duplicate += 1
            else:
                self._gap()
            return
        self._step_in = step
        ticket = self._ticket + 1
        for item in activity.items:
            if not self._take_item(item, ticket):
                self._gap()
                break
        self._seal(ticket)

    def _gap(self) -> None:
        self.counters.gaps += 1
        self._ask_left()

    def _take_item(self, item: Item, ticket: int) -> bool:
        """Take news about one publisher; False if some before them are missing."""
        publisher = item.publisher
        if publisher == self.me:
            self._came_round(item.seen)
            return True
        ledger = self._ledgers.get(publisher)
        if ledger is None:
            if publisher not in self.view.known():
                return True  # erased: all it broadcast is complete
            ledger = self._ledgers[publisher] = Ledger()
        if item.pubs:
            known = ledger.last + 1 - item.first
            if known < 0:
                return False
            pubs = item.pubs
            if known:
                self.counters.duplicate += min(known, len(pubs))
                pubs = pubs[known:]
            if pubs:
                self._learn(publisher, ledger, pubs, ticket)
        if item.acked > ledger.done:
            if item.acked > ledger.last:
                return False
            ledger.settle(item.acked)
            self._ack(publisher, item.acked)
        return True

    def _learn(
        self, publisher: MemberId, ledger: Ledger, pubs: Sequence[bytes], ticket: int
    ) -> None:
        """Deliver what is new, and let it wait to be durable before it is forwarded."""
        first = ledger.last + 1
        ledger.extend(pubs)
        deliveries = self._effects.deliveries
        for number, payload in enumerate(pubs, first):
            if payload:
                deliveries.append(RingDelivery(publisher, number, payload, ticket))
                self._ticket = ticket
        self._unsynced.append((ticket, publisher, first, pubs))
        if self._heir.learned(publisher):
            # Only those behind the dead member knew it till now: on round with it.
            self.counters.late_for_heir += len(pubs)

    def _seal(self, ticket: int) -> None:
        """Close what one message brought: it is forwarded as a whole, marks never before the rest.

        A message of marks alone has no ticket of its own and goes with the last delivery before.
        """
        if self._ticket < ticket:
            marks = []
            while self._unsynced and self._unsynced[-1][0] == ticket:
                marks.append(self._unsynced.pop())
            for _, publisher, first, pubs in reversed(marks):
                self._unsynced.append((self._ticket, publisher, first, pubs))

    def _take_catchup(self, catchup: Catchup) -> None:
        if catchup.is_first:
            before: dict[MemberId, PublisherState] = {}
        elif self._parts is None:
            self.counters.before_catchup += 1
            return
        elif catchup.step != self._step_in + 1:
            self._gap()
            return
        else:
            before = self._parts
        self._step_in = catchup.step
        whole = parts.join(before, catchup.states)
        self._is_awaiting = not catchup.is_last
        self._parts = None if catchup.is_last else whole
        if catchup.is_last:
            self._catch_up(whole)

    def _catch_up(self, states: Mapping[MemberId, PublisherState]) -> None:
        self.counters.catchups_taken += 1
        is_joining, self.is_live = not self.is_live, True
        known = self.view.known()
        ticket = self._ticket + 1
        for publisher, state in states.items():
            if publisher == self.me:
                self._came_round(state.done)
            elif publisher in known:
                self._compare(publisher, state, ticket, is_joining=is_joining)
        self._seal(ticket)
        if is_joining:
            self.counters.adopted += 1
            self._adopted = self._ticket
            self._is_catchup_due = True

    def _compare(
        self, publisher: MemberId, state: PublisherState, ticket: int, *, is_joining: bool
    ) -> None:
        ledger = self._ledgers.get(publisher)
        if ledger is None:
            ledger = self._ledgers[publisher] = Ledger(state.done if is_joining else 0)
        if state.done > ledger.last:
            raise InvariantViolated(
                f"{self.me} has {publisher} up to {ledger.last}, all others forgot {state.done}"
            )
        if state.done > ledger.done:
            ledger.settle(state.done)
            self._ack(publisher, state.done)
        pubs = state.pubs[ledger.last - state.done :]
        if pubs:
            if is_joining:
                self.counters.replayed += len(pubs)
            else:
                self.counters.learned += len(pubs)
            self._learn(publisher, ledger, pubs, ticket)

    # -- to the right -------------------------------------------------------------------------

    def _publish(self, payload: bytes) -> int:
        own = self._own
        own.extend((payload,))
        own.forwarded = own.last
        self.in_flight_bytes += len(payload)
        if self._is_alone:
            self._came_round(own.last)
        else:
            self._outbox.pubs(self.me, own.last, (payload,))
        return own.last

    def _came_round(self, number: int) -> None:
        """Own broadcasts up to a number are with everyone."""
        own = self._own
        first, number = own.done + 1, min(number, own.last)
        if number < first:
            return
        for gone, payload in enumerate(own.settle(number), first):
            if payload:
                self._effects.returned.append(gone)
                self.in_flight_bytes -= len(payload)
        if not self._is_alone:
            self._outbox.ack(self.me, number)

    def _ack(self, publisher: MemberId, number: int) -> None:
        """Pass on that everything up to a number is with everyone; its publisher knows."""
        if publisher != self._right and not self._is_alone:
            self._outbox.ack(publisher, number)

    def _forward_synced(self) -> None:
        unsynced = self._unsynced
        while unsynced and unsynced[0][0] <= self._synced:
            _, publisher, first, pubs = unsynced.popleft()
            ledger = self._ledgers.get(publisher)
            if ledger is None:
                continue  # erased meanwhile
            last = first + len(pubs) - 1
            if last <= ledger.forwarded:
                continue  # acknowledged meanwhile: it needs no forwarding
            if first <= ledger.forwarded:
                pubs = pubs[ledger.forwarded + 1 - first :]
                first = ledger.forwarded + 1
            ledger.forwarded = last
            if publisher == self._right:
                self._outbox.seen(publisher, last)
            else:
                self._outbox.pubs(publisher, first, pubs)

    def _send_catchup(self) -> None:
        """Begin the stream to the right anew: all that was forwarded, in as many as it takes."""
        self._is_catchup_due = False
        self.counters.catchups_sent += 1
        self._outbox.clear()
        states = {
            publisher: PublisherState(ledger.forwarded, ())
            if publisher == self._right
            else PublisherState(ledger.done, ledger.sent())
            for publisher, ledger in self._ledgers.items()
        }
        cuts = list(parts.cut(states, self._limits.message_bytes_max))
        for index, part in enumerate(cuts):
            catchup = Catchup(
                self._next_step(), part, is_first=index == 0, is_last=index == len(cuts) - 1
            )
            self._send_right(catchup)

    def _next_step(self) -> int:
        self._step_out += 1
        return self._step_out

    def _send_right(self, message: Message) -> None:
        self._effects.sends.append(Send(self._right, self.view.version, message))
