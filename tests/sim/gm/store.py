"""The agreed list of views: one atomic log of commands, which each node applies when it gets to it.

What group 0 does for one ring, without its elections: commands commit in one order after a delay,
a false one changes nothing, and a node never sees the log but as a prefix.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import TypeAlias

from gm.core.view import MemberId, Slot, View
from tests.sim.clock import Clock


@dataclasses.dataclass(frozen=True)
class State:
    """The log applied up to some index."""

    view: View
    boots: dict[str, str | None]
    founders: frozenset[MemberId]


@dataclasses.dataclass(frozen=True)
class Boot:
    """A node started: its earlier boots have ended (P1)."""

    node: str
    boot: str


@dataclasses.dataclass(frozen=True)
class Death:
    """A node was declared dead."""

    node: str
    boot: str


@dataclasses.dataclass(frozen=True)
class Found:
    """The ring begins with these nodes."""

    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Join:
    """A node comes in at the end of the list."""

    node: str
    boot: str


@dataclasses.dataclass(frozen=True)
class Leave:
    """A member leaves though its node lives."""

    member: MemberId


@dataclasses.dataclass(frozen=True)
class Erase:
    """A dead slot goes."""

    member: MemberId


@dataclasses.dataclass(frozen=True)
class Bump:
    """The version grows and nothing else changes, as with a promotion."""


@dataclasses.dataclass(frozen=True)
class Recover:
    """Nobody has the state any more: a node begins anew, and every other member ends."""

    node: str
    boot: str


Command: TypeAlias = Boot | Death | Found | Join | Leave | Erase | Bump | Recover


class ViewLog:
    """The log. `states[i]` is what i commands made."""

    def __init__(self, clock: Clock, rng: random.Random, commit_ms_max: int) -> None:
        self._clock = clock
        self._rng = rng
        self._commit_ms_max = commit_ms_max
        self.states = [State(View(0, ()), {}, frozenset())]
        self.stalled_until_ms = 0
        self.pending = 0
        self.on_commit: list[Callable[[Command, State], None]] = []
        self.may_recover: Callable[[], bool] = lambda: False

    @property
    def head(self) -> State:
        return self.states[-1]

    def propose(self, command: Command) -> None:
        """Commit it in a while, if it still fits then."""
        self.pending += 1
        delay = 1 + int(self._rng.random() * self._commit_ms_max)
        self._clock.after(delay, self._commit, command)

    def _commit(self, command: Command) -> None:
        wait = self.stalled_until_ms - self._clock.now_ms
        if wait > 0:
            self._clock.after(wait, self._commit, command)
            return
        self.pending -= 1
        state = self.apply(command)
        if state is not None:
            self.states.append(state)
            for listener in self.on_commit:
                listener(command, state)

    def apply(self, command: Command) -> State | None:
        """What a command makes of the head; None if it must not happen."""
        head = self.head
        match command:
            case Recover(node, boot):
                fits = head.boots.get(node) == boot and self.may_recover()
                return self._begin((node,)) if fits else None
            case Found(nodes):
                fits = not head.view.version and all(head.boots.get(node) for node in nodes)
                return self._begin(nodes) if fits else None
            case Boot() | Death() | Leave():
                return self._end_members(command)
        return self._change_ring(command)

    def _end_members(self, command: Boot | Death | Leave) -> State | None:
        head = self.head
        match command:
            case Boot(node, boot):
                boots = {**head.boots, node: boot}
                return self._end(boots, lambda m: m.node == node and m.boot != boot)
            case Death(node, boot) if head.boots.get(node) == boot:
                return self._end({**head.boots, node: None}, lambda m: m.node == node)
            case Leave(member) if len(head.view.alive()) > 1:
                return self._end(head.boots, lambda m: m == member)
        return None

    def _change_ring(self, command: Command) -> State | None:
        head = self.head
        ring, version = head.view.ring, head.view.version + 1
        match command:
            case Join(node, boot):
                alive = head.view.alive()
                if head.boots.get(node) != boot or not alive or any(m.node == node for m in alive):
                    return None
                ring = (*ring, Slot(MemberId(node, boot, version), True))
            case Erase(member):
                if Slot(member, False) not in ring:
                    return None
                ring = tuple(slot for slot in ring if slot.member != member)
        return dataclasses.replace(head, view=View(version, ring))

    def _begin(self, nodes: tuple[str, ...]) -> State:
        head = self.head
        version = head.view.version + 1
        members = [MemberId(node, head.boots[node] or "", version) for node in nodes]
        view = View(version, tuple(Slot(member, True) for member in members))
        return State(view, head.boots, head.founders | frozenset(members))

    def _end(
        self, boots: dict[str, str | None], is_ended: Callable[[MemberId], bool]
    ) -> State | None:
        head = self.head
        ring = tuple(Slot(m, alive and not is_ended(m)) for m, alive in head.view.ring)
        if not any(slot.alive for slot in ring):
            ring = ()
        if ring == head.view.ring:
            return State(head.view, boots, head.founders)
        return State(View(head.view.version + 1, ring), boots, head.founders)
