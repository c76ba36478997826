"""Celery on queues with priorities, and on quorum queues with its native delayed delivery."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.clients.celery_program import PATIENCE_S, QUIET, caller, task, worker
from tests.clients.place import Place, name, url
from tests.machine import lateness

pytestmark = [
    pytest.mark.usefixtures("forgiven"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(celery|kombu|amqp|vine).*"),
    # py-amqp leaves sockets to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.long
def test_priorities(place: Place, tmp_path: Path) -> None:
    """Sent before the worker came, so all of them waited together.

    Rows: 1.7 x-max-priority; 1.7 message priority
    """
    queue = place.declare(name("celery.priority"), **{"x-max-priority": 10})
    notes = tmp_path / "notes"
    with caller(url(place.here), queue, kind="priority") as app:
        for number, priority in enumerate([0, 3, 9, 3, 10, 200, 0, 9]):
            note = task(app, "note", str(notes), f"{min(priority, 10)} {number}")
            note.apply_async(priority=priority)
        with worker(url(place.there), queue, tmp_path / "log", *QUIET, kind="priority"):
            assert task(app, "add", 1, 1).delay().get(timeout=PATIENCE_S) == 2
        order = notes.read_text().splitlines()
        assert order == ["10 4", "10 5", "9 2", "9 7", "3 1", "3 3", "0 0", "0 6"]
    place.delete(queue)


@pytest.mark.long
def test_quorum_queues_with_native_delayed_delivery(place: Place, tmp_path: Path) -> None:
    """Its 28 quorum queues with TTL hand a task from one to the next, at-least-once.

    Rows: 1.4 per-queue TTL; 1.18 worker; 1.16 TTL; 1.11 sender selected delay
    """
    queue = place.declare(name("celery.quorum"), **{"x-queue-type": "quorum"})
    levels = [f"celery_delayed_{level}" for level in range(28)]
    with (
        caller(url(place.here), queue, kind="quorum") as app,
        worker(url(place.there), queue, tmp_path / "log", *QUIET, kind="quorum"),
    ):
        asked_at = time.time()  # noqa: TID251 - two processes compare it
        assert task(app, "add", 1, 2).delay().get(timeout=PATIENCE_S) == 3
        later = [task(app, "when").apply_async(countdown=after_s) for after_s in (1, 3)]
        for after_s, each in zip((1, 3), later, strict=True):
            took_s = each.get(timeout=PATIENCE_S) - asked_at
            assert after_s - 0.1 <= took_s < after_s + 3 * lateness()
        assert all(place.depth(level) == 0 for level in levels[:4])
    place.delete(queue, *levels)
    with place.here.connect() as connection:
        for exchange in (*levels, "celery_delayed_delivery", f"{queue}.in"):
            connection.channel().exchange_delete(exchange)
