"""The options that a run draws from its seed before it begins, so that they can be printed."""

from __future__ import annotations

import dataclasses
import random
from typing import Final

FAULTS: Final = (
    *("kill", "kill", "kill_leader", "kill_leader"),
    *("cut", "isolate", "isolate_leader"),
    *("down_long", "all", "wipe", "depose"),
    *("slow_disk", "policy", "move"),
)
"""Drawn from with equal chance: what stands twice comes twice as often."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Times in seconds, sizes in bytes.

    Attributes:
        seed: What everything is drawn from.
        fault_s: How long the phase of faults lasts.
        fault_gap_s: Mean time from the end of a fault to the next.
        latency_s: Most of a link's delay.
        sync_s: How long a sync of a disk usually takes.
        publishers: Unnamed ones.
        named: Publishers whose messages carry a name and an id.
        units: Publishers of units: several messages under a name and an id.
        publish_s: Mean time between two publishes of one of them.
        consumers: How many there are at a time.
        prefetch: Most that a consumer may hold.
        settle_s: Mean time from a delivery to its settle.
        segment_bytes: Segments of the stream, by which retention goes.
        max_bytes: The stream's x-max-length-bytes; 0 is without limit.
        max_age_s: The stream's x-max-age; 0 is without limit.
        file_bytes: Files of its log.
        checkpoint_bytes: A checkpoint is taken after so much log.
    """

    seed: int
    fault_s: float
    fault_gap_s: float
    latency_s: float
    sync_s: float
    publishers: int
    named: int
    units: int
    publish_s: float
    consumers: int
    prefetch: int
    settle_s: float
    segment_bytes: int
    max_bytes: int
    max_age_s: int
    file_bytes: int
    checkpoint_bytes: int


def draw(seed: int) -> Options:
    """The options of a seed."""
    rng = random.Random(seed)
    return Options(
        seed=seed,
        fault_s=rng.choice((10.0, 16.0, 25.0)),
        fault_gap_s=rng.choice((0.1, 0.8, 3.0)),
        latency_s=rng.choice((0.001, 0.005, 0.04)),
        sync_s=rng.choice((0.0005, 0.003, 0.02)),
        publishers=rng.choice((1, 2, 3)),
        named=rng.choice((0, 1, 2, 3)),
        units=rng.choice((0, 1, 2)),
        publish_s=rng.choice((0.12, 0.25)),
        consumers=rng.choice((1, 3, 5)),
        prefetch=rng.choice((1, 3, 10, 100)),
        settle_s=rng.choice((0.002, 0.02, 0.3)),
        segment_bytes=rng.choice((0, 1_500, 4_000, 20_000)),
        max_bytes=rng.choice((0, 5_000, 12_000, 40_000)),
        max_age_s=rng.choice((0, 0, 3, 10)),
        file_bytes=rng.choice((1_500, 4_000, 16_000)),
        checkpoint_bytes=rng.choice((2_500, 8_000)),
    )


def describe(options: Options) -> str:
    """Options as lines."""
    return "\n".join(f"  {name} = {value}" for name, value in dataclasses.asdict(options).items())
