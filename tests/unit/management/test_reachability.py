"""Partitions are told apart from nodes that are down."""

from __future__ import annotations

from broker.management.resources.node.reachability import partitions, unheard

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"


def sees(heard=(), silent=(), ended=()):
    return {"peers_heard": heard, "peers_silent": silent, "peers_ended": ended}


def test_a_node_that_has_ended_is_no_partition_whoever_proved_it():
    reports = {A: sees([B], silent=[C]), B: sees([A], ended=[C])}
    assert partitions(reports) == {}
    assert unheard(reports, [A, B, C]) == {C: "ended"}


def test_a_node_that_another_hears_lives_and_is_partitioned_from_who_does_not():
    reports = {A: sees([B], silent=[C]), B: sees([A, C])}
    assert partitions(reports) == {A: [C]}
    assert unheard(reports, [A, B, C]) == {}


def test_a_late_proof_of_an_end_does_not_hide_that_a_node_is_back():
    reports = {A: sees([B], ended=[C]), B: sees([A], silent=[C]), C: sees()}
    assert partitions(reports) == {B: [C]}
    assert unheard(reports, [A, B, C]) == {}


def test_a_node_that_nobody_hears_is_silent_and_what_is_not_known_yet_is_not_told():
    reports = {A: sees(silent=[C])}
    assert partitions(reports) == {A: [C]}
    assert unheard(reports, [A, B, C]) == {C: "silent"}


def test_nodes_of_an_older_version_say_nothing():
    assert partitions({A: {}, B: sees(silent=[A])}) == {B: [A]}
    assert unheard({A: {}, B: sees(silent=[A])}, [A, B]) == {}
