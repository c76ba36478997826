"""What goes where, and what stays, over a catalogue."""

from __future__ import annotations

import msgspec
import pytest

from broker.amqp.content import Properties, build_message, decode_properties
from broker.audit.actor import Actor
from broker.fifo.dead_letter import dead_message
from broker.management.operations.redriving.planning import TEXTS, Job, Plan, Planner, Target
from broker.message import Message
from broker.metadata import commands
from broker.metadata.access import Access
from tests.unit.metadata.cluster import ONE, Asker, founded

USER = "guest"


@pytest.fixture
def asker() -> Asker:
    """The queues "dead", "one" and "two", and a user who may write to all but "shut"."""
    found = founded()
    for name in ("dead", "one", "two"):
        found.queue(name)
    found.ask(commands.SetPermissions(USER, "/", "", "^[^s]", ".*"))
    return found


def dead(
    exchange: str,
    key: str = "key",
    headers: dict[str, object] | None = None,
    bcc: tuple[str, ...] = (),
    dead_key: str | None = None,
) -> Message:
    message = build_message(exchange, key, Properties(headers=headers), b"body")
    message = msgspec.structs.replace(message, bcc=bcc)
    found, _ = dead_message(
        message, reason="rejected", queue="one", time_s=1, exchange="dlx", routing_key=dead_key
    )
    return found


def plan(asker: Asker, message: Message, target: Target | None = None) -> Plan:
    catalogue = asker.machine.catalogue
    job = Job("/", "dead", target=target or Target(), by=Actor(USER, "http"))
    return Planner(job, catalogue, Access(catalogue, ("guest",))).plan(message, 7)


def test_all_queues_of_a_fanout_get_it_but_only_one_if_that_is_asked(asker: Asker) -> None:
    asker.exchange("all")
    for name in ("one", "two"):
        asker.bind("all", name)
    found = plan(asker, dead("all"))
    assert (found.verdict, found.queues, found.exchange) == ("sent", ["one", "two"], "all")
    assert plan(asker, dead("all"), Target("death_queue")).queues == ["one"]


def test_keys_of_cc_and_bcc_are_routed_again(asker: Asker) -> None:
    message = dead("", "one", {"CC": ["two"]})
    assert plan(asker, message).queues == ["one", "two"]
    assert plan(asker, dead("", "one", bcc=("two",))).queues == ["one", "two"]
    found = plan(asker, dead("", "one", {"CC": ["two"]}, dead_key="x"))
    assert found.queues == ["one", "two"]
    headers = decode_properties(found.copies[0][0]).headers
    assert headers == {"CC": ["two"], "x-redrive-count": 1}


def test_a_key_that_is_given_stands_alone(asker: Asker) -> None:
    asker.exchange("direct", "direct")
    asker.bind("direct", "two", "given")
    found = plan(asker, dead("", "one", {"CC": ["one"]}), Target("exchange", "direct", "given"))
    assert (found.queues, found.routing_key) == (["two"], "given")
    own = plan(asker, dead("", "one"), Target("exchange", "direct"))
    assert (own.verdict, own.routing_key) == ("unroutable", "one")


def test_an_exchange_that_looks_at_headers_sees_them(asker: Asker) -> None:
    asker.exchange("by.headers", "headers")
    asker.bind("by.headers", "two", arguments={"x-match": "all", "colour": "red"})
    assert plan(asker, dead("by.headers", headers={"colour": "red"})).queues == ["two"]
    assert plan(asker, dead("by.headers", headers={"colour": "blue"})).verdict == "unroutable"


def test_what_an_exchange_delays_is_sent_though_no_queue_gets_it_yet(asker: Asker) -> None:
    kind = {"x-delayed-type": "direct"}
    asker.exchange("late", "x-delayed-message", arguments=kind, home=ONE, members=(ONE,))
    found = plan(asker, dead("late", headers={"x-delay": 5_000}))
    assert (found.verdict, found.queues) == ("sent", [])
    [(message, [store])] = found.copies
    assert (message.ttl_ms, store.delays_for) == (5_000, "late")
    assert plan(asker, dead("late", headers={"x-delay": 10**15})).verdict == "bad_delay"


def test_what_can_not_go_says_why(asker: Asker) -> None:
    asker.exchange("shut")
    asker.exchange("inside", internal=True)
    asker.exchange("round")
    asker.bind("round", "dead")
    assert plan(asker, build_message("", "one", Properties(), b"")).verdict == "no_dead_letter"
    for exchange, verdict in (
        ("gone", "no_exchange"),
        ("shut", "forbidden"),
        ("inside", "internal_exchange"),
        ("round", "comes_back"),
    ):
        found = plan(asker, dead(exchange))
        assert (found.verdict, found.exchange, found.copies) == (verdict, exchange, [])
        assert verdict in TEXTS
    silent = {"x-first-death-queue": "one", "x-first-death-reason": "rejected"}
    message = build_message("", "dead", Properties(headers=silent), b"")
    assert plan(asker, message).verdict == "no_origin"
    assert plan(asker, message, Target("death_queue")).queues == ["one"]


def test_the_default_exchange_needs_its_own_right(asker: Asker) -> None:
    asker.ask(commands.SetPermissions(USER, "/", "", "^other", ".*"))
    for target in (Target(), Target("death_queue"), Target("queue", queue="two")):
        assert plan(asker, dead("", "one"), target).verdict == "forbidden"
