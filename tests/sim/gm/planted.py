"""Known ways to get guaranteed multicast wrong, to show that the simulator finds them.

None of this is in production code. Names are those of the rules they break (docs/planted-bugs.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from gm.core.effects import RingDelivery
from gm.core.ledger import Ledger
from gm.core.member import Member
from gm.core.messages import Activity, Item, Message, PublisherState
from gm.core.view import MemberId, View


class DeathAtOnce(Member):
    """G1: the dead are erased, and their death told, before what they had in flight is through."""

    def _tend_heritage(self) -> None:
        if self.is_live:
            unmarked = self._heir.unmarked()
            self._heir.marked(unmarked, 0)
            for dead in self._heir.came_round(0):
                self._completed(dead)


class CompleteByAcks(Member):
    """G1a: an heir takes the dead for complete when all that it has of them was acknowledged.

    gm.erl's rule. An heir that joined late may have less of the dead than others have.
    """

    def _tend_heritage(self) -> None:
        if not self.is_live:
            return
        for dead in self._heir.unmarked():
            ledger = self._ledgers.get(dead)
            if ledger is None or ledger.done == ledger.last:
                self._heir.marked([dead], 0)
        for dead in self._heir.came_round(0):
            self._completed(dead)

    def _catch_up(self, states: Mapping[MemberId, PublisherState]) -> None:
        super()._catch_up(states)
        for dead in self._heir.dead:
            if dead in states:
                self._came_round_of(dead, states[dead].done + len(states[dead].pubs))

    def _take_item(self, item: Item, ticket: int) -> bool:
        if item.publisher in self._heir.dead and item.pubs:
            self._came_round_of(item.publisher, item.first + len(item.pubs) - 1)
            return True
        return super()._take_item(item, ticket)

    def _came_round_of(self, dead: MemberId, number: int) -> None:
        ledger = self._ledgers.get(dead)
        if ledger is not None and min(ledger.last, number) > ledger.done:
            ledger.settle(min(ledger.last, number))
            self._ack(dead, ledger.done)


class MarkOvertakes(Member):
    """G1b: marks do not wait behind what others had broadcast before them."""

    def _tend_heritage(self) -> None:
        unsynced = {dead: self._ledgers[dead] for dead in self._heir.dead if dead in self._ledgers}
        forwarded = {dead: ledger.forwarded for dead, ledger in unsynced.items()}
        for ledger in unsynced.values():
            ledger.forwarded = ledger.last
        super()._tend_heritage()
        for dead, ledger in unsynced.items():
            ledger.forwarded = max(ledger.done, forwarded[dead])

    def _learn(
        self, publisher: MemberId, ledger: Ledger, pubs: Sequence[bytes], ticket: int
    ) -> None:
        super()._learn(publisher, ledger, pubs, ticket)
        if not any(pubs) and ledger.forwarded + len(pubs) == ledger.last:
            _, _, first, marks = self._unsynced.pop()
            self._unsynced.appendleft((0, publisher, first, marks))


class ReturnedAtOnce(Member):
    """P19r: a broadcast counts as returned when it is sent."""

    def _publish(self, payload: bytes) -> int:
        number = super()._publish(payload)
        if payload and number > self._own.done:
            self._effects.returned.append(number)
        return number


class NoCatchup(Member):
    """P21: a change of neighbours begins without a catch-up."""

    def _settle_into(self) -> None:
        super()._settle_into()
        if self.is_live:
            self._is_catchup_due = False

    def _left_changed(self) -> None:
        if not self.is_live:
            super()._left_changed()

    def _take_activity(self, activity: Activity) -> None:
        self._step_in = activity.step - 1
        super()._take_activity(activity)


class TakesFromAnyone(Member):
    """P21any: ring messages of members that are not the left neighbour are processed."""

    def _is_from_left(self, sender: MemberId) -> bool:
        return not self._is_alone

    def _take_activity(self, activity: Activity) -> None:
        self._step_in = activity.step - 1
        super()._take_activity(activity)


class TakesEarly(Member):
    """P21new: messages of views that are not known here yet are processed at once."""

    def receive(self, sender: MemberId, view_version: int, message: Message) -> None:
        if not self.is_stopped:
            self._take(sender, view_version, message)


class ForwardsUnsynced(Member):
    """P15: what is not durable here is forwarded."""

    def _forward_synced(self) -> None:
        self._synced = self._ticket
        super()._forward_synced()


class CatchupOfUnsynced(Member):
    """P15c: a catch-up offers what is not durable here."""

    def _send_catchup(self) -> None:
        for ledger in self._ledgers.values():
            ledger.forwarded = ledger.last
        super()._send_catchup()


class IgnoresGaps(Member):
    """P21gap: where numbers are missing, it goes on with those that came."""

    def _take_activity(self, activity: Activity) -> None:
        self._step_in = activity.step - 1
        super()._take_activity(activity)

    def _take_item(self, item: Item, ticket: int) -> bool:
        ledger = self._ledgers.get(item.publisher)
        if ledger is not None and item.pubs and item.first > ledger.last + 1:
            ledger.last = item.first - 1
        return super()._take_item(item, ticket)

    def link_up(self, node: str) -> None:
        """A new stream is like the old one."""


class JoinsWithoutReplay(Member):
    """P20r: a joiner adopts what is on its way, and does not deliver it."""

    def _catch_up(self, states: Mapping[MemberId, PublisherState]) -> None:
        is_joining = not self.is_live
        super()._catch_up(states)
        if is_joining:
            kept: list[RingDelivery] = []
            self._effects.deliveries = kept
            self._synced = self._ticket


class OffersEarly(Member):
    """P20s: a joiner offers what it has synced of what it took over, before it has all.

    This code did so; seeds found it.
    """

    @property
    def _is_source(self) -> bool:
        return self.is_live


class TakesHalves(Member):
    """P21half: the rest of a catch-up whose stream broke is taken for the whole.

    This code did so; seeds found it.
    """

    def _ask_left(self) -> None:
        super()._ask_left()
        self._parts = {}


class KeepsForgotten(Member):
    """GM7: acks are not passed on."""

    def _ack(self, publisher: MemberId, number: int) -> None:
        """Nobody else forgets."""


class TellsDeathWithView(Member):
    """GM6: a death is told with the view that has it, not with the one that erases it."""

    def view_changed(self, view: View) -> None:
        before = self.view.alive()
        super().view_changed(view)
        dead = [m for m in before if m in view.known() and not view.contains_alive(m)]
        self._effects.deaths = [m for m in self._effects.deaths if m in before] + dead


class GoesOnRemoved(Member):
    """G4: who is not in the view any more goes on as if it were."""

    def view_changed(self, view: View) -> None:
        if view.contains_alive(self.me):
            super().view_changed(view)


@dataclasses.dataclass(frozen=True)
class Planted:
    """What is done wrong in a run."""

    member: type[Member] = Member


HONEST: Final = Planted()
BUGS: Final = {
    "G1": Planted(DeathAtOnce),
    "G1a": Planted(CompleteByAcks),
    "G1b": Planted(MarkOvertakes),
    "G4": Planted(GoesOnRemoved),
    "GM6": Planted(TellsDeathWithView),
    "GM7": Planted(KeepsForgotten),
    "P15": Planted(ForwardsUnsynced),
    "P15c": Planted(CatchupOfUnsynced),
    "P19r": Planted(ReturnedAtOnce),
    "P20r": Planted(JoinsWithoutReplay),
    "P20s": Planted(OffersEarly),
    "P21": Planted(NoCatchup),
    "P21any": Planted(TakesFromAnyone),
    "P21gap": Planted(IgnoresGaps),
    "P21half": Planted(TakesHalves),
    "P21new": Planted(TakesEarly),
}
