"""Taps: what they add to routes, what ends them, what can't have one."""

from __future__ import annotations

import json

import pytest

from broker.errors import Refusal
from broker.feature_flags import STREAM_QUEUE
from broker.metadata import commands
from broker.metadata.definitions import export, planning, reading
from broker.metadata.definitions.document import Faults
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import Tap
from tests.unit.metadata.cluster import ONE, Asker, founded, refusal

STREAM: dict[str, object] = {"x-queue-type": "stream"}


@pytest.fixture
def asker() -> Asker:
    asker = founded()
    asker.ask(commands.EnableFeatures((STREAM_QUEUE,)))
    asker.queue("q")
    asker.queue("other")
    asker.queue("log", arguments=STREAM)
    return asker


def tap(asker: Asker, kind: str, source: str, stream: str = "log", key: str = "") -> object:
    return asker.ask(commands.SetTap("/", kind, source, stream, key))  # type: ignore[arg-type]


def routed(asker: Asker, exchange: str, key: str) -> list[str]:
    route = asker.machine.catalogue.route("/", exchange, key)
    assert route is not None
    return [queue.name for queue in route.queues]


def test_a_queues_tap_gets_what_goes_to_the_queue_by_any_way(asker: Asker) -> None:
    asker.bind("amq.fanout", "q")
    asker.bind("amq.fanout", "other")
    before = asker.machine.catalogue.version
    assert tap(asker, "queue", "q") is True
    assert asker.machine.catalogue.version > before, "routes that are kept are found anew"
    assert routed(asker, "", "q") == ["q", "log"]
    assert routed(asker, "", "other") == ["other"]
    assert sorted(routed(asker, "amq.fanout", "")) == ["log", "other", "q"]
    assert tap(asker, "queue", "q") is False


def test_a_stream_gets_a_message_once_whatever_ways_lead_to_it(asker: Asker) -> None:
    asker.bind("amq.fanout", "log")
    for name in ("q", "other"):
        asker.bind("amq.fanout", name)
        tap(asker, "queue", name)
    assert sorted(routed(asker, "amq.fanout", "")) == ["log", "other", "q"]


def test_an_exchanges_tap_is_a_binding(asker: Asker) -> None:
    assert tap(asker, "exchange", "amq.topic", key="a.#") is True
    assert routed(asker, "amq.topic", "a.b") == ["log"]
    assert asker.ask(commands.DeleteTap("/", "exchange", "amq.topic")) is True
    assert routed(asker, "amq.topic", "a.b") == []
    assert asker.ask(commands.DeleteTap("/", "exchange", "amq.topic")) is False


def test_a_deleted_tap_leaves_its_stream(asker: Asker) -> None:
    tap(asker, "queue", "q")
    assert asker.ask(commands.DeleteTap("/", "queue", "q")) is True
    assert routed(asker, "", "q") == ["q"]
    assert asker.machine.catalogue.queue("/", "log") is not None


@pytest.mark.parametrize("name", ["q", "log"])
def test_a_tap_goes_with_either_end(asker: Asker, name: str) -> None:
    tap(asker, "queue", "q")
    queue = asker.machine.catalogue.queue("/", name)
    assert queue is not None
    asker.ask(commands.DeleteQueue(queue.uid))
    assert asker.machine.catalogue.taps() == []
    asker.queue(name, arguments=queue.arguments)
    assert routed(asker, "", "q") == ["q"], "a namesake is another queue"


def test_a_tap_goes_with_its_exchange_and_with_its_binding(asker: Asker) -> None:
    asker.exchange("e")
    tap(asker, "exchange", "e")
    tap(asker, "exchange", "amq.topic", key="#")
    asker.ask(commands.DeleteExchange("/", "e", False))
    assert [each.source for each in asker.machine.catalogue.taps()] == ["amq.topic"]
    asker.unbind("amq.topic", "log", "#")
    assert asker.machine.catalogue.taps() == []


def test_a_tap_follows_what_goes_to_its_queue(asker: Asker) -> None:
    """`migrate_queue` moves bindings to a quorum queue."""
    tap(asker, "queue", "q")
    uids = {queue.name: queue.uid for queue in asker.machine.catalogue.queues()}
    asker.ask(commands.MoveBindings(uids["q"], uids["other"]))
    assert routed(asker, "", "q") == ["q"]
    assert routed(asker, "", "other") == ["other", "log"]


def test_taps_go_with_their_vhost(asker: Asker) -> None:
    asker.ask(commands.AddVhost("v"))
    asker.queue("q", vhost="v")
    asker.queue("log", vhost="v", arguments=STREAM)
    asker.ask(commands.SetTap("v", "queue", "q", "log"))
    asker.ask(commands.DeleteVhost("v"))
    assert asker.machine.catalogue.taps() == []


REFUSED = [
    ("queue", "none", "log", "", 404, "no queue 'none' in vhost '/'"),
    ("queue", "q", "none", "", 404, "no queue 'none' in vhost '/'"),
    ("queue", "q", "other", "", 406, "queue 'other' in vhost '/' is no stream"),
    (
        "queue",
        "log",
        "log",
        "",
        406,
        "queue 'log' in vhost '/' is a stream: it can be read as it is",
    ),
    ("exchange", "none", "log", "", 404, "no exchange 'none' in vhost '/'"),
    ("exchange", "", "log", "", 403, "operation not permitted on the default exchange"),
    (
        "exchange",
        "hash",
        "log",
        "1",
        406,
        "exchange 'hash' in vhost '/' of type x-consistent-hash divides messages: tap its queues "
        "instead",
    ),
]


@pytest.mark.parametrize(("kind", "source", "stream", "key", "code", "text"), REFUSED)
def test_what_is_refused(
    asker: Asker, kind: str, source: str, stream: str, key: str, code: int, text: str
) -> None:
    asker.exchange("hash", "x-consistent-hash")
    assert refusal(tap(asker, kind, source, stream, key)) == (code, text)
    assert asker.machine.catalogue.taps() == []


def test_a_source_has_one_tap(asker: Asker) -> None:
    asker.queue("log2", arguments=STREAM)
    tap(asker, "queue", "q")
    code, text = refusal(tap(asker, "queue", "q", "log2"))
    assert code == 406
    assert text.startswith(
        "there is already another tap of queue 'q' in vhost '/', to stream 'log'"
    )


def test_an_exclusive_queue_is_its_connections_alone(asker: Asker) -> None:
    asker.queue("mine", exclusive_owner=f"{ONE}/{'1' * 16}/7")
    assert refusal(tap(asker, "queue", "mine"))[0] == 405


def test_taps_are_in_snapshots(asker: Asker) -> None:
    tap(asker, "queue", "q")
    tap(asker, "exchange", "amq.topic", key="#")
    other = MetadataMachine()
    other.restore(asker.index, asker.machine.snapshot())
    assert other.snapshot() == asker.machine.snapshot()
    route = other.catalogue.route("/", "", "q")
    assert route is not None
    assert [queue.name for queue in route.queues] == ["q", "log"]


def document_of(asker: Asker) -> dict[str, object]:
    sections = export.select(asker.machine.catalogue)
    found = {each.name: [export.item(record) for record in each.records] for each in sections}
    whole: dict[str, object] = json.loads(json.dumps(found))
    return whole


def done(steps: object) -> object:
    """The value of a generator of steps."""
    while True:
        try:
            next(steps)  # type: ignore[call-overload]
        except StopIteration as end:
            return end.value


def planned(document: object, into: Asker) -> planning.Plan | Faults:
    definitions = done(reading.read(document, None, "rabbit_password_hashing_sha256"))
    if isinstance(definitions, Faults):
        return definitions
    plan = done(planning.plan(definitions, into.machine.catalogue))  # type: ignore[arg-type]
    assert isinstance(plan, planning.Plan | Faults)
    return plan


def test_definitions_have_taps_and_bring_them_back(asker: Asker) -> None:
    assert "taps" not in document_of(asker), "RabbitMQ's document where there are none"
    tap(asker, "queue", "q")
    tap(asker, "exchange", "amq.topic", key="#")
    document = document_of(asker)
    assert document["taps"] == [
        {"vhost": "/", "kind": "queue", "source": "q", "stream": "log", "routing_key": ""},
        {"vhost": "/", "kind": "exchange", "source": "amq.topic", "stream": "log",
         "routing_key": "#"},
    ]  # fmt: skip
    other = founded()
    other.ask(commands.EnableFeatures((STREAM_QUEUE,)))
    plan = planned(document, other)
    assert isinstance(plan, planning.Plan)
    for change in plan.changes:
        command = change.command
        if isinstance(command, commands.DeclareQueue):
            other.queue(command.name, arguments=command.arguments)
        else:
            assert not isinstance(other.ask(command), Refusal)
    assert other.machine.catalogue.taps() == asker.machine.catalogue.taps()
    again = planned(document, other)
    assert isinstance(again, planning.Plan)
    assert [change.what for change in again.changes if "tap" in change.what] == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"kind": "shovel"}, "kind must be queue or exchange"),
        ({"stream": "none"}, "no stream 'none' in vhost '/': add it to queues"),
        ({"source": "none"}, "no queue 'none' in vhost '/': add it to queues"),
        ({"source": "log"}, "is a stream: it can be read as it is"),
    ],
)
def test_a_wrong_tap_in_definitions_is_named(
    asker: Asker, given: dict[str, str], text: str
) -> None:
    entry = {"vhost": "/", "kind": "queue", "source": "q", "stream": "log", **given}
    found = planned({"taps": [entry]}, asker)
    assert isinstance(found, Faults)
    assert found.texts[0].startswith("taps[0]")
    assert text in found.texts[0]


def test_a_tap_is_a_record_of_names() -> None:
    assert Tap("/", "queue", "q", "s").binding is None
