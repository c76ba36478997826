"""Whether one replica may go on alone: what an operator is told, and what only force does."""

from __future__ import annotations

import msgspec
import pytest

from broker.metadata.records import Queue
from broker.queues.replicas import survivor
from broker.queues.replicas.survivor import Condition, MemberState

A, B, C, D, E = (f"rabbit@{name}" for name in "abcde")
QUEUE = Queue("/", "q", 7, "quorum", True, False, None, {}, A, (A, B, C))
WHOLE = MemberState(Condition.WHOLE, "", (3, 10), (A, B, C))
DAMAGED = MemberState(Condition.DAMAGED, why="a bit is wrong")
BLANK = MemberState(Condition.BLANK)
ABSENT = MemberState(Condition.ABSENT)


def of(*members: str, **fields: object) -> Queue:
    return msgspec.structs.replace(QUEUE, members=members, **fields)


@pytest.mark.parametrize("others", [(DAMAGED, DAMAGED), (DAMAGED, BLANK)])
def test_it_may_where_the_others_are_known_to_be_damaged(others: tuple[MemberState, ...]) -> None:
    states = dict(zip((A, B, C), (WHOLE, *others), strict=True))
    assert survivor.refusal(QUEUE, A, states, is_forced=False) == ""


def test_it_may_where_the_others_were_forgotten_or_an_earlier_attempt_ended_half_way() -> None:
    """Group 0 names it alone, and its log the others still."""
    assert survivor.refusal(of(A), A, {A: WHOLE}, is_forced=False) == ""
    assert survivor.given_up(of(A), A, {A: WHOLE}) == dict.fromkeys((B, C), "no member any more")


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (None, f"node {C} is not reached: start it; if it is gone for good, run "),
        (None, f"forget_cluster_node {C}"),
        (ABSENT, f"node {C} has not opened its replica"),
    ],
)
def test_what_nobody_knows_is_given_up_by_force_only(other: MemberState | None, text: str) -> None:
    states = {A: WHOLE, B: DAMAGED, C: other}
    why = survivor.refusal(QUEUE, A, states, is_forced=False)
    assert text in why
    assert "With --force" in why
    assert "confirmed messages that only they have are lost" in why
    assert survivor.refusal(QUEUE, A, states, is_forced=True) == ""


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize(
    ("here", "other", "text"),
    [
        (WHOLE, WHOLE, "which is a majority"),
        (WHOLE, msgspec.structs.replace(WHOLE, leader=B), f"it has a leader, {B}"),
        (msgspec.structs.replace(WHOLE, leader=A), DAMAGED, f"it has a leader, {A}"),
        (DAMAGED, WHOLE, f"(a bit is wrong): run it on {B}, whose replica is whole"),
        (DAMAGED, DAMAGED, f"run it on another member, once it is up: {B} or {C}"),
        (BLANK, DAMAGED, "has no data"),
        (ABSENT, WHOLE, f"{A} has no replica of it"),
    ],
)
def test_no_force_where_another_replica_is_the_one_or_nothing_is_lost(
    here: MemberState, other: MemberState, text: str, *, is_forced: bool
) -> None:
    states = {A: here, B: other, C: DAMAGED}
    assert text in survivor.refusal(QUEUE, A, states, is_forced=is_forced)


def test_a_leader_that_a_follower_has_heard_of_and_that_is_damaged_is_none() -> None:
    """The group is asleep, and nobody has told it."""
    states = {A: msgspec.structs.replace(WHOLE, leader=B), B: DAMAGED, C: DAMAGED}
    assert survivor.refusal(QUEUE, A, states, is_forced=False) == ""


@pytest.mark.parametrize("is_forced", [False, True])
def test_of_two_whole_ones_among_five_the_one_with_newer_entries_goes_on(is_forced: bool) -> None:
    voters = (A, B, C, D, E)
    here = msgspec.structs.replace(WHOLE, voters=voters)
    newer = msgspec.structs.replace(here, last_entry=(3, 11))
    states = {A: here, B: newer, C: DAMAGED, D: DAMAGED, E: DAMAGED}
    why = survivor.refusal(of(*voters), A, states, is_forced=is_forced)
    assert why.endswith(f"has newer entries: run it on {B}")
    why = survivor.refusal(of(*voters), B, states, is_forced=is_forced)
    assert ("" if is_forced else f"the replica on {A} is whole, but not a majority") in why
    assert bool(why) is not is_forced


def test_a_replica_without_a_vote_goes_on_by_force_only() -> None:
    states = {A: msgspec.structs.replace(WHOLE, voters=(B, C)), B: DAMAGED, C: DAMAGED}
    assert "has no vote" in survivor.refusal(QUEUE, A, states, is_forced=False)
    assert survivor.refusal(QUEUE, A, states, is_forced=True) == ""


def test_what_was_given_up_is_told() -> None:
    lost = survivor.given_up(QUEUE, A, {A: WHOLE, B: DAMAGED, C: None})
    assert lost == {B: "its log is damaged", C: "not reached"}
    text = survivor.outcome(A, (3, 10), lost)
    assert f"{A} goes on alone, with all it has, up to entry 10 of term 3" in text
    assert f"{B} (its log is damaged), {C} (not reached)" in text
