"""Known Raft bugs, to show that the simulator finds them. None of this is in production code.

docs/planted-bugs.md names them; each R bug was shipped by some Raft implementation once. D7
promises what a full disk holds back; T1 and T2 are of leaders that send some followers later.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from raft.core import replication, thrifty
from raft.core.messages import HeartbeatReply, Message
from raft.core.node import RaftNode
from raft.core.ready import RefusalReason, Refused, Role


class ForgetsVote(RaftNode):
    """R3: steps down within a term and clears the vote of that term."""

    def step(self, message: Message) -> None:
        before = (self.role, self.term)
        super().step(message)
        self._forget(before)

    def tick(self) -> None:
        before = (self.role, self.term)
        super().tick()
        self._forget(before)

    def _forget(self, before: tuple[Role, int]) -> None:
        if before == (Role.CANDIDATE, self.term) and self.role is Role.FOLLOWER:
            self.state.vote = None


class CountsOldTerms(RaftNode):
    """R5: commits entries of earlier terms by counting replicas (figure 8 of the paper)."""

    def step(self, message: Message) -> None:
        super().step(message)
        replica = self.state
        if replica.role is Role.LEADER:
            index = replica.quorum_of({node: p.match for node, p in replica.progress.items()})
            if replica.log.commit_to(min(index, replica.log.last_index)):
                replica.must_replicate = True
                replication.maybe_commit(replica)


class ChangesTooEarly(RaftNode):
    """R6: takes a membership change before an entry of its own term is committed."""

    def change_refusal(self) -> Refused | None:
        refused = super().change_refusal()
        if refused is not None and refused.reason is RefusalReason.TERM_NOT_COMMITTED:
            return None
        return refused


class IgnoresGroup(RaftNode):
    """R10: takes messages of any incarnation of the group."""

    def accepts(self, message: Message) -> bool:
        return message.to == self.state.name


class TakesHedgeForAnswer(RaftNode):
    """T1: counts entries that it has only just sent to those whom it had withheld them from."""

    def hedge(self) -> None:
        was_wanted = self.wants_hedge
        super().hedge()
        replica = self.state
        if was_wanted and not self.wants_hedge:
            has = {node: progress.next - 1 for node, progress in replica.progress.items()}
            has[replica.name] = replica.log.unstable.stable
            index = replica.quorum_of(has)
            if replica.log.term(index) == replica.term:
                replica.log.commit_to(index)


class WithholdsForGood(RaftNode):
    """T2: what was withheld from a follower leaves only when it has become much."""

    def tick(self) -> None:
        self.state.thrifty.has_withheld = False
        super().tick()

    def step(self, message: Message) -> None:
        if isinstance(message, HeartbeatReply):
            progress = self.state.progress.get(message.sender)
            eager_followers = (thrifty.eager_followers(self.state) if progress else None) or ()
            is_later = bool(eager_followers) and message.sender not in eager_followers
            if progress and is_later and thrifty.may_wait(self.state, message.sender, progress):
                progress.is_recently_active = True
                return
        super().step(message)


@dataclasses.dataclass(frozen=True)
class Planted:
    """What is done wrong in a run."""

    node_class: type[RaftNode] = RaftNode
    promises_wait: bool = True
    full_disk_waits: bool = True
    splits_hard_state: bool = False
    trusts_failed_sync: bool = False
    keeps_stale_replica: bool = False
    re_offers: bool = True
    knows_it_is_blank: bool = True
    loses_disks: bool = False  # where the seed does not, too


HONEST: Final = Planted()
BUGS: Final = {
    "D7": Planted(full_disk_waits=False),
    "R1": Planted(promises_wait=False),
    "R2": Planted(splits_hard_state=True),
    "R3": Planted(node_class=ForgetsVote),
    "R4": Planted(trusts_failed_sync=True),
    "R5": Planted(node_class=CountsOldTerms),
    "R6": Planted(node_class=ChangesTooEarly),
    "R10": Planted(node_class=IgnoresGroup, keeps_stale_replica=True),
    "R11": Planted(knows_it_is_blank=False, loses_disks=True),
    "R17": Planted(re_offers=False),
    "T1": Planted(node_class=TakesHedgeForAnswer),
    "T2": Planted(node_class=WithholdsForGood),
}
