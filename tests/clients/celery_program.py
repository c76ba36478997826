"""A worker process and a caller, for tests with Celery."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery

from tests.clients.celery_tasks import MAIN, configured
from tests.nodes import wait_until

PATIENCE_S = 60.0
ROOT = Path(__file__).parents[2]
QUIET = ("--without-gossip", "--without-mingle", "--concurrency", "1")


@contextmanager
def worker(
    urls: str,
    queue: str,
    log: Path,
    *words: str,
    kind: str = "plain",
    backend: str = "rpc://",
    settings: Mapping[str, object] | None = None,
) -> Iterator[None]:
    """A worker process with two threads, ready; `settings` are more of Celery's."""
    environment = {
        **os.environ,
        "BROKER_URL": urls,
        "RESULT_BACKEND": backend,
        "TASK_QUEUE": queue,
        "TASK_QUEUE_KIND": kind,
        "MORE_SETTINGS": json.dumps(settings or {}),
    }
    command = [sys.executable, "-m", "celery", "-A", MAIN, "worker"]
    command += ["--pool", "threads", "--loglevel", "INFO", "--hostname", f"{queue}@test"]
    command += words or ("--concurrency", "2")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            return "ready." in log.read_text()

        wait_until(is_ready, "the worker is ready", PATIENCE_S)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def caller(
    urls: str,
    queue: str,
    *,
    kind: str = "plain",
    backend: str = "rpc://",
    settings: Mapping[str, object] | None = None,
) -> Iterator[Celery]:
    app = configured(Celery("caller", broker=urls, backend=backend), queue, kind)
    app.conf.update(settings or {})
    try:
        yield app
    finally:
        app.close()


def task(app: Celery, title: str, *arguments: Any, **options: Any) -> Any:
    """A signature of one of our tasks."""
    return app.signature(f"{MAIN}.{title}", arguments, **options)
