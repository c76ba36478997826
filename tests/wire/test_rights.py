"""Users, permissions and limits, set with `warrenmq ctl` and enforced for clients.

Every text was compared with a RabbitMQ 3.10.8 node, except for the first word of a refused
permission, which newer versions put there ("configure access to ...").

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count

import pika
import pika.exceptions
import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from broker.cli.ctl.commands import run
from tests.nodes import Node, Trio, wait_until
from tests.wire.raw import Raw, open_vhost

_numbers = count(1)
ALL = ".*"


def ctl(node: Node, *words: str) -> int:
    return run(["--url", f"http://127.0.0.1:{node.management_port}", *words], {})


def ok(node: Node, *words: str) -> None:
    assert ctl(node, "-q", *words) == 0, words


class Tenant:
    """A user with the password of its name, and a vhost with all permissions for it."""

    def __init__(self, node: Node) -> None:
        number = next(_numbers)
        self.node = node
        self.user, self.vhost = f"user{number}", f"vhost{number}"
        ok(node, "add_user", self.user, self.user)
        ok(node, "add_vhost", self.vhost)
        self.allow(ALL, ALL, ALL)

    def allow(self, configure: str, write: str, read: str) -> None:
        words = ("set_permissions", "-p", self.vhost, self.user, configure, write, read)
        ok(self.node, *words)

    def connect(self, node: Node | None = None) -> pika.BlockingConnection:
        login = pika.PlainCredentials(self.user, self.user)
        return (node or self.node).connect(credentials=login, virtual_host=self.vhost)

    def opening(self, node: Node | None = None, vhost: str | None = None) -> Raw:
        """A connection that has just asked for the vhost."""
        raw = Raw((node or self.node).amqp_port, self.user).to_opening()
        raw.send(open_vhost(self.vhost if vhost is None else vhost))
        return raw

    def open(self, node: Node | None = None) -> Raw:
        raw = self.opening(node)
        raw.expect(spec.ConnectionOpenOk)
        return raw

    def end(self) -> None:
        ctl(self.node, "-q", "delete_user", self.user)
        ctl(self.node, "-q", "delete_vhost", self.vhost)


@pytest.fixture
def tenant(node: Node) -> Iterator[Tenant]:
    one = Tenant(node)
    yield one
    one.end()


def refusal(action: Callable[[], object]) -> tuple[int, str]:
    """The code and text that a channel is closed with."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        action()
    return closed.value.reply_code, closed.value.reply_text


# Coming in


def test_a_vhost_must_exist_and_be_open_to_the_user(tenant: Tenant) -> None:
    """Case 46.

    Rows: 1.1 connection.open / vhost
    """
    with tenant.opening(vhost="nowhere") as raw:
        raw.connection_closed(530, "NOT_ALLOWED - vhost nowhere not found")
    ok(tenant.node, "clear_permissions", "-p", tenant.vhost, tenant.user)
    text = f"NOT_ALLOWED - access to vhost '{tenant.vhost}' refused for user '{tenant.user}'"
    with tenant.opening() as raw:
        raw.connection_closed(530, text)
    tenant.allow("", "", "")
    tenant.open().socket.close()


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_hashes_of_rabbitmq_let_their_passwords_in(
    node: Node, tenant: Tenant, algorithm: str
) -> None:
    """Rows: 1.12 vhosts, users, tags"""
    salt = b"\x90\x8d\xc6\x0a"
    digest = hashlib.new(algorithm, salt + "påss".encode(), usedforsecurity=False).digest()
    body = {
        "password_hash": base64.b64encode(salt + digest).decode(),
        "hashing_algorithm": f"rabbit_password_hashing_{algorithm}",
        "tags": "monitoring",
    }
    node.api("PUT", f"/users/{tenant.user}", body)
    assert ctl(node, "authenticate_user", tenant.user, "påss") == 0
    assert ctl(node, "authenticate_user", tenant.user, "pass") == 65
    login = pika.PlainCredentials(tenant.user, "påss")
    node.connect(credentials=login, virtual_host=tenant.vhost).close()


def test_a_password_with_a_slow_hash_lets_its_user_in(node: Node, tenant: Tenant) -> None:
    """`warrenmq_password_hashing_scrypt`: over HTTP, and over AMQP."""
    algorithm = "warrenmq_password_hashing_scrypt"
    body = {"password": "påss", "hashing_algorithm": algorithm, "tags": "monitoring"}
    node.api("PUT", f"/users/{tenant.user}", body)
    assert node.api("GET", f"/users/{tenant.user}")["hashing_algorithm"] == algorithm
    login = pika.PlainCredentials(tenant.user, "påss")
    node.connect(credentials=login, virtual_host=tenant.vhost).close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        node.connect(credentials=pika.PlainCredentials(tenant.user, "pass"))
    assert ctl(node, "authenticate_user", tenant.user, "påss") == 0
    assert ctl(node, "authenticate_user", tenant.user, "pass") == 65


def test_a_ready_hash_on_the_command_line(node: Node, tenant: Tenant) -> None:
    """The vector of RabbitMQ's documentation on passwords."""
    name = tenant.user + "hashed"
    ready = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    ok(node, "add_user", name, ready, "--pre-hashed-password")
    assert ctl(node, "authenticate_user", name, "test12") == 0
    ok(node, "clear_password", name)
    assert ctl(node, "authenticate_user", name, "test12") == 65
    ok(node, "delete_user", name)


# Limits


def test_a_vhost_has_a_limit_of_connections(tenant: Tenant) -> None:
    """Case 50.

    Rows: 1.1 Limits; 1.12 limits
    """
    ok(tenant.node, "set_vhost_limits", "-p", tenant.vhost, '{"max-connections": 1}')
    text = (
        f"NOT_ALLOWED - access to vhost '{tenant.vhost}' refused for user '{tenant.user}': "
        "connection limit (1) is reached"
    )
    with tenant.open(), tenant.opening() as raw:
        raw.connection_closed(530, text)
    wait_until(lambda: _may_open(tenant), "the first one's place is free")
    ok(tenant.node, "set_vhost_limits", "-p", tenant.vhost, '{"max-connections": 0}')
    with tenant.opening() as raw:
        raw.connection_closed(530, text.replace("(1)", "(0)"))
    for unlimited in ("set_vhost_limits", "clear_vhost_limits"):
        words = ('{"max-connections": -1}',) if unlimited.startswith("set") else ()
        ok(tenant.node, unlimited, "-p", tenant.vhost, *words)
        with tenant.open(), tenant.open():
            pass


def _may_open(tenant: Tenant, node: Node | None = None) -> bool:
    with tenant.opening(node) as raw:
        frame = raw.read()
        return frame is not None and isinstance(frame.method, spec.ConnectionOpenOk)


def test_a_crowd_that_comes_at_once_does_not_pass_a_limit(tenant: Tenant) -> None:
    """Case 50."""
    ok(tenant.node, "set_vhost_limits", "-p", tenant.vhost, '{"max-connections": 7}')
    with contextlib.ExitStack() as stack:
        crowd = [
            stack.enter_context(Raw(tenant.node.amqp_port, tenant.user)).to_opening()
            for _ in range(30)
        ]
        for raw in crowd:
            raw.send(open_vhost(tenant.vhost))
        answers = [frame.method for raw in crowd if (frame := raw.read()) is not None]
        assert len(answers) == len(crowd)
        assert sum(isinstance(each, spec.ConnectionOpenOk) for each in answers) == 7


def test_a_user_has_a_limit_of_connections(tenant: Tenant) -> None:
    """Case 50.

    Rows: 1.1 Limits; 1.12 limits
    """
    ok(tenant.node, "set_user_limits", tenant.user, '{"max-connections": 1}')
    with tenant.open():
        text = (
            f"NOT_ALLOWED - connection refused for user '{tenant.user}': "
            "user connection limit (1) is reached"
        )
        with tenant.opening() as raw:
            raw.connection_closed(530, text)
        ok(tenant.node, "clear_user_limits", tenant.user, "max-connections")
        with tenant.open():
            pass


def test_a_node_has_limits_of_connections_and_channels(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Cases 50 and 51, and `loopback_users = none` is understood.

    Rows: 1.1 Limits
    """
    settings = ("connection_max=2", "channel_max_per_node=3", "loopback_users=none")
    node = Node("limited", tmp_path_factory.mktemp("limited"), settings)
    try:
        node.start()
        with Raw(node.amqp_port) as first, Raw(node.amqp_port) as second:
            first.to_channel(1)
            second.to_channel(1)
            with Raw(node.amqp_port).to_opening() as raw:
                raw.send(open_vhost())
                text = "NOT_ALLOWED - connection refused: node connection limit (2) is reached"
                raw.connection_closed(530, text)
            second.open_channel(2)
            first.send(_channel_open(2))
            first.connection_closed(
                530,
                f"NOT_ALLOWED - number of channels opened on node '{node.user_name}' has reached "
                "the maximum allowed limit of (3)",
            )
            second.open_channel(3)  # the closed one's are free
    finally:
        node.end()


def _channel_open(number: int) -> bytes:
    return method_frame(number, spec.ChannelOpen())


def test_a_user_has_a_limit_of_channels_over_all_its_connections(tenant: Tenant) -> None:
    """Case 51.

    Rows: 1.1 channel_max; 1.12 limits
    """
    ok(tenant.node, "set_user_limits", tenant.user, '{"max-channels": 2}')
    with tenant.open() as first, tenant.open() as second:
        first.open_channel(1)
        second.open_channel(1)
        first.send(_channel_open(2))
        first.connection_closed(
            530,
            f"NOT_ALLOWED - number of channels opened for user '{tenant.user}' has reached the "
            "maximum allowed user limit of (2)",
        )
        second.open_channel(2)
        ok(tenant.node, "set_user_limits", tenant.user, '{"max-channels": -1}')
        second.open_channel(3)


def test_a_vhost_has_a_limit_of_queues(tenant: Tenant) -> None:
    """Case 91.

    Rows: 1.1 Limits; 1.12 limits
    """
    ok(tenant.node, "set_vhost_limits", "-p", tenant.vhost, '{"max-queues": 1}')
    with tenant.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("a")
        channel.queue_declare("a")
        assert refusal(lambda: channel.queue_declare("b")) == (
            406,
            "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost "
            f"'{tenant.vhost}' (1) is reached",
        )
        ok(tenant.node, "clear_vhost_limits", "-p", tenant.vhost)
        connection.channel().queue_declare("b")


def test_limits_hold_for_the_cluster(trio: Trio) -> None:
    """Case 50: connections of the other nodes count, too.

    Rows: 1.1 Limits
    """
    here, there, third = trio.nodes
    tenant = Tenant(here)
    ok(there, "set_user_limits", tenant.user, '{"max-connections": 2}')
    ok(there, "set_vhost_limits", "-p", tenant.vhost, '{"max-connections": 2}')
    with tenant.open(here), tenant.open(there):
        wait_until(lambda: not _may_open(tenant, third), "the third node knows of both")
        with tenant.opening(third) as raw:
            raw.connection_closed(
                530,
                f"NOT_ALLOWED - access to vhost '{tenant.vhost}' refused for user "
                f"'{tenant.user}': connection limit (2) is reached",
            )
    wait_until(lambda: _may_open(tenant, third), "their places are free")
    tenant.end()


def test_channels_of_other_nodes_count(trio: Trio) -> None:
    """Case 51, for a cluster."""
    here, there, _ = trio.nodes
    tenant = Tenant(here)
    ok(there, "set_user_limits", tenant.user, '{"max-channels": 2}')
    with tenant.open(here) as first, tenant.open(there) as second:
        first.open_channel(1)
        first.open_channel(2)
        text = (
            f"NOT_ALLOWED - number of channels opened for user '{tenant.user}' has reached the "
            "maximum allowed user limit of (2)"
        )

        def is_over() -> bool:
            try:
                second.open_channel(1)
            except AssertionError as error:
                return text in str(error)
            second.call(1, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
            return False

        wait_until(is_over, "the other node knows of both")
    tenant.end()


# Going out


@pytest.mark.parametrize("what", ["user", "vhost"])
def test_who_is_deleted_is_disconnected(trio: Trio, what: str) -> None:
    """Rows: 1.12 vhosts, users, tags"""
    here, there, _ = trio.nodes
    tenant = Tenant(here)
    other = Tenant(here)
    with tenant.open(here) as one, tenant.open(there) as two, other.open(there) as bystander:
        one.open_channel(1)
        one.call(1, spec.QueueDeclare("mine", exclusive=True), spec.QueueDeclareOk)
        ok(there, f"delete_{what}", getattr(tenant, what))
        text = f"CONNECTION_FORCED - {what} '{getattr(tenant, what)}' is deleted"
        one.connection_closed(320, text)
        two.connection_closed(320, text)
        bystander.open_channel(1)
    if what == "user":
        queues = here.api("GET", f"/queues/{tenant.vhost}")
        wait_until(lambda: here.api("GET", f"/queues/{tenant.vhost}") == [], f"{queues} are gone")
    tenant.end()
    other.end()


def test_an_operator_closes_connections(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    with tenant.open() as one, tenant.open() as two:
        capsys.readouterr()
        assert ctl(tenant.node, "--formatter", "json", "list_connections", "pid", "user") == 0
        pids = [
            row["pid"] for row in json.loads(capsys.readouterr().out) if row["user"] == tenant.user
        ]
        assert len(set(pids)) == 2
        ok(tenant.node, "close_connection", pids[0], "go away")
        assert ctl(tenant.node, "close_all_connections", "-p", tenant.vhost, "go away") == 0
        for raw in (one, two):
            raw.connection_closed(320, "CONNECTION_FORCED - go away")


def test_a_secret_can_be_updated_at_any_time(tenant: Tenant) -> None:
    """Case 56. The internal database's passwords do not expire: no secret is refused.

    Rows: 1.1 connection.update-secret
    """
    with tenant.open() as raw:
        raw.open_channel(1)
        for secret in (b"new", b""):
            update = spec.ConnectionUpdateSecret(secret, "a reason")
            raw.call(0, update, spec.ConnectionUpdateSecretOk)
        raw.call(1, spec.QueueDeclare("q", exclusive=True), spec.QueueDeclareOk)
        tenant.allow("^$", ALL, ALL)
        raw.call(0, spec.ConnectionUpdateSecret(b"x", ""), spec.ConnectionUpdateSecretOk)
        raw.send(_declare("another"))
        raw.channel_closed(403, _refused(tenant, "configure", "queue 'another'"))


def _declare(name: str) -> bytes:
    return method_frame(1, spec.QueueDeclare(name))


# Permissions


def _refused(tenant: Tenant, action: str, what: str) -> str:
    return (
        f"ACCESS_REFUSED - {action} access to {what} in vhost '{tenant.vhost}' refused for user "
        f"'{tenant.user}'"
    )


def test_what_permissions_refuse(tenant: Tenant) -> None:
    """Case 92.

    Rows: 1.12 permissions
    """
    with tenant.connect() as connection:
        setting_up = connection.channel()
        setting_up.queue_declare("q")
        setting_up.exchange_declare("x", "fanout")
        tenant.allow("", "", "")
        cases: list[tuple[Callable[[], object], str, str]] = []

        def case(act: Callable[[pika.channel.Channel], object], action: str, what: str) -> None:
            channel = connection.channel()
            channel.confirm_delivery()
            cases.append((lambda: act(channel), action, what))

        case(lambda ch: ch.queue_declare("new"), "configure", "queue 'new'")
        case(lambda ch: ch.queue_delete("q"), "configure", "queue 'q'")
        case(lambda ch: ch.exchange_declare("new"), "configure", "exchange 'new'")
        case(lambda ch: ch.exchange_delete("x"), "configure", "exchange 'x'")
        case(lambda ch: ch.basic_publish("x", "", b""), "write", "exchange 'x'")
        case(lambda ch: ch.basic_publish("", "q", b""), "write", "exchange 'amq.default'")
        case(lambda ch: ch.basic_get("q"), "read", "queue 'q'")
        case(lambda ch: ch.basic_consume("q", print), "read", "queue 'q'")
        case(lambda ch: ch.queue_purge("q"), "read", "queue 'q'")
        case(lambda ch: ch.queue_bind("q", "x"), "write", "queue 'q'")
        for act, action, what in cases:
            assert refusal(act) == (403, _refused(tenant, action, what))
        tenant.allow("", "^q$", "")
        bind = connection.channel()
        expected = (403, _refused(tenant, "read", "exchange 'x'"))
        assert refusal(lambda: bind.queue_bind("q", "x")) == expected


def test_permissions_change_under_an_open_channel(tenant: Tenant) -> None:
    """Rows: 1.12 permissions"""
    with tenant.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        for _ in range(3):
            channel.basic_publish("", "q", b"m")
        tenant.allow(ALL, "^other$", ALL)
        assert refusal(lambda: channel.basic_publish("", "q", b"m")) == (
            403,
            _refused(tenant, "write", "exchange 'amq.default'"),
        )
        tenant.allow(ALL, r"^amq\.default$", ALL)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"m")
        assert channel.queue_declare("q", passive=True).method.message_count == 4
        ok(tenant.node, "clear_permissions", "-p", tenant.vhost, tenant.user)
        assert refusal(lambda: channel.basic_get("q"))[0] == 403


def test_topic_permissions(tenant: Tenant) -> None:
    """Case 92.

    Rows: 1.12 topic permissions
    """
    node, vhost, user = tenant.node, tenant.vhost, tenant.user
    words = ("set_topic_permissions", "-p", vhost, user, "amq.topic")
    ok(node, *words, "^{vhost}.{username}[.]", "^in[.]|{client_id}")
    with tenant.connect() as connection:

        def attempt(act: Callable[[pika.channel.Channel], object]) -> tuple[int, str] | None:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q")
            try:
                act(channel)
            except pika.exceptions.ChannelClosedByBroker as closed:
                return closed.reply_code, closed.reply_text
            channel.close()
            return None

        def publish(key: str, exchange: str = "amq.topic") -> tuple[int, str] | None:
            return attempt(lambda ch: ch.basic_publish(exchange, key, b""))

        def bind(key: str) -> tuple[int, str] | None:
            return attempt(lambda ch: ch.queue_bind("q", "amq.topic", key))

        def text(action: str, key: str) -> tuple[int, str]:
            return 403, (
                f"ACCESS_REFUSED - {action} access to topic '{key}' in exchange 'amq.topic' in "
                f"vhost '{vhost}' refused for user '{user}'"
            )

        assert publish(f"{vhost}.{user}.x") is None
        assert publish(f"{vhost}.x") == text("write", f"{vhost}.x")
        assert publish("x", "amq.direct") is None  # not a topic exchange
        for header in ("CC", "BCC"):
            hidden = pika.BasicProperties(headers={header: [f"{vhost}.x"]})
            assert attempt(
                lambda ch, hidden=hidden: ch.basic_publish(
                    "amq.topic", f"{vhost}.{user}.x", b"", hidden
                )
            ) == text("write", f"{vhost}.x")
        assert bind("in.x") is None
        assert bind("out.x") == text("read", "out.x")
        ok(node, *words, "", ALL)
        assert publish(f"{vhost}.{user}.x") == text("write", f"{vhost}.{user}.x")
        ok(node, "clear_topic_permissions", "-p", vhost, user, "amq.topic")
        assert publish("anything") is None


def test_a_dangerous_expression_is_refused_before_it_is_stored(
    tenant: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ctl(tenant.node, "set_permissions", "-p", tenant.vhost, tenant.user, "(", "", "") == 69
    assert capsys.readouterr().err.startswith("Error:\n{:invalid_regexp, '(', ")
    evil = "(a+)+$"
    tenant.allow(evil, ALL, ALL)
    with tenant.connect() as connection:  # RE2 is linear: no name takes long
        name = "a" * 150 + "!"
        channel = connection.channel()
        expected = _refused(tenant, "configure", f"queue '{name}'")
        assert refusal(lambda: channel.queue_declare(name)) == (403, expected)


# Parameters


def test_parameters(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows: 1.12 global parameters"""
    node, vhost = tenant.node, tenant.vhost
    value = '{"max-queues":7,"max-connections":-1}'
    ok(node, "set_parameter", "-p", vhost, "vhost-limits", "limits", value)
    assert ctl(node, "list_vhost_limits", "-p", vhost, "-q") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(value)
    assert ctl(node, "-s", "list_parameters", "-p", vhost) == 0
    assert capsys.readouterr().out == f"vhost-limits\tlimits\t{value}\n"
    assert ctl(node, "set_parameter", "-p", vhost, "foo", "x", "{}") == 69
    err = "Error:\nValidation failed\n\ncomponent foo not found\n\n"
    assert capsys.readouterr().err == err
    ok(node, "clear_parameter", "-p", vhost, "vhost-limits", "limits")
    assert ctl(node, "clear_parameter", "-p", vhost, "vhost-limits", "limits") == 69
    ok(node, "set_global_parameter", "mqtt_default_vhosts", '{"O=client":"/"}')
    capsys.readouterr()
    assert ctl(node, "--formatter", "json", "list_global_parameters") == 0
    found = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert found["mqtt_default_vhosts"] == '{"O=client":"/"}'
    assert found["internal_cluster_id"].startswith('"rabbitmq-cluster-id-')
    assert "cluster_name" in found
    ok(node, "clear_global_parameter", "mqtt_default_vhosts")


def test_the_real_command_line(node: Node) -> None:
    """The program itself: output, errors and exit codes as rabbitmqctl's."""

    def program(*words: str, given: str = "") -> tuple[int, str, str]:
        command = [sys.executable, "-m", "broker", "ctl", "--url"]
        command += [f"http://127.0.0.1:{node.management_port}", *words]
        ended = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout, ended.stderr

    code, out, _ = program("add_user", "typed", given="secret\n")
    assert (code, out.splitlines()[0]) == (0, 'Adding user "typed" ...')
    assert program("authenticate_user", "typed", "secret") == (
        0,
        'Authenticating user "typed" ...\nSuccess\n',
        "",
    )
    assert program("add_user", "typed", "x") == (
        70,
        'Adding user "typed" ...\n',
        'Error:\nUser "typed" already exists\n',
    )
    assert program("add_vhost", "typed", "--description", "d", "--tags", "a,b")[0] == 0
    assert program("list_permissions", "-p", "typed")[1:] == (
        'Listing permissions for vhost "typed" ...\n\n',
        "",
    )
    assert program("-s", "list_vhosts", "name", "description", "tags", "default_queue_type")[
        1
    ].splitlines()[-1] == ("typed\td\t[a, b]\tundefined")
    assert program("delete_vhost", "typed")[0] == 0
    assert program("delete_vhost", "typed") == (
        65,
        'Deleting vhost "typed" ...\n',
        "Virtual host 'typed' does not exist\n",
    )
    assert program("delete_user", "typed")[0] == 0
    assert program("delete_user", "typed")[0] == 67
    assert program("delete_user")[0] == 64
