"""`amq.rabbitmq.event`: what a node tells of itself to whoever is bound."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.cli.ctl import commands as ctl
from tests.nodes import Node

EXCHANGE = "amq.rabbitmq.event"
WAIT_S = 30.0
Found = tuple[str, dict[str, object]]


class Watcher:
    """A queue that is bound to the event exchange, and a channel that reads it."""

    def __init__(self, channel: BlockingChannel, keys: str) -> None:
        self.channel = channel
        self.queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(self.queue, EXCHANGE, keys)

    def until(self, key: str, **wanted: object) -> list[Found]:
        """Everything up to the event with that key and those headers."""
        found: list[Found] = []
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            method, properties, body = self.channel.basic_get(self.queue, auto_ack=True)
            if method is None:
                self.channel.connection.process_data_events(0.01)
                continue
            assert body == b""
            assert properties.delivery_mode == 2
            assert properties.headers["timestamp_in_ms"] // 1000 == properties.timestamp
            found.append((method.routing_key, properties.headers))
            if method.routing_key == key and wanted.items() <= properties.headers.items():
                return found
        raise AssertionError(f"no {key} {wanted} in {found}")


@pytest.fixture
def watcher(node: Node, request: pytest.FixtureRequest) -> Iterator[Watcher]:
    with node.connect() as connection:
        yield Watcher(connection.channel(), request.param)


def about(found: list[Found], **wanted: object) -> list[str]:
    """The keys of events with those headers, in their order."""
    return [key for key, headers in found if wanted.items() <= headers.items()]


def test_the_exchange_is_there_and_no_client_may_publish_to_it(node: Node):
    found = node.api("GET", f"/exchanges/%2F/{EXCHANGE}")
    assert (found["type"], found["durable"], found["internal"]) == ("topic", True, True)
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_publish(EXCHANGE, "queue.created", b"forged")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="403"):
            channel.queue_declare("", exclusive=True)  # the next method hears of it


@pytest.mark.parametrize("watcher", ["#"], indirect=True)
def test_a_connection_and_what_it_does_are_told_in_order(node: Node, watcher: Watcher):
    with node.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("events.x", "topic", auto_delete=True)
        channel.queue_declare("events.q", arguments={"x-max-length": 5})
        channel.queue_bind("events.q", "events.x", "a.#")
        channel.basic_qos(prefetch_count=7)
        tag = channel.basic_consume("events.q", lambda *_: None)
        channel.basic_cancel(tag)
        channel.queue_unbind("events.q", "events.x", "a.#")
        channel.queue_delete("events.q")
        channel.close()
    found = watcher.until("connection.closed")
    keys = [key for key, _ in found if key.split(".")[0] not in ("consumer", "channel")]
    assert keys == [
        "user.authentication.success",
        "connection.created",
        "exchange.created",
        "queue.created",
        "binding.created",
        "binding.deleted",
        "queue.deleted",
        "connection.closed",
    ]
    told = dict(found)
    assert (
        told["queue.created"]
        | {
            "name": "events.q",
            "vhost": "/",
            "durable": False,
            "auto_delete": False,
            "exclusive": False,
            "arguments": {"x-max-length": 5},
            "type": "classic",
            "user_who_performed_action": "guest",
        }
        == told["queue.created"]
    )
    assert told["binding.created"]["routing_key"] == "a.#"
    opened, closed = told["connection.created"], told["connection.closed"]
    assert (opened["user"], opened["protocol"]) == ("guest", "AMQP 0-9-1")
    assert (closed["pid"], closed["name"]) == (opened["pid"], opened["name"])
    assert told["channel.created"]["connection"] == opened["pid"]
    assert told["channel.closed"]["pid"] == told["channel.created"]["pid"]
    consumer = told["consumer.created"]
    assert (consumer["queue"], consumer["prefetch_count"]) == ("events.q", 7)
    assert (consumer["ack_required"], consumer["channel"]) == (True, told["channel.created"]["pid"])
    assert told["consumer.deleted"]["consumer_tag"] == consumer["consumer_tag"] == tag


@pytest.mark.parametrize("watcher", ["queue.#"], indirect=True)
def test_exclusive_and_expiring_queues_are_told_when_they_go(node: Node, watcher: Watcher):
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("events.mine", exclusive=True)
        channel.queue_declare("events.brief", arguments={"x-expires": 1})
    found = watcher.until("queue.deleted", name="events.mine")
    if not about(found, name="events.brief")[1:]:
        found += watcher.until("queue.deleted", name="events.brief")
    assert about(found, name="events.mine") == ["queue.created", "queue.deleted"]
    assert about(found, name="events.brief") == ["queue.created", "queue.deleted"]
    (gone,) = [headers for key, headers in found if key == "queue.deleted"
               and headers["name"] == "events.brief"]  # fmt: skip
    assert gone["user_who_performed_action"] == "rmq-internal"


@pytest.mark.parametrize("watcher", ["#"], indirect=True)
def test_operators_changes_are_told_with_who_made_them(node: Node, watcher: Watcher):
    node.api("PUT", "/vhosts/events", {"description": "of a test"})
    node.api("PUT", "/users/eve", {"password": "secret", "tags": "monitoring"})
    node.api("PUT", "/permissions/events/eve", {"configure": "", "write": "a", "read": ".*"})
    policy = {"pattern": "^e", "definition": {"max-length": 3}, "priority": 2}
    node.api("PUT", "/policies/events/short", policy)
    node.api("PUT", "/global-parameters/events", {"value": "amqp://u:secret@h"})
    node.api("PUT", "/queues/events/q", {})
    node.api("PUT", "/vhost-limits/events/max-queues", {"value": 9})
    node.api("DELETE", "/vhost-limits/events/max-queues")
    node.api("DELETE", "/queues/events/q")
    node.api("DELETE", "/users/eve")
    node.api("DELETE", "/vhosts/events")
    found = [
        (key, headers)
        for key, headers in watcher.until("vhost.deleted", name="events")
        if not key.startswith("user.authentication.")  # of each connection
    ]
    assert all(headers["user_who_performed_action"] == "guest" for _, headers in found)
    assert [key for key, _ in found] == [
        "vhost.created",
        "permission.created",
        "user.created",
        "user.tags.set",
        "permission.created",
        "policy.set",
        "parameter.set",
        "queue.created",
        "parameter.set",
        "vhost.limits.set",
        "parameter.cleared",
        "vhost.limits.cleared",
        "queue.deleted",
        "user.deleted",
        *["exchange.deleted"] * 7,
        "vhost.deleted",
    ]
    told = dict(found[:-1])
    assert told["vhost.limits.set"]["max-queues"] == 9
    assert told["policy.set"]["definition"] == {"max-length": 3}
    assert told["permission.created"]["write"] == "a"
    assert "secret" not in repr(found)


@pytest.mark.parametrize("watcher", ["user.authentication.*"], indirect=True)
def test_a_refused_login_is_told_without_its_password(node: Node, watcher: Watcher):
    credentials = pika.PlainCredentials("nobody", "tea-time")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(node.parameters(credentials=credentials))
    found = watcher.until("user.authentication.failure", name="nobody")
    assert "tea-time" not in repr(found)
    assert found[-1][1]["error"]
    assert found[-1][1]["connection_type"] == "network"


@pytest.mark.parametrize("watcher", ["user.authentication.*"], indirect=True)
def test_logins_over_http_are_told_once_a_connection(node: Node, watcher: Watcher):
    connection = http.client.HTTPConnection("127.0.0.1", node.management_port, timeout=15)
    for user in ("guest", "guest", "nobody"):
        token = base64.b64encode(f"{user}:guest".encode()).decode()
        connection.request("GET", "/api/whoami", headers={"Authorization": f"Basic {token}"})
        connection.getresponse().read()
    connection.close()
    found = watcher.until("user.authentication.failure", name="nobody", connection_type="http")
    told = [(key, headers["name"]) for key, headers in found if headers["protocol"] == "http"]
    assert told == [
        ("user.authentication.success", "guest"),
        ("user.authentication.failure", "nobody"),
    ]
    assert found[-1][1]["peer_host"] == "127.0.0.1"


def test_ctl_prints_events_as_lines_of_json_while_nothing_is_bound(
    node: Node, capsys: pytest.CaptureFixture[str]
):
    url = {"WARRENMQ_URL": f"http://127.0.0.1:{node.management_port}"}
    first = node.api("GET", "/node/events")
    assert first["events"] == []
    words = ("consume_event_stream", "--duration", "1.5", "--pattern", r"^queue\.", "-q")
    codes: list[int] = []
    reader = threading.Thread(target=lambda: codes.append(ctl.run(words, url)))
    reader.start()
    name = "events\n\u2028line"
    while reader.is_alive():
        with node.connect() as connection:
            channel = connection.channel()
            channel.queue_declare(name.replace("\n", ""), exclusive=True)
            channel.basic_consume(name.replace("\n", ""), lambda *_: None)
        reader.join(0.1)
    assert codes == [0]
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["event"] for each in found} == {"queue.created", "queue.deleted"}
    created = next(each for each in found if each["event"] == "queue.created")
    assert created["name"] == "events\u2028line"
    assert created["user_who_performed_action"] == "guest"
    assert created["timestamp_in_ms"]
    part = node.api("GET", f"/node/events?since={first['next']}")
    keys = {key for key, _ in part["events"]}
    assert {"connection.created", "channel.created", "consumer.created"} <= keys
    assert part["missed"] == 0
    assert ctl.run(("consume_event_stream", "--pattern", "("), url) == 64
