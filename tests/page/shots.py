"""Screenshots of every page in light, dark and phone width: `python -m tests.page.shots FOLDER`.

A cluster of three nodes with clients that work, one that holds its messages, and one queue that
nobody reads. People look at the pictures; no test does.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import AMQPError

from tests.nodes import Node, Trio, wait_until
from tests.page.browser import DESK, PHONE, View, chromium, encoded, window

PAGES = {
    "overview": "#/",
    "connections": "#/connections",
    "channels": "#/channels",
    "exchanges": "#/exchanges",
    "exchange": "#/exchanges/%2F/shop.events",
    "queues": "#/queues",
    "queue-quorum": "#/queues/%2F/orders",
    "queue-mirrored": "#/queues/%2F/invoices",
    "queue-stream": "#/queues/%2F/events",
    "redrive": "#/queues/%2F/orders.dead",
    "browse": "#/queues/%2F/orders.dead",
    "cluster": "#/cluster",
    "node": "#/nodes/rabbit@node1",
    "users": "#/users",
    "user": "#/users/guest",
    "vhosts": "#/vhosts",
    "vhost": "#/vhosts/%2F",
    "policies": "#/policies",
    "limits": "#/limits",
    "definitions": "#/definitions",
    "flags": "#/feature-flags",
}
DEATHS: tuple[tuple[int, str], ...] = (
    (48, "org.shop.SoldOutException: no stock of A-17"),
    (11, "java.net.SocketTimeoutException: Read timed out"),
    (7, ""),
)
"""Dead letters of the queue "payments": how many, and the exception in their headers."""

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
}
QUEUES: dict[str, dict[str, Any]] = {
    "orders": {"x-queue-type": "quorum", "x-dead-letter-exchange": "dead", "x-max-length": 100_000},
    "orders.dead": {"x-queue-type": "quorum"},
    "payments": {"x-queue-type": "quorum", "x-dead-letter-exchange": "dead"},
    "invoices": {},
    "emails": {"x-message-ttl": 600_000, "x-max-priority": 5},
    "events": {"x-queue-type": "stream", "x-max-age": "7D"},
    **{f"worker.{number:02}": {} for number in range(20)},
}


class Shop:
    """Clients of the cluster, each on a thread of its own.

    Args:
        cluster: Three nodes.
    """

    def __init__(self, cluster: Trio) -> None:
        self._nodes = cluster.nodes
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        first = self._nodes[0]
        mirrored = {"ha-mode": "all", "ha-sync-mode": "automatic"}
        for name, pattern, definition, kind in (
            ("ha", "^invoices", mirrored, "classic_queues"),
            ("orders", "^orders", {"delivery-limit": 20}, "quorum_queues"),
        ):
            body = {"pattern": pattern, "definition": definition, "apply-to": kind}
            first.api("PUT", f"/policies{encoded('/', name)}", body)
        first.api("PUT", "/exchanges/%2F/dead", {"type": "fanout"})
        first.api("PUT", "/exchanges/%2F/shop.events", {"type": "topic"})
        first.api("PUT", "/vhosts/shop", {"description": "The shop", "tags": "production"})
        first.api("PUT", "/users/billing", {"password": "x", "tags": "monitoring"})
        for name, arguments in QUEUES.items():
            body = {"durable": True, "arguments": arguments}
            first.api("PUT", f"/queues{encoded('/', name)}", body)
        for source, queue, key in (
            ("shop.events", "orders", "order.*"),
            ("shop.events", "payments", "payment.*"),
            ("shop.events", "events", "#"),
            ("dead", "orders.dead", ""),
        ):
            where = f"/bindings{encoded('/', 'e', source, 'q', queue)}"
            first.api("POST", where, {"routing_key": key})
        self._reject_payments()
        for exchange, key, rate in (("", "orders", 40), ("", "invoices", 20), ("", "emails", 5)):
            self._begin(self._publish, exchange, key, rate)
        self._begin(self._publish, "shop.events", "order.new", 15)
        for queue, name, prefetch in (
            ("orders", "billing-worker-1", 25),
            ("orders", "billing-worker-2", 50),
        ):
            self._begin(self._hold, queue, name, prefetch)
        self._begin(self._consume, "invoices", "invoice-printer")
        self._begin(self._consume, "emails", "mailer")

    def _reject_payments(self) -> None:
        """Have a consumer fail, with the exception in a header as frameworks leave it."""
        with self._client("payment-worker") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            number = 0
            for count, exception in DEATHS:
                headers = {"x-exception-message": exception} if exception else {}
                for _ in range(count):
                    number += 1
                    body = {"payment": number, "order": 4000 + number, "total": "12.50"}
                    properties = pika.BasicProperties(
                        delivery_mode=2,
                        content_type="application/json",
                        headers=headers | {"attempt": 3},
                    )
                    key = "payment.card" if number % 3 else "payment.transfer"
                    channel.basic_publish(
                        "shop.events", key, json.dumps(body).encode(), properties, mandatory=True
                    )
            for _ in range(number):
                method, _, _ = channel.basic_get("payments")
                channel.basic_nack(method.delivery_tag, requeue=False)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _begin(self, run: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=self._guarded, args=(run, *arguments), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, run: Any, *arguments: Any) -> None:
        try:
            run(*arguments)
        except (AMQPError, OSError) as error:
            print(f"a client ended: {error}")

    def _client(self, name: str) -> pika.BlockingConnection:
        node: Node = random.choice(self._nodes)
        return node.connect(client_properties={"connection_name": name})

    def _publish(self, exchange: str, key: str, rate: float) -> None:
        with self._client(f"shop-{key}") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while not self._over.is_set():
                body = b'{"order": 4711, "total": "12.50"}' * 8
                properties = pika.BasicProperties(delivery_mode=2, message_id="4711")
                channel.basic_publish(exchange, key, body, properties)
                connection.sleep(random.random() * 2 / rate)

    def _hold(self, queue: str, name: str, prefetch: int) -> None:
        self._serve(queue, name, prefetch, is_acknowledging=False)

    def _consume(self, queue: str, name: str) -> None:
        self._serve(queue, name, 20, is_acknowledging=True)

    def _serve(self, queue: str, name: str, prefetch: int, *, is_acknowledging: bool) -> None:
        def take(channel: Any, method: Any, *_: Any) -> None:
            if is_acknowledging:
                channel.basic_ack(method.delivery_tag)

        with self._client(name) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=prefetch)
            channel.basic_consume(queue, take, consumer_tag=f"ctag-{name}")
            while not self._over.is_set():
                connection.process_data_events(0.2)


def take_all(cluster: Trio, folder: Path, only: str) -> None:
    """Take the pictures of pages whose name has `only` in it."""
    with chromium() as browser:
        for look, options in LOOKS.items():
            with window(browser, cluster.nodes[0], **options) as view:
                view.allowed |= {401, 404, 503}
                if not only:
                    view.page.goto(view.base)
                    view.page.get_by_label("Password", exact=True).wait_for()
                    view.page.screenshot(path=folder / f"login-{look}.png")
                view.login()
                for name, address in PAGES.items():
                    if only not in name:
                        continue
                    view.go(address)
                    view.page.locator("main h1").wait_for()
                    view.page.locator(".skeleton").first.wait_for(state="detached")
                    has_opened = open_part(view, name)
                    view.page.wait_for_timeout(1_500)  # charts, and a second value of each number
                    picture = folder / f"{name}-{look}.png"
                    view.page.screenshot(path=picture, full_page=not has_opened)
                    if view.page.locator("dialog").count():
                        view.press("Close", within="dialog")


def open_part(view: View, name: str) -> bool:
    """Open what a picture is about, if that is a part of its page; True if it is."""
    page = view.page
    if name == "redrive":
        rows = page.get_by_role("region", name="Dead letters").locator("tr", has_text="SoldOut")
        rows.get_by_role("button", name="Send back…").click()
        view.press("Dry run", within="dialog")
        page.get_by_text("48 messages would go back.").wait_for()
        return True
    if name == "browse":
        page.get_by_role("button", name="Browse", exact=True).first.click()
        page.locator("#browse").get_by_text("payment.card").first.wait_for()
        page.locator("#browse details details summary").first.click()
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="part of a page's name")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        cluster = Trio(Path(place))
        try:
            cluster.start()
            shop = Shop(cluster)
            shop.open()
            first = cluster.nodes[0]

            def is_worked_in() -> bool:
                orders = first.api("GET", "/queues/%2F/orders")
                return bool(orders["messages_unacknowledged"] == 75 and orders["messages"] > 500)

            wait_until(is_worked_in, "the shop has customers")
            take_all(cluster, arguments.folder, arguments.only)
            shop.close()
        finally:
            cluster.end()
    print(f"{len(list(arguments.folder.glob('*.png')))} pictures in {arguments.folder}/")


if __name__ == "__main__":
    main()
