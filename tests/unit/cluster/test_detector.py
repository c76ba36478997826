"""The failure detector of a pair (P7)."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster.detector import NEVER_MS, FailureDetector, PeerState, PeerStateChange

N = "rabbit@b"


def up(now_ms: int = 0) -> FailureDetector:
    detector = FailureDetector(N, now_ms)
    assert detector.heard("b1", 0, now_ms) == [PeerStateChange(N, "b1", PeerState.UP)]
    return detector


def test_peer_that_does_not_hear_us_yet_is_not_up() -> None:
    detector = FailureDetector(N, 0)
    assert detector.heard("b1", NEVER_MS, 10) == []
    assert detector.heard("b1", 5, 200) == [PeerStateChange(N, "b1", PeerState.UP)]


def test_silence_of_two_seconds_suspects() -> None:
    detector = up()
    assert detector.tick(1999) == []
    assert detector.tick(2000) == [PeerStateChange(N, "b1", PeerState.SUSPECTED)]
    assert detector.heard("b1", 0, 2500) == [PeerStateChange(N, "b1", PeerState.UP)]


def test_one_way_cut_suspects_two_seconds_after_the_peer_last_heard_us() -> None:
    detector = up()
    events = []
    for now_ms in range(200, 2600, 200):
        events += [(now_ms, event) for event in detector.heard("b1", now_ms, now_ms)]
    assert events == [(2000, PeerStateChange(N, "b1", PeerState.SUSPECTED))]


def test_refused_connection_proves_death_at_once() -> None:
    detector = up()
    assert detector.refused(50) == [PeerStateChange(N, "b1", PeerState.GONE)]
    assert detector.refused(100) == []
    assert detector.heard("b1", 0, 120) == []  # was still on its way
    assert detector.heard("b1", 0, 900) == [PeerStateChange(N, "b1", PeerState.UP)]


def test_new_boot_id_proves_the_old_one_gone() -> None:
    detector = up()
    assert detector.heard("b2", NEVER_MS, 300) == [PeerStateChange(N, "b1", PeerState.GONE)]
    assert detector.heard("b2", 0, 400) == [PeerStateChange(N, "b2", PeerState.UP)]
    assert detector.heard("b1", 0, 450) == []
    assert detector.boot == "b2"


def test_peer_never_heard_is_suspected_or_gone_too() -> None:
    detector = FailureDetector(N, 1000)
    assert detector.tick(2999) == []
    assert detector.tick(3000) == [PeerStateChange(N, "", PeerState.SUSPECTED)]
    assert FailureDetector(N, 0).refused(5) == [PeerStateChange(N, "", PeerState.GONE)]


STEPS = st.tuples(
    st.integers(0, 1500),
    st.one_of(
        st.just("tick"),
        st.just("refused"),
        st.tuples(st.sampled_from(["b1", "b2", "b3"]), st.integers(0, 4000)),
    ),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_up_only_while_both_ends_hear_and_verdicts_alternate(steps: list[tuple]) -> None:
    detector, now_ms, events = FailureDetector(N, 0), 0, []
    for wait_ms, step in steps:
        now_ms += wait_ms
        if step == "tick":
            events += detector.tick(now_ms)
        elif step == "refused":
            events += detector.refused(now_ms)
        else:
            events += detector.heard(step[0], step[1], now_ms)
        events += detector.tick(now_ms)
        if detector.verdict is PeerState.UP:
            assert detector.silence_ms(now_ms) < 2000
    for one, other in itertools.pairwise(events):
        assert (one.boot, one.verdict) != (other.boot, other.verdict)
    ups = [event.boot for event in events if event.verdict is PeerState.UP]
    assert [b for i, b in enumerate(ups) if i == 0 or ups[i - 1] != b] == list(dict.fromkeys(ups))
