"""Families that RabbitMQ has not: what this node knows of its loop, store, Raft, rings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from broker.management.metrics.exposition import Family, labelled
from broker.management.metrics.facts import OwnFacts
from broker.management.metrics.rows import Row, family
from broker.storage.commit_stats import SYNC_BOUNDS_S

_ROLES: Final = ("leader", "follower", "pre-candidate", "candidate", "stopped")
_STAGES: Final = ("connection", "channel", "queue")


def _journal(key: str) -> Callable[[OwnFacts], float]:
    return lambda own: (own.node.get("journal") or {}).get(key, 0)


def _loop(key: str, scale: float = 1) -> Callable[[OwnFacts], float]:
    return lambda own: own.node["event_loop"].get(key, 0) * scale


OURS: Final[tuple[Row[OwnFacts], ...]] = (
    Row(
        "warrenmq_event_loop_longest_turn_seconds",
        "g",
        "Longest turn of the event loop in the last 30 s",
        _loop("longest_turn_ms", 0.001),
    ),
    Row(
        "warrenmq_event_loop_longest_busy_seconds",
        "g",
        "Most processor time of a turn in the last 30 s",
        _loop("longest_busy_ms", 0.001),
    ),
    Row(
        "warrenmq_event_loop_longest_own_seconds",
        "g",
        "Longest turn in the last 30 s but for its wait for a processor",
        _loop("longest_own_ms", 0.001),
    ),
    Row(
        "warrenmq_event_loop_long_turns_total",
        "c",
        "Turns that took too long",
        _loop("long_turns"),
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
    Row(
        "warrenmq_commit_unsynced_bytes",
        "g",
        "Bytes written to the store that are not durable yet",
        lambda own: own.unsynced_bytes,
    ),
    Row(
        "warrenmq_raft_commits_total",
        "c",
        "Entries of quorum queues and streams that were proposed here and applied",
        lambda own: own.queueing.commits,
    ),
    Row(
        "warrenmq_raft_commit_seconds_total",
        "c",
        "Time from their proposal to their apply",
        lambda own: own.queueing.commit_ms / 1_000,
    ),
    Row(
        "warrenmq_raft_elections_total",
        "c",
        "How often a replica of a quorum queue or stream began to lead here",
        lambda own: own.queueing.elections,
    ),
    Row(
        "warrenmq_raft_leaderless_replicas",
        "g",
        "Replicas of quorum queues and streams that know of no leader",
        lambda own: own.leaderless,
    ),
    Row(
        "warrenmq_raft_late_ticks_total",
        "c",
        "Ticks of Raft that came a tick late or more",
        lambda own: own.late_ticks,
    ),
    Row(
        "warrenmq_metadata_applied_index",
        "g",
        "The newest entry of group 0 that was applied",
        lambda own: own.metadata_index,
    ),
    Row(
        "warrenmq_metadata_is_leader",
        "g",
        "Is 1 at the node that leads group 0",
        lambda own: int(own.leads_metadata),
    ),
    Row(
        "warrenmq_ring_unsynchronised_mirrors",
        "g",
        "Mirrors of queues mastered here that are not synchronised",
        lambda own: own.rings.unsynchronised,
    ),
    Row(
        "warrenmq_ring_synchronisations",
        "g",
        "Synchronisations of mirrors under way from here",
        lambda own: own.rings.syncing,
    ),
    Row(
        "warrenmq_ring_in_flight_bytes",
        "g",
        "Bytes of own broadcasts that have not come round",
        lambda own: own.rings.in_flight_bytes,
    ),
    Row(
        "warrenmq_resends_total",
        "c",
        "How often unanswered commands were sent to a queue again",
        lambda own: own.queueing.resends,
    ),
    Row(
        "warrenmq_dead_letter_waiting_bytes",
        "g",
        "Bytes of dead messages that wait to be published",
        lambda own: own.dead_letter_bytes,
    ),
)


def divided(own: OwnFacts) -> Iterator[Family]:
    """Yield families with a few fixed labels: roles, stages, and the histogram of syncs."""
    yield _by(
        "warrenmq_raft_replicas",
        "Replicas of quorum queues and streams by role",
        "role",
        _ROLES,
        own.roles,
    )
    rings = {"master": own.rings.masters, "mirror": own.rings.mirrors}
    yield _by("warrenmq_rings", "Rings of mirrored queues by role here", "role", rings, rings)
    yield _by(
        "warrenmq_flow", "What is held back by flow control, by stage", "stage", _STAGES, own.flow
    )
    journal = own.node.get("journal") or {}
    if journal:
        yield _syncs(journal)


def _by(name: str, text: str, key: str, values: Iterable[str], counts: Mapping[str, int]) -> Family:
    samples = [(labelled(((key, value),)), counts.get(value, 0)) for value in values]
    return family(name, "g", text, samples)


def _syncs(journal: Mapping[str, object]) -> Family:
    counts, took_s, syncs = journal["sync_counts"], journal["sync_s"], journal["syncs"]
    assert isinstance(counts, list)
    bounds = [*map(str, SYNC_BOUNDS_S), "+Inf"]
    samples: list[tuple[str, float]] = [
        (f"_bucket{labelled((('le', bound),))}", count)
        for bound, count in zip(bounds, accumulate(counts), strict=True)
    ]
    samples += [("_sum", float(str(took_s))), ("_count", int(str(syncs)))]
    return family("warrenmq_commit_sync_seconds", "h", "Syncs of the store's log", samples)
