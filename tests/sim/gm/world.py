"""One run: nodes, streams and the log under faults, then healing and the checks of liveness."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import dataclass

import msgspec

from gm.core.effects import Counters
from gm.core.view import MemberId
from gm.host import RingHandle
from tests.sim.clock import Clock
from tests.sim.gm.checkers import Checker, LivenessViolation
from tests.sim.gm.faults import Nemesis
from tests.sim.gm.node import SimNode
from tests.sim.gm.options import Options
from tests.sim.gm.planted import HONEST, Planted
from tests.sim.gm.store import Command, Found, Recover, State, ViewLog
from tests.sim.gm.streams import Streams

SETTLE_MS = 30_000  # after healing: boots, deaths, joins and erasures, with slow commits and lag
CONVERGE_MS = 3_000  # GM8: from the last change of the ring to a broadcast that has come round
RECOVER_MS = 1_000
TAIL = 400


@dataclass
class Result:
    """What a run that found nothing did."""

    trace_hash: int
    counts: Counter[str]


class World:
    """Everything of one run."""

    def __init__(self, options: Options, planted: Planted = HONEST) -> None:
        self.options = options
        self.planted = planted
        self.rng = random.Random(options.seed)
        self.clock = Clock()
        self.log = ViewLog(self.clock, self.rng, options.commit_ms_max)
        self.streams = Streams(self.clock, self.rng, options)
        self.checker = Checker(lambda: self.log.head, self._is_there)
        self.boots = 0
        self.counts: Counter[str] = Counter()
        self.tail: list[str] = []
        self.trace_hash = 0
        self.is_publishing = True
        self.nodes = [SimNode(self, f"n{i}") for i in range(options.nodes)]
        self.by_name = {node.name: node for node in self.nodes}
        self._lost_since_ms = -1
        self.log.on_commit.append(self._committed)
        self.log.may_recover = lambda: not self._has_state()
        self.nemesis = Nemesis(self)

    # -- the record ---------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Write down what happened."""
        line = f"[{self.clock.now_ms}] {text}"
        self.trace_hash = zlib.crc32(line.encode(), self.trace_hash)
        self.tail.append(line)
        if len(self.tail) > 2 * TAIL:
            del self.tail[:TAIL]

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def gather(self, ring: RingHandle) -> None:
        """Add up what a member that is gone counted."""
        for field in msgspec.structs.fields(Counters):
            self.counts[field.name] += getattr(ring.counters, field.name)

    def _committed(self, command: Command, state: State) -> None:
        self.count(type(command).__name__)
        self.note(f"commit {command} -> {state.view.version} {short(state)}")
        self.checker.committed(command, state)

    # -- what is true -------------------------------------------------------------------------

    def _is_there(self, member: MemberId) -> bool:
        node = self.by_name[member.node]
        return node.is_up and node.boot == member.boot

    def _has_state(self) -> bool:
        """Whether a living member, wrongly declared dead ones not counted, has the ring's state."""
        for member in self.log.head.view.alive():
            ring = self.by_name[member.node].ring
            is_founder = member in self.log.head.founders
            if self._is_there(member) and (
                is_founder if ring is None else ring.me == member and ring.is_live
            ):
                return True
        return False

    # -- what everyone does -------------------------------------------------------------------

    def _found(self) -> None:
        nodes = self.nodes if self.options.all_found else self.nodes[:1]
        self.log.propose(Found(tuple(node.name for node in nodes)))
        if not self.log.head.view.version:
            self.clock.after(200, self._found)

    def _watch(self) -> None:
        """Where nobody has the state any more, a node begins anew, as a recovery from disk does."""
        view = self.log.head.view
        if not view.version or self._has_state():
            self._lost_since_ms = -1
        elif self._lost_since_ms < 0:
            self._lost_since_ms = self.clock.now_ms
        elif self.clock.now_ms - self._lost_since_ms > RECOVER_MS:
            running = [node for node in self.nodes if node.is_up and node.was_booted()]
            if running:
                node = self.rng.choice(running)
                self.log.propose(Recover(node.name, node.boot))
        self.clock.after(200, self._watch)

    def _publish(self, node: SimNode) -> None:
        ring = node.ring
        gap = self.options.publish_gap_ms
        self.clock.after(1 + int(self.rng.random() * 2 * gap), self._publish, node)
        if ring is None or not node.is_running or not self.is_publishing:
            return
        for _ in range(1 if self.rng.random() < 0.8 else self.rng.randint(2, 6)):
            self.broadcast(node, ring)

    def broadcast(self, node: SimNode, ring: RingHandle) -> int:
        """Broadcast something that nobody else does; 0 if the member can't."""
        if not ring.is_live or ring.is_closed or ring.member.is_stopped:
            return 0
        self.count("broadcasts")
        payload = f"{ring.me.boot}.{ring.me.version}.{self.counts['broadcasts']}".encode()
        view = ring.view
        # Told first: where nobody else is there it comes back within the call's turn.
        number = ring.broadcast(payload)
        self.checker.broadcast(ring.me, number, payload, view)
        return number

    # -- phases -------------------------------------------------------------------------------

    def run(self) -> Result:
        """Run all phases.

        Raises:
            SafetyViolation: Something forbidden happened.
            LivenessViolation: The healed ring did not converge.
        """
        self.streams.connect(self.nodes)
        for node in self.nodes:
            node.start()
        self._found()
        self._watch()
        for node in self.nodes[: self.options.publishers]:
            self._publish(node)
        self._pass(self.options.fault_ms)
        self.note("heal")
        self.nemesis.heal()
        self._until(SETTLE_MS, self._is_settled, "the ring is not whole again")
        self.note("settled")
        self._until(CONVERGE_MS, self._has_one_view, "GM8: not everyone has the last view")
        self.is_publishing = False
        probes = {node.name: self._probe(node) for node in self.nodes}
        self._until(CONVERGE_MS, lambda: self._are_back(probes), "GM8: a broadcast is not back")
        self._until(CONVERGE_MS, lambda: not self._left_over(), "GM7: not everything is forgotten")
        self.checker.complete()
        for node in self.nodes:
            if node.ring is not None:
                self.gather(node.ring)
        self.counts["deliveries"] += self.checker.deliveries
        self.counts["returns"] += self.checker.returns
        self.counts["broken streams"] += self.streams.breaks
        for host in (node.host for node in self.nodes):
            self.counts["early"] += host.early_count
            self.counts["foreign"] += host.foreign_count
        return Result(self.trace_hash, self.counts)

    def _until(self, limit_ms: int, is_done: object, text: str) -> None:
        assert callable(is_done)
        end = self.clock.now_ms + limit_ms
        while not is_done():
            if self.clock.now_ms >= end:
                raise LivenessViolation(f"{text}\n{self.describe()}")
            self._pass(50)

    def _pass(self, length_ms: int) -> None:
        """Let time pass, up to the first violation."""
        end = self.clock.now_ms + length_ms
        self.clock.run_until(end, lambda: self.checker.violation is not None)
        if self.checker.violation is not None:
            raise self.checker.violation

    def _is_settled(self) -> bool:
        view = self.log.head.view
        is_whole = len(view.ring) == len(self.nodes) == len(view.alive())
        # Views that are late are the store's business; GM8 begins when they are there.
        is_known = all(node.applied == len(self.log.states) - 1 for node in self.nodes)
        return is_whole and is_known and not self.log.pending

    def _has_one_view(self) -> bool:
        version = self.log.head.view.version
        rings = [node.ring for node in self.nodes]
        return all(ring is not None and ring.view.version == version for ring in rings) and all(
            ring is not None and ring.is_live for ring in rings
        )

    def _probe(self, node: SimNode) -> int:
        assert node.ring is not None
        return self.broadcast(node, node.ring)

    def _are_back(self, probes: dict[str, int]) -> bool:
        for name, number in probes.items():
            ring = self.by_name[name].ring
            if ring is None or ring.member._own.done < number:
                return False
        return True

    def _left_over(self) -> list[str]:
        """GM7: what members still keep."""
        left = []
        for node in self.nodes:
            member = node.ring.member if node.ring is not None else None
            if member is None:
                continue
            for publisher, ledger in member._ledgers.items():
                if ledger.pubs or ledger.done != ledger.last:
                    left.append(f"{node.name} keeps {len(ledger.pubs)} of {publisher}")
            if member.in_flight_bytes or member._unsynced or member._outbox:
                left.append(f"{node.name} has something in flight")
            if member._held._by_sender or member._held._size_bytes:
                left.append(f"{node.name} holds messages of later views")
        return left

    def describe(self) -> str:
        """The state of everyone, for a failure."""
        lines = [f"head {short(self.log.head)}"]
        for node in self.nodes:
            ring = node.ring
            text = f"{node.name} up={node.is_up} boot={node.boot} applied={node.applied}"
            if ring is not None:
                member = ring.member
                ledgers = {
                    f"{p.node}.{p.version}": (x.done, x.forwarded, x.last)
                    for p, x in member._ledgers.items()
                }
                text += (
                    f" me={ring.me} view={ring.view.version} live={ring.is_live}"
                    f" awaiting={member._is_awaiting} {ledgers} waiting={member._heir.is_waiting}"
                )
            lines.append(text)
        return "\n".join([*lines, *self._left_over()])


def short(state: State) -> str:
    """A view in a few words."""
    return " ".join(
        f"{m.node}.{m.boot[4:]}.{m.version}{'' if alive else '+'}" for m, alive in state.view.ring
    )
