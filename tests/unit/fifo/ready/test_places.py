"""Looking through a queue from place to place, of every kind and while it changes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import msgspec
import pytest

from broker.fifo.logged.blocks import BLOCK
from broker.fifo.logged.positions import Positions
from broker.fifo.logged.ready import LoggedFifo
from broker.fifo.ready.due import DueQueue
from broker.fifo.ready.fifo import PagedFifo
from broker.fifo.ready.places import BEGINNING, Place, from_index
from broker.fifo.ready.priority import PriorityQueue
from broker.fifo.ready.queue import Eviction, ReadyQueue, body_bytes
from broker.message import Delivery
from tests.model.fifo_model import again, message

KINDS: dict[str, Callable[[], ReadyQueue]] = {
    "classic": lambda: PagedFifo(by_number=True),
    "unlogged quorum": lambda: PagedFifo(by_number=False),
    "priority": lambda: PriorityQueue(3),
    "quorum": lambda: LoggedFifo(Positions(), 20_000),
}


def walked(ready: ReadyQueue, page: int, after: Place = BEGINNING) -> list[int]:
    """The numbers behind a place, page by page."""
    found: list[int] = []
    while some := ready.walk(after, page):
        found += [item.number for _, item in some]
        after = some[-1][0]
    return found


def numbers(ready: ReadyQueue) -> list[int]:
    return [item.number for item in ready.in_order()]


def fill(ready: ReadyQueue, first: int, count: int) -> None:
    items = [
        Delivery(n, 0, msgspec.structs.replace(message(50), priority=n % 4))
        for n in range(first, first + count)
    ]
    ready.append(items, body_bytes(items))


@pytest.mark.parametrize("page", [1, 7, 5_000])
@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_the_whole_queue_in_its_order(kind: str, page: int) -> None:
    ready, draw = KINDS[kind](), random.Random(kind)
    fill(ready, 1, 300)
    out = ready.take(120)[0]
    ready.give_back([again(item) for item in draw.sample(out, 60)])
    fill(ready, 301, 200)
    before = [(item.number, item.delivery_count) for item in ready.in_order()]
    assert walked(ready, page) == [number for number, _ in before]
    assert [(item.number, item.delivery_count) for item in ready.in_order()] == before


@pytest.mark.parametrize("kind", ["classic", "priority"])
def test_what_is_on_disk_is_walked_through_too(kind: str) -> None:
    ready = KINDS[kind]()
    fill(ready, 1, 6_000)
    ready.page_out(Eviction(3_000_000, window_bytes=40_000, stub_bytes=10_000, durable=True))
    fill(ready, 6_001, 50)
    assert ready.is_paged
    assert ready.delta[0] > 1_000
    assert walked(ready, 700) == numbers(ready)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_it_goes_on_behind_what_was_seen_while_messages_come_and_go(kind: str, seed: int) -> None:
    ready, draw, next_number = KINDS[kind](), random.Random(seed), 1
    fill(ready, next_number, 400)
    next_number, after, seen = 401, BEGINNING, list[int]()
    while some := ready.walk(after, 50):
        seen += [item.number for _, item in some]
        after = some[-1][0]
        ready.take(draw.randrange(60))  # consumers go on
        if next_number < 1_500 and draw.random() < 0.5:
            fill(ready, next_number, 100)
            next_number += 100
    assert len(set(seen)) == len(seen), "no message is shown twice"
    if kind != "priority":  # there what comes with a high priority comes before the place
        gone_before = set(range(1, next_number)).difference(seen, numbers(ready))
        assert set(numbers(ready)) <= set(seen)
        assert all(number < max(seen) for number in gone_before)


def test_a_long_quorum_queue_is_found_again_in_its_blocks() -> None:
    ready = KINDS["quorum"]()
    fill(ready, 1, 4 * BLOCK)
    tail = ready.take(5)[0]
    ready.append(tail, body_bytes(tail))  # returned to the tail: numbers do not ascend there
    assert walked(ready, 333) == numbers(ready)
    place = ready.walk(BEGINNING, 3 * BLOCK)[-1][0]
    ready.take(3 * BLOCK + 100)  # the message of the place, and some behind it
    assert walked(ready, 100, place) == numbers(ready)


@pytest.mark.parametrize("start", [0, 3, 9, 10, 11])
def test_a_deque_is_read_from_its_nearer_end(start: int) -> None:
    items = [Delivery(n, 0, message()) for n in range(10)]
    for count in (1, 4, 20):
        assert from_index(deque(items), start, count) == items[start : start + count]


@pytest.mark.parametrize("page", [1, 2, 9])
def test_a_store_of_delays_is_walked_through_as_its_messages_are_due(page: int) -> None:
    ready = DueQueue()
    items = [
        Delivery(number, 0, msgspec.structs.replace(message(50), expires_ms=due_ms))
        for number, due_ms in enumerate((30, 10, 20, 10, 40), 1)
    ]
    ready.append(items, body_bytes(items))
    assert walked(ready, page) == [2, 4, 3, 1, 5]
    assert walked(ready, page, Place(10, 4)) == [3, 1, 5]
