"""Listing and cancelling delayed messages over HTTP."""

from __future__ import annotations

import pytest

from broker.amqp.content import Properties, build_message
from broker.cluster.calls import CallFailed
from broker.errors import Refusal, ReplyCode
from broker.management.operations import delays
from broker.message import Delivery
from broker.metadata import commands
from broker.ports import QueueStat
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import ONE, TWO

pytestmark = pytest.mark.asyncio

TYPE = "x-delayed-message"
PATH = "/api/exchanges/%2F/later/delayed"


class Store:
    """What the node knows of the store, as its registry would say it."""

    def __init__(self, rig: Rig) -> None:
        ask = rig.control.asker
        assert ask.exchange("later", TYPE, arguments={"x-delayed-type": "direct"}) is True
        store = rig.catalogue.store("/", "later")
        assert store is not None
        self.record = store
        self.waiting: list[Delivery] | None = [message(3, 9_000), message(1, 11_000, "ü\udcff")]
        self.cancelled: list[object] = []
        self.answer: object = None
        queues = rig.control.serving.queues
        queues.leader_of = lambda _queue: ONE
        queues.quorum_here = self.quorum_here
        queues.cancel_delays = self.cancel_delays
        queues.served_here = lambda: [store]
        queues.stats[store.uid] = QueueStat(2, 0, 0, 20, 0, "running")

    def quorum_here(self, uid):
        assert uid == self.record.uid
        return None if self.waiting is None else self

    def peek(self, first, count):
        return self.waiting[first : first + count]

    def cancel_delays(self, store, numbers, done):
        assert store == self.record
        self.cancelled.append(numbers)
        done(self.answer if self.answer is not None else 7 if numbers is None else len(numbers))


def message(number: int, due_ms: int, key: str = "k") -> Delivery:
    made = build_message("later", key, Properties(headers={"x-delay": 5}), b"x" * 10)
    values = {name: getattr(made, name) for name in made.__struct_fields__}
    return Delivery(number, 0, type(made)(**{**values, "expires_ms": due_ms}))


async def test_what_is_kept_is_shown_in_order_and_in_parts():
    async with Rig() as rig:
        Store(rig)
        first = {
            "number": 3,
            "due": 9_000,
            "exchange": "later",
            "routing_key": "k",
            "payload_bytes": 10,
        }
        found = (await rig.ask("GET", PATH)).json
        assert found[0] == first
        assert [each["number"] for each in found] == [3, 1]
        assert found[1]["routing_key"] == "ü\ufffd"
        assert (await rig.ask("GET", PATH + "?count=1")).json == [first]
        assert [m["number"] for m in (await rig.ask("GET", PATH + "?first=1")).json] == [1]
        assert (await rig.ask("GET", PATH + "?columns=number")).json == [
            {"number": 3},
            {"number": 1},
        ]


@pytest.mark.parametrize("query", ["first=-1", "first=x", "count=1001", "count=", "first=²"])
async def test_numbers_in_the_query_are_bounded(query):
    async with Rig() as rig:
        Store(rig)
        assert (await rig.ask("GET", f"{PATH}?{query}")).status == 400


async def test_cancelling_some_and_all():
    async with Rig() as rig:
        store = Store(rig)
        answer = await rig.ask("DELETE", PATH, {"numbers": [3, 99]})
        assert (answer.status, answer.json) == (200, {"cancelled": 2})
        assert (await rig.ask("DELETE", PATH, {"all": True})).json == {"cancelled": 7}
        assert store.cancelled == [[3, 99], None]


@pytest.mark.parametrize(
    "body",
    [{}, {"numbers": 3}, {"numbers": ["3"]}, {"numbers": [True]}, {"numbers": [-1]},
     {"numbers": [0] * 10_001}, {"all": "perhaps"}],
)  # fmt: skip
async def test_a_cancel_must_say_what(body):
    async with Rig() as rig:
        store = Store(rig)
        assert (await rig.ask("DELETE", PATH, body)).status == 400
        assert store.cancelled == []


async def test_an_exchange_that_delays_nothing_has_nothing_to_show():
    async with Rig() as rig:
        for name in ("amq.fanout", "gone"):
            path = f"/api/exchanges/%2F/{name}/delayed"
            assert (await rig.ask("GET", path)).status == 404
            assert (await rig.ask("DELETE", path, {"all": True})).status == 404


async def test_a_listing_waits_for_a_leader_that_is_being_elected():
    async with Rig() as rig:
        store = Store(rig)
        waiting, store.waiting = store.waiting, None

        async def call(_node, _method, _payload, _timeout_s):
            store.waiting = waiting  # by now this node leads
            raise CallFailed("gone")

        rig.control.cluster.links.call = call
        assert len((await rig.ask("GET", PATH)).json) == 2


async def test_who_can_not_be_told_now_is_told_so(monkeypatch):
    monkeypatch.setattr(delays, "ELECTION_MS", 0)
    async with Rig() as rig:
        store = Store(rig)
        store.waiting = None
        asked: list[str] = []

        async def call(node, _method, _payload, _timeout_s):
            asked.append(node)
            raise CallFailed("gone")

        rig.control.cluster.links.call = call
        answer = await rig.ask("GET", PATH)
        assert asked == [TWO], "another member may lead by now"
        assert answer.status == 503
        assert "does not lead the delays' store" in answer.json["reason"]
        store.answer = Refusal(ReplyCode.INTERNAL_ERROR, "no leader")
        assert (await rig.ask("DELETE", PATH, {"all": True})).status == 503


async def test_reading_needs_read_and_cancelling_needs_configure():
    async with Rig() as rig:
        store = Store(rig)
        ask = rig.control.asker.ask
        ask(commands.SetPermissions("man", "/", "", "", ""))
        assert (await rig.ask("GET", PATH, user="man")).status == 403
        assert (await rig.ask("DELETE", PATH, {"all": True}, user="man")).status == 403
        ask(commands.SetPermissions("man", "/", "^later$", "", "^later$"))
        assert (await rig.ask("GET", PATH, user="man")).status == 200
        assert (await rig.ask("DELETE", PATH, {"all": True}, user="man")).status == 200
        assert store.cancelled == [None]


async def test_listings_count_what_is_kept_and_hide_the_store():
    async with Rig() as rig:
        Store(rig)
        found = {each["name"]: each for each in (await rig.ask("GET", "/api/exchanges/%2F")).json}
        assert found["later"]["messages_delayed"] == 2
        assert "messages_delayed" not in found["amq.fanout"]
        shown = (await rig.ask("GET", "/api/exchanges/%2F/later")).json
        assert shown["messages_delayed"] == 2
        assert (shown["delayed_leader"], shown["delayed_members"]) == (ONE, [ONE, TWO])
        assert (await rig.ask("GET", "/api/queues")).json == []
        assert (await rig.ask("GET", "/api/queues/%2F/amq.delayed.later")).status == 404
        assert (await rig.ask("DELETE", "/api/queues/%2F/amq.delayed.later")).status == 404
        overview = (await rig.ask("GET", "/api/overview")).json
        assert overview["object_totals"]["queues"] == 0


async def test_an_exchange_put_over_http_gets_its_store():
    async with Rig() as rig:
        body = {"type": TYPE, "durable": True, "arguments": {"x-delayed-type": "topic"}}
        assert (await rig.ask("PUT", "/api/exchanges/%2F/mine", body)).status == 201
        assert (await rig.ask("PUT", "/api/exchanges/%2F/mine", body)).status == 204
        store = rig.catalogue.store("/", "mine")
        assert store is not None
        assert store.members == (ONE,)
        bad = {"type": TYPE, "arguments": {}}
        answer = await rig.ask("PUT", "/api/exchanges/%2F/bad", bad)
        assert answer.status == 400
        assert answer.json["reason"] == (
            "Invalid argument, 'x-delayed-type' must be an existing exchange type"
        )


class Handle:
    def __init__(self, got: list[object], queue: object) -> None:
        self.got, self.queue = got, queue

    def publish(self, messages, seqnos, publisher):
        self.got += [(self.queue.name, each.ttl_ms) for each in messages]
        publisher.confirmed(seqnos)


async def test_a_publish_over_http_may_be_delayed():
    async with Rig() as rig:
        Store(rig)
        got: list[object] = []
        rig.control.serving.queues.open = lambda queue: Handle(got, queue)

        async def send(delay: int) -> object:
            body = {
                "routing_key": "k",
                "payload": "x",
                "payload_encoding": "string",
                "properties": {"headers": {"x-delay": delay}},
            }
            return await rig.ask("POST", "/api/exchanges/%2F/later/publish", body)

        assert (await send(5000)).json == {"routed": True}
        assert got == [("amq.delayed.later", 5000)]
        assert (await send(-5000)).json == {"routed": False}
        assert (await send(10**12)).status == 400
