"""Membership changes as functions on a configuration. One voter at a time, so majorities overlap.

A configuration takes effect where it stands in the log, committed or not (thesis 4.1), and is
taken back when its entry is truncated; `History` keeps what is needed for that. Who may propose a
change, and when, is the leader's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from raft.core.messages import CONFIG, Configuration, Entry, SnapshotMeta

ChangeKind = Literal["voter", "learner", "remove", "update"]


class ConfigChange(msgspec.Struct, frozen=True):
    """One step: make `node` a voter (promoting a learner), a learner (demoting), or remove it."""

    kind: ChangeKind
    node: str


class InvalidChange(msgspec.Struct, frozen=True):
    """The reason why a change is not possible: a value, not an exception."""

    text: str


def simple(
    configuration: Configuration, changes: Iterable[ConfigChange]
) -> Configuration | InvalidChange:
    """Apply changes that together alter at most one voter.

    Args:
        configuration: Where to start.
        changes: Steps in order; those with an empty node name are ignored.

    Returns:
        The new configuration, or why there is none.

    Source:
        etcd-io/raft confchange, behaviour of `Simple`; Raft thesis 4.1.
    """
    voters = set(configuration.voters)
    learners = set(configuration.learners)
    for change in changes:
        node = change.node
        if not node or change.kind == "update":
            continue
        if change.kind == "remove":
            voters.discard(node)
            learners.discard(node)
        elif change.kind == "voter":
            voters.add(node)
            learners.discard(node)
        else:
            voters.discard(node)
            learners.add(node)
    if not voters:
        return InvalidChange("removed all voters")
    if len(voters ^ set(configuration.voters)) > 1:
        return InvalidChange("more than one voter changed without entering joint config")
    return Configuration(tuple(sorted(voters)), tuple(sorted(learners)))


def encode(configuration: Configuration) -> bytes:
    """The data of a CONFIG entry: the whole resulting configuration, not the step."""
    return msgspec.msgpack.encode(configuration)


def decode(data: bytes) -> Configuration:
    """The configuration of a CONFIG entry."""
    return msgspec.msgpack.decode(data, type=Configuration)


class History:
    """The configurations of the log, by the index where each begins.

    Invariant: indexes strictly rise. The first one is at or before the log's first entry, unless an
    operator forced a configuration: then it holds for all of the log before it, too.
    """

    __slots__ = ("_steps",)

    def __init__(self, index: int, configuration: Configuration) -> None:
        self._steps = [(index, configuration)]

    @property
    def current(self) -> Configuration:
        """The configuration in force: the last in the log."""
        return self._steps[-1][1]

    @property
    def last_index(self) -> int:
        """The log index of the configuration in force."""
        return self._steps[-1][0]

    def at(self, index: int) -> Configuration:
        """The configuration that was in force at `index`."""
        for start, configuration in reversed(self._steps):
            if start <= index:
                return configuration
        return self._steps[0][1]

    def appended(self, entries: Sequence[Entry]) -> bool:
        """Take over the configurations among new entries; true if there was one."""
        found = False
        for entry in entries:
            if entry.kind == CONFIG:
                self._steps.append((entry.index, decode(entry.data)))
                found = True
        return found

    def truncated(self, index: int) -> bool:
        """Forget configurations at `index` and later; true if one was forgotten."""
        before = len(self._steps)
        while len(self._steps) > 1 and self._steps[-1][0] >= index:
            self._steps.pop()
        return len(self._steps) != before

    def compacted(self, index: int) -> None:
        """Drop configurations that ended before `index`."""
        while len(self._steps) > 1 and self._steps[1][0] <= index:
            self._steps.pop(0)

    def restored(self, meta: SnapshotMeta) -> None:
        """Start again from a snapshot."""
        self._steps = [(meta.index, meta.configuration)]
