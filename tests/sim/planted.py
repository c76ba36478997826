"""Known Raft bugs, to show that the simulator finds them. None of this is in production code.

The numbers are the project's own list; each bug was shipped by some Raft implementation once.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from raft.core import replication
from raft.core.messages import Message
from raft.core.node import RaftNode
from raft.core.ready import Refusal, Refused, Role


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
        if refused is not None and refused.reason is Refusal.TERM_NOT_COMMITTED:
            return None
        return refused


class IgnoresGroup(RaftNode):
    """R10: takes messages of any incarnation of the group."""

    def accepts(self, message: Message) -> bool:
        return message.to == self.state.name


@dataclasses.dataclass(frozen=True)
class Planted:
    """What is done wrong in a run."""

    node_class: type[RaftNode] = RaftNode
    promises_wait: bool = True
    splits_hard_state: bool = False
    trusts_failed_sync: bool = False
    keeps_stale_replica: bool = False
    re_offers: bool = True


HONEST: Final = Planted()
BUGS: Final = {
    "R1": Planted(promises_wait=False),
    "R2": Planted(splits_hard_state=True),
    "R3": Planted(node_class=ForgetsVote),
    "R4": Planted(trusts_failed_sync=True),
    "R5": Planted(node_class=CountsOldTerms),
    "R6": Planted(node_class=ChangesTooEarly),
    "R10": Planted(node_class=IgnoresGroup, keeps_stale_replica=True),
    "R17": Planted(re_offers=False),
}
