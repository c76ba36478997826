"""Users, vhosts, permissions, parameters, limits: what rabbitmqctl 3.10.8 printed for the same."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from broker.cli.ctl.clients import pid
from broker.cli.ctl.commands import run
from tests.unit.cli.fake_api import FakeApi

ME = {"name": "me", "password_hash": "aA==", "hashing_algorithm": "x", "tags": ["monitoring"]}
REFUSED = "bad_request"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    fake.answers["GET", "/api/users/me"] = (200, ME)
    fake.answers["GET", "/api/vhosts/v/permissions"] = (200, [])
    yield fake
    fake.close()


def ctl(api: FakeApi, *words: str) -> int:
    return run(["--url", api.url, *words], {})


def refused(text: str) -> tuple[int, dict[str, str]]:
    return 400, {"error": "bad_request", "reason": text}


MISSING: list[tuple[tuple[str, ...], int, str]] = [
    (("delete_user", "no"), 67, 'Error:\nUser "no" does not exist\n'),
    (("change_password", "no", "x"), 67, 'Error:\nUser "no" does not exist\n'),
    (("set_user_tags", "no"), 67, 'Error:\nUser "no" does not exist\n'),
    (("clear_password", "no"), 69, 'Error:\n{:no_such_user, "no"}\n'),
    (("list_user_permissions", "no"), 69, 'Error:\n{:no_such_user, "no"}\n'),
    (("list_user_topic_permissions", "no"), 69, 'Error:\n{:no_such_user, "no"}\n'),
    (("set_user_limits", "no", "{}"), 69, 'Error:\n{:no_such_user, "no"}\n'),
    (("clear_user_limits", "no", "all"), 69, 'Error:\n{:no_such_user, "no"}\n'),
    (("list_user_limits", "--user", "no"), 69, 'Error:\n{:no_such_user, "no"}\n'),
    (("set_permissions", "no", "", "", ""), 67, "Error:\nUser no does not exist\n"),
    (("clear_permissions", "no"), 67, "Error:\nUser no does not exist\n"),
    (("set_topic_permissions", "no", "x", "", ""), 67, "Error:\nUser no does not exist\n"),
    (("clear_topic_permissions", "no"), 67, "Error:\nUser no does not exist\n"),
    (
        ("set_permissions", "-p", "no", "me", "", "", ""),
        69,
        "Error:\nVirtual host no does not exist\n",
    ),
    (("clear_permissions", "-p", "no", "me"), 69, "Error:\nVirtual host no does not exist\n"),
    (("clear_topic_permissions", "-p", "no", "me"), 69, "Error:\nVirtual host no does not exist\n"),
    (("delete_vhost", "no"), 65, "Virtual host 'no' does not exist\n"),
    (("set_vhost_tags", "no", "x"), 65, 'Error:\nVirtual host "no" does not exist\n'),
    (("list_permissions", "-p", "no"), 65, "Virtual host 'no' does not exist\n"),
    (("list_topic_permissions", "-p", "no"), 65, "Virtual host 'no' does not exist\n"),
    (("list_parameters", "-p", "no"), 65, "Virtual host 'no' does not exist\n"),
    (("list_policies", "-p", "no"), 65, "Virtual host 'no' does not exist\n"),
    (("list_vhost_limits", "-p", "no"), 65, "Virtual host 'no' does not exist\n"),
    (("set_vhost_limits", "-p", "no", "{}"), 65, "Virtual host 'no' does not exist\n"),
    (("set_parameter", "-p", "no", "c", "n", "{}"), 65, "Virtual host 'no' does not exist\n"),
    (("clear_vhost_limits", "-p", "no"), 69, "Error:\nParameter does not exist\n"),
    (("clear_parameter", "c", "n"), 69, "Error:\nParameter does not exist\n"),
    (("clear_global_parameter", "n"), 69, "Error:\nParameter does not exist\n"),
    (("delete_queue", "no"), 64, "Error:\nQueue not found\n"),
    (("purge_queue", "no"), 69, "Error:\nnot_found\n"),
    (
        ("close_connection", "no", "bye"),
        69,
        'Error:\nError:\n{:invalid_pid_syntax, "no"}\n',
    ),
]


@pytest.mark.parametrize(("words", "code", "err"), MISSING)
def test_what_does_not_exist(
    api: FakeApi, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, err: str
) -> None:
    assert ctl(api, *words) == code
    said = capsys.readouterr()
    assert said.err == err
    assert said.out.endswith("...\n")  # the banner comes first all the same


@pytest.mark.parametrize(
    ("words", "banner"),
    [
        (("set_user_tags", "me", "a", "b"), 'Setting tags for user "me" to [a, b] ...'),
        (("set_user_tags", "me"), 'Setting tags for user "me" to [] ...'),
        (("clear_password", "me"), 'Clearing password for user "me" ...'),
        (("set_vhost_tags", "v", "a", "b"), 'Setting tags for virtual host "v" to [a, b] ...'),
        (
            ("set_topic_permissions", "-p", "v", "me", "x", "^a", ".*"),
            'Setting topic permissions on "x" for user "me" in vhost "v" ...',
        ),
        (
            ("clear_topic_permissions", "-p", "v", "me", "x"),
            'Clearing topic permissions on "x" for user "me" in vhost "v" ...',
        ),
        (
            ("clear_topic_permissions", "-p", "v", "me"),
            'Clearing topic permissions for user "me" in vhost "v" ...',
        ),
        (
            ("clear_permissions", "-p", "v", "me"),
            'Clearing permissions for user "me" in vhost "v" ...',
        ),
        (
            ("set_vhost_limits", "-p", "v", '{"max-queues": 5}'),
            'Setting vhost limits to "{"max-queues": 5}" for vhost "v" ...',
        ),
        (("clear_vhost_limits", "-p", "v"), 'Clearing vhost "v" limits ...'),
        (
            ("set_user_limits", "me", '{"max-channels": 5}'),
            'Setting user limits to "{"max-channels": 5}" for user "me" ...',
        ),
        (("clear_user_limits", "me", "all"), 'Clearing all limits for user "me" ...'),
        (
            ("clear_user_limits", "me", "max-foo"),
            'Clearing "max-foo" limit for user "me" ...',
        ),
        (
            ("set_parameter", "-p", "v", "vhost-limits", "limits", "{}"),
            'Setting runtime parameter "limits" for component "vhost-limits" to "{}" in vhost '
            '"v" ...',
        ),
        (
            ("clear_parameter", "-p", "v", "vhost-limits", "limits"),
            'Clearing runtime parameter "limits" for component "vhost-limits" on vhost "v" ...',
        ),
        (
            ("set_global_parameter", "mqtt", '{"a":1}'),
            'Setting global runtime parameter "mqtt" to "{"a":1}" ...',
        ),
        (("clear_global_parameter", "mqtt"), 'Clearing global runtime parameter "mqtt" ...'),
        (
            ("delete_exchange", "-p", "v", "x"),
            "Deleting exchange 'x' in vhost 'v' ...",
        ),
    ],
)
def test_banners(
    api: FakeApi, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], banner: str
) -> None:
    answers: dict[tuple[str, str], tuple[int, Any]] = {
        ("GET", "/api/vhosts/v"): (200, {"description": "d", "tags": []}),
        ("GET", "/api/user-limits/me"): (200, []),
    }
    for path in (
        "/api/users/me",
        "/api/vhosts/v",
        "/api/topic-permissions/v/me",
        "/api/topic-permissions/v/me/x",
        "/api/permissions/v/me",
        "/api/parameters/vhost-limits/v/limits",
        "/api/user-limits/me",
        "/api/user-limits/me/max-foo",
        "/api/global-parameters/mqtt",
        "/api/exchanges/v/x",
    ):
        answers["PUT", path] = answers["DELETE", path] = (204, None)
    api.answers.update(answers)
    assert ctl(api, *words) == 0
    assert capsys.readouterr().out == banner + "\n"
    assert ctl(api, "-q", *words) == 0
    assert capsys.readouterr().out == ""


def test_passwords_come_from_standard_input(
    api: FakeApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answers["PUT", "/api/users/new"] = (201, None)
    monkeypatch.setattr("sys.stdin", io.StringIO("s ecret\n"))
    assert ctl(api, "add_user", "new") == 0
    assert api.asked[-1] == ("PUT", "/api/users/new", {"password": "s ecret", "tags": ""})
    assert capsys.readouterr().out == (
        'Adding user "new" ...\nDone. Don\'t forget to grant the user permissions to some virtual '
        "hosts! See 'warrenmq ctl set_permissions' to learn more.\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert ctl(api, "authenticate_user", "new") == 70
    assert "Password is not provided via argument or stdin" in capsys.readouterr().err


def test_a_ready_hash(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["PUT", "/api/users/new"] = (201, None)
    assert ctl(api, "add_user", "new", "kI3GCqW5", "--pre-hashed-password") == 0
    assert api.asked[-1][2] == {"password_hash": "kI3GCqW5", "tags": ""}
    assert ctl(api, "add_user", "new", "nonsense!", "--pre-hashed-password") == 65
    err = "Error:\nCould not Base64 decode provided password hash value\n"
    assert capsys.readouterr().err == err


def test_authenticate(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET", "/api/whoami"] = (401, {"error": "not_authorised", "reason": "Login failed"})
    assert ctl(api, "authenticate_user", "me", "x") == 65
    said = capsys.readouterr()
    assert said.out == 'Authenticating user "me" ...\n'
    assert said.err == (
        "Error:\nError: failed to authenticate user \"me\"\nuser 'me' - invalid credentials\n"
    )
    for answer in ((200, {}), (401, {"reason": "Not management user"})):
        api.answers["GET", "/api/whoami"] = answer
        assert ctl(api, "-q", "authenticate_user", "me", "x") == 0
        assert capsys.readouterr().out == "Success\n"


def test_vhosts(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["PUT", "/api/vhosts/new"] = (201, None)
    described = ("--description", "some text", "--tags", "a,b", "--default-queue-type", "quorum")
    assert ctl(api, "add_vhost", "new", *described) == 0
    assert api.asked[-1][2] == {
        "description": "some text",
        "tags": "a,b",
        "default_queue_type": "quorum",
        "grant": False,
    }
    asked = len(api.asked)
    assert ctl(api, "add_vhost", "v") == 0  # it is there: nothing happens
    assert api.asked[asked:] == [("GET", "/api/vhosts/v/permissions", None)]
    api.answers["PUT", "/api/vhosts/new"] = refused("unsupported queue type 'foo'")
    assert ctl(api, "add_vhost", "new", "--default-queue-type", "foo") == 64
    assert capsys.readouterr().err == "Error:\nUnsupported default queue type\n"
    assert ctl(api, "update_vhost_metadata", "v") == 64
    found = {"name": "v", "description": "old", "tags": ["x"], "default_queue_type": "quorum"}
    api.answers["GET", "/api/vhosts/v"] = (200, found)
    api.answers["PUT", "/api/vhosts/v"] = (204, None)
    assert ctl(api, "update_vhost_metadata", "v", "--description", "new") == 0
    assert api.asked[-1][2] == {
        "description": "new",
        "tags": ["x"],
        "default_queue_type": "quorum",
    }


def test_expressions_that_do_not_compile(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    reason = "invalid_regexp: configure: missing ): ("
    api.answers["PUT", "/api/permissions/v/me"] = refused(reason)
    assert ctl(api, "set_permissions", "-p", "v", "me", "(", "", "") == 69
    assert capsys.readouterr().err == "Error:\n{:invalid_regexp, '(', 'missing ): ('}\n"


def test_tables(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    grant = {"user": "me", "vhost": "v", "exchange": "amq.topic", "write": "^a", "read": ".*"}
    api.answers["GET", "/api/vhosts/v/topic-permissions"] = (200, [grant])
    assert ctl(api, "list_topic_permissions", "-p", "v") == 0
    assert capsys.readouterr().out == (
        'Listing topic permissions for vhost "v" ...\n'
        "user\texchange\twrite\tread\nme\tamq.topic\t^a\t.*\n"
    )
    api.answers["GET", "/api/users/me/topic-permissions"] = (200, [grant])
    assert ctl(api, "list_user_topic_permissions", "me") == 0
    assert capsys.readouterr().out == (
        'Listing topic permissions for user "me" ...\nv\tamq.topic\t^a\t.*\n'
    )
    api.answers["GET", "/api/vhosts/v/topic-permissions"] = (200, [])
    assert ctl(api, "list_topic_permissions", "-p", "v") == 0
    assert capsys.readouterr().out == 'Listing topic permissions for vhost "v" ...\n\n'
    limits = {"vhost": "v", "component": "vhost-limits", "name": "limits"}
    api.answers["GET", "/api/vhost-limits/v"] = (200, [])
    api.answers["GET", "/api/parameters"] = (200, [{**limits, "value": {"max-queues": 2}}])
    assert ctl(api, "list_parameters", "-p", "v") == 0
    assert capsys.readouterr().out == (
        'Listing runtime parameters for vhost "v" ...\n'
        'component\tname\tvalue\nvhost-limits\tlimits\t{"max-queues":2}\n'
    )
    api.answers["GET", "/api/global-parameters"] = (200, [{"name": "n", "value": "x"}])
    assert ctl(api, "list_global_parameters") == 0
    assert capsys.readouterr().out == (
        'Listing global runtime parameters ...\nname\tvalue\nn\t"x"\n'
    )


def test_limits_are_json(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET", "/api/vhost-limits/v"] = (200, [{"vhost": "v", "value": {"max-queues": 5}}])
    assert ctl(api, "list_vhost_limits", "-p", "v") == 0
    assert capsys.readouterr().out == 'Listing limits for vhost "v" ...\n{"max-queues":5}\n'
    api.answers["GET", "/api/vhost-limits/v"] = (200, [])
    assert ctl(api, "list_vhost_limits", "-p", "v") == 0
    assert capsys.readouterr().out == 'Listing limits for vhost "v" ...\n\n'
    api.answers["GET", "/api/vhost-limits"] = (200, [{"vhost": "v", "value": {"max-queues": 5}}])
    assert ctl(api, "list_vhost_limits", "--global") == 0
    assert capsys.readouterr().out == (
        'Listing limits for all vhosts ...\nvhost\tlimits\nv\t{"max-queues":5}\n'
    )
    api.answers["GET", "/api/user-limits/guest"] = (200, [])
    assert ctl(api, "list_user_limits") == 0
    assert capsys.readouterr().out == 'Listing limits for user "guest" ...\n{}\n'
    api.answers["GET", "/api/user-limits/me"] = (200, [{"user": "me", "value": {"a": 1}}])
    assert ctl(api, "list_user_limits", "--user", "me", "-q") == 0
    assert capsys.readouterr().out == '{"a":1}\n'
    assert api.headers["Authorization"] == "Basic Z3Vlc3Q6Z3Vlc3Q="  # --user was no login
    api.answers["GET", "/api/user-limits"] = (200, [{"user": "me", "value": {"a": 1}}])
    assert ctl(api, "list_user_limits", "--global") == 0
    assert capsys.readouterr().out == (
        'Listing limits for all users ...\nuser\tlimits\nme\t{"a":1}\n'
    )


@pytest.mark.parametrize(
    "words",
    [
        ("set_vhost_limits", "-p", "v", "nojson"),
        ("set_user_limits", "me", "nojson"),
        ("set_parameter", "c", "n", "nojson"),
        ("set_global_parameter", "n", "nojson"),
    ],
)
def test_values_are_json(
    api: FakeApi, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert ctl(api, *words) == 69
    assert capsys.readouterr().err.startswith("Error:\nJSON decoding error. Reason: ")


def test_what_the_node_finds_wrong_is_69(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'Validation failed\n\nUnrecognised terms [{<<"max-foo">>,5}] in limits\n'
    api.answers["PUT", "/api/parameters/vhost-limits/v/limits"] = refused(text)
    assert ctl(api, "set_vhost_limits", "-p", "v", '{"max-foo": 5}') == 69
    assert capsys.readouterr().err == f"Error:\n{text}\n"


@pytest.mark.parametrize(
    ("reason", "flag", "where", "text"),
    [
        ("queue 'q' in vhost '/' not empty", "--if-empty", "if queue is empty ", "not empty"),
        ("queue 'q' in vhost '/' in use", "--if-unused", "if queue is unused ", "in use"),
    ],
)
def test_delete_queue_under_conditions(
    api: FakeApi, capsys: pytest.CaptureFixture[str], reason: str, flag: str, where: str, text: str
) -> None:
    api.answers["GET", "/api/queues/%2F/q"] = (200, {"messages": 1})
    api.answers["DELETE", f"/api/queues/%2F/q?{flag[2:]}=true"] = refused(reason)
    assert ctl(api, "delete_queue", "q", flag) == 64
    said = capsys.readouterr()
    assert said.out == f"Deleting queue 'q' on vhost '/' {where}...\n"
    assert said.err == f"Error:\nQueue is {text}\n"


def connection(number: int, **more: str) -> dict[str, Any]:
    return {
        "name": f"127.0.0.1:{number} -> 127.0.0.1:5672",
        "node": "rabbit@a",
        "user": "me",
        "vhost": "/",
        **more,
    }


def test_connections_are_closed_by_pid_vhost_and_user(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [connection(1), connection(2, vhost="v"), connection(3, user="other")]
    listing = "/api/connections?columns=name,node,user,vhost"
    api.answers["GET", listing] = (200, known)

    def closed() -> list[str]:
        found = [path[-20:-19] for method, path, _ in api.asked if method == "DELETE"]
        api.asked.clear()
        return found

    for each in known:
        path = f"/api/connections/127.0.0.1%3A{each['name'][10]}%20-%3E%20127.0.0.1%3A5672"
        api.answers["DELETE", path] = (204, None)
    shown = pid(known[1])
    assert shown.startswith("<rabbit@a.1.")
    assert ctl(api, "close_connection", shown, "go away") == 0
    assert capsys.readouterr().out == f"Closing connection {shown}, reason: go away...\n"
    assert api.headers["X-Reason"] == "go away"
    assert [path for method, path, _ in api.asked if method == "DELETE"] == [
        "/api/connections/127.0.0.1%3A2%20-%3E%20127.0.0.1%3A5672"
    ]
    api.asked.clear()
    assert ctl(api, "close_connection", "<rabbit@a.1.2.3>", "go away") == 0  # gone already
    assert ctl(api, "close_connection", "127.0.0.1:9 -> 127.0.0.1:5672", "go away") == 0
    capsys.readouterr()
    api.asked.clear()
    assert ctl(api, "close_all_connections", "bye") == 0
    assert capsys.readouterr().out == (
        "Closing all connections in vhost /, reason: bye...\nClosed 2 connections\n"
    )
    assert len(closed()) == 2
    assert ctl(api, "close_all_connections", "--global", "--limit", "1", "bye") == 0
    assert len(closed()) == 1
    assert ctl(api, "close_all_user_connections", "other", "bye") == 0
    assert len(closed()) == 1


def test_channels_name_their_connection_as_its_own_listing_does(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = connection(1)
    channel = {
        "name": f"{whole['name']} (1)",
        "node": whole["node"],
        "connection_details": {"name": whole["name"]},
    }
    api.answers["GET", "/api/channels"] = (200, [channel])
    api.answers["GET", "/api/connections"] = (200, [whole])
    assert ctl(api, "-s", "list_channels", "connection") == 0
    assert ctl(api, "-s", "list_connections", "pid") == 0
    one, other = capsys.readouterr().out.splitlines()
    assert one == other
