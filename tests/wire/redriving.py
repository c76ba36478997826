"""Queues whose messages died, for the tests of redrives."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, wait_until


class Dead:
    """A queue whose dead letters gather in another, by a fanout exchange.

    Args:
        node: Where.
        channel: With confirms.
        name: Begins all names: queues `NAME.work`, `NAME.dead`, exchanges `NAME.in`, `NAME.dlx`.
        kind: The type of both queues.
        settings: Arguments of the queue where they die, without the dead-letter exchange.
    """

    def __init__(
        self, node: Node, channel: BlockingChannel, name: str, kind: str, **settings: object
    ) -> None:
        self.node, self.channel, self.name, self.kind = node, channel, name, kind
        self.work, self.dead = f"{name}.work", f"{name}.dead"
        self.origin, self.dlx = f"{name}.in", f"{name}.dlx"
        self.path = f"/queues/%2F/{self.dead}"
        channel.exchange_declare(self.origin, "direct", durable=True)
        channel.exchange_declare(self.dlx, "fanout", durable=True)
        self.declare(self.dead)
        channel.queue_bind(self.dead, self.dlx)
        arguments = {each.replace("_", "-"): value for each, value in settings.items()}
        self.declare(self.work, **{"x-dead-letter-exchange": self.dlx, **arguments})
        channel.queue_bind(self.work, self.origin, "a.key")

    def declare(self, name: str, **arguments: object) -> None:
        kind = {"x-queue-type": self.kind}
        self.channel.queue_declare(name, durable=True, arguments=arguments | kind)

    def publish(self, *bodies: str, key: str = "a.key", **properties: Any) -> None:
        told = pika.BasicProperties(delivery_mode=2, **properties)
        for body in bodies:
            self.channel.basic_publish(self.origin, key, body.encode(), told)

    def reject(self, count: int) -> None:
        for _ in range(count):
            method, _, _ = self.channel.basic_get(self.work)
            self.channel.basic_nack(method.delivery_tag, requeue=False)

    def arrived(self, count: int) -> None:
        """Wait until so many dead letters are there."""
        wait_until(lambda: self.count(self.dead) == count, f"{count} dead letters")

    def count(self, queue: str) -> int:
        return self.channel.queue_declare(queue, passive=True).method.message_count

    def groups(self) -> list[dict[str, Any]]:
        return self.node.api("GET", f"{self.path}/dead-letters")["groups"]

    def plan(self, **asked: object) -> dict[str, Any]:
        return self.node.api("POST", f"{self.path}/redrive", {"dry_run": True, **asked})

    def redrive(self, **asked: object) -> dict[str, Any]:
        """Run one to its end."""
        return self.ended(self.begin(**asked))

    def begin(self, **asked: object) -> str:
        return self.node.api("POST", f"{self.path}/redrive", asked)["id"]

    def ended(self, id_: str) -> dict[str, Any]:
        def found() -> dict[str, Any]:
            return self.node.api("GET", f"/redrives/{id_}")

        wait_until(lambda: found()["state"] != "running", "the redrive ends")
        return found()

    def take(self, queue: str) -> list[tuple[str, dict[str, Any]]]:
        """All messages of a queue: bodies and headers."""
        found = []
        while True:
            method, properties, body = self.channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((body.decode(), properties.headers or {}))

    def take_one(self, queue: str) -> None:
        self.channel.basic_get(queue, auto_ack=True)

    def end(self) -> None:
        for queue in (self.work, self.dead):
            self.channel.queue_delete(queue)
        for exchange in (self.origin, self.dlx):
            self.channel.exchange_delete(exchange)


def kept(found: dict[str, Any]) -> dict[str, int]:
    """Why messages stayed, and how many."""
    return {row["why"]: row["messages"] for row in found["kept"]}


def asked_by(node: Node, user: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Ask as another user, whose password is its name; returns status and answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.management_port}/api{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={"Authorization": "Basic " + base64.b64encode(f"{user}:{user}".encode()).decode()},
    )
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
