"""Settings of the Python interpreter for a node."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SWITCH_INTERVAL_S: Final = 0.0005
"""The commit thread must get the interpreter quickly; Python's 5 ms starves it (design, Speed)."""

GC_THRESHOLDS: Final = (10_000, 20, 20)
"""Allocations before a young collection, young ones before a middle one, middle ones before a full
one; Python's are (700, 10, 10)."""


def share_quickly() -> None:
    """Let threads take turns often; before anything starts."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from walking a large tree while it grows: that holds all threads.

    Meant for seconds, and for what has no cycles; several at a time end with the first of them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def keep() -> None:
    """Keep all there is now out of every later garbage collection, without a walk over it.

    Only where nothing large has become garbage: with many queues the walk takes 0.1 s.
    """
    gc.freeze()


def settle_memory() -> None:
    """Keep what start-up made out of every later garbage collection, and collect more rarely.

    Modules, classes and tables are some 56,000 objects that never die; walking them takes 13 ms
    and more, in the middle of somebody's message. Messages and records hold no cycles and are freed
    without the collector. Called before the event loop runs, for the modules, and again when the
    node serves: that walk is over what came since and keeps the loop for a millisecond.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
