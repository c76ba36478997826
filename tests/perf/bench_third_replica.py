"""What a third replica costs: `python -m tests.perf.bench_third_replica`.

Three nodes on this machine. A queue with two replicas is filled; ten messages at a time are
confirmed all the while, first alone for some seconds, then while the third replica joins. Prints
how fast it was brought up, and the p99 of confirms before and meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aio_pika

from tests.nodes import Node, Trio, wait_until

QUEUE = "long"
SIZE = 1_024
AT_ONCE = 10
ALONE_S = 6.0


async def confirmed(port: int, latencies: list[float], ended: asyncio.Event) -> None:
    """Publish ten at a time until told to end; notes seconds from publish to confirm."""
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
    async with connection:
        channel = await connection.channel()

        async def one() -> None:
            began = time.perf_counter()
            message = aio_pika.Message(random.randbytes(SIZE), delivery_mode=2)
            await channel.default_exchange.publish(message, QUEUE)
            latencies.append(time.perf_counter() - began)

        while not ended.is_set():
            await asyncio.gather(*(one() for _ in range(AT_ONCE)))


def p99_ms(latencies: list[float]) -> float:
    return sorted(latencies)[len(latencies) * 99 // 100] * 1_000


def depth(node: Node) -> int:
    return int(node.api("GET", f"/queues/%2F/{QUEUE}").get("messages", 0))


def has_vote(node: Node, name: str) -> bool:
    """Whether the replica of the node of that name counts, and has what the leader's has."""
    rows = {
        each["Node Name"]: each for each in node.api("GET", f"/queues/quorum/%2F/{QUEUE}/status")
    }
    here, there = rows[node.user_name], rows.get(name, {})
    applied = there.get("Last Applied") or 0
    return there.get("Membership") == "voter" and applied > here["Last Applied"] - AT_ONCE * 10


async def measured(leader: Node, third: str, count: int) -> str:
    latencies: list[float] = []
    ended = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(confirmed(leader.amqp_port, latencies, ended))
        await asyncio.sleep(ALONE_S)
        before, began, at = latencies.copy(), time.perf_counter(), len(latencies)
        path = f"/queues/quorum/%2F/{QUEUE}/replicas/add"
        await asyncio.to_thread(leader.api, "POST", path, {"node": third})
        while not await asyncio.to_thread(has_vote, leader, third):
            await asyncio.sleep(0.05)
        took_s = time.perf_counter() - began
        during = latencies[at:]
        ended.set()
    rate = count * SIZE / 1e6 / took_s
    usual, meanwhile = p99_ms(before), p99_ms(during)
    return (
        f"{rate:.0f} MB/s ({took_s:.1f} s), p99 {usual:.1f} ms before and {meanwhile:.1f} ms "
        f"meanwhile ({meanwhile / usual:.1f} times), {len(before) / ALONE_S:.0f} and "
        f"{len(during) / took_s:.0f} confirmed/s"
    )


def fill(node: Node, count: int) -> None:
    words = ["-h", f"amqp://guest:guest@127.0.0.1:{node.amqp_port}", "-p", "-u", QUEUE, "-y", "0"]
    load = ["-s", str(SIZE), "-f", "persistent", "-c", "1000", "-C", str(count), "-z", "300"]
    subprocess.run([sys.executable, "-m", "broker", "perf", *words, *load], check=True)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--messages", type=int, default=500_000)
    count = asked.parse_args().messages
    with tempfile.TemporaryDirectory() as folder:
        trio = Trio(Path(folder))
        try:
            trio.start()
            arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 2}
            body = {"durable": True, "arguments": arguments}
            trio.nodes[0].api("PUT", f"/queues/%2F/{QUEUE}", body)
            wait_until(lambda: trio.leader(QUEUE) is not None, "the queue has a leader")
            leader = trio.leader(QUEUE)
            assert leader is not None
            found = leader.api("GET", f"/queues/%2F/{QUEUE}")
            third = next(n for n in trio.nodes if n.user_name not in found["members"])
            fill(leader, count)
            wait_until(lambda: depth(leader) >= count, "the queue is full")
            print(asyncio.run(measured(leader, third.user_name, count)))
        finally:
            trio.end()


if __name__ == "__main__":
    main()
