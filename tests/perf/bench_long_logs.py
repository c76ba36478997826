"""Logs that hold much, measured: `python -m tests.perf.bench_long_logs [PART...]`.

    replay    one node, a stream of 5,000,000 messages of 100 bytes: filled with confirms, then read
              by one consumer
    backlog   three nodes, a quorum queue with 1,000,000 messages of 1 KB: the memory of each, a
              follower that is killed then, and the queue drained with acks
    held      three nodes, a quorum queue whose first message is held while 2,000,000 of 1 KB pass:
              the most that each has on disk meanwhile
    large     one node, a stream of 10 GB: its memory, and how soon it serves after `kill -9`
    idle      three nodes with 1,000 streams and 1,000 quorum queues that nobody uses

What a third replica costs: `tests.perf.bench_third_replica`. Figures for docs are those of a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.nodes import Node, Trio, wait_until
from tests.wire.pulse import cpu_s, rss_bytes
from tests.wire.raw import Raw

MB = 1_000_000
PREFETCH = 20_000
READ_BYTES = 1 << 20
IDLE_S = 20.0
PATIENCE_S = 300.0
STREAM: dict[str, Any] = {"x-queue-type": "stream"}
QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}

_OFFSET_KEY = b"x-stream-offset"
"""Once in each delivery of a stream, in no message of `load`."""


def uri(node: Node) -> str:
    """Where a node's clients connect to."""
    return f"amqp://127.0.0.1:{node.amqp_port}"


def load(broker: str, options: str) -> dict[str, Any]:
    """Run `warrenmq perf` against a broker; returns its summary."""
    command = [
        sys.executable,
        "-m",
        "broker",
        "perf",
        "-h",
        broker,
        "--json",
        "-",
        *options.split(),
    ]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    summary: dict[str, Any] = json.loads(found.stdout)
    return summary


def pid_of(node: Node) -> int:
    """The process of a node that runs."""
    assert node.process is not None
    return node.process.pid


class Memory:
    """The most that nodes' memory grows while this is entered, in MB."""

    def __init__(self, *nodes: Node) -> None:
        self._before = {node.name: rss_bytes(pid_of(node)) for node in nodes}
        self._most = dict(self._before)
        self._nodes = nodes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            for node in self._nodes:
                self._most[node.name] = max(self._most[node.name], rss_bytes(pid_of(node)))

    def grown(self) -> str:
        """ "+38 MB, +41 MB"."""
        grown = (self._most[name] - before for name, before in self._before.items())
        return ", ".join(f"+{each / MB:.0f} MB" for each in grown)


def declare(node: Node, name: str, arguments: dict[str, Any]) -> None:
    """Declare a durable queue."""
    node.api("PUT", f"/queues/%2F/{name}", {"durable": True, "arguments": arguments})


def read_stream(node: Node, name: str, count: int) -> float:
    """Read a stream from its first message on, and ack; returns the seconds that it took."""
    with Raw(node.amqp_port) as raw:
        raw.to_channel()
        raw.call(1, spec.BasicQos(0, PREFETCH), spec.BasicQosOk)
        began_s = time.monotonic()
        consume = spec.BasicConsume(name, "reader", arguments={"x-stream-offset": "first"})
        raw.call(1, consume, spec.BasicConsumeOk)
        seen = acked = 0
        tail = b""
        while seen < count:
            data = tail + raw.socket.recv(READ_BYTES)
            seen += data.count(_OFFSET_KEY)
            tail = data[-len(_OFFSET_KEY) + 1 :]
            if seen - acked >= PREFETCH // 4:
                acked = seen - 1  # the last may not be whole yet
                raw.send(method_frame(1, spec.BasicAck(acked, multiple=True)))
        return time.monotonic() - began_s


def replay(folder: Path, count: int) -> None:
    """Fill a stream, and read it."""
    node = Node("replay", folder / "replay")
    try:
        node.start()
        declare(node, "log", STREAM)
        filled = load(uri(node), f"-p -u log -y 0 -s 100 -f persistent -c 1000 -C {count}")
        print(f"filled: {filled['confirmed_per_s']:,.0f} confirmed/s")
        for _ in range(3):
            with Memory(node) as memory:
                took_s = read_stream(node, "log", count)
            print(f"replayed: {count / took_s:,.0f} messages/s, {memory.grown()}")
    finally:
        node.end()


def _depth(node: Node, name: str) -> int:
    return int(node.api("GET", f"/queues/%2F/{name}").get("messages", 0))


def _is_got(node: Node, name: str) -> bool:
    """True once a client of the node gets a message; it goes back."""
    try:
        with node.connect() as connection:
            channel = connection.channel()
            return channel.basic_get(name)[0] is not None
    except Exception:  # noqa: BLE001 - it does not serve yet, in whichever way
        return False


def seconds_until(is_so: Callable[[], bool], what: str) -> float:
    """How long it takes until something is so."""
    began_s = time.monotonic()
    wait_until(is_so, what, PATIENCE_S)
    return time.monotonic() - began_s


def _led_queue(trio: Trio, name: str) -> Node:
    """Declare a quorum queue; returns the node that leads it."""
    declare(trio.nodes[0], name, QUORUM)
    wait_until(lambda: trio.leader(name) is not None, "the queue has a leader")
    leader = trio.leader(name)
    assert leader is not None
    return leader


def backlog(folder: Path, count: int) -> None:
    """Fill a quorum queue, kill a follower, drain the queue."""
    trio = Trio(folder)
    try:
        trio.start()
        leader = _led_queue(trio, "long")
        with Memory(*trio.nodes) as memory:
            filled = load(uri(leader), f"-p -u long -y 0 -s 1000 -f persistent -c 1000 -C {count}")
            wait_until(lambda: _depth(leader, "long") >= count, "the queue is full")
        print(f"filled: {filled['confirmed_per_s']:,.0f} confirmed/s; {memory.grown()}")
        follower = next(node for node in trio.nodes if node is not leader)
        follower.kill()
        follower.start(wait=False)
        took_s = seconds_until(lambda: _is_got(follower, "long"), "the follower serves")
        print(f"a follower that was killed: its clients get a message after {took_s:.1f} s")
        began_s = time.monotonic()
        load(uri(leader), f"-p -u long -x 0 -q 1000 -A 100 -D {count}")
        print(f"drained: {count / (time.monotonic() - began_s):,.0f} messages/s")
    finally:
        trio.end()


def _disk_bytes(node: Node) -> int:
    """What a node's data takes; files may go while they are looked at."""
    command = ["du", "-s", "-B1", str(node.directory / "data")]
    found = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    return int(found.stdout.split()[0])


def held(folder: Path, count: int) -> None:
    """Let messages pass while a consumer holds the first of the queue."""
    trio = Trio(folder)
    try:
        trio.start()
        leader = _led_queue(trio, "held")
        with leader.connect(heartbeat=0) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "held", b"first", pika.BasicProperties(delivery_mode=2))
            assert channel.basic_get("held")[0] is not None
            most = dict.fromkeys(trio.nodes, 0)
            is_over = threading.Event()

            def watch() -> None:
                while not is_over.wait(0.2):
                    for node in trio.nodes:
                        most[node] = max(most[node], _disk_bytes(node))

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                options = "-u held -s 1000 -f persistent -c 1000 -q 1000 -A 100"
                passed = load(uri(leader), f"-p {options} -C {count}")
            finally:
                is_over.set()
                watcher.join()
        sizes = ", ".join(f"{each / MB:.0f} MB" for each in most.values())
        print(f"{count:,} passed, {passed['confirmed_per_s']:,.0f} confirmed/s; on disk {sizes}")
    finally:
        trio.end()


def large(folder: Path, count: int) -> None:
    """Fill a stream with messages of 64 KiB, and kill its node."""
    node = Node("large", folder / "large")
    try:
        node.start()
        declare(node, "large", STREAM)
        with Memory(node) as memory:
            load(uri(node), f"-p -u large -y 0 -s 65536 -f persistent -c 200 -C {count}")
        size_gb, held_mb = count * 65_536 / 1e9, rss_bytes(pid_of(node)) / MB
        print(f"{size_gb:.1f} GB: {memory.grown()}, {held_mb:.0f} MB at the end")
        node.kill()
        node.start(wait=False)
        took_s = seconds_until(lambda: _is_first_read(node), "the node serves")
        print(
            f"the first message is read {took_s:.1f} s after the start that follows kill -9; "
            f"{rss_bytes(pid_of(node)) / MB:.0f} MB"
        )
    finally:
        node.end()


def _is_first_read(node: Node) -> bool:
    try:
        return read_stream(node, "large", 1) >= 0
    except (OSError, AssertionError):
        return False


def idle(folder: Path, count: int) -> None:
    """Declare many, and look at what the nodes use."""
    trio = Trio(folder)
    try:
        trio.start()
        with trio.nodes[0].connect(heartbeat=0) as connection:
            channel = connection.channel()
            for number in range(count):
                channel.queue_declare(f"stream.{number}", durable=True, arguments=STREAM)
                channel.queue_declare(f"quorum.{number}", durable=True, arguments=QUORUM)
        time.sleep(IDLE_S)  # what the declarations have begun ends
        for _ in range(3):
            before = [cpu_s(pid_of(node)) for node in trio.nodes]
            time.sleep(IDLE_S)
            used = [cpu_s(pid_of(node)) - was for node, was in zip(trio.nodes, before, strict=True)]
            shares = ", ".join(f"{each / IDLE_S:.1%}" for each in used)
            print(f"{count} idle streams and {count} quorum queues: {shares} of a core")
    finally:
        trio.end()


_PARTS: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "replay": (replay, 5_000_000),
    "backlog": (backlog, 1_000_000),
    "held": (held, 2_000_000),
    "large": (large, 10 * 2**30 // 65_536),
    "idle": (idle, 1_000),
}


def main() -> None:
    """Measure what is asked for."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("parts", nargs="*", help=", ".join(_PARTS))
    asked.add_argument("--count", type=int, help="messages, or queues of each type")
    found = asked.parse_args()
    for name in found.parts or _PARTS:
        part, count = _PARTS[name]
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            part(Path(folder), found.count or count)


if __name__ == "__main__":
    main()
