"""Known bugs of mirrored queues, to show that the simulator finds them. None is in production code.

Each is named after the rule that it breaks (docs/planted-bugs.md), and put into the real classes
for the time of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from broker.fifo.config import QueueConfig
from broker.fifo.machine import QueueMachine
from broker.fifo.ready.ram import PageOut
from broker.fifo.replica import LedgerReplica
from broker.fifo.sessions import ReplayEvidence, SessionTable
from broker.fifo.sync_batch import EndedSinceMark
from broker.message import Delivery
from broker.metadata import rings
from broker.metadata.mirroring import steps
from broker.metadata.queue_settings import QueueSettings
from broker.metadata.records import Queue
from broker.metadata.rings import Ring, RingMember
from broker.queues.classic import ClassicQueue
from broker.queues.client.consumers import BASE_BITS, RemoteConsumers
from broker.queues.client.pending_commands import PendingCommands
from broker.queues.mirrored import promotion
from broker.queues.mirrored.links import LinkWatch
from broker.queues.mirrored.master import Master
from broker.queues.mirrored.mirror import Mirror
from broker.queues.mirrored.reconcile import CUT_MS
from tests.sim.mirrored.serving import Serving


def _method(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """Replace a function by what `make` makes of it."""
    return patch.object(owner, name, make(getattr(owner, name)))


def _speaks_without_lease() -> Any:
    return patch.object(Serving, "is_valid", lambda self: self.process.boot == self.boot)


def _join_state_without_sessions() -> Any:
    return patch.object(SessionTable, "load", lambda _self, _records, _ended: None)


def _duplicates_are_ok() -> Any:
    return patch.object(
        ReplayEvidence, "judge", lambda _self, first, last, _absent: iter([(first, last, True)])
    )


def _sends_again_as_new() -> Any:
    def make(original: Callable[[PendingCommands], Any]) -> Any:
        def fail_over(self: PendingCommands) -> Any:
            for item in self._pending:
                item.is_sent = False
            return original(self)

        return fail_over

    return _method(PendingCommands, "fail_over", make)


def _promoted_as_new() -> Any:
    def make(original: Callable[..., QueueMachine]) -> Any:
        def promote(self: LedgerReplica, config: QueueConfig) -> QueueMachine:
            machine = original(self, config)
            line = machine.messages.ready
            line.redelivered_below = 0
            for part in (line._fresh, line._state.tail if line._state is not None else []):
                for index, item in enumerate(part):
                    part[index] = Delivery(item.number, 0, item.message)
            return machine

        return promote

    return _method(LedgerReplica, "promote", make)


def _fills_bring_back_what_ended() -> Any:
    return patch.object(EndedSinceMark, "__contains__", lambda _self, _number: False)


def _pages_are_forgotten() -> Any:
    def make(original: Callable[..., Any]) -> Any:
        def page_out(self: LedgerReplica, limit_bytes: int, *, durable: bool) -> Any:
            pages = original(self, limit_bytes, durable=durable).pages
            return PageOut(pages[1:])

        return page_out

    return _method(LedgerReplica, "page_out", make)


def _settles_of_any_epoch() -> Any:
    mask = (1 << BASE_BITS) - 1
    return patch.object(RemoteConsumers, "numbers", lambda _self, given: [n & mask for n in given])


def _confirms_before_return() -> Any:
    def safe_round(self: Master) -> int:
        safe = self._round - 1
        return min(safe, self._unsynced[0] - 1) if self._unsynced else safe

    return patch.object(Master, "_safe_round", safe_round)


def _confirms_before_own_sync() -> Any:
    def safe_round(self: Master) -> int:
        safe = self._round - 1
        return min(safe, self._in_flight[0][0] - 1) if self._in_flight else safe

    return patch.object(Master, "_safe_round", safe_round)


def _joins_synchronised() -> Any:
    def make(original: Callable[..., Ring | None]) -> Any:
        def join(ring: Ring, node: str, boot: str) -> Ring | None:
            after = original(ring, node, boot)
            if after is None:
                return None
            member = after.slots[-1][0]
            return replace(after, joined=(*after.joined, member), synced=(*after.synced, member))

        return join

    return _method(rings, "join", make)


def _replays_before_join_state() -> Any:
    def make(original: Callable[..., None]) -> Any:
        def init(self: Mirror, *args: Any, **more: Any) -> None:
            original(self, *args, **more)
            self.has_join_state = True

        return init

    return _method(Mirror, "__init__", make)


def _confirms_while_join_is_open() -> Any:
    ignored = property(lambda _self: False, lambda _self, _value: None)
    return patch.object(Master, "is_join_open", ignored, create=True)


def _promotes_before_delivery() -> Any:
    return patch.object(promotion, "may_be_promoted", lambda ring, me: ring.successor == me)


def _leaves_the_dead() -> Any:
    """Links that are cut are a cut, whoever leads group 0: also those of a node that has died."""

    def is_cut(self: LinkWatch, node: str) -> bool:
        since_ms = self._cut_since_ms.get(node)
        return since_ms is not None and self._clock.monotonic_ms() - since_ms >= CUT_MS

    return patch.object(LinkWatch, "is_cut", is_cut)


def _picks_the_oldest() -> Any:
    def pick(ring: Ring, _policy: Any) -> Ring:
        alive = ring.alive()
        if not ring.is_down or ring.stopped or not alive:
            return ring
        return replace(ring, successor=alive[0])

    return patch.object(rings, "_pick", pick)


def _compares_before_it_waits() -> Any:
    """Settings that come back while the queue is paused are those it has: nothing to do."""

    def make(original: Callable[..., None]) -> Any:
        def follow(self: ClassicQueue, settings: QueueSettings) -> None:
            if settings != self.settings:
                original(self, settings)

        return follow

    return _method(ClassicQueue, "follow", make)


def _recovers_beside_others() -> Any:
    def make(original: Callable[..., Ring | None]) -> Any:
        def recover(ring: Ring, node: str, boot: str, copy: RingMember) -> Ring | None:
            after = original(ring, node, boot, copy)
            if after is None:
                return None
            others = tuple(each for each in ring.synced if each in ring.alive())
            kept = tuple((each, alive) for each, alive in ring.slots if alive)
            return replace(
                after,
                slots=(*after.slots, *kept),
                synced=(*after.synced, *others),
                joined=(*after.joined, *others),
            )

        return recover

    return _method(rings, "recover", make)


def _recovers_any_copy() -> Any:
    def make(original: Callable[..., Ring | None]) -> Any:
        def recover(ring: Ring, node: str, boot: str, copy: RingMember) -> Ring | None:
            last = ring.last or copy
            return original(
                replace(ring, last=replace(last, node=node), copies=(copy,)), node, boot, copy
            )

        return recover

    @contextmanager
    def both() -> Iterator[None]:
        with _method(rings, "recover", make), patch.object(promotion, "recovery", _any_recovery):
            yield

    return both()


def _any_recovery(
    uid: int, ring: Ring, node: str, boot: str, copy: RingMember | None
) -> promotion.RingStep | None:
    if not ring.is_down or copy is None:
        return None
    return promotion.RingRecover(uid, node, boot, copy)


def _durable_queues_go_as_transient_ones() -> Any:
    def make(original: Callable[..., bool]) -> Any:
        def is_lost(catalogue: Any, queue: Queue) -> bool:
            return original(catalogue, replace(queue, durable=False))

        return is_lost

    return _method(steps, "_is_lost", make)


BUGS: Final[dict[str, Callable[[], Any]]] = {
    "P4": _speaks_without_lease,
    "P10": _join_state_without_sessions,
    "P11": _duplicates_are_ok,
    "P11r": _sends_again_as_new,
    "P16": _promoted_as_new,
    "P18": _settles_of_any_epoch,
    "P19": _confirms_before_own_sync,
    "P19r": _confirms_before_return,
    "P20": _joins_synchronised,
    "P20h": _replays_before_join_state,
    "P20o": _confirms_while_join_is_open,
    "P22": _promotes_before_delivery,
    "P23": _picks_the_oldest,
    "P23c": _recovers_any_copy,
    "P23r": _recovers_beside_others,
    "P25": _leaves_the_dead,
    "P26": _fills_bring_back_what_ended,
    "durable": _durable_queues_go_as_transient_ones,
    "paged": _pages_are_forgotten,
    "policy": _compares_before_it_waits,
}


RARE: Final = frozenset({"P10", "P11", "P20h", "P20o", "P22", "P23c", "P23r"})
"""Not found within forty seeds, or by a crash alone: for long searches, one by one."""

_UNSYNCED: Final[dict[str, Any]] = {
    "sync": "manual",
    "promote_on_failure": "always",
    "durable": True,
    "transient": 0.0,
    "waiting_max": 60,
    "publish_ms": 100,
    "settle_ms": 3_000,
    "fault_p": 0.05,
    "burst_p": 0.6,
    "fault_ms": 40_000,
}
_HELD_BACK: Final[dict[str, Any]] = {"waiting_max": 60, "publish_ms": 100, "settle_ms": 3_000}
_CROWDED: Final[dict[str, Any]] = {
    "publish_ms": 30,
    "waiting_max": 60,
    "latency_ms": 60,
    "fault_p": 0.06,
    "flap_p": 0.0,
}

_SLOW_DISKS: Final[dict[str, Any]] = {
    "script": tuple((step, "all", 0, 1, 10) for step in (20, 60, 100, 140)),
    "sync": "manual",
    "sync_ms": 400,
    "publish_ms": 30,
    "waiting_max": 60,
    "settle_ms": 3_000,
    "transient": 0.0,
    "durable": True,
    "fault_ms": 25_000,
}
ONLY_DEATHS: Final[dict[str, Any]] = {
    "script": tuple((10 + 90 * number, "kill", number % 3, 0, 60) for number in range(5)),
    "fault_ms": 55_000,
}
"""Every node dies in turn, and nothing else goes wrong."""
_ONLINE: Final[dict[str, Any]] = {
    "sync": "automatic",
    "sync_style": "online",
    "sync_batch": 1,
    "sync_ms": 60,
    "latency_ms": 60,
    "publish_ms": 30,
    "waiting_max": 60,
    "settle_ms": 800,
}

_FLAPPING: Final[dict[str, Any]] = {
    "flap_p": 0.2,
    "sync": "automatic",
    "sync_style": "blocking",
    "sync_batch": 1,
    "sync_ms": 60,
    "latency_ms": 60,
    "publish_ms": 100,
    "waiting_max": 60,
    "settle_ms": 3_000,
    "fault_p": 0.06,
}

AIMED: Final[dict[str, dict[str, Any]]] = {
    "P4": _HELD_BACK,
    "P19": _SLOW_DISKS,
    "P10": _UNSYNCED,
    "P11": _UNSYNCED,
    "P18": _UNSYNCED,
    "P20h": _CROWDED,
    "P22": _CROWDED,
    "P23": {**_UNSYNCED, "promote_on_failure": "when-synced"},
    "P23c": {**_UNSYNCED, "promote_on_failure": "when-synced"},
    "P23r": {**_UNSYNCED, "promote_on_failure": "when-synced"},
    "P25": ONLY_DEATHS,
    "P26": _ONLINE,
    "paged": {"transient": 0.3, "page_bytes": 0},
    "policy": _FLAPPING,
}
"""Options under which a bug shows within few seeds: what it needs is rare otherwise."""


def planted(bug: str | None) -> AbstractContextManager[Any]:
    """Have a bug for the time of a run; None has none."""
    return nullcontext() if bug is None else BUGS[bug]()
