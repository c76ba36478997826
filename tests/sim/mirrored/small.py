"""Small schedules, tried one after the other: one fault of each kind, then two, then three.

Random runs are rich but rarely put two faults a fixed few steps apart; these do nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tests.sim.mirrored.options import Options

Fault = tuple[str, int, int, int]
"""(kind, node, other, length in steps)."""

GAPS: Final = (1, 2, 4, 8, 12, 18, 26)
"""Steps between one fault and the next."""

SMALL_MS: Final = 14_000
TRIES: Final = 8


def faults() -> list[Fault]:
    """Every fault of three nodes that differs from the others."""
    found: list[Fault] = []
    for node in range(3):
        found += [("kill", node, 0, 40), ("fast", node, 0, 0), ("stop", node, 0, 20)]
        found += [("pause", node, 0, length) for length in (16, 28, 50, 80)]
        found += [("isolate", node, 0, length) for length in (16, 32, 80)]
        for other in range(3):
            if other != node:
                found.append(("one_way", node, other, 32))
            if node < other:
                found += [("cut", node, other, 40), ("reset", node, other, 0)]
    return [*found, ("all", 0, 0, 20)]


def schedules() -> Iterator[Options]:
    """All runs with one fault, then two, then three drawn ones, without end."""
    kinds = faults()
    number = 0
    for fault in kinds:
        for _ in range(TRIES):
            number += 1
            yield _options(number, (fault,))
    while True:
        for count in (2, 3):
            number += 1
            rng = random.Random(number * 31 + count)
            yield _options(number, tuple(rng.choice(kinds) for _ in range(count)))


def _options(number: int, some: tuple[Fault, ...]) -> Options:
    rng = random.Random(number)
    step = 10
    script = []
    for kind, node, other, length in some:
        script.append((step, kind, node, other, length))
        step += rng.choice(GAPS)
    return Options(
        number,
        script=tuple(script),
        promote_on_failure="when-synced" if rng.random() < 0.7 else "always",
        fault_ms=SMALL_MS,
        publish_ms=100,
        waiting_max=30,
        settle_ms=rng.choice((100, 800)),
        latency_ms=rng.choice((2, 20)),
        sync_ms=rng.choice((2, 40)),
    )
