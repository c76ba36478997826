"""What bounds looking through messages, and what the settings hide."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from broker.amqp.content import Properties, build_message
from broker.config import Settings
from broker.fifo.config import classic_config
from broker.fifo.machine import QueueMachine
from broker.management.operations.browsing import browser
from broker.message import Delivery
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import ONE

pytestmark = pytest.mark.asyncio

PATH = "/api/queues/%2F/q/browse"


class Disk:
    """A classic queue's disk that may be slow."""

    def __init__(self) -> None:
        self.most = 0

    def started(self, items: list[Delivery]) -> list[Delivery]:
        self.most = max(self.most, len(items))
        return items


class Queue:
    """As much of a classic queue as is looked at."""

    def __init__(self, count: int, body: bytes = b"x") -> None:
        self.machine = QueueMachine(classic_config("q", "/", durable=False))
        self.disk = Disk()
        for number in range(count):
            message = build_message("", "q", Properties(headers={"n": number}), body)
            self.machine.enqueue([message])
        self.machine.take_effects()


async def served(rig: Rig, queue: Any) -> None:
    """Declare the queue q, and serve it here."""
    declared = await rig.ask("PUT", "/api/queues/%2F/q", {"durable": True})
    assert declared.status == 201
    queues = rig.control.serving.queues
    queues.served = lambda _uid: queue
    queues.quorum_here = lambda _uid: None


async def test_what_the_settings_name_is_hidden() -> None:
    settings = Settings(node_name=ONE, management_browse_masked=("pin", "N"))
    async with Rig(settings) as rig:
        await served(rig, Queue(1, b'{"pin":1234,"other":5}'))
        found = (await rig.ask("GET", PATH)).json["messages"][0]
        assert found["properties"] == {"headers": {"n": "***"}}
        assert found["payload"] is None
        assert json.loads(found["decoded"]) == {"pin": "***", "other": 5}
        assert found["masked"] == ["n", "pin"]
        assert (await rig.ask("GET", f"{PATH}?body=1234")).json["messages"] == []


async def test_a_user_looks_once_at_a_time_and_few_together() -> None:
    async with Rig() as rig:
        queue = Queue(1)
        await served(rig, queue)
        going, release = asyncio.Event(), asyncio.Event()

        async def waits(operation: Any) -> Any:
            going.set()
            await release.wait()
            return browser.OperationResult(is_done=True, text='{"messages":[]}')

        rig.operations.remote.on(browser.BROWSE, waits)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(rig.ask("GET", PATH))
            await going.wait()
            second = await rig.ask("GET", PATH)
            release.set()
        assert first.result().status == 200
        assert (second.status, second.json["error"]) == (429, "too_many_requests")
        assert second.headers["Retry-After"] == "1"
        assert "another request of yours looks through messages" in second.json["reason"]
        assert (await rig.ask("GET", PATH)).status == 200


async def test_a_node_that_is_searched_by_too_many_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr(browser, "_WAIT_S", 0.01)
    async with Rig() as rig:
        await served(rig, Queue(1))
        searches = rig.operations.browser._searches
        for _ in range(browser.SEARCHES_MAX):
            await searches.acquire()
        busy = await rig.ask("GET", PATH)
        assert (busy.status, busy.json["reason"]) == (429, f"{browser.BUSY}: try again in a second")


async def test_an_answer_is_bounded_and_says_where_to_go_on() -> None:
    async with Rig() as rig:
        await served(rig, Queue(40, b"y" * 60_000))
        path = f"{PATH}?count=100&truncate=65536"
        answer = await rig.ask("GET", path)
        assert answer.json["stopped"] == "bytes"
        assert len(answer.text) <= browser.ANSWER_BYTES + 1_000
        numbers = [each["number"] for each in answer.json["messages"]]
        while after := answer.json["next"]:
            answer = await rig.ask("GET", f"{path}&after={after}")
            numbers += [each["number"] for each in answer.json["messages"]]
        assert numbers == list(range(1, 41))


async def test_a_search_stops_after_so_many_messages_and_the_loop_goes_on() -> None:
    async with Rig() as rig:
        queue = Queue(browser.SCANNED_MAX + 500)
        await served(rig, queue)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count_turns())
            found = (await rig.ask("GET", f"{PATH}?body=nowhere")).json
            counting.cancel()
        assert found["stopped"] in {"scanned", "time"}
        assert found["scanned"] <= browser.SCANNED_MAX
        batches = found["scanned"] // queue.disk.most
        assert turns > batches, "others had at least a turn for each batch"
        assert queue.disk.most <= 128


async def test_a_search_stops_in_time(monkeypatch: Any) -> None:
    monkeypatch.setattr(browser, "SEARCH_S", 0.0)
    async with Rig() as rig:
        await served(rig, Queue(50))
        found = (await rig.ask("GET", f"{PATH}?body=nowhere")).json
        assert (found["stopped"], found["scanned"]) == ("time", 1)
        assert found["next"] is not None


async def test_a_slow_disk_is_not_waited_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(browser, "READ_S", 0.01)
    async with Rig() as rig:
        queue = Queue(1)
        await served(rig, None)
        told: list[Any] = []
        rig.control.serving.queues.quorum_here = lambda _uid: SimpleNamespace(
            walk=queue.machine.messages.walk, read=lambda _items, done: told.append(done)
        )
        answer = await rig.ask("GET", PATH)
        assert (answer.status, answer.json["reason"]) == (503, browser.NOT_READ)
        told[0]([])  # the disk answers after all: nobody waits for it


async def test_a_node_that_does_not_serve_the_queue_says_so() -> None:
    async with Rig() as rig:
        await served(rig, None)
        answer = await rig.ask("GET", PATH)
        assert (answer.status, answer.json["error"]) == (503, "service_unavailable")


async def test_what_is_lost_on_disk_is_counted_and_ends_nothing() -> None:
    async with Rig() as rig:
        queue = Queue(300)
        await served(rig, queue)
        queue.disk.started = lambda items: [each for each in items if each.number > 200]
        found = (await rig.ask("GET", f"{PATH}?count=100")).json
        assert [each["number"] for each in found["messages"]] == list(range(201, 301))
        assert found["unreadable"] == 200


async def test_an_expensive_pattern_searches_less_and_says_so() -> None:
    async with Rig() as rig:
        await served(rig, Queue(3, b"a" * 100_000))
        pattern = "((a%7B0,9%7D)%7B0,9%7D)%7B0,3%7Db"  # RE2 is slowest at such
        found = (await rig.ask("GET", f"{PATH}?body_regex={pattern}")).json
        assert found["scanned"] == found["searched_in_part"] == 3
