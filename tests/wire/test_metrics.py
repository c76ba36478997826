"""The port of metrics of a real node, read by Prometheus' own parser."""

from __future__ import annotations

import contextlib
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.amqp import spec
from tests.nodes import Node, free_ports, wait_until
from tests.wire import boards
from tests.wire.pulse import Pulse
from tests.wire.raw import BODY, Raw, content_header, frame, publish

FAMILIES = Path(__file__).parents[1] / "golden" / "metrics" / "rabbitmq_families.txt"
LONGEST = 2
SCRAPE_S = 0.1


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, int]]:
    """A node with its port of metrics."""
    (port,) = free_ports(1)
    settings = ["prometheus.tcp.ip=127.0.0.1", f"prometheus.tcp.port={port}"]
    settings += [f"prometheus.warrenmq_queues_max={LONGEST}"]
    node = Node("metrics", tmp_path_factory.mktemp("metrics"), settings)
    try:
        node.start()
        yield node, port
    finally:
        node.end()


def scraped(port: int, path: str = "/metrics") -> dict[tuple[str, ...], float]:
    """Each sample by its name and labels' values."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        families = list(text_string_to_metric_families(answer.read().decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    return {
        (each.name, *each.labels.values()): each.value
        for family in families
        for each in family.samples
    }


def test_rabbitmqs_boards_find_what_they_ask_for(own: tuple[Node, int]):
    node, port = own
    node.connect().close()
    with node.connect() as connection:
        boards.load(connection)
        found = scraped(port)
    values = {
        name: [value for key, value in found.items() if key[0] == name] for name in boards.NAMES
    }
    assert [name for name, some in values.items() if not some] == []
    zero = {name for name, some in values.items() if not any(some)}
    assert zero - set(boards.ZERO_BY_NATURE) == set()


WITHOUT_MEANING = {
    "rabbitmq_erlang_gc_reclaimed_bytes_total",
    "rabbitmq_erlang_gc_runs_total",
    "rabbitmq_erlang_net_ticktime_seconds",
    "rabbitmq_erlang_processes_limit",
    "rabbitmq_erlang_processes_used",
    "rabbitmq_erlang_scheduler_context_switches_total",
    "rabbitmq_erlang_scheduler_run_queue",
    "rabbitmq_channel_process_reductions_total",
    "rabbitmq_connection_process_reductions_total",
    "rabbitmq_queue_process_reductions_total",
    "rabbitmq_io_reopen_ops_total",
    "rabbitmq_io_seek_ops_total",
    "rabbitmq_io_seek_time_seconds_total",
    "rabbitmq_msg_store_read_total",
    "rabbitmq_msg_store_write_total",
    "rabbitmq_queue_index_read_ops_total",
    "rabbitmq_queue_index_write_ops_total",
    "rabbitmq_schema_db_disk_tx_total",
    "rabbitmq_schema_db_ram_tx_total",
}
NOT_COUNTED = {
    "rabbitmq_io_read_bytes_total",
    "rabbitmq_io_read_ops_total",
    "rabbitmq_io_read_time_seconds_total",
    "rabbitmq_queue_disk_reads_total",
    "rabbitmq_queue_disk_writes_total",
}

LATER = {"rabbitmq_stream_segments"}
"""Of 3.13."""


def test_names_and_types_are_those_of_a_real_rabbitmq(own: tuple[Node, int]):
    """All families of 3.10.8's `/metrics`, but for those that docs/metrics.md lists as left out."""
    with urllib.request.urlopen(f"http://127.0.0.1:{own[1]}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    ours = dict(line.split()[2:] for line in lines if line.startswith("# TYPE rabbitmq_"))
    theirs = dict(line.split() for line in FAMILIES.read_text().splitlines()[1:])
    assert theirs.keys() - ours.keys() == WITHOUT_MEANING | NOT_COUNTED
    assert {name: ours[name] for name in theirs if name in ours}.items() <= theirs.items()
    assert ours.keys() - theirs.keys() == LATER


def test_dead_letters_are_counted_by_type_strategy_and_reason(own: tuple[Node, int]):
    node, port = own
    kinds = ("classic", "quorum")
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        held = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        for kind in kinds:
            base = {"x-queue-type": kind}
            channel.queue_declare(
                f"{kind}-gone", durable=True, arguments=base | {"x-max-length": 1}
            )
            channel.queue_declare(f"{kind}-dlx", durable=True, arguments=base | to_dead)
        arguments = {"x-queue-type": "quorum", "x-message-ttl": 1, **to_dead, **held}
        channel.queue_declare("held", durable=True, arguments=arguments)
        for kind in kinds:
            for _ in range(3):
                channel.basic_publish("", f"{kind}-gone", b"1")
            for _ in range(2):
                channel.basic_publish("", f"{kind}-dlx", b"1")
                method = None
                while method is None:
                    method, _, _ = channel.basic_get(f"{kind}-dlx")
                channel.basic_reject(method.delivery_tag, requeue=False)
        channel.basic_publish("", "held", b"1")

    def counted(reason: str) -> dict[tuple[str, ...], float]:
        name = f"rabbitmq_global_messages_dead_lettered_{reason}_total"
        return {key[1:]: value for key, value in scraped(port).items() if key[0] == name and value}

    wait_until(lambda: counted("confirmed") != {}, "the held message has arrived")
    types = [f"rabbit_{kind}_queue" for kind in kinds]
    assert counted("confirmed") == {("rabbit_quorum_queue", "at_least_once"): 1}
    assert counted("expired") == {("rabbit_quorum_queue", "at_least_once"): 1}
    assert counted("maxlen") == {(each, "disabled"): 2 for each in types}
    assert counted("rejected") == {(each, "at_most_once"): 2 for each in types}


def test_the_values_are_what_a_client_has_counted(own: tuple[Node, int]):
    node, port = own
    before = scraped(port)
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("m", durable=True, arguments={"x-queue-type": "quorum"})
        for _ in range(20):
            channel.basic_publish("", "m", b"12345")
        for _ in range(5):
            method, _, _ = channel.basic_get("m")
        channel.basic_ack(method.delivery_tag, multiple=True)
        after = scraped(port)
        each = scraped(port, "/metrics/per-object")
    amqp = "amqp091"
    grown = {
        ("rabbitmq_global_messages_received_total", amqp): 20,
        ("rabbitmq_global_messages_confirmed_total", amqp): 20,
        ("rabbitmq_global_messages_routed_total", amqp): 20,
        ("rabbitmq_global_messages_delivered_get_manual_ack_total", amqp): 5,
        ("rabbitmq_global_messages_acknowledged_total", amqp): 5,
        ("rabbitmq_queue_messages_ready",): 15,
        ("rabbitmq_queues_created_total",): 1,
        ("rabbitmq_connections",): 1,
        ("rabbitmq_channels",): 1,
    }
    assert {key: after[key] - before[key] for key in grown} == grown
    assert each["rabbitmq_queue_messages_ready", "/", "m"] == 15
    assert each["rabbitmq_queue_messages_ready_bytes", "/", "m"] == 75
    assert each["rabbitmq_raft_log_commit_index", "/", "m"] > 0
    indexes = [value for key, value in each.items() if key[0] == "rabbitmq_raft_log_commit_index"]
    assert each["rabbitmq_raft_log_commit_index", "/", "m"] in indexes
    assert sum(indexes) >= after["rabbitmq_raft_log_commit_index",] >= min(indexes)


DETAILED = {
    "connection_churn_metrics": "connections_opened_total",
    "node_coarse_metrics": "process_open_fds",
    "node_metrics": "process_max_fds",
    "node_persister_metrics": "io_sync_ops_total",
    "auth_attempt_metrics": "auth_attempts_succeeded_total",
    "auth_attempt_detailed_metrics": "auth_attempts_detailed_succeeded_total",
    "ra_metrics": "raft_log_commit_index",
    "queue_coarse_metrics": "queue_messages_ready",
    "queue_consumer_count": "queue_consumers",
    "queue_metrics": "queue_messages_ram_bytes",
    "queue_delivery_metrics": "queue_messages_delivered_ack_total",
    "channel_queue_exchange_metrics": "queue_messages_published_total",
    "channel_metrics": "channel_messages_unacked",
    "channel_exchange_metrics": "channel_messages_published_total",
    "channel_queue_metrics": "channel_messages_delivered_ack_total",
    "connection_coarse_metrics": "connection_incoming_bytes_total",
    "connection_metrics": "connection_channels",
    "exchange_metrics": "exchange_messages_published_total",
    "queue_exchange_metrics": "queue_exchange_messages_published_total",
}
"""Groups of the documentation of 3.13 that mean something here, each with one of its names."""

OF_EVERY_PATH = {"rabbitmq_build_info", "rabbitmq_identity_info"}


def names_of(port: int, query: str) -> set[str]:
    return {key[0] for key in scraped(port, f"/metrics/detailed?{query}")} - OF_EVERY_PATH


def test_detailed_shows_the_groups_and_vhosts_that_are_asked_for(own: tuple[Node, int]):
    node, port = own
    node.api("PUT", "/vhosts/other", {})
    node.api("PUT", "/permissions/other/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    with node.connect() as here, node.connect(virtual_host="other") as there:
        channel = here.channel()
        for one, queue in ((channel, "here"), (there.channel(), "there")):
            one.queue_declare(queue, durable=True)
            one.queue_bind(queue, "amq.topic", "#")
            one.queue_bind(queue, "amq.headers", arguments={"a": 1})
            one.basic_publish("amq.topic", "a", b"1234")
            one.basic_get(queue)
            one.basic_publish("", queue, b"123")
        channel.queue_declare("raft", durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_publish("", "raft", b"1")
        channel.basic_consume("raft", lambda *_: None)
        here.process_data_events(0.1)

        channel.confirm_delivery()
        for _ in range(3):  # one that is looked into, so each is routed
            channel.basic_publish("amq.headers", "", b"1", pika.BasicProperties(headers={"a": 1}))
        pairs = scraped(port, "/metrics/detailed?family=queue_exchange_metrics&vhost=/")
        for group, name in DETAILED.items():
            assert f"rabbitmq_detailed_{name}" in names_of(port, f"family={group}"), group
        query = "family=queue_coarse_metrics&family=queue_metrics&family=queue_consumer_count"
        every = scraped(port, f"/metrics/detailed?{query}")
        only = scraped(port, f"/metrics/detailed?{query}&vhost=other&vhost=gone")
        cluster = scraped(
            port,
            "/metrics/detailed?family=vhost_status&family=exchange_names&family=exchange_bindings",
        )
        channels = scraped(port, "/metrics/detailed?family=channel_metrics")

    pair = "rabbitmq_detailed_queue_exchange_messages_published_total"
    counted = {key[1:]: value for key, value in pairs.items() if key[0] == pair}
    ours = {("/", "amq.topic", "here"): 1, ("/", "amq.headers", "here"): 3, ("/", "", "here"): 1}
    assert {key: counted[key] for key in ours} == ours
    assert {key[0] for key in counted} == {"/"}
    assert names_of(port, "") == set()
    assert names_of(port, "family=nonsense") == set()
    assert names_of(port, "family=queue_metrics&vhost=gone") == set()
    assert every["rabbitmq_detailed_queue_messages_ready", "/", "here"] == 4
    assert every["rabbitmq_detailed_queue_messages_unacked", "/", "here"] == 1
    assert every["rabbitmq_detailed_queue_messages_bytes", "other", "there"] == 7
    assert every["rabbitmq_detailed_queue_consumers", "/", "raft"] == 1
    assert {key[1] for key in only if key[0] not in OF_EVERY_PATH} == {"other"}
    assert cluster["rabbitmq_cluster_vhost_status", "other"] == 1
    assert cluster["rabbitmq_cluster_exchange_name", "/", "amq.topic", "topic"] == 1
    assert cluster["rabbitmq_cluster_exchange_bindings", "other", "amq.topic", "topic"] == 1
    unacked = [
        value for key, value in channels.items() if key[0].endswith("channel_messages_unacked")
    ]
    assert sorted(unacked) == [1, 2]


def test_what_channels_did_is_told_apart_by_exchange_and_queue(own: tuple[Node, int]):
    node, port = own
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("one")
        channel.queue_declare("two")
        channel.queue_bind("one", "amq.fanout")
        for exchange, key in (("amq.fanout", ""), ("", "one"), ("", "two"), ("", "two")):
            channel.basic_publish(exchange, key, b"1")
        for mandatory in (False, True, True):
            with contextlib.suppress(pika.exceptions.UnroutableError):
                channel.basic_publish("amq.direct", "nowhere", b"", mandatory=mandatory)
        channel.basic_get("one", auto_ack=True)
        channel.basic_get("two")
        groups = ("channel_exchange_metrics", "channel_queue_metrics", "exchange_metrics")
        query = "&".join(f"family={group}" for group in groups)
        found = scraped(port, f"/metrics/detailed?{query}")

    def of_channel(name: str) -> dict[tuple[str, ...], float]:
        """By the labels behind `channel`."""
        whole = f"rabbitmq_detailed_channel_{name}_total"
        return {key[2:]: value for key, value in found.items() if key[0] == whole}

    assert of_channel("messages_published") == {
        ("/", "amq.fanout"): 1,
        ("/", ""): 3,
        ("/", "amq.direct"): 3,
    }
    unroutable = dict.fromkeys(of_channel("messages_published"), 0)
    returned, dropped = "messages_unroutable_returned", "messages_unroutable_dropped"
    assert of_channel(returned) == unroutable | {("/", "amq.direct"): 2}
    assert of_channel(dropped) == unroutable | {("/", "amq.direct"): 1}
    assert of_channel("messages_confirmed") == {(): 7}
    assert of_channel("get") == {("/", "one"): 1, ("/", "two"): 0}
    assert of_channel("get_ack") == {("/", "one"): 0, ("/", "two"): 1}
    for name, count in (("returned", 2), ("dropped", 1)):
        whole = f"rabbitmq_detailed_exchange_messages_unroutable_{name}_total"
        assert found[whole, "/", "amq.direct"] == count


def test_queues_show_how_able_they_are_what_is_persistent_and_how_old_their_heads_are(
    own: tuple[Node, int],
):
    node, port = own
    stamps = {"old": 1_700_000_000, "new": 1_800_000_000}
    before = scraped(port)
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name, stamp in stamps.items():
            channel.queue_declare(name, durable=True)
            kept = pika.BasicProperties(delivery_mode=2, timestamp=stamp)
            channel.basic_publish("", name, b"1234", kept)
            channel.basic_publish("", name, b"12", pika.BasicProperties(delivery_mode=1))
        channel.queue_declare("unstamped", durable=True)
        channel.basic_publish("", "unstamped", b"1")
        channel.queue_declare("able")
        channel.basic_consume("able", lambda *_: None)
        after = scraped(port)
        objects = scraped(port, "/metrics/per-object")
        detailed = scraped(port, "/metrics/detailed?family=queue_metrics")

    for prefix, found in (("rabbitmq_", objects), ("rabbitmq_detailed_", detailed)):
        heads = {
            key[2]: value for key, value in found.items() if key[0].endswith("message_timestamp")
        }
        assert heads == stamps
        assert found[f"{prefix}queue_messages_persistent", "/", "old"] == 1
        assert found[f"{prefix}queue_messages_persistent_bytes", "/", "old"] == 4
        assert found[f"{prefix}queue_messages_persistent", "/", "unstamped"] == 0
        for name in ("capacity", "utilisation"):
            assert found[f"{prefix}queue_consumer_{name}", "/", "old"] == 0
            assert found[f"{prefix}queue_consumer_{name}", "/", "able"] == 1
    name = "rabbitmq_queue_messages_persistent"
    assert after[name,] - before[name,] == 2
    assert after["rabbitmq_queue_head_message_timestamp",] == stamps["old"]


def test_bytes_and_sums_do_not_fall_when_a_connection_ends(own: tuple[Node, int]):
    node, port = own
    with node.connect():
        before = scraped(port)
    after = scraped(port)
    for way in ("incoming", "outgoing"):
        for name in (f"rabbitmq_connection_{way}_{what}_total" for what in ("bytes", "packets")):
            assert after[name,] >= before[name,] > 0
    assert (
        after["rabbitmq_connections_closed_total",] > before["rabbitmq_connections_closed_total",]
    )


def test_the_longest_queues_have_samples_and_the_others_one(own: tuple[Node, int]):
    node, port = own
    with node.connect() as connection:
        channel = connection.channel()
        for number in range(5):
            channel.queue_declare(f"long{number}", durable=True)
            for _ in range(100 * (number + 1)):
                channel.basic_publish("", f"long{number}", b"1")
        channel.queue_declare("long0", passive=True)
        found = scraped(port)
        for number in range(5):
            channel.queue_delete(f"long{number}")
    name = "warrenmq_queue_messages_ready"
    ready = {key[1:]: value for key, value in found.items() if key[0] == name}
    assert len(ready) == LONGEST + 1
    assert (ready["/", "long4"], ready["/", "long3"]) == (500, 400)
    assert sum(ready.values()) == found["rabbitmq_queue_messages_ready",]


def test_what_only_this_broker_knows(own: tuple[Node, int]):
    node, port = own
    before = scraped(port)
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("known", durable=True, arguments={"x-queue-type": "quorum"})
        for _ in range(10):
            channel.basic_publish("", "known", b"1")
        found = scraped(port)
    grown = {
        name: found[name,] - before[name,]
        for name, *more in found
        if not more and (name,) in before
    }
    assert grown["warrenmq_raft_elections_total"] == 1
    assert grown["warrenmq_raft_commits_total"] >= 10
    assert grown["warrenmq_raft_commit_seconds_total"] >= 0
    assert grown["warrenmq_commit_sync_seconds_count"] > 0
    buckets = [
        value for key, value in found.items() if key[0] == "warrenmq_commit_sync_seconds_bucket"
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["warrenmq_commit_sync_seconds_count",]
    replicas = {key[1]: value for key, value in found.items() if key[0] == "warrenmq_raft_replicas"}
    assert replicas["leader"] == sum(replicas.values()) >= 1
    assert found["warrenmq_metadata_is_leader",] == 1
    assert {key[1] for key in found if key[0] == "warrenmq_flow"} == {
        "connection",
        "channel",
        "queue",
    }


def test_memory_is_divided_by_what_takes_it(own: tuple[Node, int]):
    node, port = own
    path = "/metrics/memory-breakdown"
    before = scraped(port, path)
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("heavy")
        for _ in range(10):
            channel.basic_publish("", "heavy", bytes(1_000_000))
        found, resident = scraped(port, path), scraped(port)
    binary = ("rabbitmq_memory_binary_heap_bytes",)
    assert found[binary] - before[binary] == 10_000_000
    parts = {key[0]: value for key, value in found.items() if key[0] not in OF_EVERY_PATH}
    assert min(parts.values()) >= 0
    whole = resident["rabbitmq_process_resident_memory_bytes",]
    assert sum(parts.values()) == pytest.approx(whole, rel=0.1)


def test_what_is_not_there_is_404(own: tuple[Node, int]):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        scraped(own[1], "/api/overview")


def test_a_client_notices_nothing_of_ten_scrapers(own: tuple[Node, int]):
    """They ask for each of 1,000 queues every 100 ms, in whatever way, while it publishes."""
    node, port = own
    assert node.process is not None
    paths = [
        "/metrics",
        "/metrics/per-object",
        "/metrics/detailed?family=queue_metrics&family=queue_coarse_metrics&family=channel_metrics",
    ]
    is_over = threading.Event()

    def scrape(number: int) -> int:
        count = 0
        while not is_over.wait(SCRAPE_S):
            url = f"http://127.0.0.1:{port}{paths[number % len(paths)]}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                size = int(answer.headers["Content-Length"])
                assert len(answer.read()) == size > 1_000
            count += 1
        return count

    with Raw(node.amqp_port) as raw, ThreadPoolExecutor(10) as pool:
        raw.to_channel()
        for number in range(1_000):
            raw.call(1, spec.QueueDeclare(f"many{number}"), spec.QueueDeclareOk)
        raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        content = content_header(1, 3) + frame(BODY, 1, b"abc")
        scrapers = [pool.submit(scrape, number) for number in range(10)]
        try:
            with Pulse(node.amqp_port, node.process.pid) as pulse:
                for number in range(2_000):
                    raw.send(publish(1, f"many{number % 1_000}") + content)
                    is_over.wait(0.001)
                confirmed = 0
                while confirmed < 2_000:
                    confirmed = max(confirmed, raw.expect(spec.BasicAck).delivery_tag)
        finally:
            is_over.set()
        scraped_counts = [each.result() for each in scrapers]
        for number in range(1_000):
            raw.call(1, spec.QueueDelete(f"many{number}"), spec.QueueDeleteOk)
    assert min(scraped_counts) > 0
    assert pulse.stall_s() < 0.025  # two of the steps of 10 ms in which processor time is told
