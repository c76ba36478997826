"""Celery and kombu: tasks with results, at a node and at a cluster."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kombu
import pytest
from celery import Celery

from tests.nodes import Node, Trio, wait_until

PATIENCE_S = 30
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(celery|kombu|amqp|vine).*"),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # py-amqp leaves sockets to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what kombu leaves while its warnings are still forgiven."""
    yield
    gc.collect()


def url(node: Node) -> str:
    return f"amqp://guest:guest@127.0.0.1:{node.amqp_port}//"


@contextmanager
def worker(urls: str, queue: str, log: Path) -> Iterator[None]:
    """A worker process with two threads."""
    environment = {**os.environ, "BROKER_URL": urls, "TASK_QUEUE": queue}
    command = [sys.executable, "-m", "celery", "-A", "tests.clients.celery_tasks", "worker"]
    command += ["--pool", "threads", "--concurrency", "2", "--loglevel", "INFO"]
    command += ["--hostname", f"{queue}@test"]
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
def caller(node: Node, queue: str) -> Iterator[Celery]:
    app = Celery("caller", broker=url(node), backend="rpc://")
    app.conf.update(task_default_queue=queue, broker_connection_timeout=5)
    try:
        yield app
    finally:
        app.close()


def ask(app: Celery, task: str, *arguments: Any, **options: Any) -> Any:
    return app.send_task(f"tests.clients.celery_tasks.{task}", arguments, **options)


def consumers(node: Node, queue: str) -> int:
    with node.connect() as connection:
        answer = connection.channel().queue_declare(queue, passive=True)
        return int(answer.method.consumer_count)


@pytest.fixture(params=["node", "cluster"])
def ends(request: pytest.FixtureRequest) -> tuple[str, Node]:
    """The worker's URLs, and the node of the caller."""
    if request.param == "node":
        node: Node = request.getfixturevalue("node")
        return url(node), node
    trio: Trio = request.getfixturevalue("trio")
    return ";".join(url(node) for node in trio.nodes), trio.nodes[1]


def test_tasks_with_results(ends: tuple[str, Node], tmp_path: Path) -> None:
    urls, node = ends
    queue = f"celery.{uuid.uuid4().hex[:8]}"
    log = tmp_path / "worker.log"
    with worker(urls, queue, log), caller(node, queue) as app:
        later = ask(app, "when", countdown=2)
        asked_at = time.time()  # noqa: TID251 - two processes compare it
        results = [ask(app, "add", number, 1) for number in range(20)]
        assert [each.get(timeout=PATIENCE_S) for each in results] == list(range(1, 21))
        with pytest.raises(ValueError, match="as told"):
            ask(app, "fail").get(timeout=PATIENCE_S)
        assert 1.0 < later.get(timeout=PATIENCE_S) - asked_at < 10.0
        assert consumers(node, queue) == 1
        answers = app.control.ping(timeout=2.0)  # over the pidbox: fanout, exclusive, x-expires
        assert answers == [{f"{queue}@test": {"ok": "pong"}}]
        assert app.control.inspect(timeout=2.0).active_queues()[f"{queue}@test"][0]["name"] == queue
    wait_until(lambda: consumers(node, queue) == 0, "the worker's consumer is gone")
    with node.connect() as connection:
        connection.channel().queue_delete(queue)


def test_kombu_takes_us_for_rabbitmq_3(node: Node) -> None:
    """kombu looks at product and version, and then sets its prefetch for the whole channel."""
    with kombu.Connection(url(node)) as connection:
        properties = connection.connection.server_properties
        assert properties["product"] == "RabbitMQ"
        assert properties["version"].startswith("3.")
        assert connection.transport.implements.asynchronous
        assert connection.qos_semantics_matches_spec is False
        with connection.channel() as channel:
            channel.basic_qos(0, 4, True)


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_kombu_sends_and_receives(node: Node, mechanism: str) -> None:
    name = f"kombu.{uuid.uuid4().hex[:8]}"
    exchange = kombu.Exchange(name, "topic", durable=False, auto_delete=True)
    queue = kombu.Queue(name, exchange, routing_key="a.#", auto_delete=True, durable=False)
    got: list[Any] = []

    def took(body: Any, message: kombu.Message) -> None:
        got.append((body, message.headers.get("h"), message.properties.get("priority")))
        message.ack()

    with kombu.Connection(url(node), login_method=mechanism) as connection:
        with connection.Consumer(queue, callbacks=[took]):
            producer = connection.Producer()
            for number in range(3):
                producer.publish(
                    {"n": number, "text": "ключ" * 1_000},
                    exchange=exchange,
                    routing_key="a.b",
                    headers={"h": number},
                    priority=number,
                    compression="zlib",
                    retry=True,
                    declare=[exchange],
                )
            while len(got) < 3:
                connection.drain_events(timeout=10)
        assert [(body["n"], header, priority) for body, header, priority in got] == [
            (0, 0, 0),
            (1, 1, 1),
            (2, 2, 2),
        ]
        assert all(body["text"] == "ключ" * 1_000 for body, _, _ in got)


def test_kombu_s_simple_queue(trio: Trio) -> None:
    name = f"simple.{uuid.uuid4().hex[:8]}"
    with (
        kombu.Connection(url(trio.nodes[0])) as here,
        kombu.Connection(url(trio.nodes[1])) as there,
        here.SimpleQueue(name) as out,
        there.SimpleQueue(name) as into,
    ):
        for number in range(5):
            out.put({"n": number})
        for number in range(5):
            message = into.get(timeout=10)
            assert message.payload == {"n": number}
            message.ack()
        with pytest.raises(into.Empty):
            into.get(block=False)
    with trio.nodes[2].connect() as connection:
        assert connection.channel().queue_delete(name).method.message_count == 0
