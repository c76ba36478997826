"""The newcomer's tour of docs/tour.md as a script: `python -m tests.page.tour FOLDER`, `make tour`.

It does what the tour says, waits for what the tour says one sees, and takes its pictures: it fails
where the tour is no longer true.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
from pika.exceptions import AMQPError

from tests.page.browser import View, chromium, window

AMQP_PORT, MANAGEMENT_PORT = 18_672, 18_772
DEAD = 1_000
WINDOW = {"width": 1280, "height": 760}
PICTURE_BYTES_MAX = 150_000
CHART_S = 12.0
"""So long a chart needs to have something to show."""


def page_of(number: int) -> str:
    """The address of a node's page, counted from 1."""
    return f"http://127.0.0.1:{MANAGEMENT_PORT + number - 1}/"


class Terminal:
    """The reader's other window.

    Args:
        folder: Where the cluster keeps everything.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *words: str) -> None:
        """Run `warrenmq cluster ...`."""
        print("$ warrenmq cluster", *words)
        command = [sys.executable, "-m", "broker", "cluster", *words, "--dir", str(self._folder)]
        subprocess.run(command, check=True)


class Clients:
    """Programs that go on whatever dies: each is a thread that comes back by the next node."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, name: str, work: Callable[[Any, threading.Event], None]) -> None:
        """Start one; `work` gets a connection, again and again."""
        thread = threading.Thread(target=self._run, args=(name, work), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, name: str, work: Callable[[Any, threading.Event], None]) -> None:
        turn = 0
        while not self._over.is_set():
            try:
                with connect(turn, name) as connection:
                    work(connection, self._over)
            except (AMQPError, OSError):
                self._over.wait(0.3)
            turn += 1

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(10)


def connect(turn: int = 0, name: str = "tour") -> pika.BlockingConnection:
    """A connection to one of the nodes."""
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        AMQP_PORT + turn % 3,
        client_properties={"connection_name": name},
        blocked_connection_timeout=10,
        socket_timeout=3,
    )
    return pika.BlockingConnection(parameters)


def shop(connection: Any, over: threading.Event) -> None:
    """Publish an order 30 times a second, confirmed."""
    channel = connection.channel()
    channel.confirm_delivery()
    while not over.is_set():
        properties = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", "orders", b'{"order": 4711}', properties)
        connection.sleep(1 / 30)


def billing(connection: Any, over: threading.Event) -> None:
    """Consume orders and acknowledge them."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=20)
    channel.basic_consume("orders", lambda c, method, *_: c.basic_ack(method.delivery_tag))
    while not over.is_set():
        connection.process_data_events(0.2)


def printer(connection: Any, over: threading.Event) -> None:
    """Take ten labels and never say that they are printed."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume("labels", lambda *_: None, consumer_tag="out-of-paper")
    while not over.is_set():
        connection.process_data_events(0.2)


def declare(name: str, **arguments: object) -> None:
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})


def publish(name: str, count: int) -> None:
    with connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(count):
            body = b'{"invoice": %d}' % number
            channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2))


def reject_all(name: str, count: int) -> None:
    """A consumer with a bug: it rejects whatever it gets."""
    with connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=200)
        left = count
        for method, *_ in channel.consume(name):
            channel.basic_reject(method.delivery_tag, requeue=False)
            left -= 1
            if not left:
                return


class Tour:
    """The steps.

    Args:
        view: The reader's browser.
        terminal: The other window.
        clients: The programs of the shop.
        folder: For the pictures.
    """

    def __init__(self, view: View, terminal: Terminal, clients: Clients, folder: Path) -> None:
        self._view = view
        self._page = view.page
        self._terminal = terminal
        self._clients = clients
        self._folder = folder

    def picture(self, name: str) -> None:
        path = self._folder / f"tour-{name}.png"
        self._page.locator(".notices .notice").first.wait_for(state="detached")
        self._page.screenshot(path=path)
        size = path.stat().st_size
        print(f"  {path.name}: {size // 1000} kB")
        assert size < PICTURE_BYTES_MAX, f"{path.name} is too large"

    def _ask(self, where: str) -> Any:
        answer = self._page.request.get(f"{self._view.base}api{where}")
        assert answer.ok, answer.status
        return answer.json()

    def last_minute(self) -> None:
        """Have the charts show the last minute: there is no more yet."""
        for each in self._page.get_by_role("button", name="1 min", exact=True).all():
            each.click()

    def look_around(self) -> None:
        self._view.login()
        self._page.locator("header .pill", has_text="3 of 3 nodes").wait_for()
        self._page.get_by_role("link", name="node3").first.wait_for()
        self._view.go("#/cluster")
        self._view.told("All 3 nodes run.")
        time.sleep(CHART_S)
        self.picture("1-cluster")

    def publish(self) -> None:
        self._view.go("#/queues")
        self._view.press("Declare a queue")
        self._page.locator("dialog [name=type]").select_option("quorum")
        self._page.locator("dialog [name=name]").fill("orders")
        self._view.press("Declare", within="dialog")
        self._page.locator("main .title h1", has_text="orders").wait_for()
        self._view.press("Publish", within="main")
        self._page.locator("dialog [name=payload]").fill("hello")
        self._view.press("Publish", within="dialog")
        self._view.told("Published to orders.")
        self._view.press("Close", within="dialog")
        self._view.press("Get messages")
        self._view.press("Get", within="dialog")
        self._page.locator("dialog pre", has_text="hello").wait_for()
        self.picture("2-get")
        self._view.press("Close", within="dialog")

    def fail_over(self) -> None:
        leader = str(self._ask("/queues/%2F/orders")["leader"])
        victim = leader.removeprefix("rabbit@")
        self._clients.begin("shop", shop)
        self._clients.begin("billing", billing)
        # The page of a node that lives: a login is good for all of them.
        self._page.goto("about:blank")  # or the page that is left asks once more
        self._view.base = page_of(2 if victim == "node1" else 1)
        self._page.goto(f"{self._view.base}#/queues/%2F/orders")
        self._page.get_by_role("region", name="Replicas").wait_for()
        self.last_minute()
        time.sleep(CHART_S)
        self._terminal.run("kill", victim)
        self._page.get_by_text("leader moved").first.wait_for()
        self._page.locator("header .pill", has_text="2 of 3 nodes").wait_for()
        time.sleep(2 * CHART_S)  # the new leader counts anew
        self.picture("3-failover")
        self._terminal.run("start-node", victim)
        self._page.locator("header .pill", has_text="3 of 3 nodes").wait_for()

    def ask_why(self) -> None:
        declare("labels")
        self._clients.begin("label-printer", printer)
        publish("labels", 250)
        self._view.go("#/queues/%2F/labels")
        self._view.told("prefetch full")
        self.last_minute()
        time.sleep(CHART_S)
        self.picture("4-why")

    def redrive(self) -> None:
        declare("invoices.dead")
        declare(
            "invoices",
            **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "invoices.dead"},
        )
        publish("invoices", DEAD)
        reject_all("invoices", DEAD)
        self._view.go("#/queues/%2F/invoices.dead")
        self._page.get_by_role("region", name="Dead letters").get_by_text("1,000").first.wait_for()
        self._view.press("Send all back…")
        self._view.press("Dry run", within="dialog")
        self._view.told(f"{DEAD:,} messages would go back.")
        self.picture("5-dry-run")
        self._view.press(f"Send {DEAD:,} messages back", within="dialog")
        self._view.told(f"{DEAD:,} of {DEAD:,} sent")
        self.picture("6-redriven")
        self._view.go("#/queues/%2F/invoices")
        ready = self._page.locator(".figure", has_text="Ready")
        ready.locator(".num", has_text=f"{DEAD:,}").wait_for()


@contextmanager
def cluster(terminal: Terminal) -> Iterator[None]:
    ports = ("--amqp-port", str(AMQP_PORT), "--management-port", str(MANAGEMENT_PORT))
    terminal.run("start", *ports, "--set", "prometheus.tcp.port=none")
    try:
        yield
    finally:
        terminal.run("stop")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    clients = Clients()
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        terminal = Terminal(Path(place) / "cluster")
        with cluster(terminal):
            first: Any = SimpleNamespace(management_port=MANAGEMENT_PORT)
            with window(browser, first, viewport=WINDOW, color_scheme="light") as view:
                tour = Tour(view, terminal, clients, folder)
                view.allowed |= {404, 500, 503}  # what a cluster that lacks a node answers
                for step in (
                    tour.look_around,
                    tour.publish,
                    tour.fail_over,
                    tour.ask_why,
                    tour.redrive,
                ):
                    print(f"== {step.__name__}")
                    step()
                clients.end()


if __name__ == "__main__":
    main()
