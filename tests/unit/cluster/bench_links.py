"""Speed of one link on this machine: `python -m tests.unit.cluster.bench_links [uvloop]`."""

from __future__ import annotations

import asyncio
import sys
import time

from broker.cluster.links import Links
from broker.cluster.outbound import DATA

ROUNDS, FLOOD = 2000, 200_000


async def main() -> None:
    async with asyncio.TaskGroup() as tasks:
        a = Links("rabbit@a", "1", "c", b"s", {})
        b = Links("rabbit@b", "2", "c", b"s", {})
        for links in (a, b):
            await links.start(tasks, "127.0.0.1:0")
        a.connect("rabbit@b", b.address)
        b.connect("rabbit@a", a.address)
        while not (a.is_up("rabbit@b") and b.is_up("rabbit@a")):
            await asyncio.sleep(0.01)
        pong = asyncio.Event()
        count = 0

        def counted(_node: str, _boot: str, _payload: bytes) -> None:
            nonlocal count
            count += 1
            if count == FLOOD:
                pong.set()

        b.on(20, lambda _n, _b, payload: b.send("rabbit@a", DATA, 21, payload) and None)
        a.on(21, lambda _n, _b, _p: pong.set())
        b.on(22, counted)
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            a.send("rabbit@b", DATA, 20, b"x" * 100)
            await pong.wait()
            pong.clear()
            times.append(time.perf_counter() - began)
        times.sort()
        print(f"ping-pong p50 {times[ROUNDS // 2] * 1e3:.2f} ms p99 {times[-20] * 1e3:.2f} ms")
        began = time.perf_counter()
        for i in range(FLOOD):
            a.send("rabbit@b", DATA, 22, b"x" * 100)
            if i % 1000 == 0:
                await asyncio.sleep(0)
        await pong.wait()
        print(f"one way, 100 B payloads: {FLOOD / (time.perf_counter() - began):,.0f}/s")
        await a.stop()
        await b.stop()


if __name__ == "__main__":
    if sys.argv[1:] == ["uvloop"]:
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
