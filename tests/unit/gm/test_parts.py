"""The small pieces: ledgers, outboxes, what is held, catch-ups in parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gm.core import parts
from gm.core.held import Held
from gm.core.ledger import Ledger
from gm.core.messages import Activity, Item, Need, PublisherState
from gm.core.outbox import NeighbourOutbox
from gm.core.view import MemberId

A, B, C = (MemberId(name, "boot", 1) for name in "abc")


def test_what_is_acked_before_it_was_forwarded_needs_no_forwarding() -> None:
    ledger = Ledger()
    ledger.extend([b"1", b"2", b"3"])
    assert ledger.settle(2) == [b"1", b"2"]
    assert (ledger.done, ledger.forwarded, ledger.last) == (2, 2, 3)
    assert ledger.sent() == []


def test_news_of_the_dead_go_first_where_they_do_not_fit() -> None:
    """Else an heir's mark could overtake what it has to push ahead of it."""
    outbox = NeighbourOutbox(bytes_max=4)
    outbox.pubs(A, 1, [b"aaa"])
    outbox.pubs(B, 5, [b"bbb", b"b"])
    messages = list(outbox.take(lambda member: member == B))
    assert messages == [[Item(B, 5, [b"bbb", b"b"])], [Item(A, 1, [b"aaa"])]]
    assert not outbox


def test_an_ack_goes_with_the_last_of_its_publisher_s_news() -> None:
    outbox = NeighbourOutbox(bytes_max=2)
    outbox.ack(A, 7)
    outbox.pubs(A, 8, [b"12", b"34"])
    assert list(outbox.take(lambda _: False)) == [[Item(A, 8, [b"12"])], [Item(A, 9, [b"34"], 7)]]


def test_after_an_overflow_nothing_of_that_sender_is_held() -> None:
    held = Held(bytes_max=200)
    assert held.put(A, 2, Need())
    assert not held.put(A, 2, Activity(1, [Item(A, 1, [b"x" * 300])]))
    assert not held.put(A, 2, Need())
    assert held.put(B, 2, Need())
    assert [(sender, type(message)) for sender, _, message in held.release(2)] == [
        (A, Need),
        (B, Need),
    ]


def test_what_is_released_makes_room() -> None:
    held = Held(bytes_max=64)
    assert held.put(A, 2, Need())
    assert list(held.release(2)) == [(A, 2, Need())]
    assert held.put(A, 3, Need())


states = st.dictionaries(
    st.sampled_from([A, B, C]),
    st.builds(PublisherState, st.integers(0, 9), st.lists(st.binary(max_size=9), max_size=6)),
)


@given(states, st.integers(0, 30))
def test_parts_of_a_catch_up_are_the_whole(
    whole: dict[MemberId, PublisherState], bytes_max: int
) -> None:
    joined: dict[MemberId, PublisherState] = {}
    for part in parts.cut(whole, bytes_max):
        size = sum(len(payload) for state in part.values() for payload in state.pubs)
        count = sum(len(state.pubs) for state in part.values())
        assert size <= bytes_max or count == 1 or size == 0
        joined = parts.join(joined, part)
    assert {p: (s.done, list(s.pubs)) for p, s in joined.items()} == {
        p: (s.done, list(s.pubs)) for p, s in whole.items()
    }
