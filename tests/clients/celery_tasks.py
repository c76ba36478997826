"""The tasks of `test_celery`, and the application that worker and caller share."""

from __future__ import annotations

import os
import time

from celery import Celery

app = Celery(
    "celery_tasks",
    broker=os.environ.get("BROKER_URL", "amqp://"),
    backend="rpc://",
)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_connection_timeout=5,
    result_persistent=False,
    task_default_queue=os.environ.get("TASK_QUEUE", "celery"),
    worker_hijack_root_logger=False,
)


@app.task
def add(left: int, right: int) -> int:
    """A task with a result."""
    return left + right


@app.task
def fail() -> None:
    """A task that ends with an error."""
    raise ValueError("as told")


@app.task
def when() -> float:
    """The moment it ran, seconds of the machine's clock."""
    return time.time()  # noqa: TID251 - two processes compare it
