"""Commands on mirrored queues: requests, and lines and exit codes of RabbitMQ 3.10.8's tools."""

from __future__ import annotations

import json

import pytest

from broker.cli.ctl import change, mirroring
from broker.cli.ctl.commands import run
from tests.unit.cli.fake_api import FakeApi

QUEUE = {
    "name": "q",
    "vhost": "/",
    "node": "rabbit@node1",
    "leader": "rabbit@node1",
    "incarnation": 17,
    "slave_nodes": ["rabbit@node2", "rabbit@node3"],
    "synchronised_slave_nodes": ["rabbit@node3"],
    "recoverable_slaves": ["rabbit@node2", "rabbit@node3"],
    "state": "running",
}
PLAIN = {"name": "p", "vhost": "/", "node": "rabbit@node1", "incarnation": 4, "state": "down"}
PATH = "/api/queues/%2F/q"
CRITICAL = "/api/health/checks/node-is-mirror-sync-critical"
REBALANCE = "/api/rebalance/queues"
REFUSED = (400, {"error": "bad_request", "reason": "not_mirrored"})


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(change, "POLL_S", 0.01)
    monkeypatch.setattr(mirroring, "_SEEN_S", 0.2)
    fake = FakeApi()
    fake.answers["GET", "/api/overview"] = (200, {"node": "rabbit@node1"})
    yield fake
    fake.close()


def ctl(api: FakeApi, *words: str) -> int:
    return run(["--url", api.url, *words], {})


def test_where_the_copies_are(api: FakeApi, capsys):
    api.answers["GET", "/api/queues/%2F"] = (200, [QUEUE, PLAIN])
    columns = ("name", "pid", "slave_pids", "synchronised_slave_pids", "state")
    assert ctl(api, "list_queues", "-q", *columns) == 0
    assert capsys.readouterr().out == (
        "name\tpid\tslave_pids\tsynchronised_slave_pids\tstate\n"
        "q\t<rabbit@node1.1.17.0>\t[<rabbit@node2.1.17.0>, <rabbit@node3.1.17.0>]\t"
        "[<rabbit@node3.1.17.0>]\trunning\n"
        "p\t<rabbit@node1.1.4.0>\t\t\tdown\n"
    )
    ctl(api, "list_queues", "-s", "mirror_pids", "synchronised_mirror_pids", "recoverable_slaves")
    assert capsys.readouterr().out.splitlines()[0] == (
        "[<rabbit@node2.1.17.0>, <rabbit@node3.1.17.0>]\t[<rabbit@node3.1.17.0>]\t"
        "[rabbit@node2, rabbit@node3]"
    )


def test_a_synchronisation_under_way_is_shown_as_a_term(api: FakeApi, capsys):
    syncing = {**QUEUE, "state": "syncing", "sync_messages": 250}
    api.answers["GET", "/api/queues/%2F"] = (200, [syncing])
    ctl(api, "list_queues", "-s", "state")
    assert capsys.readouterr().out == "{syncing,250}\n"


def test_sync_returns_when_it_has_ended(api: FakeApi, capsys):
    api.answers["POST", PATH + "/actions"] = (204, None)
    whole = {**QUEUE, "synchronised_slave_nodes": QUEUE["slave_nodes"]}
    syncing = (200, {**QUEUE, "state": "syncing"})
    api.answers["GET", PATH] = [(200, QUEUE), syncing, (200, QUEUE), syncing, (200, whole)]
    assert ctl(api, "sync_queue", "q") == 0
    assert api.answers["GET", PATH] == [(200, whole)]
    assert ("POST", PATH + "/actions", {"action": "sync"}) in api.asked
    assert capsys.readouterr().out == "Synchronising queue 'q' in vhost '/' ...\n"


def test_sync_that_was_cancelled_says_who_still_lacks_messages(api: FakeApi, capsys):
    api.answers["POST", PATH + "/actions"] = (204, None)
    api.answers["GET", PATH] = [(200, {**QUEUE, "state": "syncing"}), (200, QUEUE)]
    assert ctl(api, "sync_queue", "q") == 75
    assert capsys.readouterr().err == (
        "Error:\nthe synchronisation ended early, mirrors on rabbit@node2 still lack messages:"
        " run it again, or see the log of rabbit@node1\n"
    )


def test_a_master_that_leaves_meanwhile_hands_the_work_on(api: FakeApi):
    api.answers["POST", PATH + "/actions"] = (204, None)
    moved = {**QUEUE, "leader": "rabbit@node3", "slave_nodes": ["rabbit@node2"]}
    left = (200, {**moved, "synchronised_slave_nodes": []})
    whole = (200, {**moved, "synchronised_slave_nodes": ["rabbit@node2"]})
    syncing = (200, {**QUEUE, "state": "syncing"})
    api.answers["GET", PATH] = [(200, QUEUE), syncing, left, left, whole]
    assert ctl(api, "sync_queue", "q") == 0
    asked = [each for each in api.asked if each[0] == "POST"]
    assert asked == [("POST", PATH + "/actions", {"action": "sync"})] * 2


@pytest.mark.parametrize("command", ["sync_queue", "cancel_sync_queue"])
def test_queues_that_have_nothing_to_synchronise(api: FakeApi, capsys, command: str):
    assert ctl(api, command, "q") == 69
    assert capsys.readouterr().err == "Error:\nnot_found\n"
    api.answers["POST", PATH + "/actions"] = REFUSED
    assert ctl(api, command, "q") == 69
    assert capsys.readouterr().err == "Error:\nnot_mirrored\n"


def test_cancelling_what_does_not_run(api: FakeApi, capsys):
    api.answers["POST", PATH + "/actions"] = (200, {"status": "not_syncing"})
    assert ctl(api, "cancel_sync_queue", "q") == 0
    assert capsys.readouterr().out == (
        "Stopping synchronising queue 'q' in vhost '/' ...\nnot_syncing\n"
    )


BANNER = "Checking if node {} is critical for data safety of any classic mirrored queues ...\n"


def test_a_node_that_may_stop(api: FakeApi, capsys):
    api.answers["GET", CRITICAL] = (200, {"status": "ok"})
    assert ctl(api, "check_if_node_is_mirror_sync_critical") == 0
    assert capsys.readouterr().out == BANNER.format(api.url) + (
        "Node rabbit@node1 reported no classic mirrored queues without online synchronised"
        " mirrors\n"
    )
    api.answers["GET", CRITICAL] = (200, {"status": "ok", "reason": "single node cluster"})
    assert ctl(api, "-n", "rabbit@node1", "check_if_node_is_mirror_sync_critical") == 0
    assert capsys.readouterr().out == BANNER.format("rabbit@node1") + (
        "Node rabbit@node1 seems to be the only one in a single node cluster, the check does not"
        " apply\n"
    )


def test_a_node_that_may_not(api: FakeApi, capsys):
    queues = [{"readable_name": f"queue '{name}' in vhost '/'"} for name in "ab"]
    api.answers["GET", CRITICAL] = (503, {"status": "failed", "reason": "x", "queues": queues})
    assert ctl(api, "check_if_node_is_mirror_sync_critical") == 69
    lost = "would lose its only synchronised replica (master) if node rabbit@node1 is stopped"
    assert capsys.readouterr().err == (
        f"queue 'a' in vhost '/' {lost}\nqueue 'b' in vhost '/' {lost}\n"
    )
    api.answers["GET", CRITICAL] = (500, {"error": "internal_error", "reason": "see the log"})
    assert ctl(api, "check_if_node_is_mirror_sync_critical") == 69
    assert "500" in capsys.readouterr().err


def test_rebalance_waits_and_shows_what_each_node_serves(api: FakeApi, capsys):
    nodes = [{"node": "rabbit@node1", "quorum": 0, "classic": 2}]
    ended = {"running": False, "moved": 1, "kept": [], "nodes": nodes}
    running = {**ended, "running": True, "nodes": []}
    api.answers["POST", REBALANCE] = (204, None)
    api.answers["GET", REBALANCE] = [(200, running), (200, ended)]
    assert ctl(api, "rebalance", "classic", "--queue-pattern", "^m", "--vhost-pattern", "v") == 0
    body = {"type": "classic", "vhost_pattern": "v", "queue_pattern": "^m"}
    assert api.asked[0] == ("POST", REBALANCE, body)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Re-balancing leaders of classic queues..."
    assert lines[2] == (
        "│ Node name    │ Number of quorum queues │ Number of replicated classic queues │"
    )
    assert lines[4].split() == ["│", "rabbit@node1", "│", "0", "│", "2", "│"]
    api.answers["GET", REBALANCE] = (200, {**ended, "kept": ["q"]})
    assert ctl(api, "-q", "rebalance", "all") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Could not be moved, see the log: q"
    assert ctl(api, "rebalance", "all", "--formatter", "json") == 0
    assert json.loads(capsys.readouterr().out)["moved"] == 1


def test_rebalance_refuses(api: FakeApi, capsys):
    assert ctl(api, "rebalance", "foo") == 69
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err == "Error:\ntype foo is not supported. Try one of all, classic, quorum, stream.\n"
    )
    api.answers["POST", REBALANCE] = (
        400,
        {"error": "bad_request", "reason": "rebalance_in_progress"},
    )
    assert ctl(api, "rebalance", "all") == 69
    assert capsys.readouterr().err == "Error:\nrebalance_in_progress\n"


def test_migration_is_followed_to_its_end(api: FakeApi, capsys):
    api.answers["POST", PATH + "/actions"] = (204, None)
    running = {"state": "running", "moved": 3, "bindings": 0, "text": ""}
    done = {"state": "done", "moved": 10, "bindings": 2, "text": ""}
    api.answers["GET", PATH + "/migration"] = [(200, running), (200, done)]
    assert ctl(api, "migrate_queue", "q", "qq", "--delete-source") == 0
    body = {"action": "migrate", "target": "qq", "delete_source": True}
    assert api.asked[0] == ("POST", PATH + "/actions", body)
    assert capsys.readouterr().out == (
        "Migrating queue 'q' in vhost '/' to quorum queue 'qq' ...\n"
        "Moved 10 messages and 2 bindings to 'qq'\n"
    )


@pytest.mark.parametrize(
    ("words", "path", "running", "text"),
    [
        (("sync_queue", "q"), PATH, {**QUEUE, "state": "syncing"}, "cancel_sync_queue ends it"),
        (("rebalance", "all"), REBALANCE, {"running": True}, "it goes on"),
        (("migrate_queue", "q", "qq"), PATH + "/migration", {"state": "running"}, "run it again"),
    ],
)
def test_nobody_waits_longer_than_the_timeout(
    api: FakeApi, capsys, words: tuple[str, ...], path: str, running: object, text: str
):
    api.answers["POST", PATH + "/actions"] = api.answers["POST", REBALANCE] = (204, None)
    api.answers["GET", path] = (200, running)
    assert ctl(api, *words, "--timeout", "0.1") == 75
    said = capsys.readouterr().err
    assert "within 0.1 s" in said
    assert text in said
    cancelled = ("POST", PATH + "/actions", {"action": "cancel_migrate"})
    assert (cancelled in api.asked) is (words[0] == "migrate_queue")


def test_migrations_that_do_not_end_well(api: FakeApi, capsys):
    api.answers["POST", PATH + "/actions"] = (204, None)
    failed = {"state": "failed", "moved": 4, "bindings": 0, "text": "no majority"}
    api.answers["GET", PATH + "/migration"] = (200, failed)
    assert ctl(api, "migrate_queue", "q", "qq") == 70
    assert capsys.readouterr().err == "Error:\nno majority (4 messages have moved)\n"
    del api.answers["GET", PATH + "/migration"]
    assert ctl(api, "migrate_queue", "q", "qq") == 75
    assert "run it again" in capsys.readouterr().err
    assert ctl(api, "migrate_queue", "q") == 64
