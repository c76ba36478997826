"""The options that a run draws from its seed before it begins, so that they can be printed."""

from __future__ import annotations

import dataclasses
import random

TICK_MS = 100
WIPES = 214
"""Chosen so that no disk is lost in the seeds that are kept for other reasons."""
FAULTS = (
    "crash",
    "pause",
    "cut",
    "one_way",
    "churn",
    "recreate",
    "transfer",
    "slow_disk",
    "bad_sync",
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Times in milliseconds, rates as probabilities per message, per sync or per fault step."""

    seed: int
    nodes: int
    voters: int
    ticks: int
    faults: tuple[str, ...]
    fault_gap_ms: int
    fault_length_ms: int
    latency_ms_max: int
    drop: float
    duplicate: float
    reorder: float
    sync_ms_max: int
    slow_sync: float
    failed_sync: float
    snapshot_every: int
    append_entries_max: int
    inflight_appends_max: int
    quiesce_after_ticks: int
    clients: int
    proposals_gap_ms: int
    change_at_once: bool
    minority_stays_down: bool
    full_disk_gap_ms: int = 0  # mean time between two disks that are full; 0: none ever is
    lag_entries_max: int = 0  # what is withheld from a follower; 0: nothing ever is
    hedge_ms_max: int = 1  # a leader asks about delays after at most this
    eager_fault_gap_ms: int = 0  # mean time between faults of an eager follower; 0: only by chance
    wipe_gap_ms: int = 0  # mean time between two nodes that lose their disk; 0: none ever does


def draw(seed: int, ticks: int | None = None) -> Options:
    """The options of a seed."""
    rng = random.Random(seed * 7919 + 1)
    nodes = rng.choice((1, 3, 3, 3, 4, 4, 5, 5))
    voters = nodes if rng.random() < 0.6 else rng.randint(1, nodes)
    chosen = tuple(fault for fault in FAULTS if rng.random() < 0.5)
    lossy = rng.random() < 0.6
    thrifty = random.Random(seed * 7919 + 4)  # of its own: the rest of a seed stays as it was
    options = Options(
        seed=seed,
        nodes=nodes,
        voters=voters,
        ticks=ticks if ticks is not None else rng.randint(80, 300),
        faults=chosen,
        fault_gap_ms=rng.choice((200, 600, 1500)),
        fault_length_ms=rng.choice((300, 1500, 4000)),
        latency_ms_max=rng.choice((2, 20, 90)),
        drop=rng.choice((0.01, 0.05, 0.2)) if lossy else 0.0,
        duplicate=rng.choice((0.0, 0.05)) if lossy else 0.0,
        reorder=rng.choice((0.0, 0.1)) if lossy else 0.0,
        sync_ms_max=rng.choice((1, 5, 40)),
        slow_sync=0.05 if "slow_disk" in chosen else 0.0,
        failed_sync=0.005 if "bad_sync" in chosen else 0.0,
        snapshot_every=rng.choice((5, 12, 40, 10_000)),
        append_entries_max=rng.choice((1, 2, 64)),
        inflight_appends_max=rng.choice((1, 3, 64)),
        quiesce_after_ticks=rng.choice((0, 3, 10)),
        clients=rng.randint(1, 3),
        proposals_gap_ms=rng.choice((30, 100, 400)),
        change_at_once=rng.random() < 0.5,
        minority_stays_down=rng.random() < 0.3,
        # Of its own: the rest of a seed stays as it was.
        full_disk_gap_ms=random.Random(seed * 7919 + 2).choice((0, 0, 2_000, 8_000)),
        lag_entries_max=thrifty.choice((0, 3, 8, 64, 64)),
        hedge_ms_max=thrifty.choice((5, 50, 400, 10_000_000)),
        eager_fault_gap_ms=thrifty.choice((0, 300, 2_000)),
    )
    # A node that stays down beside one without data may be one too many.
    wipes = (0, 0, 0, 0, 0, 1_000, 1_000, 4_000) if not options.minority_stays_down else (0,)
    wipe_gap_ms = random.Random(seed * 7919 + WIPES).choice(wipes)
    return dataclasses.replace(options, wipe_gap_ms=wipe_gap_ms)


def describe(options: Options) -> str:
    """One line per option."""
    return "\n".join(f"  {key} = {value}" for key, value in dataclasses.asdict(options).items())
