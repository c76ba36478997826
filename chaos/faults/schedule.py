"""The schedule of faults, drawn from the seed. Pure."""

from __future__ import annotations

import random
from typing import NamedTuple

from chaos.options import Options

WARM_UP_S = 3.0
PAUSE_S = 15.0
_CALM_SHARE = 0.3
_DOWN_S = {
    "kill-leader": (1.0, 5.0),
    "kill-mirror": (1.0, 5.0),
    "kill-all": (0.0, 2.0),
    "stop-leader": (6.0, 10.0),
    "restart": (0.0, 2.0),
    "cut-leader-from-one": (8.0, 16.0),
    "cut-leader-from-all": (8.0, 16.0),
    "cut-leader-one-way": (8.0, 16.0),
    "delay-links": (12.0, 16.0),
    "stall-links": (1.0, 6.0),
    # Long enough that whoever would be promoted has been.
    "kill-leader-unsynchronised": (15.0, 18.0),
    "stop-leader-unsynchronised": (12.0, 15.0),
}


class Planned(NamedTuple):
    """A fault to come.

    Attributes:
        number: From 1.
        kind: As in the options.
        at_s: Not before this many seconds after the load began; later if the cluster has not
            healed from the fault before.
        down_s: How long it lasts before it is healed.
        draw: Picks among nodes where there is a choice, 0 <= draw < 1.
    """

    number: int
    kind: str
    at_s: float
    down_s: float
    draw: float


def plan(options: Options) -> list[Planned]:
    """The faults of a run: one in each equal slice of the load, at a drawn moment of it."""
    rng = random.Random(f"{options.seed}/faults")
    slot_s = max(0.0, options.seconds - WARM_UP_S) / max(1, options.cycles)
    faults = []
    for number in range(1, options.cycles + 1):
        low, high = _DOWN_S.get(options.fault, (PAUSE_S, PAUSE_S))
        begin_s = WARM_UP_S + (number - 1) * slot_s
        faults.append(
            Planned(
                number=number,
                kind=options.fault,
                at_s=begin_s + rng.uniform(0, slot_s * _CALM_SHARE),
                down_s=rng.uniform(low, high),
                draw=rng.random(),
            )
        )
    return faults
