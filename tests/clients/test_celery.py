"""Celery: a worker process and a caller, at one node and at different nodes of a cluster."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from celery import chain, chord, group

from tests.clients.celery_program import PATIENCE_S, QUIET, caller, task, worker
from tests.clients.place import Place, name, url
from tests.machine import lateness
from tests.nodes import Node, wait_until

pytestmark = [
    pytest.mark.usefixtures("forgiven"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(celery|kombu|amqp|vine).*"),
    # py-amqp leaves sockets to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def consumers(node: Node, queue: str) -> int:
    with node.connect() as connection:
        answer = connection.channel().queue_declare(queue, passive=True)
        return int(answer.method.consumer_count)


def test_tasks_with_results(place: Place, tmp_path: Path) -> None:
    """Results in rpc:// queues, eta, a retry, an error, remote control; chains and groups."""
    queue = place.declare(name("celery"))
    urls = f"{url(place.there)};{url(place.home)}"
    with worker(urls, queue, tmp_path / "log"), caller(url(place.here), queue) as app:
        later = task(app, "when").apply_async(countdown=2)
        asked_at = time.time()  # noqa: TID251 - two processes compare it
        results = [task(app, "add", number, 1).delay() for number in range(20)]
        assert [each.get(timeout=PATIENCE_S) for each in results] == list(range(1, 21))
        with pytest.raises(ValueError, match="as told"):
            task(app, "fail").delay().get(timeout=PATIENCE_S)
        assert task(app, "at_second_try").delay().get(timeout=PATIENCE_S) == 1
        steps = chain(task(app, "add", 1, 2), task(app, "add", 3), task(app, "add", 4))
        assert steps.delay().get(timeout=PATIENCE_S) == 10
        many = group(task(app, "add", number, number) for number in range(10))
        assert many.delay().get(timeout=PATIENCE_S) == [2 * number for number in range(10)]
        assert 1.0 < later.get(timeout=PATIENCE_S) - asked_at < 10.0 * lateness()
        assert consumers(place.here, queue) == 1
        answers = app.control.ping(timeout=2.0, limit=1)  # over the pidbox
        assert answers == [{f"{queue}@test": {"ok": "pong"}}]
        shown = app.control.inspect(timeout=2.0, limit=1).active_queues()
        assert shown[f"{queue}@test"][0]["name"] == queue
    wait_until(lambda: consumers(place.here, queue) == 0, "the worker's consumer is gone")
    place.delete(queue)


def test_a_chord_with_results_in_files(place: Place, tmp_path: Path) -> None:
    queue = place.declare(name("celery.chord"))
    (tmp_path / "results").mkdir()
    files = f"file://{tmp_path / 'results'}"
    with (
        worker(url(place.there), queue, tmp_path / "log", *QUIET, backend=files),
        caller(url(place.here), queue, backend=files) as app,
    ):
        header = [task(app, "add", number, 1) for number in range(5)]
        sums = chord(header, task(app, "total")).apply_async()
        assert sums.get(timeout=PATIENCE_S) == 15
        ends = chain(group(header), task(app, "total"), task(app, "add", 100)).apply_async()
        assert ends.get(timeout=PATIENCE_S) == 115
    place.delete(queue)
