"""Whole cluster nodes in this process: real links on loopback, a store in memory."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.cluster.membership import ClusterMembership, ClusterSettings
from broker.cluster.outbound import LinkLimits
from broker.metadata import commands
from tests.nodes import free_ports

FOUNDING = commands.Bootstrap(cluster_id="", cluster_name="test", nodes=())


class MonotonicClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class MemoryJournal:
    """A journal whose sync takes one turn of the loop; its records outlive a node."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, bytes], bytes] = {}

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.records[family, key] = value

    def delete(self, family: str, key: bytes) -> None:
        self.records.pop((family, key), None)

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        for key, _ in list(self.scan(family, start, end)):
            del self.records[family, key]

    def when_synced(self, done: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(done)

    def scan(self, family: str, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        found = [(k, v) for (f, k), v in self.records.items() if f == family and start <= k < end]
        return sorted(found)

    def get(self, family: str, key: bytes) -> bytes | None:
        return self.records.get((family, key))


class Nodes:
    """Some nodes; each keeps its folder, journal and port over restarts."""

    def __init__(self, tasks: asyncio.TaskGroup, folder: Path, seed: int = 1) -> None:
        self.tasks = tasks
        self.folder = folder
        self.rng = random.Random(seed)
        self.journals: dict[str, MemoryJournal] = {}
        self.running: dict[str, ClusterMembership] = {}
        self.addresses: dict[str, str] = {}

    def draw_id(self) -> str:
        return f"{self.rng.getrandbits(64):016x}"

    async def start(self, name: str, peers: dict[str, str], **more: Any) -> ClusterMembership:
        settings = ClusterSettings(
            node=name,
            listen=self.addresses.get(name, "127.0.0.1:0"),
            peers=peers,
            secret=b"secret",
            folder=self.folder / name,
            founding=FOUNDING,
            limits=LinkLimits(handshake_ms=1000, backoff_max_ms=200),
            **more,
        )
        journal = self.journals.setdefault(name, MemoryJournal())
        cluster = ClusterMembership(settings, journal, MonotonicClock(), self.rng, self.draw_id)
        port = await cluster.start(self.tasks)
        self.addresses[name] = f"127.0.0.1:{port}"
        self.running[name] = cluster
        return cluster

    async def kill(self, name: str) -> None:
        """End a node without a word; what it had not synced was lost a turn ago."""
        cluster = self.running.pop(name)
        for task in cluster._running:
            task.cancel()
        await cluster.links.stop()
        cluster.host.close()

    async def stop_all(self) -> None:
        for name in list(self.running):
            await self.kill(name)


@asynccontextmanager
async def cluster_of(folder: Path, *names: str) -> AsyncIterator[Nodes]:
    """Start nodes that know each other's addresses and wait until all are ready."""
    async with asyncio.TaskGroup() as tasks:
        nodes = Nodes(tasks, folder)
        try:
            for name in names:
                nodes.addresses[name] = f"127.0.0.1:{free_port()}"
            for name in names:
                await nodes.start(name, dict(nodes.addresses))
            async with asyncio.timeout(20):
                for cluster in list(nodes.running.values()):
                    await cluster.ready()
            yield nodes
        finally:
            await nodes.stop_all()


def free_port() -> int:
    """One that no test draws meanwhile, and no connection is given."""
    return free_ports(1)[0]


async def until(condition: Callable[[], object], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
