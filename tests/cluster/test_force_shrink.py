"""One whole replica of three goes on alone, by command, on running nodes (docs/operations.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from broker.cli.ctl.commands import run
from tests.nodes import Node, Trio, wait_until

Said = pytest.CaptureFixture[str]
COMMAND = "force_shrink_member_to_current_member"
SETTINGS = (
    "quorum_queue.continuous_membership_reconciliation.enabled=false",  # replicas come by command
    "log.audit.file=audit.log",
)
COUNT = 60
BODIES = [b"%d" % number for number in range(COUNT)]
STREAM_READ = {"x-stream-offset": "first"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Trio]:
    trio = Trio(tmp_path, settings=SETTINGS)
    for node in trio.nodes:
        node.settings = [*node.settings, f"log.dir={node.directory}"]
    try:
        trio.start()
        yield trio
    finally:
        trio.end()


def ctl(node: Node, said: Said, *words: str) -> tuple[int, str]:
    code = run(["--url", f"http://127.0.0.1:{node.management_port}", "-q", *words], {})
    return code, "".join(said.readouterr())


def publish(node: Node, name: str, bodies: list[bytes]) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", name, body, mandatory=True)


def declare(node: Node, name: str, kind: str) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    publish(node, name, BODIES)


def read(node: Node, name: str, kind: str, count: int) -> list[bytes]:
    """What a queue has, in order; it has all of it afterwards, too."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=count)
        given = STREAM_READ if kind == "stream" else None
        found: list[bytes] = []
        for method, _, body in channel.consume(name, arguments=given, inactivity_timeout=20):
            assert method is not None, f"nothing comes after {found[-1:]}"
            found.append(body)
            if len(found) == count:
                break
        return found


def shown(node: Node, name: str) -> dict[str, object]:
    found: dict[str, object] = node.api("GET", f"/queues/%2F/{name}?disable_stats=true")
    return found


def everybody_has_all(trio: Trio, name: str, kind: str) -> bool:
    """Whether each member's log ends where the others' do."""
    place = "queues/quorum" if kind == "quorum" else "streams"
    rows = trio.nodes[0].api("GET", f"/{place}/%2F/{name}/status")
    key = "Last Log Index" if kind == "quorum" else "committed_offset"
    return len(rows) == 3 and len({row[key] for row in rows}) == 1 and rows[0][key] is not None


def votes_given(trio: Trio) -> int:
    """How many replicas that were added have a vote by now."""
    return sum(node.full_log().count("queue.promoted") for node in trio.nodes)


def damage(node: Node) -> None:
    """Flip a bit in the first half of each log that a queue has on a stopped node."""
    folders = [each for each in (node.directory / "data" / "log").iterdir() if each.name.isdigit()]
    paths = [path for folder in folders for path in sorted(folder.glob("*.segment"))]
    assert paths
    for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data.rstrip(b"\0")) // 3] ^= 1
        path.write_bytes(data)


def audited(node: Node) -> list[dict[str, object]]:
    lines = (node.directory / "audit.log").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["operation"] == "queue.force_shrink"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_whole_replica_goes_on_alone_where_the_logs_of_the_others_are_damaged(
    cluster: Trio, capsys: Said, kind: str
) -> None:
    left, *others = cluster.nodes
    declare(left, "q", kind)
    wait_until(lambda: everybody_has_all(cluster, "q", kind), "all replicas have all")
    assert ctl(left, capsys, COMMAND, "q")[0] == 65, "it has a leader"
    for node in others:
        node.stop()
        damage(node)
    for node in others:
        node.start(wait=False)
    names = sorted(node.user_name for node in others)
    wait_until(lambda: sorted(shown(left, "q").get("damaged_members", [])) == names, "damage")
    advice = f"run it on {left.user_name}"
    asked = partial(ctl, others[0], capsys, COMMAND, "q", "--force")
    wait_until(lambda: advice in asked()[1], "a damaged member has heard of the other")
    code, text = asked()
    assert code == 65
    assert f"the log of its replica on {others[0].user_name} is damaged" in text

    said: list[tuple[int, str]] = []

    def has_no_leader() -> bool:
        said.append(ctl(left, capsys, COMMAND, "q"))
        return "it has a leader" not in said[-1][1]

    wait_until(has_no_leader, "the leader has missed the others")
    code, text = said[-1]
    assert code == 0, text
    assert f"{left.user_name} goes on alone" in text
    assert "may be lost" in text
    assert shown(left, "q")["members"] == [left.user_name]
    outcomes = dict.fromkeys((each["outcome"], each["user"]) for each in audited(left))
    assert [*outcomes] == [("refused", "guest"), ("done", "guest")]
    others[0].wait_ready()  # it was started without waiting
    assert read(others[0], "q", kind, COUNT) == BODIES
    publish(others[1], "q", [b"more"])

    add = "add_member" if kind == "quorum" else "add_replica"
    for node in others:
        assert ctl(left, capsys, add, "q", node.user_name)[0] == 0
    wait_until(lambda: votes_given(cluster) == 2, "votes")
    wait_until(lambda: everybody_has_all(cluster, "q", kind), "all replicas have all again")
    left.stop()
    assert read(others[0], "q", kind, COUNT + 1) == [*BODIES, b"more"]


@pytest.mark.long
def test_nodes_that_are_down_are_given_up_by_force_only(cluster: Trio, capsys: Said) -> None:
    """Two of three nodes are there, as the cluster needs them: one of them with a damaged log."""
    left, damaged, down = cluster.nodes
    declare(left, "q", "quorum")
    wait_until(lambda: everybody_has_all(cluster, "q", "quorum"), "all replicas have all")
    damaged.stop()
    damage(damaged)
    down.kill()  # first: with it a majority would take the damaged replica out and let it in again
    damaged.start()
    wait_until(lambda: shown(left, "q").get("damaged_members") == [damaged.user_name], "damage")
    wait_until(lambda: ctl(left, capsys, COMMAND, "q")[1].count("is not reached") == 1, "down")
    code, text = ctl(left, capsys, COMMAND, "q")
    assert code == 65
    assert f"node {down.user_name} is not reached" in text
    assert f"forget_cluster_node {down.user_name}" in text
    assert "--force" in text
    assert ctl(left, capsys, COMMAND, "q", "--force")[0] == 0
    assert read(damaged, "q", "quorum", COUNT) == BODIES
    down.start()
    assert ctl(left, capsys, "add_member", "q", down.user_name)[0] == 0
    assert ctl(left, capsys, "add_member", "q", damaged.user_name)[0] == 0
    wait_until(lambda: votes_given(cluster) == 2, "votes")
    wait_until(lambda: everybody_has_all(cluster, "q", "quorum"), "all replicas have all again")
    assert [each["outcome"] for each in audited(left)][-1] == "done"
