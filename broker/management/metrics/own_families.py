"""Families that RabbitMQ has not: what this node knows of its event loop, store and Raft. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.management.metrics.facts import NodeFacts
from broker.management.metrics.rows import Row


def _journal(key: str) -> Callable[[NodeFacts], float]:
    return lambda facts: (facts.node.get("journal") or {}).get(key, 0)


def _loop(key: str, scale: float = 1) -> Callable[[NodeFacts], float]:
    return lambda facts: facts.node["event_loop"].get(key, 0) * scale


OURS: Final[tuple[Row[NodeFacts], ...]] = (
    Row(
        "warrenmq_event_loop_longest_turn_seconds",
        "g",
        "Longest turn of the event loop lately",
        _loop("longest_turn_ms", 0.001),
    ),
    Row(
        "warrenmq_event_loop_long_turns_total", "c", "Turns that took too long", _loop("long_turns")
    ),
    Row(
        "warrenmq_commit_waits_total",
        "c",
        "Batches of the store that somebody waited for",
        _journal("waits"),
    ),
    Row(
        "warrenmq_commit_wait_seconds_total",
        "c",
        "Time from a batch's end to its confirms",
        _journal("wait_s"),
    ),
    Row(
        "warrenmq_commit_sync_max_seconds",
        "g",
        "The longest sync of the store's log",
        _journal("sync_max_s"),
    ),
    Row(
        "warrenmq_commit_holds_total",
        "c",
        "How often writes were held for want of disk space",
        _journal("holds"),
    ),
)
