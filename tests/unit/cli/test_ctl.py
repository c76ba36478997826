from __future__ import annotations

import base64
import json

import pytest

from broker.cli.cluster.layout import Layout
from broker.cli.ctl.arguments import parse
from broker.cli.ctl.commands import find_node, run
from tests.unit.cli.fake_api import FakeApi

QUEUES = [
    {
        "name": "a",
        "vhost": "/",
        "messages": 3,
        "durable": True,
        "node": "rabbit@node1",
        "state": "running",
        "arguments": {"x-queue-type": "classic", "x-max-length": 5},
    },
    {
        "name": "b",
        "vhost": "/",
        "messages": 0,
        "durable": False,
        "node": "rabbit@node1",
        "leader": "rabbit@node2",
        "members": ["rabbit@node1", "rabbit@node2"],
        "state": "down",
        "arguments": {},
    },
]


@pytest.fixture
def api():
    fake = FakeApi()
    fake.answers["GET", "/api/queues/%2F"] = (200, QUEUES)
    fake.answers["GET", "/api/users/me"] = (
        200,
        {"name": "me", "password_hash": "h", "hashing_algorithm": "x", "tags": ["monitoring"]},
    )
    yield fake
    fake.close()


def ctl(api: FakeApi, *words: str) -> int:
    return run(["--url", api.url, *words], {})


def test_list_queues_prints_rabbitmqctls_lines(api: FakeApi, capsys):
    assert ctl(api, "list_queues") == 0
    assert capsys.readouterr().out == (
        "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\nname\tmessages\na\t3\nb\t0\n"
    )
    assert api.headers["Authorization"] == "Basic " + base64.b64encode(b"guest:guest").decode()


def test_a_node_with_too_much_to_do_is_asked_again(api: FakeApi, capsys):
    busy = (429, {"error": "too_many_requests", "reason": "too many listings: try again"})
    api.answers["GET", "/api/queues/%2F"] = [busy, busy, (200, QUEUES)]
    assert ctl(api, "list_queues", "-s", "name") == 0
    assert capsys.readouterr().out == "a\nb\n"


def test_a_node_that_has_too_much_to_do_for_too_long_is_a_temporary_failure(api: FakeApi, capsys):
    busy = (429, {"error": "too_many_requests", "reason": "too many listings: try again"})
    api.answers["GET", "/api/queues/%2F"] = busy
    assert ctl(api, "list_queues", "--timeout", "1") == 75
    assert "too many listings" in capsys.readouterr().err


def test_quiet_keeps_headers_silent_has_none(api: FakeApi, capsys):
    ctl(api, "-q", "list_queues", "name", "durable")
    assert capsys.readouterr().out == "name\tdurable\na\ttrue\nb\tfalse\n"
    ctl(api, "list_queues", "-s", "name", "durable")
    assert capsys.readouterr().out == "a\ttrue\nb\tfalse\n"
    ctl(api, "list_queues", "--no-table-headers", "-q", "name messages")
    assert capsys.readouterr().out == "a\t3\nb\t0\n"


def test_json_is_an_array_of_objects_keyed_by_column(api: FakeApi, capsys):
    assert (
        ctl(api, "list_queues", "name", "arguments", "leader", "members", "--formatter=json") == 0
    )
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "a",
            "arguments": {"x-queue-type": "classic", "x-max-length": 5},
            "leader": "rabbit@node1",
            "members": None,
        },
        {
            "name": "b",
            "arguments": {},
            "leader": "rabbit@node2",
            "members": ["rabbit@node1", "rabbit@node2"],
        },
    ]


def test_values_are_printed_as_terms(api: FakeApi, capsys):
    ctl(api, "list_queues", "-s", "arguments", "members")
    assert capsys.readouterr().out == (
        '[{"x-queue-type","classic"},{"x-max-length",5}]\t\n[]\t[rabbit@node1, rabbit@node2]\n'
    )


def test_csv_and_drawn_tables(api: FakeApi, capsys):
    ctl(api, "list_queues", "--formatter", "csv")
    assert capsys.readouterr().out == '"name","messages"\n"a","3"\n"b","0"\n'
    ctl(api, "list_queues", "-q", "--formatter", "pretty_table")
    assert capsys.readouterr().out.splitlines()[1:4] == [
        "│ name │ messages │",
        "├──────┼──────────┤",
        "│ a    │ 3        │",
    ]


def test_online_and_offline_queues(api: FakeApi, capsys):
    ctl(api, "list_queues", "-s", "name", "--offline")
    ctl(api, "list_queues", "-s", "name", "--online")
    assert capsys.readouterr().out == "b\na\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["lst_queues"], 64, "Command 'lst_queues' not found. \nDid you mean 'list_queues'?"),
        (["list_queues", "nmae"], 64, "Info key(s) nmae are not supported; did you mean name?"),
        (["list_queues", "--fromatter"], 64, "unknown option --fromatter"),
        (["list_queues", "-p"], 64, "-p needs a value"),
        (["list_queues", "--formatter", "xml"], 64, "unknown formatter xml"),
        (["add_vhost"], 64, "(argument validation): not enough arguments."),
        (["add_vhost"], 64, "\n\nUsage\n\nwarrenmq ctl add_vhost <vhost> ["),
        (["delete_user", "a", "b"], 64, "too many arguments.\nArguments given:\n\t--url"),
        (["eval", "1 + 1"], 64, "no Erlang here"),
        (["delete_vhost", "none"], 65, "Virtual host 'none' does not exist"),
        (["delete_user", "nobody"], 67, 'User "nobody" does not exist'),
        (["change_password", "nobody", "x"], 67, "does not exist"),
        (["set_permissions", "nobody", "1", "2", "3"], 67, "does not exist"),
        (["add_user", "me", "x"], 70, "already exists"),
        (["check_running"], 69, "does not serve clients"),
        (["ping"], 69, "the node is not healthy: see its log"),
    ],
)
def test_failures_end_with_rabbitmqctls_codes(api: FakeApi, capsys, words, code, text):
    assert ctl(api, *words) == code
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "code"), [(400, 65), (401, 77), (403, 77), (500, 70), (503, 69), (504, 75)]
)
def test_http_statuses_become_exit_codes(api: FakeApi, status: int, code: int):
    api.answers["GET", "/api/users"] = (status, {"error": "x", "reason": "y"})
    assert ctl(api, "list_users") == code


def test_a_node_that_is_not_there_is_69(capsys):
    fake = FakeApi()
    fake.close()
    assert run(["list_queues", "--url", fake.url], {}) == 69
    assert "unable to reach" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "request_made"),
    [
        (
            ["add_user", "new", "--", "-x"],
            ("PUT", "/api/users/new", {"password": "-x", "tags": ""}),
        ),
        (
            ["change_password", "me", "y"],
            ("PUT", "/api/users/me", {"password": "y", "tags": ["monitoring"]}),
        ),
        (
            ["set_user_tags", "me", "administrator"],
            (
                "PUT",
                "/api/users/me",
                {"password_hash": "h", "hashing_algorithm": "x", "tags": ["administrator"]},
            ),
        ),
        (
            ["set_permissions", "-p", "v/1", "me", "^a", ".*", ""],
            ("PUT", "/api/permissions/v%2F1/me", {"configure": "^a", "write": ".*", "read": ""}),
        ),
        (["delete_user", "me"], ("DELETE", "/api/users/me", None)),
        (["add_vhost", "/"], ("PUT", "/api/vhosts/%2F", {"grant": False})),
        (["join_cluster", "node2"], ("POST", "/api/node/join_cluster", {"node": "rabbit@node2"})),
        (
            ["forget_cluster_node", "rabbit@node3"],
            ("DELETE", "/api/cluster/nodes/rabbit%40node3", None),
        ),
        (["stop_app"], ("POST", "/api/node/stop_app", {})),
        (
            [
                "set_policy",
                "--priority",
                "2",
                "n",
                "^q",
                '{"max-length":1}',
                "--apply-to",
                "queues",
            ],
            (
                "PUT",
                "/api/policies/%2F/n",
                {
                    "pattern": "^q",
                    "definition": {"max-length": 1},
                    "priority": 2,
                    "apply-to": "queues",
                },
            ),
        ),
    ],
)
def test_changes_are_rabbitmqs_requests(api: FakeApi, capsys, words, request_made):
    method, path, _ = request_made
    api.answers[method, path] = (204, None)
    if words[0] == "set_permissions":
        api.answers["GET", "/api/vhosts/v%2F1/permissions"] = (200, [])
    assert ctl(api, *words) == 0
    assert api.asked[-1] == request_made


def test_join_cluster_says_what_rabbitmqctl_says(api: FakeApi, capsys):
    path = ("POST", "/api/node/join_cluster")
    api.answers[path] = (200, {"status": "already_member"})
    assert ctl(api, "-q", "join_cluster", "node2") == 0
    assert ctl(api, "join_cluster", "node2") == 0
    assert capsys.readouterr().out.endswith("\nThe node is already a member of this cluster\n")
    text = "cannot cluster node with itself: rabbit@node2"
    api.answers[path] = (400, {"error": "bad_request", "reason": text})
    assert ctl(api, "join_cluster", "node2") == 70
    assert f"Error: {text}" in capsys.readouterr().err.replace("\n", " ")


def test_delete_queue_passes_conditions_and_counts(api: FakeApi, capsys):
    api.answers["GET", "/api/queues/%2F/a"] = (200, QUEUES[0])
    api.answers["DELETE", "/api/queues/%2F/a?if-empty=true&if-unused=true"] = (204, None)
    assert ctl(api, "delete_queue", "a", "--if-unused", "--if-empty") == 0
    assert "successfully deleted with 3 ready messages" in capsys.readouterr().out


def test_close_connection_hands_the_reason_over(api: FakeApi):
    path = "/api/connections/127.0.0.1%3A1%20-%3E%20127.0.0.1%3A2"
    api.answers["GET", path] = (200, {})
    api.answers["DELETE", path] = (204, None)
    assert ctl(api, "close_connection", "127.0.0.1:1 -> 127.0.0.1:2", "go away") == 0
    assert api.headers["X-Reason"] == "go away"


def test_cluster_status_as_text_and_json(api: FakeApi, capsys):
    found = {
        "cluster_name": "c",
        "disk_nodes": ["rabbit@a"],
        "running_nodes": ["rabbit@a"],
        "partitions": {},
        "alarms": [],
        "versions": {"rabbit@a": "RabbitMQ 3.13.7"},
        "listeners": {"rabbit@a": [{"interface": "127.0.0.1", "port": 5672, "protocol": "amqp"}]},
    }
    api.answers["GET", "/api/cluster/status"] = (200, found)
    assert ctl(api, "cluster_status") == 0
    out = capsys.readouterr().out
    assert "Basics\n\nCluster name: c\n" in out
    assert "Running Nodes\n\nrabbit@a\n" in out
    assert "Node: rabbit@a, interface: 127.0.0.1, port: 5672, protocol: amqp" in out
    assert "Network Partitions\n\n(none)\n" in out
    assert ctl(api, "cluster_status", "--formatter", "json") == 0
    assert json.loads(capsys.readouterr().out) == found


def test_cluster_status_tells_of_partitions(api: FakeApi, capsys):
    split = {"rabbit@a": ["rabbit@b", "rabbit@c"], "rabbit@d": ["rabbit@c"]}
    found = {"partitions": split, "unheard_nodes": {"rabbit@c": "silent", "rabbit@e": "ended"}}
    api.answers["GET", "/api/cluster/status"] = (200, found)
    assert ctl(api, "cluster_status") == 0
    assert (
        "Network Partitions\n\n"
        "Node rabbit@a cannot communicate with rabbit@b, rabbit@c\n"
        "Node rabbit@d cannot communicate with rabbit@c\n"
        "No node that answers hears rabbit@c: it is cut off, stands still, or its machine is off\n"
    ) in capsys.readouterr().out


def test_status_tells_how_long_the_turns_of_the_event_loop_are(api: FakeApi, capsys):
    loop = {
        "window_s": 60,
        "longest_turn_ms": 41.5,
        "longest_busy_ms": 12.0,
        "longest_own_ms": 14.5,
        "long_turn_ms": 30,
        "long_turns": 3,
    }
    api.answers["GET", "/api/overview"] = (200, {"node": "rabbit@a"})
    api.answers["GET", "/api/nodes/rabbit%40a"] = (200, {"name": "rabbit@a", "event_loop": loop})
    assert ctl(api, "status") == 0
    assert (
        "Event Loop\n\n"
        "Longest turn in the last 60 s: 41.5 ms, on the processor: 12.0 ms\n"
        "Longest but for the wait for a processor: 14.5 ms\n"
        "Turns over 30 ms since the start: 3\n"
    ) in capsys.readouterr().out


def test_await_startup_waits_for_ready(api: FakeApi):
    assert ctl(api, "await_startup", "-t", "0.1") == 75
    api.answers["GET", "/readyz"] = (200, {})
    assert ctl(api, "await_startup") == 0


@pytest.mark.parametrize("text", ["infinity", "0", "-1"])
def test_a_timeout_may_be_none(api: FakeApi, text: str):
    api.answers["GET", "/readyz"] = (200, {})
    assert ctl(api, "await_startup", "--timeout", text) == 0


@pytest.mark.parametrize("text", ["soon", "nan", ""])
def test_a_timeout_is_a_number(api: FakeApi, capsys, text: str):
    assert ctl(api, "await_startup", "--timeout", text) == 64
    assert "--timeout must be a number of seconds" in capsys.readouterr().err


def test_nodes_are_found_in_the_local_cluster(tmp_path):
    Layout(tmp_path).create(3, 5672, 15672)
    for name in ("node2", "rabbit@node2"):
        api, shown = find_node(parse(["ping", "-n", name]), {"WARRENMQ_DIR": str(tmp_path)})
        assert (api.url, shown) == ("http://127.0.0.1:15673", "rabbit@node2")
    assert run(["ping", "-n", "node9", "--dir", str(tmp_path)], {}) == 68


def test_help_lists_every_command(capsys):
    assert run(["--help"], {}) == 0
    out = capsys.readouterr().out
    assert "list_queues" in out
    assert "forget_cluster_node" in out
