"""Dramatiq: its queues with a delay queue and a dead-letter queue beside each."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import AgeLimit, Callbacks, Retries

from tests.clients.place import Place, name, url
from tests.nodes import Node, wait_until

PATIENCE_S = 60.0
DELAY_MS = 700


@contextmanager
def broker(node: Node, **options: Any) -> Iterator[RabbitmqBroker]:
    middleware = [AgeLimit(), Callbacks(), Retries(min_backoff=50, max_backoff=100)]
    one = RabbitmqBroker(
        url=f"{url(node)}%2F", middleware=middleware, confirm_delivery=True, **options
    )
    try:
        yield one
    finally:
        one.close()


@contextmanager
def working(one: RabbitmqBroker, threads: int = 2) -> Iterator[None]:
    worker = dramatiq.Worker(one, worker_timeout=50, worker_threads=threads)
    worker.start()
    try:
        yield
    finally:
        worker.stop(timeout=5_000)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """It logs what actors raise, which is meant here."""
    logger = logging.getLogger("dramatiq")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def counts(place: Place, queue: str) -> list[int]:
    """What waits in the queue, delayed, and dead."""
    return [place.depth(queue + end) for end in ("", ".DQ", ".XQ")]


def test_tasks_delays_retries_and_the_dead(place: Place) -> None:
    """A delayed task waits in .DQ; one that fails for good is dead-lettered to .XQ with a TTL.

    Rows: 1.5 Triggers; 1.5 Config
    """
    queue = name("dramatiq")
    dlx = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{queue}.XQ"}
    for end, arguments in (("", dlx), (".DQ", dlx), (".XQ", {"x-message-ttl": 604_800_000})):
        place.declare(queue + end, **arguments)
    done: dict[tuple[str, int], float] = {}
    failures: list[int] = []
    lock = threading.Lock()
    with broker(place.here) as caller, broker(place.there) as far:

        @dramatiq.actor(broker=far, queue_name=queue, actor_name="note")
        def note(kind: str, number: int) -> None:
            with lock:
                done[kind, number] = time.monotonic()

        @dramatiq.actor(broker=far, queue_name=queue, actor_name="fails", max_retries=2)
        def fails() -> None:
            failures.append(1)
            raise ValueError("as told")

        def send(actor: str, *arguments: object, delay_ms: int | None = None) -> None:
            options: dict[str, Any] = {}
            message = dramatiq.Message(queue, actor, arguments, {}, options)
            caller.enqueue(message, delay=delay_ms)

        caller.declare_queue(queue)
        with working(far):
            sent = time.monotonic()
            send("note", "later", 0, delay_ms=DELAY_MS)
            for number in range(20):
                send("note", "now", number)
            send("fails")
            wait_until(lambda: len(done) == 21, "all tasks", PATIENCE_S)
            wait_until(lambda: counts(place, queue) == [0, 0, 1], "the dead one", PATIENCE_S)
    assert done.pop(("later", 0)) - sent > DELAY_MS / 1000
    assert sorted(done) == [("now", number) for number in range(20)]
    assert len(failures) == 3
    with place.home.connect() as connection:
        properties = connection.channel().basic_get(f"{queue}.XQ", auto_ack=True)[1]
    death = properties.headers["x-death"][0]
    assert (death["reason"], death["queue"]) == ("rejected", queue)
    place.delete(queue, f"{queue}.DQ", f"{queue}.XQ")


def test_priorities(place: Place) -> None:
    """broker_priority is the message's priority, max_priority the queues' x-max-priority.

    Rows: 1.7 x-max-priority; 1.7 message priority
    """
    queue = name("dramatiq.priority")
    done: list[int] = []
    with (
        broker(place.here, max_priority=10) as caller,
        broker(place.there, max_priority=10) as far,
    ):

        @dramatiq.actor(broker=far, queue_name=queue, actor_name="ranked")
        def ranked(number: int) -> None:
            done.append(number)

        caller.declare_queue(queue)
        for number, priority in enumerate([0, 5, 10, 5]):
            options = {"broker_priority": priority}
            caller.enqueue(dramatiq.Message(queue, "ranked", (number,), {}, options))
        assert counts(place, queue) == [4, 0, 0]
        with working(far, threads=1):
            wait_until(lambda: len(done) == 4, "all tasks", PATIENCE_S)
    assert done == [2, 1, 3, 0]
    place.delete(queue, f"{queue}.DQ", f"{queue}.XQ")
