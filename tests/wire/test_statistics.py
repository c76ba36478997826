"""Counters and rates of a real node over HTTP, beside what a real client has counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.nodes import Node, wait_until
from tests.wire.test_management import status

ROUND = 50


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose rates are those of a fifth of a second."""
    directory: Path = tmp_path_factory.mktemp("statistics")
    node = Node("statistics", directory, ["collect_statistics_interval=200"])
    try:
        node.start()
        yield node
    finally:
        node.end()


def test_what_a_client_does_is_counted_everywhere_with_its_rate(own: Node):
    with own.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("counted", durable=True)
        channel.queue_bind("counted", "amq.direct", "key")
        sent = 0
        rates: list[float] = []

        def publish() -> bool:
            """Until the overview shows a rate: while it is published, not after."""
            nonlocal sent
            for _ in range(ROUND):
                channel.basic_publish("amq.direct", "key", b"x")
            sent += ROUND
            stats = own.api("GET", "/overview")["message_stats"]
            rates.append(stats.get("publish_details", {"rate": 0})["rate"])
            return rates[-1] > 0

        wait_until(publish, "a rate of publishes")
        for _ in range(ROUND):
            method, _, _ = channel.basic_get("counted")
            channel.basic_ack(method.delivery_tag)
        channel.basic_publish("", "nowhere", b"x")

        def shown() -> list[dict[str, Any]]:
            channels = own.api("GET", "/channels")
            places = [own.api("GET", "/overview"), own.api("GET", "/vhosts/%2F"), channels[0]]
            return [each["message_stats"] for each in places]

        for stats in shown():
            found = {key: stats[key] for key in ("publish", "confirm", "get", "ack", "deliver_get")}
            assert found == {
                "publish": sent + 1,
                "confirm": sent + 1,
                "get": ROUND,
                "ack": ROUND,
                "deliver_get": ROUND,
            }
            assert stats["drop_unroutable"] == 1
        queue = own.api("GET", "/queues/%2F/counted")
        assert {*queue["backing_queue_status"]} >= {"avg_ingress_rate", "avg_ack_egress_rate"}
        found = {key: queue["message_stats"][key] for key in ("publish", "get", "ack")}
        assert found == {"publish": sent, "get": ROUND, "ack": ROUND}
        exchange = own.api("GET", "/exchanges/%2F/amq.direct")["message_stats"]
        assert (exchange["publish_in"], exchange["publish_out"]) == (sent, sent)
        by_rate = own.api(
            "GET", "/queues?sort=message_stats.publish_details.rate&sort_reverse=true"
        )
        assert by_rate[0]["name"] == "counted"
        bytes_in = own.api("GET", "/connections")[0]
        assert bytes_in["recv_oct"] > sent
        assert {"recv_oct_details", "send_oct_details"} <= {*bytes_in}
        of_vhost = own.api("GET", "/vhosts/%2F")
        assert of_vhost["recv_oct"] >= bytes_in["recv_oct"]

    def is_over() -> bool:  # of bytes, too: the connection's end came after the last message
        published = own.api("GET", "/overview")["message_stats"]["publish_details"]["rate"]
        return bool(published == own.api("GET", "/vhosts/%2F")["recv_oct_details"]["rate"] == 0)

    wait_until(is_over, "the rates' end when nobody publishes")
    idle = own.api("GET", "/queues/%2F/counted")["idle_since"]
    assert datetime.fromisoformat(idle) < datetime.now(UTC)
    without = own.api("GET", "/vhosts/%2F")
    assert without["recv_oct"] > of_vhost["recv_oct"]  # what came after that, and it has gone
    assert without["send_oct"] > 0
    overview = own.api("GET", "/overview")
    assert overview["message_stats"]["publish"] == sent + 1
    assert overview["churn_rates"]["queue_created"] == 1
    assert overview["churn_rates"]["connection_closed"] == overview["churn_rates"]["channel_closed"]


def _begun(own: Node, path: str, *keys: str) -> list[dict[str, Any]]:
    """The `*_details` that a path below the API shows."""
    found = own.api("GET", path)
    found = found[0] if isinstance(found, list) else found
    stats = {**found.get("message_stats", {}), **found.get("queue_totals", {}), **found}
    return [stats[f"{key}_details"] for key in keys]


def test_listings_show_the_past_that_a_query_asks_for(own: Node):
    ages = "&".join(
        f"{kind}_age=60&{kind}_incr=1"
        for kind in ("lengths", "msg_rates", "data_rates", "node_stats")
    )
    with own.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("past", durable=True)

        def is_known() -> bool:
            channel.basic_publish("amq.direct", "none", b"x")
            channel.basic_publish("", "past", b"x")
            shown = [
                details
                for path, keys in (
                    ("/overview", ("publish", "confirm", "messages", "messages_ready")),
                    ("/vhosts/%2F", ("publish", "messages")),
                    ("/queues/%2F/past", ("publish", "messages", "deliver_get")),
                    ("/queues?name=past&page=1&page_size=5&sort=name", ()),
                    ("/channels", ("publish", "confirm")),
                    ("/connections", ("recv_oct", "send_oct")),
                    ("/exchanges/%2F/amq.direct", ("publish_in",)),
                    ("/nodes", ("mem_used", "fd_used", "sockets_used", "disk_free")),
                )
                for details in _begun(own, path + ("&" if "?" in path else "?") + ages, *keys)
            ]
            samples = [[each["sample"] for each in details["samples"]] for details in shown]
            return all(len(each) >= 3 for each in samples)

        wait_until(is_known, "three seconds of the past everywhere")
        (details,) = _begun(own, f"/queues/%2F/past?{ages}", "messages_ready")
        times = [each["timestamp"] for each in details["samples"]]
        assert {before - after for before, after in pairwise(times)} == {1_000}
        values = [each["sample"] for each in details["samples"]]
        assert values == sorted(values, reverse=True)
        assert details["avg"] == pytest.approx(sum(values) / len(values))
        passed_s = (times[0] - times[-1]) / 1_000
        assert details["avg_rate"] == pytest.approx((values[0] - values[-1]) / passed_s)
    assert "samples" not in own.api("GET", "/queues/%2F/past")["messages_details"]
    assert status(own, "GET", "/overview?lengths_age=x&lengths_incr=1") == 400


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_shows_what_is_persistent_how_old_its_head_is_and_how_able_it_is(
    own: Node, kind: str
):
    name, stamp = f"told.{kind}", 1_700_000_000
    path = f"/queues/%2F/{name}"
    with own.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        arguments = {"x-queue-type": kind}
        if kind == "quorum":
            arguments["x-delivery-limit"] = 7
        channel.queue_declare(name, durable=True, arguments=arguments)
        for number in range(4):
            lasting = pika.BasicProperties(delivery_mode=1 + number % 2, timestamp=stamp + number)
            channel.basic_publish("", name, b"12345", lasting)
        found = own.api("GET", path)
        assert found["head_message_timestamp"] == stamp
        assert (found["consumer_capacity"], found["consumer_utilisation"]) == (0, 0)
        all_last = kind == "quorum"
        assert found["messages_persistent"] == (4 if all_last else 2)
        assert found["message_bytes_persistent"] == (20 if all_last else 10)
        if kind == "quorum":
            assert (found["delivery_limit"], found["messages_dlx"]) == (7, 0)
            assert (found["messages_ram"], found["message_bytes_ram"]) == (4, 20)
            assert found["open_files"] == {own.user_name: 0}
        channel.basic_qos(prefetch_count=1)
        got: list[int] = []
        channel.basic_consume(name, lambda _c, method, _p, _b: got.append(method.delivery_tag))

        def capacity() -> float:
            connection.process_data_events(0)
            found = own.api("GET", path)
            assert found["consumer_capacity"] == found["consumer_utilisation"]
            return found["consumer_capacity"]

        wait_until(lambda: capacity() < 0.1, "the messages have waited for most of the time")
        for _ in range(4):
            wait_until(lambda: capacity() >= 0 and bool(got), "the next one")
            channel.basic_ack(got.pop())
        wait_until(lambda: capacity() > 0.9, "no message has waited for most of the time")
        found = own.api("GET", path)
        assert found["messages_persistent"] == found["message_bytes_persistent"] == 0
        assert found["head_message_timestamp"] is None
        channel.queue_delete(name)


def test_views_of_one_object_show_what_went_between_it_and_others(own: Node):
    with own.connect() as connection, own.connect() as other:
        out, back = connection.channel(), other.channel()
        out.confirm_delivery()
        for name in ("flow.a", "flow.b"):
            out.queue_declare(name)
            out.queue_bind(name, "amq.fanout")
        sent = 0

        def rate(path: str, key: str, number: str) -> float:
            nonlocal sent
            out.basic_publish("amq.fanout", "", b"x")
            out.basic_publish("", "flow.a", b"x")
            sent += 1
            found = own.api("GET", path)[key]
            rates = [each["stats"][f"{number}_details"]["rate"] for each in found]
            return min(rates, default=0.0)

        tags: list[int] = []
        back.basic_consume("flow.a", lambda _c, method, _p, _b: tags.append(method.delivery_tag))
        wait_until(lambda: rate("/queues/%2F/flow.b", "incoming", "publish") > 0, "a rate")
        wait_until(lambda: rate("/exchanges/%2F/amq.fanout", "incoming", "publish") > 0, "a rate")
        wait_until(
            lambda: (
                other.process_data_events(0)
                or rate("/queues/%2F/flow.a", "deliveries", "deliver") > 0
            ),
            "a rate",
        )
        wait_until(lambda: other.process_data_events(0) or len(tags) == 2 * sent, "all have come")
        back.basic_ack(0, multiple=True)
        get, _, _ = back.basic_get("flow.b", auto_ack=True)
        assert get is not None

        def published(found: list[dict[str, Any]], key: str, name: str) -> dict[str, int]:
            return {each[key][name]: each["stats"]["publish"] for each in found}

        of_queue = own.api("GET", "/queues/%2F/flow.a")
        assert published(of_queue["incoming"], "exchange", "name") == {"": sent, "amq.fanout": sent}
        (taken,) = of_queue["deliveries"]
        names = {each["number"]: each["name"] for each in own.api("GET", "/channels")}
        channel = taken["channel_details"]["name"]
        assert channel in names.values()
        wait_until(
            lambda: (
                own.api("GET", "/queues/%2F/flow.a")["deliveries"][0]["stats"]["ack"] == 2 * sent
            ),
            "the acknowledgements have arrived",
        )
        assert taken["stats"]["deliver"] == taken["stats"]["deliver_get"] == 2 * sent
        of_exchange = own.api("GET", "/exchanges/%2F/amq.fanout")
        assert published(of_exchange["outgoing"], "queue", "name") == {
            "flow.a": sent,
            "flow.b": sent,
        }
        (came,) = of_exchange["incoming"]
        assert came["stats"]["publish"] == sent
        of_publisher = own.api("GET", "/channels/" + quote(came["channel_details"]["name"]))
        found = published(of_publisher["publishes"], "exchange", "name")
        assert found == {"": sent, "amq.fanout": sent}
        assert of_publisher["deliveries"] == []
        of_consumer = own.api("GET", "/channels/" + quote(channel))
        assert of_consumer["publishes"] == []
        took = {each["queue"]["name"]: each["stats"] for each in of_consumer["deliveries"]}
        assert (took["flow.a"]["deliver"], took["flow.b"]["get_no_ack"]) == (2 * sent, 1)
        out.queue_delete("flow.b")
        (left,) = own.api("GET", "/exchanges/%2F/amq.fanout")["outgoing"]
        assert left["queue"] == {"name": "flow.a", "vhost": "/"}
        out.queue_delete("flow.a")


def test_a_queue_with_priorities_shows_how_many_wait_in_each(own: Node):
    with own.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("urgent", arguments={"x-max-priority": 3})
        for priority in (0, 2, 2, 9):
            channel.basic_publish("", "urgent", b"x", pika.BasicProperties(priority=priority))
        status = own.api("GET", "/queues/%2F/urgent")["backing_queue_status"]
        assert status["priority_lengths"] == {"0": 1, "1": 0, "2": 2, "3": 1}
        channel.queue_delete("urgent")
