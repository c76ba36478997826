"""The checkers of invariants: each follows replicas step by step and raises at a violation."""

from __future__ import annotations

import zlib
from typing import NoReturn

from raft.core.messages import CONFIG, AppendReply, Entry, HardState, Message, Vote, VoteReply
from raft.core.node import RaftNode
from raft.core.ready import Ready
from tests.sim.disk import Disk


class SafetyViolation(Exception):
    """Something happened that must never happen."""


class LivenessViolation(Exception):
    """Something did not happen in time though nothing was in its way."""


def fail(rule: str, text: str) -> NoReturn:
    raise SafetyViolation(f"{rule}: {text}")


class Committed:
    """One committed entry: what everyone must agree on."""

    __slots__ = ("by_term", "check", "entry_term")

    def __init__(self, entry: Entry, by_term: int) -> None:
        self.entry_term = entry.term
        self.check = checksum(entry)
        self.by_term = by_term  # a leader of a later term must have the entry


def checksum(entry: Entry) -> int:
    return zlib.crc32(entry.data, entry.kind)


class GroupChecker:
    """The invariants of one group (one incarnation); outlives crashes of its replicas."""

    def __init__(self, group: int, *, outcomes_only: bool = False) -> None:
        self.group = group
        # Off: the rules whose breach is no harm by itself yet (no promise before its sync, no
        # counting of old terms, no early change). Then a bug must show in what it leads to.
        self.has_rules = not outcomes_only
        self.committed: dict[int, Committed] = {}
        self.commit_max = 0
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.entries: dict[tuple[int, int], tuple[int, int]] = {}  # -> (previous term, checksum)
        self.digests: dict[int, int] = {}

    # after every step

    def stepped(self, name: str, node: RaftNode, seen: Seen, disk: Disk) -> None:
        """Monotone term and commit, election safety, leader rules."""
        if node.term < seen.term:
            fail("term", f"{name} fell from term {seen.term} to {node.term}")
        if node.commit_index < seen.commit:
            fail("commit", f"{name} fell from {seen.commit} to {node.commit_index}")
        if node.is_leader:
            if seen.leader_term != node.term:
                self._elected(name, node, disk)
            elif node.last_index < seen.last_index:
                fail("leader append-only", f"{name} dropped entries {node.last_index + 1}..")
            if node.commit_index > seen.commit and seen.leader_term == node.term:
                term = node.state.log.term(node.commit_index)
                if term != node.term and self.has_rules:
                    fail("R5 commit by counting", f"{name} committed an entry of term {term}")
            seen.leader_term = node.term
        else:
            seen.leader_term = 0
        if node.commit_index > seen.commit:
            self._commits(name, node, seen.commit)
        seen.term, seen.commit, seen.last_index = node.term, node.commit_index, node.last_index

    def _elected(self, name: str, node: RaftNode, disk: Disk) -> None:
        if self.has_rules and disk.durable.hard_state.term < node.term:
            fail("promise before sync", f"{name} counted its own vote before it was durable")
        other = self.leaders.setdefault(node.term, name)
        if other != name:
            fail("election safety", f"{other} and {name} both lead term {node.term}")
        log = node.state.log
        for index in range(self.commit_max, max(log.base_index, self.commit_max - 50), -1):
            entry = self.committed.get(index)
            if entry is None or entry.by_term >= node.term:
                continue
            if log.term(index) != entry.entry_term:
                text = f"{name} leads term {node.term} without committed entry {index}"
                fail("leader completeness", text)

    def _commits(self, name: str, node: RaftNode, before: int) -> None:
        log = node.state.log
        index = max(before, log.base_index) + 1
        while index <= log.commit:
            for entry in log.slice(index, log.commit + 1, 1 << 30, 1 << 30):
                known = self.committed.get(entry.index)
                if known is None:
                    self.committed[entry.index] = Committed(entry, node.term)
                    self.commit_max = max(self.commit_max, entry.index)
                elif known.entry_term != entry.term or known.check != checksum(entry):
                    fail("state machine safety", f"{name} committed another entry {entry.index}")
                index = entry.index + 1

    def handed_out(self, name: str, node: RaftNode, ready: Ready) -> None:
        """Log matching, and membership changes only after the leader's own no-op (R6)."""
        previous = ready.entries[0].index - 1 if ready.entries else 0
        previous_term = node.state.log.term(previous) if ready.entries else 0
        for entry in ready.entries:
            mark = (previous_term or 0, checksum(entry))
            known = self.entries.setdefault((entry.index, entry.term), mark)
            if known[1] != mark[1] or (previous_term is not None and known[0] != mark[0]):
                fail("log matching", f"{name} has another entry {entry.index}.{entry.term}")
            previous_term = entry.term
            if entry.kind == CONFIG and node.is_leader and entry.term == node.term:
                own_first = node.state.term_start_index
                if node.commit_index < own_first and self.has_rules:
                    text = f"{name} changed members at {entry.index} before {own_first} committed"
                    fail("R6 change before own commit", text)

    def applied(self, name: str, index: int, digest: int) -> None:
        """Equal state after equal entries."""
        if self.digests.setdefault(index, digest) != digest:
            fail("state machine safety", f"{name} has another state after {index}")

    # at the border of a node

    def leaves(self, name: str, message: Message, disk: Disk) -> None:
        """No promise before its sync (R1); one vote per term, crashes included (R2, R3)."""
        durable = disk.durable
        if isinstance(message, AppendReply):
            if message.ok and durable.last_index() < message.match and self.has_rules:
                fail("promise before sync", f"{name} acknowledged {message.match}, not durable")
            return
        if isinstance(message, Vote):
            voted_for = name
        elif isinstance(message, VoteReply) and message.granted:
            voted_for = message.to
        else:
            return
        earlier = self.votes.setdefault((name, message.term), voted_for)
        if earlier != voted_for:
            text = f"{name} voted for {earlier} and {voted_for} in term {message.term}"
            fail("one vote per term", text)
        if durable.hard_state.term < message.term and self.has_rules:
            fail("promise before sync", f"{name} voted in {message.term}, not durable")

    def wiped(self, name: str) -> None:
        """A replica has lost its disk, and its promises; what others built on them must hold."""
        self.votes = {key: vote for key, vote in self.votes.items() if key[0] != name}

    def restarted(self, name: str, hard_state: HardState) -> None:
        """What was promised is still there after a crash."""
        if not self.has_rules:
            return
        vote = self.votes.get((name, hard_state.term))
        if vote is not None and hard_state.vote != vote:
            fail("one vote per term", f"{name} came back with another vote than {vote}")
        if any(n == name and term > hard_state.term for n, term in self.votes):
            fail("promise kept", f"{name} came back in {hard_state.term}, before its last vote")


class Seen:
    """What the checker saw of one replica since its last start."""

    __slots__ = ("commit", "last_index", "leader_term", "term")

    def __init__(self) -> None:
        self.term = 0
        self.commit = 0
        self.last_index = 0
        self.leader_term = 0
