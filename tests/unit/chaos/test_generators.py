from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from chaos import generators


def test_same_seed_gives_the_same_load():
    first = list(islice(generators.publishes(7, "p1", 50), 500))
    assert first == list(islice(generators.publishes(7, "p1", 50), 500))
    assert first != list(islice(generators.publishes(8, "p1", 50), 500))
    assert first != list(islice(generators.publishes(7, "p2", 50), 500))


def test_pauses_make_the_rate():
    pauses = [step.pause_s for step in islice(generators.publishes(1, "p1", 50), 5_000)]
    assert 45 < len(pauses) / sum(pauses) < 55


def test_sizes_cross_the_embedding_limit_and_the_frame():
    sizes = [step.pad_bytes for step in islice(generators.publishes(1, "p1", 50), 2_000)]
    assert min(sizes) < 100
    assert any(4_096 < size < 10_000 for size in sizes)
    assert max(sizes) > 131_072


def test_consumers_give_back_about_one_in_a_hundred():
    steps = list(islice(generators.handlings(1, "c1"), 10_000))
    assert 50 < sum(step.is_requeued for step in steps) < 200
    assert {step.batch for step in steps} == {1, 5, generators.BATCH_MAX}


def test_clients_go_round_the_nodes_from_their_own():
    assert list(islice(generators.nodes_from("abc", 1), 4)) == ["b", "c", "a", "b"]


@given(st.integers(1, 10**9), st.integers(0, 300))
def test_body_says_who_it_is(seq, pad_bytes):
    content = generators.body("p1.2", seq, pad_bytes)
    assert generators.identity(content) == ("p1.2", seq)
    assert len(content) >= pad_bytes


def test_damaged_pad_has_no_identity():
    content = generators.body("p1.2", 3, 50)
    assert generators.identity(content[:-1] + bytes([content[-1] ^ 1])) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_error(content):
    generators.identity(content)
    generators.identity(b"p|" + content)


def test_pad_may_hold_the_separator():
    assert any(b"|" in generators.body("p", seq, 200).split(b"|", 3)[3] for seq in range(1, 20))
    assert all(generators.identity(generators.body("p", seq, 200)) for seq in range(1, 20))
