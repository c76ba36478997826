"""Super streams: what creates them, in which order their partitions are, what is refused."""

from __future__ import annotations

import pytest

from broker.errors import Refusal
from broker.feature_flags import STREAM_QUEUE
from broker.metadata import commands
from broker.metadata.streams.super_streams import (
    PARTITIONS_MAX,
    creation,
    keys_of,
    partitions,
    refusal,
)
from tests.unit.metadata.cluster import ONE, Asker, founded


def asker_of_streams() -> Asker:
    asker = founded()
    asker.ask(commands.EnableFeatures((STREAM_QUEUE,)))
    return asker


def create(asker: Asker, name: str, keys: list[str]) -> None:
    for command in creation("/", name, keys, {"x-max-age": "1D"}):
        if isinstance(command, commands.DeclareQueue):
            result = asker.queue(command.name, arguments=command.arguments, home=ONE)
        else:
            result = asker.ask(command)
        assert not isinstance(result, Refusal), result.text


def text_of(asker: Asker, name: str, keys: list[str]) -> str:
    found = refusal(asker.machine.catalogue, "/", name, keys)
    return "" if found is None else found.text


def test_partitions_are_bound_with_their_place_and_listed_in_it() -> None:
    """Rows: 1.19 super streams"""
    asker, keys = asker_of_streams(), keys_of(12)
    create(asker, "orders", keys)
    catalogue = asker.machine.catalogue
    exchange = catalogue.exchange("/", "orders")
    assert exchange is not None
    assert (exchange.type, exchange.arguments) == ("direct", {"x-super-stream": True})
    found = partitions(catalogue, "/", "orders")
    assert found is not None
    assert [queue.name for queue in found] == [f"orders-{key}" for key in keys]
    assert found[0].arguments == {"x-queue-type": "stream", "x-max-age": "1D"}
    route = catalogue.route("/", "orders", "11")
    assert route is not None
    assert [queue.name for queue in route.queues] == ["orders-11"]


def test_keys_of_ones_own_keep_their_order() -> None:
    asker = asker_of_streams()
    create(asker, "orders", ["emea", "amer"])
    found = partitions(asker.machine.catalogue, "/", "orders")
    assert found is not None
    assert [queue.name for queue in found] == ["orders-emea", "orders-amer"]


def test_another_exchange_is_no_super_stream() -> None:
    asker = asker_of_streams()
    asker.exchange("plain", "direct")
    assert partitions(asker.machine.catalogue, "/", "plain") is None
    assert partitions(asker.machine.catalogue, "/", "none") is None


@pytest.mark.parametrize(
    ("name", "keys", "text"),
    [
        ("e", ["0"], "there is already an exchange named e"),
        ("q", ["0", "1"], "there is already a queue named q-1"),
        ("amq.x", ["0"], "amq.x-0 is not a correct partition names"),
        ("x" * 254, ["0"], "x" * 254 + "-0 is not a correct partition names"),
        ("s", ["a", "a"], "Duplicate partition names found s-a, s-a"),
        ("s", [], "a super stream has 1 to 1000 partitions, not 0"),
        (
            "s",
            keys_of(PARTITIONS_MAX + 1),
            "a super stream has 1 to 1000 partitions, not 1001",
        ),
        (
            "s",
            keys_of(3),
            "Cannot declare super stream s with 3 partition(s) because queue limit 3 in vhost '/' "
            "is reached",
        ),
        ("s", keys_of(2), ""),
    ],
)
def test_collisions_and_limits(name: str, keys: list[str], text: str) -> None:
    asker = asker_of_streams()
    asker.exchange("e")
    asker.queue("q-1")
    asker.ask(commands.SetParameter("/", "vhost-limits", "limits", {"max-queues": 3}))
    assert text_of(asker, name, keys) == text
