"""Debian's Prometheus at three nodes under load: each query of our boards and rules answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.nodes import Trio, free_ports, wait_until
from tests.wire import boards

DEPLOY = Path(__file__).parents[2] / "deploy"
PUBLISHED = 4_000
QUORUM_QUEUES = 3
"""Two of `load`, one of `boards.load`."""

pytestmark = pytest.mark.long

EMPTY_WHILE_ALL_IS_WELL = {
    "rate(warrenmq_commit_wait_seconds_total[1m])",
    "rate(warrenmq_raft_commit_seconds_total[1m])",
}


class Scraped(NamedTuple):
    """A cluster and the Prometheus that scrapes it."""

    trio: Trio
    port: int

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.loads(answer.read())
        assert found["status"] == "success", found
        return found["data"]

    def value(self, query: str) -> float:
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else -1


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs prometheus (Debian's package of that name)")
    directory = tmp_path_factory.mktemp("prometheus")
    trio = Trio(directory)
    *ports, own = free_ports(4)
    for node, port in zip(trio.nodes, ports, strict=True):
        node.settings += ["prometheus.tcp.ip=127.0.0.1", f"prometheus.tcp.port={port}"]
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f'rule_files: ["{DEPLOY / "rules.yml"}"]\n'
        f"scrape_configs: [{{job_name: warrenmq, static_configs: [{{targets: [{targets}]}}]}}]\n"
    )
    command = [
        program,
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    process = None
    try:
        trio.start()
        with (directory / "log.txt").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        found = Scraped(trio, own)
        wait_until(lambda: _is_up(found), "Prometheus has seen three nodes", 30)
        yield found
    finally:
        if process is not None:
            process.kill()
            process.wait()
        trio.end()


def _is_up(scraped: Scraped) -> bool:
    try:
        return scraped.value('sum(up{job="warrenmq"})') == 3
    except OSError:
        return False


def load(scraped: Scraped) -> None:
    """Publish and consume at every node; each publishes as many."""
    for number, node in enumerate(scraped.trio.nodes):
        with node.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            arguments = {"x-queue-type": "quorum"} if number else {}
            channel.queue_declare(f"load{number}", durable=True, arguments=arguments)
            for _ in range(PUBLISHED // 4):
                channel.basic_publish("", f"load{number}", bytes(100))
            for _ in range(PUBLISHED // 8):
                channel.basic_get(f"load{number}", auto_ack=True)


def test_every_query_of_boards_and_rules_answers_with_what_was_counted(scraped: Scraped):
    load(scraped)
    published = 3 * (PUBLISHED // 4)
    left = published - 3 * (PUBLISHED // 8)
    wait_until(
        lambda: (
            scraped.value("sum(rabbitmq_global_messages_received_total)") == published
            and scraped.value("sum(rabbitmq_queue_messages_ready)") == left
        ),
        "Prometheus has what was published and what is left",
        20,
    )
    assert scraped.value("sum(rabbitmq_global_messages_confirmed_total)") == published
    assert scraped.value("sum(rabbitmq_queue_messages_published_total)") == published
    # The load came within the last minute, so its increase is what was published, but for edges.
    grown = scraped.value("sum(increase(rabbitmq_global_messages_received_total[2m]))")
    assert grown > 0

    own = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
    assert len(own) == 3
    for board in own:
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel["targets"]:
                found = scraped.ask("query", query=target["expr"])["result"]
                is_mean = any(each in target["expr"] for each in EMPTY_WHILE_ALL_IS_WELL)
                assert found or is_mean, (board.name, panel["title"], target["expr"])

    with scraped.trio.nodes[0].connect() as connection:
        boards.load(connection)
        wait_until(lambda: scraped.value("sum(rabbitmq_global_publishers)") == 1, "a scrape", 20)
        cluster = scraped.ask("query", query="rabbitmq_identity_info")["result"][0]["metric"]
        for endpoint in ("", "aggregated"):
            for query in boards.queries(cluster["rabbitmq_cluster"], endpoint):
                assert scraped.ask("query", query=query)["result"], query

    node = scraped.trio.nodes[0]
    node.api("PUT", "/policies/%2F/ha", {"pattern": "^ha$", "definition": {"ha-mode": "all"}})
    with node.connect() as connection:
        connection.channel().queue_declare("ha", durable=True)
    known = {
        'sum(warrenmq_rings{role="master"})': 1,
        'sum(warrenmq_rings{role="mirror"})': 2,
        "sum(warrenmq_ring_unsynchronised_mirrors)": 0,
        "sum(warrenmq_ring_in_flight_bytes)": 0,
        'sum(warrenmq_raft_replicas{role="leader"})': QUORUM_QUEUES,
        'sum(warrenmq_raft_replicas{role="follower"})': 2 * QUORUM_QUEUES,
        "sum(warrenmq_raft_leaderless_replicas)": 0,
        "sum(warrenmq_metadata_is_leader)": 1,
    }
    for query, value in known.items():
        wait_until(lambda q=query, v=value: scraped.value(q) == v, f"{query} is {value}", 20)

    assert scraped.value("sum(warrenmq_raft_elections_total)") >= QUORUM_QUEUES

    def evaluated() -> bool:
        groups = scraped.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) == 15
        return all(rule["health"] == "ok" for rule in rules)

    wait_until(evaluated, "all rules are evaluated without an error", 20)
    groups = scraped.ask("rules")["groups"]
    firing = [
        rule["name"] for group in groups for rule in group["rules"] if rule["state"] == "firing"
    ]
    assert firing == []
