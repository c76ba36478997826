"""The tasks of `test_celery`, and the application that worker and caller share."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from celery import Celery
from kombu import Exchange, Queue

MAIN = "tests.clients.celery_tasks"


def configured(app: Celery, queue: str, kind: str) -> Celery:
    """Configure a worker's application, or a caller's, for one task queue.

    Args:
        app: The application.
        queue: Its task queue.
        kind: "plain", "priority" (x-max-priority 10) or "quorum" (with native delayed delivery,
            which wants a topic exchange).
    """
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=5,
        result_chord_retry_interval=0.2,
        result_persistent=False,
        task_default_queue=queue,
        worker_hijack_root_logger=False,
    )
    if kind == "priority":
        arguments = {"x-max-priority": 10}
        app.conf.task_queues = [Queue(queue, routing_key=queue, queue_arguments=arguments)]
        app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
    elif kind == "quorum":
        exchange = Exchange(f"{queue}.in", type="topic")
        arguments = {"x-queue-type": "quorum"}
        app.conf.task_queues = [
            Queue(queue, exchange, routing_key=queue, queue_arguments=arguments)
        ]
        app.conf.update(
            task_default_exchange=f"{queue}.in",
            task_default_exchange_type="topic",
            task_default_routing_key=queue,
            broker_transport_options={"confirm_publish": True},
        )
    return app


app = configured(
    Celery(
        "celery_tasks",
        broker=os.environ.get("BROKER_URL", "amqp://"),
        backend=os.environ.get("RESULT_BACKEND", "rpc://"),
    ),
    os.environ.get("TASK_QUEUE", "celery"),
    os.environ.get("TASK_QUEUE_KIND", "plain"),
)
app.conf.update(json.loads(os.environ.get("MORE_SETTINGS", "{}")))


@app.task
def add(left: int, right: int) -> int:
    """A task with a result."""
    return left + right


@app.task
def total(numbers: list[int]) -> int:
    """What a chord ends in."""
    return sum(numbers)


@app.task
def fail() -> None:
    """A task that ends with an error."""
    raise ValueError("as told")


@app.task(bind=True, max_retries=1, default_retry_delay=0)
def at_second_try(self: object) -> int:
    """A task that has itself sent again once."""
    if self.request.retries == 0:  # type: ignore[attr-defined]
        raise self.retry()  # type: ignore[attr-defined]
    return int(self.request.retries)  # type: ignore[attr-defined]


@app.task
def when() -> float:
    """The moment it ran, seconds of the machine's clock."""
    return time.time()  # noqa: TID251 - two processes compare it


@app.task
def note(path: str, text: str) -> None:
    """Write a line down, so that an order can be read."""
    with Path(path).open("a") as notes:
        notes.write(f"{text}\n")
