"""The options that a run draws from its seed before it begins, so that they can be printed."""

from __future__ import annotations

import dataclasses
import random

FAULTS = (
    "kill",
    "restart",
    "pause",
    "cut",
    "one_way",
    "isolate",
    "reset",
    "slow_views",
    "slow_sync",
    "leave",
    "all",
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Times in milliseconds, sizes in bytes, shares as probabilities."""

    seed: int
    nodes: int
    all_found: bool
    fault_ms: int
    faults: tuple[str, ...]
    fault_gap_ms: int
    fault_length_ms: int
    latency_ms_max: int
    slow_link: float
    view_lag_ms_max: int
    commit_ms_max: int
    sync_ms_max: int
    publishers: int
    publish_gap_ms: int
    false_death: float
    message_bytes_max: int
    held_bytes_max: int
    early_bytes_max: int
    early_ms: int


def draw(seed: int, fault_ms: int | None = None) -> Options:
    """The options of a seed."""
    rng = random.Random(seed * 7919 + 3)
    drawn = rng.randint(2, len(FAULTS))
    return Options(
        seed=seed,
        nodes=rng.choice((2, 3, 3, 3, 4, 4, 5)),
        all_found=rng.random() < 0.5,
        fault_ms=fault_ms if fault_ms is not None else rng.choice((5_000, 10_000, 15_000)),
        faults=tuple(sorted(rng.sample(FAULTS, drawn))),
        fault_gap_ms=rng.choice((200, 600, 1_500)),
        fault_length_ms=rng.choice((200, 1_000, 4_000)),
        latency_ms_max=rng.choice((2, 20, 120)),
        slow_link=rng.choice((0.0, 0.0, 0.3)),
        view_lag_ms_max=rng.choice((5, 60, 400)),
        commit_ms_max=rng.choice((10, 80, 300)),
        sync_ms_max=rng.choice((0, 5, 60, 250)),
        publishers=rng.choice((1, 2, 5)),
        publish_gap_ms=rng.choice((30, 100, 250)),
        false_death=rng.choice((0.0, 0.3, 0.9)),
        message_bytes_max=rng.choice((1, 40, 1 << 20)),
        held_bytes_max=rng.choice((0, 400, 1 << 20)),
        early_bytes_max=rng.choice((0, 500, 1 << 20)),
        early_ms=rng.choice((50, 5_000)),
    )


def describe(options: Options) -> str:
    """One line per option."""
    return "\n".join(f"  {key} = {value}" for key, value in dataclasses.asdict(options).items())
