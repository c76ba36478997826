"""`ctl browse`: what it prints, and that it asks on until it has enough."""

from __future__ import annotations

import json
import subprocess
import sys

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node


def ctl(node: Node, *words: str) -> str:
    url = f"http://127.0.0.1:{node.management_port}"
    command = [sys.executable, "-m", "broker", "ctl", "-q", "--url", url, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_messages_are_printed_and_stay(node: Node, channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    for number in range(130):
        body = json.dumps({"n": number}).encode()
        properties = pika.BasicProperties(headers={"even": number % 2 == 0})
        channel.basic_publish("", name, body, properties)
    lines = ctl(node, "browse", name, "--from", "3", "--number", "2").splitlines()
    assert lines[0].split("\t") == ["number", "routing_key", "bytes", "format", "body"]
    assert lines[1].split("\t") == ["3", name, "8", "json", '{ "n": 2 }']
    assert len(lines) == 3
    found = json.loads(
        ctl(node, "browse", name, "--number", "500", "--header", "even=true", "--formatter", "json")
    )["messages"]
    assert [each["payload"] for each in found] == [f'{{"n": {n}}}' for n in range(0, 130, 2)]
    assert ctl(node, "browse", name, "--json", "n=200") == "no message\n"
    assert channel.queue_declare(name, passive=True).method.message_count == 130
    assert not channel.basic_get(name)[0].redelivered
    channel.queue_delete(name)
