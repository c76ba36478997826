"""Full quorum queues come from 0.2.0 into logs that are kept, while clients go on."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pytest

from broker.cli.cluster.layout import free_ports
from tests.cluster.steady import SteadyLoad, collect
from tests.cluster.test_upgrades import GAP_S, asked, flags, said
from tests.cluster.typed import declare, shown
from tests.cluster.versions import ROOT, V0_2_0, LocalCluster, source_of, warrenmq
from tests.machine import standstills
from tests.nodes import Node, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FLAG = "quorum_logs"
RATE_PER_S = 250.0
SIZE = 4_000
FULL = {"full.0": 5_000, "full.1": 11_500}
"""The second had a snapshot with most of its bodies, and the rest in its log."""

LIVE = ("live.0", "live.1")
WINDOW_BYTES = 8 << 20
"""What a queue's bodies may take in memory in the new form, with some room."""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "cluster", *free_ports(3))
    yield cluster
    cluster.end()


async def fill(node: Node, queue: str) -> None:
    """Publish numbered messages; returns when all are confirmed."""
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{node.amqp_port}/")
    async with connection:
        channel = await connection.channel()
        for first in range(0, FULL[queue], 500):
            await asyncio.gather(
                *(
                    channel.default_exchange.publish(
                        aio_pika.Message(
                            b"%010d" % number + random.randbytes(SIZE - 10),
                            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                        ),
                        queue,
                    )
                    for number in range(first, first + 500)
                )
            )


async def in_order(node: Node, queue: str, count: int) -> list[int]:
    """Consume so many messages, acked."""
    found: list[int] = []
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{node.amqp_port}/")
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=500)
        source = await channel.get_queue(queue, ensure=False)
        async with source.iterator(timeout=20) as messages:
            async for message in messages:
                found.append(int(message.body[:10]))
                await message.ack()
                if len(found) == count:
                    break
    return found


def restarted(local: LocalCluster) -> str:
    done = warrenmq(
        ROOT, "cluster", "restart", "--rolling", "--dir", str(local.directory), timeout_s=400
    )
    assert done.returncode == 0, done.stdout + done.stderr + local.logs()
    return done.stdout


def is_in_log(node: Node, queue: str) -> bool:
    """Whether listings say that the queue's head alone is in memory."""
    found = shown(node, queue)
    in_ram = found.get("message_bytes_ram", FULL[queue] * SIZE)
    return found["messages_ready"] == FULL[queue] and in_ram < WINDOW_BYTES


def facts(local: LocalCluster) -> list[tuple[int, int]]:
    """Memory and disk that each node takes, in MiB."""
    found = []
    for place in local.layout.nodes():
        folder = local.directory / place.name
        disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        pids = [
            int(path.name)
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and str(folder / "node.conf") in commanded(path)
        ]
        status = "".join((Path("/proc") / str(pid) / "status").read_text() for pid in pids)
        kib = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]
        found.append((sum(kib) >> 10, disk >> 20))
    return found


def commanded(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def flow_on(load: SteadyLoad) -> None:
    confirmed = load.total()
    wait_until(lambda: load.total() > confirmed + 2 * RATE_PER_S, "load flows on", 60)


def test_full_queues_of_0_2_0_come_into_their_logs_under_load(
    local: LocalCluster,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    local.start(source_of(V0_2_0, tmp_path_factory.mktemp("0.2.0")))
    places, nodes = local.layout.nodes(), asked(local, tmp_path)
    for place, queue in enumerate((*FULL, *LIVE)):
        local_leader = {"x-queue-leader-locator": "client-local"}
        declare(nodes[place % 3], queue, **{"x-queue-type": "quorum", **local_leader})
    for place, queue in enumerate(FULL):
        asyncio.run(fill(nodes[place], queue))
    load = SteadyLoad([place.amqp_port for place in places], LIVE, RATE_PER_S / len(LIVE))
    times = [time.monotonic()]
    with standstills() as machine:
        load.start()
        wait_until(lambda: load.total() > RATE_PER_S, "load flows")
        restarted(local)
        times.append(time.monotonic())
        flow_on(load)
        assert flags(nodes[0])[FLAG] == "disabled"
        for queue, count in FULL.items():
            assert shown(nodes[0], queue).get("message_bytes_ram", 0) >= count * SIZE
        before = facts(local)
        assert said(nodes[0], capsys, "enable_feature_flag", FLAG)[0] == 0
        times.append(time.monotonic())
        flow_on(load)
        restarted(local)
        times.append(time.monotonic())
        for queue in FULL:
            wait_until(lambda queue=queue: is_in_log(nodes[1], queue), f"{queue} is in its log", 60)
        times.append(time.monotonic())
        flow_on(load)
        after = facts(local)
        load.end()
        gaps = {queue: load.longest_gap_s(queue, machine) for queue in LIVE}
    with capsys.disabled():
        steps = [round(b - a, 1) for a, b in itertools.pairwise(times)]
        found = {
            queue: (round(gap, 2), round(at - times[0], 1)) for queue, (gap, at) in gaps.items()
        }
        print(json.dumps(found), load.total(), load.unknown, steps, before, after)
    for queue in LIVE:
        assert set(load.confirmed[queue]) <= load.received[queue] | collect(nodes[2], queue)
    assert max(gap for gap, _ in gaps.values()) < GAP_S, gaps
    for place, (queue, count) in enumerate(FULL.items()):
        assert asyncio.run(in_order(nodes[place - 1], queue, count)) == [*range(count)]
        wait_until(lambda queue=queue: shown(nodes[0], queue)["messages"] == 0, "it is empty", 30)
