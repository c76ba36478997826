"""Flower, the web page for Celery: its tasks come as events, its queues from the management API.

It is no dependency of ours: it is taken from PyPI and kept in pytest's cache.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.celery_program import PATIENCE_S, ROOT, caller, task, worker
from tests.clients.celery_tasks import MAIN
from tests.clients.place import name
from tests.nodes import free_ports, wait_until
from tests.tls_place import TlsPlace

NEEDED = ("flower==2.0.1", "tornado==6.5.2", "humanize==4.13.0", "pytz==2025.2")
"""Beside what is here for Celery."""
INSTALL_TIMEOUT_S = 90

pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("forgiven"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(celery|kombu|amqp|vine).*"),
    # py-amqp leaves sockets to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Flower and what it imports."""
    cache = request.config.cache if hasattr(request.config, "cache") else None
    kept = cache.mkdir("flower") if cache is not None else tmp_path_factory.mktemp("flower")
    if not (kept / "done").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "10"]
        try:
            done = subprocess.run(
                [*command, "--target", str(kept), *NEEDED],
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"Flower was not installed in {INSTALL_TIMEOUT_S} s")
        if done.returncode:
            pytest.skip(f"no Flower from PyPI: {done.stderr.strip()[-200:]}")
        (kept / "done").touch()
    return kept


class Flower:
    """A Flower process that is asked over HTTP."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"

    def ask(self, path: str, data: bytes | None = None) -> str:
        """What it answers; a POST with data.

        Raises:
            OSError: It does not serve yet, or answers with an error.
        """
        request = urllib.request.Request(f"{self._root}{path}", data=data)
        with urllib.request.urlopen(request, timeout=15) as answer:
            return str(answer.read().decode())

    def serves(self) -> bool:
        try:
            return self.ask("/healthcheck") == "OK"
        except OSError:
            return False

    def states(self) -> Counter[tuple[str, str]]:
        """Of the tasks in its list: how many have a name and a state."""
        tasks = json.loads(self.ask("/api/tasks?limit=100")).values()
        return Counter((each["name"].rpartition(".")[2], each["state"]) for each in tasks)

    def queues(self) -> dict[str, list[str]]:
        """The cells of its broker page: messages, unacknowledged, ready, consumers, idle since."""
        table = self.ask("/broker").partition("<tbody>")[2].partition("</tbody>")[0]
        cell = re.compile(r"<td[^>]*>\s*(.*?)\s*</td>", re.DOTALL)
        rows = [cell.findall(row) for row in table.split("</tr>")]
        return {row[0]: row[1:] for row in rows if row}


@contextmanager
def flower(
    folder: Path, installed: Path, api: str, environment: dict[str, str]
) -> Iterator[Flower]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "celery", "-A", MAIN, "flower", "--address=127.0.0.1"]
    command += [f"--port={port}", f"--broker_api={api}"]
    path = os.pathsep.join([str(installed), str(ROOT)])
    environment = {**os.environ, **environment, "PYTHONPATH": path}
    log = folder / "flower"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        found = Flower(port)

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            return found.serves() and "Connected to" in log.read_text()

        wait_until(is_ready, "Flower serves", PATIENCE_S)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_its_pages_show_tasks_queues_and_workers(
    tls_place: TlsPlace, installed: Path, tmp_path: Path
) -> None:
    """All of it over TLS: Celery's own connections, and the management API."""
    place, queue = tls_place, name("flower")
    # its broker page knows no amqps: broker_use_ssl says that it is TLS
    urls = f"amqp://guest:guest@localhost:{place.port}//"
    tls = {"ca_certs": str(place.authority.certfile), "cert_reqs": ssl.CERT_REQUIRED}
    settings: dict[str, Any] = {"broker_use_ssl": {**tls, "server_hostname": "localhost"}}
    environment = {
        "BROKER_URL": urls,
        "TASK_QUEUE": queue,
        "MORE_SETTINGS": json.dumps(settings),
        "FLOWER_UNAUTHENTICATED_API": "1",
    }
    api = f"https://guest:guest@localhost:{place.https_port}/api/"
    words = ("--concurrency", "2", "-E")
    with (
        worker(urls, queue, tmp_path / "log", *words, settings=settings),
        flower(tmp_path, installed, api, environment) as page,
        caller(urls, queue, settings=settings) as app,
    ):
        results = [task(app, "add", number, 1).delay() for number in range(10)]
        assert [each.get(timeout=PATIENCE_S) for each in results] == list(range(1, 11))
        with pytest.raises(ValueError, match="as told"):
            task(app, "fail").delay().get(timeout=PATIENCE_S)
        task(app, "add", 100, 1).apply_async(countdown=600)  # stays with the worker
        expected = {("add", "SUCCESS"): 10, ("fail", "FAILURE"): 1, ("add", "RECEIVED"): 1}
        wait_until(lambda: page.states() == expected, "its list of tasks has all", 20)

        def has_workers() -> bool:
            return f"{queue}@test" in json.loads(page.ask("/api/workers?refresh=1"))

        wait_until(has_workers, "it knows the worker", 20)
        is_out = ["1", "1", "0", "1"]
        wait_until(lambda: page.queues().get(queue, [])[:4] == is_out, "a message is out", 20)
        assert page.queues().keys() == {queue}
        other = name("flower.other")
        added = page.ask(f"/api/worker/queue/add-consumer/{queue}@test?queue={other}", b"")
        assert json.loads(added) == {"message": f"add consumer {other}"}
        wait_until(lambda: has_workers() and other in page.queues(), "and another queue", 20)
        assert page.queues()[other][:4] == ["0", "0", "0", "1"]
        called = page.ask(f"/api/task/apply/{MAIN}.add", b'{"args": [1, 2]}')
        assert json.loads(called)["result"] == 3
    with place.node.connect() as connection:
        for each in (queue, other):
            connection.channel().queue_delete(each)
