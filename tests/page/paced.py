"""A client at 1,000 messages a second: `python -m tests.page.paced PORT`.

It publishes to a queue of its own and consumes from it. Each line on its input is answered with how
long the messages since the last one took from their publish to their delivery, p50 and p99 in ms.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

from broker.amqp import spec
from tests.nodes import Node
from tests.wire.raw import BODY, Raw, content_header, frame, publish

RATE_PER_S = 1_000
QUEUE = "paced"

_TIME = struct.Struct(">Q")
_HEAD = struct.Struct(">BHI")


class Took(NamedTuple):
    """From publish to delivery, in ms."""

    p50_ms: float
    p99_ms: float
    count: int


class Client:
    """The process that does it."""

    def __init__(self, send: IO[bytes], answers: IO[bytes]) -> None:
        self._send, self._answers = send, answers

    def lap(self) -> Took:
        """How long what was published since the last lap took."""
        self._send.write(b"\n")
        self._send.flush()
        return Took(*json.loads(self._answers.readline()))


@contextmanager
def paced(node: Node) -> Iterator[Client]:
    """A client of a node, for as long as this lasts."""
    command = [sys.executable, "-m", "tests.page.paced", str(node.amqp_port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        client = Client(process.stdin, process.stdout)
        client.lap()  # it publishes
        yield client
        process.stdin.close()


class _Deliveries:
    """Reads what came, and notes how long each message took."""

    def __init__(self) -> None:
        self._buffer = b""
        self.took_ms: list[float] = []

    def take(self, data: bytes) -> None:
        buffer, at, now_ns = self._buffer + data, 0, time.monotonic_ns()
        while len(buffer) >= at + _HEAD.size:
            kind, _, size = _HEAD.unpack_from(buffer, at)
            end = at + _HEAD.size + size + 1
            if len(buffer) < end:
                break
            if kind == BODY:
                (sent_ns,) = _TIME.unpack_from(buffer, at + _HEAD.size)
                self.took_ms.append((now_ns - sent_ns) / 1e6)
            at = end
        self._buffer = buffer[at:]

    def lap(self) -> Took:
        took = sorted(self.took_ms) or [0.0]
        self.took_ms = []
        return Took(took[len(took) // 2], took[len(took) * 99 // 100], len(took))


def _run(port: int) -> None:
    with Raw(port) as raw:
        raw.to_channel()
        raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.call(1, spec.QueueDeclare(QUEUE, exclusive=True), spec.QueueDeclareOk)
        raw.call(1, spec.BasicConsume(QUEUE, "paced", no_ack=True), spec.BasicConsumeOk)
        head = publish(1, QUEUE) + content_header(1, _TIME.size)
        deliveries = _Deliveries()
        due_s = time.monotonic()
        while True:
            wait_s = max(0.0, due_s - time.monotonic())
            ready = select.select([raw.socket, sys.stdin], [], [], wait_s)[0]
            if raw.socket in ready:
                deliveries.take(raw.socket.recv(1 << 16))
            if sys.stdin in ready:
                if not sys.stdin.readline():
                    return
                print(json.dumps(deliveries.lap()), flush=True)
            if time.monotonic() >= due_s:
                # What was late is not made up for: a burst would wait for itself.
                due_s = max(due_s + 1 / RATE_PER_S, time.monotonic())
                raw.send(head, frame(BODY, 1, _TIME.pack(time.monotonic_ns())))


if __name__ == "__main__":
    _run(int(sys.argv[1]))
