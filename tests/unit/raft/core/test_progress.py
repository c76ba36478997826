"""One follower as the leader sees it: every answer in every mode."""

from __future__ import annotations

import pytest

from raft.core.inflight import Inflight
from raft.core.messages import Configuration, SnapshotMeta
from raft.core.progress import Mode, Progress


def progress(mode: Mode, *, match: int = 3, next_index: int = 6) -> Progress:
    made = Progress(next_index, Inflight(2, 1000))
    made.match = match
    if mode is Mode.REPLICATE:
        made.become_replicate()
    elif mode is Mode.SNAPSHOT:
        made.become_snapshot(SnapshotMeta(9, 1, Configuration(("a",))))
    made.next = next_index
    return made


@pytest.mark.parametrize(
    ("mode", "rejected", "hint", "is_news", "next_index"),
    [
        (Mode.PROBE, 5, 4, True, 5),
        (Mode.PROBE, 5, 0, True, 4),
        (Mode.PROBE, 5, 9, True, 5),
        (Mode.PROBE, 4, 2, False, 6),
        (Mode.PROBE, 3, 2, False, 6),
        (Mode.REPLICATE, 5, 4, True, 4),
        (Mode.REPLICATE, 3, 2, False, 6),
        (Mode.SNAPSHOT, 5, 4, False, 6),
    ],
)
def test_refusal(mode: Mode, rejected: int, hint: int, *, is_news: bool, next_index: int) -> None:
    """A stale refusal changes nothing; next never falls to or below match."""
    made = progress(mode)
    assert made.refused(rejected, hint) is is_news
    assert made.next == next_index
    assert made.next > made.match


def test_probe_at_the_known_match_that_is_refused_waits_for_a_heartbeat() -> None:
    """The follower has lost what it confirmed; no earlier entry may be sent."""
    made = progress(Mode.PROBE, match=3, next_index=4)
    made.sent(1, 4, 100)
    assert not made.refused(3, 1)
    assert made.next == 4
    assert made.is_paused


def test_acknowledgement_ends_a_probe_and_frees_the_window() -> None:
    made = progress(Mode.PROBE)
    made.sent(2, 7, 100)
    assert made.is_paused
    assert made.acknowledged(5)
    assert (made.mode, made.match, made.next) == (Mode.REPLICATE, 5, 6)
    made.sent(1, 6, 100)
    made.sent(1, 7, 100)
    assert made.is_paused
    assert made.acknowledged(6)
    assert not made.is_paused


def test_old_acknowledgement_never_lowers_match() -> None:
    made = progress(Mode.REPLICATE)
    assert not made.acknowledged(2)
    assert made.match == 3


def test_probe_that_confirms_a_known_match_ends_too() -> None:
    """Else a follower that has everything stays in probe mode until the next entry."""
    made = progress(Mode.PROBE, match=3, next_index=4)
    assert made.acknowledged(3)
    assert made.mode is Mode.REPLICATE


def test_window_is_bounded_by_bytes() -> None:
    window = Inflight(100, 250)
    window.add(1, 100)
    window.add(2, 100)
    assert not window.is_full
    window.add(3, 100)
    assert window.is_full
    window.free_first()
    assert not window.is_full
    window.free_to(3)
    assert len(window) == 0
