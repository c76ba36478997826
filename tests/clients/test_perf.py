"""`warrenmq perf` as a publisher: confirms, transactions, and the outcome of each message."""

from __future__ import annotations

import asyncio

import pytest

from broker.cli.perf import mixed
from broker.cli.perf.commands import command, plan_of
from broker.cli.perf.load import LoadPlan, run
from tests.clients.place import Place, name


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "ways",
    [{"tx_size": 1}, {"tx_size": 7}, {"confirm": 1}, {"confirm": 20, "confirm_batch": 20}],
    ids=lambda ways: " ".join(f"{key}={value}" for key, value in ways.items()),
)
async def test_all_it_sends_is_safe(place: Place, ways: dict[str, int]) -> None:
    queue = place.declare(name("perf"))
    plan = LoadPlan(
        uris=(f"amqp://127.0.0.1:{place.here.amqp_port}",),
        queues=(queue,),
        predeclared=True,
        consumers=0,
        persistent=True,
        messages_per_producer=60,
        **ways,
    )
    summary = await run(plan, lambda _: None)
    assert (summary["sent"], summary["confirmed"], summary["nacked"]) == (60, 60, 0)
    assert place.depth(queue) == 60
    place.delete(queue)


@pytest.mark.asyncio
async def test_every_class_of_the_mixed_load_is_served(place: Place) -> None:
    uri = f"amqp://127.0.0.1:{place.here.amqp_port}"
    found = await mixed.measure([uri], 3.0, 1.0)
    assert list(found) == [*mixed.CLASSES, mixed.VISITS]
    assert all(0 < each.p50_us <= each.p99_us for each in found.values())
    assert found[mixed.VISITS].failures == 0
    for plan in mixed.CLASSES.values():
        for queue in plan.queues:
            place.delete(queue)


@pytest.mark.asyncio
async def test_what_is_purged_is_not_consumed(place: Place) -> None:
    queue = place.declare(name("perf"))
    plan = LoadPlan(
        uris=(f"amqp://127.0.0.1:{place.here.amqp_port}",),
        queues=(queue,),
        durable=True,
        auto_delete=False,
        purges=True,
        persistent=True,
        confirm=10,
        consumers=0,
        messages_per_producer=20,
    )
    for _ in range(2):
        await run(plan, lambda _: None)
        assert place.depth(queue) == 20
    place.delete(queue)


@pytest.mark.asyncio
async def test_two_consumers_of_a_queue_end_when_they_have_all(place: Place) -> None:
    """One that is sent everything leaves the other without a message."""
    queue = place.declare(name("perf"))
    plan = LoadPlan(
        uris=(f"amqp://127.0.0.1:{place.here.amqp_port}",),
        queues=(queue,),
        predeclared=True,
        persistent=True,
        confirm=10,
        consumers=0,
        messages_per_producer=20,
    )
    await run(plan, lambda _: None)
    lone = plan._replace(producers=0, consumers=2, messages_per_consumer=10, autoack=True)
    async with asyncio.timeout(30):
        assert (await run(lone, lambda _: None))["received"] == 20
    place.delete(queue)


@pytest.mark.asyncio
@pytest.mark.parametrize(("offset", "found"), [("first", 20), ("15", 5), ("1970-01-01", 20)])
async def test_consumers_of_a_stream_begin_where_they_are_told(
    place: Place, offset: str, found: int
) -> None:
    queue = name("perf")
    uri = f"amqp://127.0.0.1:{place.here.amqp_port}"
    words = f"-h {uri} -u {queue} -qa x-queue-type=stream -ad false -f persistent".split()
    await run(plan_of_words(*words, "-y", "0", "-c", "5", "-C", "20"), lambda _: None)
    reads = plan_of_words(*words, "-x", "0", "-q", "3", "-D", str(found), "-sco", offset)
    async with asyncio.timeout(30):
        assert (await run(reads, lambda _: None))["received"] == found
    place.delete(queue)


def plan_of_words(*words: str) -> LoadPlan:
    return plan_of(command.make_context("perf", list(words)).params)
