"""Policies set with `warrenmq ctl` in a cluster of real nodes.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.cli.ctl.commands import run
from tests.nodes import Node, Trio


def ctl(node: Node, *words: str) -> int:
    return run(["--url", f"http://127.0.0.1:{node.management_port}", *words], {})


def rows(node: Node, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert ctl(node, "--formatter", "json", *words) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def is_routed(channel: BlockingChannel, key: str, exchange: str = "normalExchange") -> bool:
    """Publish mandatory with a confirm: False if the message came back."""
    try:
        channel.basic_publish(exchange, key, key.encode(), mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    return True


def got(channel: BlockingChannel, queue: str) -> tuple[str, str] | None:
    """The next message's routing key and body."""
    method, _, body = channel.basic_get(queue, auto_ack=True)
    return None if method is None else (method.routing_key, body.decode())


def test_an_alternate_exchange_by_policy_comes_and_goes_under_an_open_channel(trio: Trio) -> None:
    """Recipe 1."""
    here, there, third = trio.nodes
    with here.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("normalExchange", "direct", durable=True)
        channel.exchange_declare("myAE", "topic", durable=True)
        for queue in ("normal", "unrouted"):
            channel.queue_declare(queue, durable=True)
        channel.queue_bind("normal", "normalExchange", "good")
        assert is_routed(channel, "good")
        assert not is_routed(channel, "bad.one")

        words = ("AE", "^normalExchange$", '{"alternate-exchange":"myAE"}')
        assert ctl(there, "set_policy", *words) == 0
        # an alternate without bindings: gone, and said so only because it was mandatory
        assert not is_routed(channel, "bad.one")
        channel.basic_publish("normalExchange", "bad.one", b"lost")

        channel.queue_bind("unrouted", "myAE", "bad.#")
        assert is_routed(channel, "bad.one")
        assert is_routed(channel, "good")
        assert not is_routed(channel, "worse")
        assert got(channel, "unrouted") == ("bad.one", "bad.one")
        assert got(channel, "unrouted") is None
        assert [got(channel, "normal") for _ in range(3)] == [("good", "good")] * 2 + [None]

        # an alternate that does not exist is no error either
        missing = ("AE", "^normalExchange$", '{"alternate-exchange":"nowhere"}')
        assert ctl(third, "set_policy", *missing) == 0
        assert not is_routed(channel, "bad.one")
        assert ctl(here, "set_policy", *words) == 0
        assert is_routed(channel, "bad.one")
        assert ctl(there, "clear_policy", "AE") == 0
        assert not is_routed(channel, "bad.one")


def test_an_argument_wins_over_a_policy(trio: Trio) -> None:
    node = trio.nodes[0]
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("by.argument", "by.policy"):
            channel.exchange_declare(name, "fanout")
            channel.queue_declare(name)
            channel.queue_bind(name, name)
        channel.exchange_declare(
            "argued", "direct", arguments={"alternate-exchange": "by.argument"}
        )
        assert ctl(node, "set_policy", "P", "^argued$", '{"alternate-exchange":"by.policy"}') == 0
        assert is_routed(channel, "k", "argued")
        assert got(channel, "by.argument") == ("k", "k")
        assert got(channel, "by.policy") is None
        assert ctl(node, "clear_policy", "P") == 0


def test_every_node_shows_what_applies(trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
    here, there, third = trio.nodes
    here.api("PUT", "/queues/%2F/seen.c", {"durable": True})
    quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    here.api("PUT", "/queues/%2F/seen.q", quorum)
    ha = '{"ha-mode":"nodes","ha-params":["rabbit@nobody"],"max-length":9}'
    words = ("--priority", "5", "HA", "^seen", ha, "--apply-to", "queues")
    assert ctl(here, "set_policy", *words) == 0
    assert ctl(there, "set_policy", "low", "^seen", '{"max-length":7}') == 0
    assert ctl(there, "set_operator_policy", "op", "^seen", '{"max-length":3}') == 0
    try:
        columns = ("name", "policy", "operator_policy", "effective_policy_definition")
        for node in trio.nodes:
            found = rows(node, capsys, "list_queues", *columns)
            assert [row for row in found if str(row["name"]).startswith("seen")] == [
                {
                    "name": "seen.c",
                    "policy": "HA",
                    "operator_policy": "op",
                    "effective_policy_definition": {
                        "ha-mode": "nodes",
                        "ha-params": ["rabbit@nobody"],
                        "max-length": 3,
                    },
                },
                {
                    "name": "seen.q",
                    "policy": "low",
                    "operator_policy": "op",
                    "effective_policy_definition": {"max-length": 3},
                },
            ]
            listed = rows(node, capsys, "list_policies")
            policies = [row for row in listed if row["name"] in {"low", "HA"}]
            assert [(row["name"], row["definition"], row["priority"]) for row in policies] == [
                ("low", '{"max-length":7}', 0),
                ("HA", ha, 5),
            ]
            assert [row["name"] for row in rows(node, capsys, "list_operator_policies")] == ["op"]
    finally:
        for command in (("clear_policy", "HA"), ("clear_policy", "low")):
            assert ctl(third, *command) == 0
        assert ctl(third, "clear_operator_policy", "op") == 0
        for name in ("seen.c", "seen.q"):
            here.api("DELETE", f"/queues/%2F/{name}")


def test_a_wrong_policy_is_refused_in_rabbitmqs_words(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    node = trio.nodes[1]
    assert ctl(node, "set_policy", "p", ".*", '{"ha-mode":"exactly","ha-params":"2"}') == 69
    assert capsys.readouterr().err == (
        'Error:\nValidation failed\n\nha-mode="exactly" takes an integer, <<"2">> given\n\n'
    )
    assert ctl(node, "set_operator_policy", "p", ".*", '{"queue-mode":"lazy"}') == 69
    assert '[{<<"queue-mode">>,<<"lazy">>}] are not recognised' in capsys.readouterr().err
    assert ctl(node, "set_policy", "-p", "nope", "p", ".*", '{"max-length":1}') == 65


def test_a_policy_places_new_queues(trio: Trio) -> None:
    """Where most queues are, `min-masters` goes elsewhere and `client-local` does not."""
    asked = trio.nodes[2]
    asked.api("PUT", "/queues/%2F/first", {})
    homes = Counter(queue["node"] for queue in asked.api("GET", "/queues"))
    crowded = trio.named(homes.most_common(1)[0][0])
    crowded.api("PUT", "/queues/%2F/second", {})
    definition = '{"queue-master-locator":"min-masters"}'
    assert ctl(asked, "set_policy", "spread", "^placed", definition) == 0
    try:
        crowded.api("PUT", "/queues/%2F/placed", {})
        crowded.api("PUT", "/queues/%2F/beside", {})
        assert asked.api("GET", "/queues/%2F/placed")["node"] != crowded.user_name
        assert asked.api("GET", "/queues/%2F/beside")["node"] == crowded.user_name
    finally:
        assert ctl(asked, "clear_policy", "spread") == 0
        for name in ("first", "second", "placed", "beside"):
            asked.api("DELETE", f"/queues/%2F/{name}")


def test_policies_survive_a_stop_of_all_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Node("lonely", tmp_path / "lonely")
    try:
        node.start()
        assert ctl(node, "set_policy", "AE", "^x$", '{"alternate-exchange":"amq.fanout"}') == 0
        assert ctl(node, "set_operator_policy", "op", ".*", '{"max-length":3}') == 0
        node.api("PUT", "/exchanges/%2F/x", {"type": "direct", "durable": True})
        node.api("PUT", "/queues/%2F/q", {"durable": True})
        node.api("POST", "/bindings/%2F/e/amq.fanout/q/q", {})
        before = [rows(node, capsys, f"list_{kind}policies") for kind in ("", "operator_")]
        assert node.stop() == 0
        node.start()
        after = [rows(node, capsys, f"list_{kind}policies") for kind in ("", "operator_")]
        assert after == before
        with node.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            assert is_routed(channel, "k", "x")
            assert got(channel, "q") == ("k", "k")
        assert node.api("GET", "/queues/%2F/q")["operator_policy"] == "op"
    finally:
        node.end()
