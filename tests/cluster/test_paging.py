"""Long queues on a real node with little memory: memory use, cost, and no loss.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pika
import pytest

from broker.cli.perf.load import LoadPlan, run
from tests.cluster.typed import ctl
from tests.nodes import Node, wait_until

MIB = 1 << 20
SIZE = 1_000
PARTS = 5
GROWTH_MAX = 1.3
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Cost(NamedTuple):
    """What a load has cost.

    Attributes:
        cpu_s: The node's processor time.
        wall_s: Time.
    """

    cpu_s: float
    wall_s: float


class Host:
    """A node, as its operating system sees it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def pid(self) -> int:
        assert self.node.process is not None
        return self.node.process.pid

    def rss(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def queue(self, name: str) -> dict[str, int]:
        found: dict[str, int] = self.node.api("GET", f"/queues/%2F/{name}")
        return found

    async def load(self, queue: str, **how: object) -> Cost:
        """Publish or consume; the message counts are in `how`."""
        before = self.cpu_s()
        plan = LoadPlan(
            uris=(f"amqp://127.0.0.1:{self.node.amqp_port}",), queues=(queue,), predeclared=True,
            interval_s=1000.0,
        )  # fmt: skip
        summary = await run(plan._replace(**how), lambda _: None)  # type: ignore[arg-type]
        return Cost(self.cpu_s() - before, float(str(summary["seconds"])))

    async def publish(
        self, queue: str, count: int, *, size: int = SIZE, persistent: bool = True
    ) -> Cost:
        """Publish with confirms, all of which have come when this is over."""
        return await self.load(
            queue, consumers=0, messages_per_producer=count, size_bytes=size,
            persistent=persistent, confirm=2_000,
        )  # fmt: skip

    async def drain(self, queue: str, count: int) -> Cost:
        """Consume all, with acknowledgements."""
        cost = await self.load(
            queue, producers=0, messages_per_consumer=count, prefetch=2_000, multi_ack_every=100
        )
        wait_until(lambda: self.queue(queue)["messages"] == 0, "drained")
        return cost


def _declare(node: Node, name: str, *, durable: bool = True, **arguments: object) -> None:
    with node.connect() as connection:
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        connection.channel().queue_declare(name, durable=durable, arguments=given)


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    """A node; its watermark is the machine's, or the fixture's parameter."""
    watermark = getattr(request, "param", None)
    settings = [] if watermark is None else [f"vm_memory_high_watermark.absolute={watermark}"]
    node = Node("deep", tmp_path, settings)
    node.start()
    yield Host(node)
    node.end()


class Round(NamedTuple):
    """A queue was filled, a fifth after the other, and drained."""

    parts: list[Cost]
    drained: Cost

    def took_messages_evenly(self) -> bool:
        """A deep queue takes messages as fast as an empty one.

        Two fifths beside two: one is at times some twenty ticks of the clock that counts CPU.
        """
        return _is_no_dearer(_sum(self.parts[-2:]), _sum(self.parts[:2]), GROWTH_MAX)

    def drained_as_fast_as_filled(self) -> bool:
        return _is_no_dearer(self.drained, _sum(self.parts))

    def holds(self) -> bool:
        return self.took_messages_evenly() and self.drained_as_fast_as_filled()


def _sum(parts: list[Cost]) -> Cost:
    return Cost(sum([part.cpu_s for part in parts]), sum([part.wall_s for part in parts]))


def _is_no_dearer(one: Cost, other: Cost, factor: float = 1.0) -> bool:
    """By the clock, or by the node's time where others load the machine."""
    return one.wall_s <= factor * other.wall_s or one.cpu_s <= factor * other.cpu_s


def _show_what_they_cost(rounds: list[Round]) -> None:
    """Others on the machine only add to what a round costs: the best of a few counts."""
    print(*rounds, sep="\n")
    assert any(each.took_messages_evenly() for each in rounds), rounds
    assert any(each.drained_as_fast_as_filled() for each in rounds), rounds


async def _shown_by_a_lazy_queue(host: Host, count: int, rounds_max: int) -> None:
    """Fill a lazy queue and drain it, a few times at most."""
    _declare(host.node, "lazy", queue_mode="lazy")
    await host.publish("lazy", 2_000)
    await host.drain("lazy", 2_000)  # what a node needs at all is there
    before = host.rss()
    rounds: list[Round] = []
    while len(rounds) < rounds_max:
        parts = [await host.publish("lazy", count // PARTS) for _ in range(PARTS)]
        grown = host.rss() - before
        found = host.queue("lazy")
        print("lazy:", grown // MIB, "MiB", found["messages_ram"])
        assert grown < 60 * MIB, f"{grown // MIB} MiB"
        assert found["messages"] == count
        assert found["messages_delta"] > 0.99 * count
        rounds.append(Round(parts, await host.drain("lazy", count)))
        if rounds[-1].holds():
            break
    _show_what_they_cost(rounds)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_lazy_queue_costs_little_memory(host: Host) -> None:
    """Recipe 13. Rows: 1.3 x-queue-mode lazy"""
    await _shown_by_a_lazy_queue(host, 60_000, 4)


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(1_200)
async def test_a_million_messages_in_a_lazy_queue(host: Host) -> None:
    """Recipe 13. Rows: 1.3 x-queue-mode lazy"""
    await _shown_by_a_lazy_queue(host, 1_000_000, 3)


async def _shown_under_a_watermark(host: Host, count: int, rounds_max: int) -> None:
    _declare(host.node, "default")
    rounds: list[Round] = []
    while len(rounds) < rounds_max:
        parts = [await host.publish("default", count // PARTS) for _ in range(PARTS)]
        found = host.queue("default")
        print("default:", host.rss() // MIB, "MiB", found["messages_ram"])
        assert found["messages"] == count
        assert found["messages_paged_out"] > 0
        assert "paging.began" in host.node.full_log()
        wait_until(lambda: ctl(host.node, "-q", "check_local_alarms") == 0, "no alarm stays on")
        rounds.append(Round(parts, await host.drain("default", count)))
        assert ctl(host.node, "-q", "check_local_alarms") == 0
        if rounds[-1].holds():
            break
    _show_what_they_cost(rounds)


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["250MB"], indirect=True)
async def test_a_default_queue_pages_before_the_watermark_is_reached(host: Host) -> None:
    await _shown_under_a_watermark(host, 80_000, 4)


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("host", ["400MB"], indirect=True)
async def test_a_million_messages_under_a_watermark(host: Host) -> None:
    await _shown_under_a_watermark(host, 1_000_000, 3)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.asyncio
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mode", ["default", "lazy"])
async def test_the_cost_of_a_message_does_not_grow_with_the_queue(
    host: Host, tmp_path: Path, mode: str
) -> None:
    """Ten million were measured by hand (docs/paging.md); two to four million fit a test.

    A shared machine is slower for minutes: where a later million is dearer than the first one, the
    first one is measured again, on a new node, right after it.
    """
    first = await _cost_of_a_first_million(host, mode)
    pairs: list[tuple[Cost, Cost]] = []
    while len(pairs) < 3 and not any(_grew_little(*pair) for pair in pairs):
        later = await host.publish("many", 1_000_000, size=100)
        if not _grew_little(first, later):
            fresh = Node("fresh", tmp_path / str(len(pairs)))
            fresh.start()
            first = await _cost_of_a_first_million(Host(fresh), mode)
            fresh.end()
        pairs.append((first, later))
    print("millions, the first and a later one:", *pairs)
    assert any(_grew_little(*pair) for pair in pairs)
    assert host.queue("many")["messages"] == 1_050_000 + 1_000_000 * len(pairs)


def _grew_little(first: Cost, later: Cost) -> bool:
    return later.cpu_s <= GROWTH_MAX * first.cpu_s


async def _cost_of_a_first_million(host: Host, mode: str) -> Cost:
    """What a queue takes that holds few messages yet."""
    _declare(host.node, "many", queue_mode=mode)
    await host.publish("many", 50_000, size=100)
    return await host.publish("many", 1_000_000, size=100)


@pytest.mark.slow
def test_a_deep_queue_comes_back_after_a_kill_in_order(host: Host) -> None:
    """Rows: 1.3 x-queue-mode lazy"""
    _declare(host.node, "kept", queue_mode="lazy")
    with host.node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(300):
            size = 9_000 if number % 7 == 0 else 2_000
            mode = pika.BasicProperties(delivery_mode=2 if number % 2 else 1)
            channel.basic_publish("", "kept", b"%d " % number + b"." * size, mode)
    host.node.kill()
    host.node.start()
    found = host.queue("kept")
    assert (found["messages"], found["messages_ram"]) == (150, 0)
    with host.node.connect() as connection:
        channel = connection.channel()
        got = []
        for method, _, body in channel.consume("kept", inactivity_timeout=5, auto_ack=True):
            if method is None or body is None:
                break
            assert method.redelivered
            got.append(int(body.partition(b" ")[0]))
            if len(got) == 150:
                break
        assert got == [*range(1, 300, 2)]
        connection.channel().queue_delete("kept")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_listings_tell_where_the_messages_are(host: Host) -> None:
    _declare(host.node, "listed", queue_mode="lazy")
    await host.publish("listed", 3_000)
    columns = ["messages_alpha", "messages_beta", "messages_gamma", "messages_delta"]
    found = host.queue("listed")
    assert sum(found[column] for column in columns) == found["messages"] == 3_000
    status = found["backing_queue_status"]
    assert isinstance(status, dict)
    assert (status["mode"], status["len"]) == ("lazy", 3_000)
    more = ("messages_paged_out", "message_bytes_paged_out", "backing_queue_status", "memory")
    assert ctl(host.node, "-q", "list_queues", "name", *columns, *more) == 0
