"""Runs `warrenmq ctl`, API requests and pika clients as people use them."""

from __future__ import annotations

import json
import re
from typing import Any

import pika
import pytest

from broker.cli.ctl.commands import run
from tests.nodes import Node

_PID = re.compile(r"<(.+)\.\d+\.\d+\.\d+>")


def ctl(node: Node, *words: str) -> int:
    """Run a command; returns its exit code."""
    return run(["--url", f"http://127.0.0.1:{node.management_port}", *words], {})


def rows(node: Node, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """What a listing shows."""
    capsys.readouterr()
    assert ctl(node, "--formatter", "json", *words) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def node_of(pid: str) -> str:
    """The node in a pid, as scripts take it out."""
    found = _PID.fullmatch(pid)
    assert found is not None, pid
    return found[1]


def shown(node: Node, queue: str) -> dict[str, Any]:
    """A queue's object."""
    found: dict[str, Any] = node.api("GET", f"/queues/%2F/{queue}")
    return found


def set_policy(node: Node, name: str, pattern: str, **definition: object) -> None:
    """A policy for queues; underscores in its keys stand for dashes."""
    named = json.dumps({key.replace("_", "-"): value for key, value in definition.items()})
    assert ctl(node, "set_policy", name, pattern, named, "--apply-to", "queues") == 0


def declare(node: Node, queue: str, **arguments: object) -> None:
    """A durable queue."""
    with node.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=arguments)


def fill(node: Node, queue: str, numbers: range, exchange: str = "", size: int = 0) -> None:
    """Publish persistent messages; returns when all are confirmed."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in numbers:
            properties = pika.BasicProperties(delivery_mode=2)
            body = (b"%d" % number).rjust(size)
            channel.basic_publish(exchange, queue, body, properties, mandatory=True)


def taken(node: Node, queue: str, quiet_s: float = 3.0) -> list[int]:
    """Everything in a queue, in order, acked; it ends when nothing comes for `quiet_s`."""
    found = []
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        for method, _, body in channel.consume(queue, inactivity_timeout=quiet_s):
            if method is None:
                break
            found.append(int(body))
            channel.basic_ack(method.delivery_tag)
    return found
