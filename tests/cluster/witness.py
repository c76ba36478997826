"""A client that publishes to a node under attack, and records pauses and errors.

    with witness(node) as seen:
        attack(node)
    seen.claim()

It is a process of its own, so that the attack does not take its time: `python -m
tests.cluster.witness PORT QUEUE PID...` publishes until its input ends, then prints what it saw.
"""

from __future__ import annotations

import itertools
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pika
import psutil

from tests.machine import lateness, standstills
from tests.nodes import Node

RATE_PER_S = 20
P95_MS_MAX = 100.0
GAP_S_MAX = 1.0
GROWTH_BYTES_MAX = 300_000_000
QUEUE = "witness"


@dataclass
class Seen:
    """What the client saw, complete once the `with` of `witness` is left.

    Attributes:
        latencies_ms: From each publish to its confirm.
        gap_s: The longest time without a confirm, less what the machine's disk stood still.
        growth_bytes: By how much the resident memory of the nodes grew at most, each for itself.
        nodes: The nodes whose memory and life are watched.
    """

    nodes: Sequence[Node]
    latencies_ms: list[float] = field(default_factory=list)
    gap_s: float = 0.0
    growth_bytes: int = 0

    @property
    def p95_ms(self) -> float:
        """Of twenty confirms at most one took longer."""
        return sorted(self.latencies_ms)[len(self.latencies_ms) * 95 // 100]

    def claim(
        self,
        *,
        p95_ms_max: float = P95_MS_MAX,
        gap_s_max: float = GAP_S_MAX,
        growth_bytes_max: int = GROWTH_BYTES_MAX,
    ) -> None:
        """The attack ended no node, made nobody wait and took little memory."""
        ended = [n.name for n in self.nodes if n.process is None or n.process.poll() is not None]
        assert ended == [], "nodes ended; the first one's log:\n" + self.nodes[0].log()
        assert len(self.latencies_ms) >= RATE_PER_S // 4, "too short to tell"
        slow = lateness()
        assert self.p95_ms <= p95_ms_max * slow, f"p95 {self.p95_ms:.0f} ms"
        assert self.gap_s <= gap_s_max * slow, f"nothing confirmed for {self.gap_s:.2f} s"
        assert self.growth_bytes <= growth_bytes_max, f"grew by {self.growth_bytes >> 20} MiB"


@contextmanager
def witness(node: Node, others: Sequence[Node] = (), queue: str = QUEUE) -> Iterator[Seen]:
    """Publish 20 confirmed messages a second to a quorum queue through `node` meanwhile.

    Args:
        node: The node that is attacked.
        others: More nodes whose memory and life count.
        queue: Declared as a quorum queue, and deleted afterwards.
    """
    seen = Seen([node, *others])
    pids = [str(one.process.pid) for one in seen.nodes if one.process is not None]
    command = [sys.executable, "-m", "tests.cluster.witness", str(node.amqp_port), queue, *pids]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"publishing\n", "the witness did not begin"
        yield seen
        process.stdin.close()
        told = json.loads(process.stdout.readline())
    seen.latencies_ms = told["latencies_ms"]
    seen.gap_s = told["gap_s"]
    seen.growth_bytes = told["growth_bytes"]


def _memory_bytes(processes: Sequence[psutil.Process]) -> list[int]:
    found = []
    for process in processes:
        try:
            found.append(process.memory_info().rss)
        except psutil.NoSuchProcess:  # its end is told by `Seen.claim`
            found.append(0)
    return found


def _publish(port: int, queue: str, processes: Sequence[psutil.Process]) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", port, socket_timeout=30)
    with pika.BlockingConnection(parameters) as connection, standstills() as still:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        before = _memory_bytes(processes)
        most = list(before)
        latencies_ms: list[float] = []
        due_s = time.monotonic()
        confirmed_s = [due_s]
        print("publishing", flush=True)
        while not select.select([sys.stdin], [], [], max(0.0, due_s - time.monotonic()))[0]:
            due_s = max(due_s + 1 / RATE_PER_S, time.monotonic())
            began_s = time.monotonic()
            channel.basic_publish(
                "", queue, b"seen", pika.BasicProperties(delivery_mode=2), mandatory=True
            )
            confirmed_s.append(time.monotonic())
            latencies_ms.append((confirmed_s[-1] - began_s) * 1000)
            most = [max(pair) for pair in zip(most, _memory_bytes(processes), strict=True)]
        confirmed_s.append(time.monotonic())
        gaps = [b - a - still.during(a, b) for a, b in itertools.pairwise(confirmed_s)]
        channel.queue_delete(queue)
    told = {
        "latencies_ms": latencies_ms,
        "gap_s": max(gaps, default=0.0),
        "growth_bytes": max(b - a for a, b in zip(before, most, strict=True)),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    _publish(int(sys.argv[1]), sys.argv[2], [psutil.Process(int(pid)) for pid in sys.argv[3:]])
