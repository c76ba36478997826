"""Several cores joined by a list: no time, no loss but what a test asks for, syncs at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from raft.core.messages import NORMAL, Configuration, Entry, HardState, Message, Snapshot
from raft.core.node import NodeConfig, RaftNode, SavedState
from raft.core.ready import Ready, Refused, Role
from tests.sim.disk import MemoryLog

GROUP = 7
Filter = Callable[[Message], bool]


def config(name: str, **knobs: int) -> NodeConfig:
    return NodeConfig(group=GROUP, name=name, **knobs)


class Member:
    """A core with its log; `hold_sync` keeps what waits for the sync back."""

    def __init__(
        self,
        name: str,
        voters: Iterable[str],
        learners: Iterable[str] = (),
        *,
        log: MemoryLog | None = None,
        is_blank: bool = False,
        **knobs: int,
    ) -> None:
        self.name = name
        self.is_blank = is_blank
        self.knobs = knobs
        self.log = log or MemoryLog(Configuration(tuple(voters), tuple(learners)))
        self.hold_sync = False
        self.unsynced: list[Ready] = []
        self.applied: list[Entry] = []
        self.restored: list[Snapshot] = []
        self.reads: list[tuple[int, int]] = []
        self.start()

    def start(self) -> None:
        stored = self.log.stored
        saved = SavedState(
            self.log.hard_state,
            stored.meta.configuration if stored else self.log.initial,
            stored.meta.index if stored else 0,
            is_blank=self.is_blank,
        )
        self.node = RaftNode(
            config(self.name, **self.knobs), saved, self.log, random.Random(self.name)
        )
        self.unsynced = []

    def write(self, ready: Ready) -> None:
        if ready.snapshot is not None:
            self.log.install(ready.snapshot)
            self.restored.append(ready.snapshot)
        if ready.hard_state is not None:
            self.log.put_hard_state(ready.hard_state)
        if ready.entries:
            self.log.append(ready.entries)

    def drain(self) -> list[Message]:
        """Run Readys until there is none; the messages that may leave."""
        out: list[Message] = []
        node = self.node
        while node.has_ready():
            ready = node.ready()
            self.write(ready)
            out += ready.messages_now
            self.applied += [entry for entry in ready.committed if entry.kind == NORMAL]
            self.reads += [(state.context, state.index) for state in ready.read_states]
            node.advance(ready)
            self.unsynced.append(ready)
            if not self.hold_sync:
                out += self.sync()
        return out

    def sync(self) -> list[Message]:
        out: list[Message] = []
        for ready in self.unsynced:
            out += ready.messages_after_sync
            self.node.synced(ready.number)
        self.unsynced = []
        return out

    def values(self) -> list[bytes]:
        return [entry.data for entry in self.applied]

    def save_snapshot(self, index: int, parts: tuple[bytes, ...] = (b"one", b"two")) -> None:
        self.log.save_snapshot(Snapshot(self.node.snapshot_meta(index), parts))
        self.node.compact(index)
        self.log.trim(index)


class Net:
    """Members and the mail between them."""

    def __init__(self, *names: str, learners: Iterable[str] = (), **knobs: int) -> None:
        learners = tuple(learners)
        self.members = {
            name: Member(name, names, learners, **knobs) for name in (*names, *learners)
        }
        self.cut: set[tuple[str, str]] = set()
        self.drop: Filter = lambda _: False
        self.mail: list[Message] = []
        self.sent: list[Message] = []

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def isolate(self, name: str) -> None:
        for other in self.members:
            self.cut |= {(name, other), (other, name)}

    def heal(self) -> None:
        self.cut.clear()
        self.drop = lambda _: False

    def run(self, limit: int = 10_000) -> None:
        """Deliver until nothing moves."""
        for _ in range(limit):
            for member in self.members.values():
                self.post(member.drain())
            if not self.mail:
                return
            message = self.mail.pop(0)
            if (message.sender, message.to) in self.cut or self.drop(message):
                continue
            if message.to in self.members:
                self.members[message.to].node.step(message)
        raise AssertionError("the mail never ended")

    def post(self, messages: list[Message]) -> None:
        self.sent += messages
        self.mail += messages

    def tick(self, count: int = 1, only: Iterable[str] | None = None) -> None:
        for _ in range(count):
            for name in only or list(self.members):
                self.members[name].node.tick()
            self.run()

    def elect(self, name: str) -> None:
        """Make `name` leader, whatever it takes."""
        for member in self.members.values():
            if member.node.leader not in (None, name):
                member.node.peer_suspected(member.node.leader)
        self.members[name].node.campaign()
        self.run()
        assert self.members[name].node.role is Role.LEADER

    def propose(self, name: str, data: bytes) -> int:
        index = self.members[name].node.propose(data)
        assert not isinstance(index, Refused), index
        self.run()
        return index

    def leader(self) -> str | None:
        leaders = [m for m in self.members.values() if m.node.is_leader]
        return max(leaders, key=lambda m: m.node.term).name if leaders else None


def log_of(
    *terms: int, hard_state: HardState | None = None, voters: Iterable[str] = "abc"
) -> MemoryLog:
    """A log whose entries have these terms, as in the paper's figures."""
    log = MemoryLog(Configuration(tuple(voters)))
    log.log = [
        Entry(index, term, NORMAL, b"%d.%d" % (index, term))
        for index, term in enumerate(terms, start=1)
    ]
    log.hard_state = hard_state or HardState(max(terms, default=0))
    return log
