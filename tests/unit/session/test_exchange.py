from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.metadata import commands
from tests.unit.session.rig import Client, World, publish


@pytest.fixture
def client() -> Client:
    return Client(World()).open()


def closed(lines: list[str]) -> tuple[int, str]:
    assert len(lines) == 1
    assert lines[0].startswith("1 channel.close"), lines
    code = int(lines[0].split("reply_code=")[1].split()[0])
    return code, lines[0].split(" - ", 1)[1].split(" failed_class_id=40")[0]


def declare(name: str, kind: str = "direct", **rest: object) -> spec.ExchangeDeclare:
    return spec.ExchangeDeclare(exchange=name, type=kind, **rest)


def test_declare_delete_and_again(client: Client) -> None:
    assert client.call(
        declare("x"),
        declare("x"),
        declare("x", passive=True),
        spec.ExchangeDelete(exchange="x"),
        spec.ExchangeDelete(exchange="x"),
    ) == [
        "1 exchange.declare-ok",
        "1 exchange.declare-ok",
        "1 exchange.declare-ok",
        "1 exchange.delete-ok",
        "1 exchange.delete-ok",
    ]


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (declare(""), 403, "operation not permitted on the default exchange"),
        (declare("", passive=True), 403, "operation not permitted on the default exchange"),
        (
            spec.ExchangeDelete(exchange=""),
            403,
            "operation not permitted on the default exchange",
        ),
        (
            spec.ExchangeBind(destination="amq.fanout", source=""),
            403,
            "operation not permitted on the default exchange",
        ),
        (
            spec.ExchangeBind(destination="", source="amq.fanout"),
            403,
            "operation not permitted on the default exchange",
        ),
        (declare("x", passive=True), 404, "no exchange 'x' in vhost '/'"),
        (declare("amq.x"), 403, "exchange name 'amq.x' contains reserved prefix 'amq.*'"),
        (declare("x", "odd"), 406, "unknown exchange type 'odd'"),
        (
            spec.ExchangeDelete(exchange="amq.direct"),
            403,
            "deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        ),
        (
            declare("amq.direct", "fanout", durable=True),
            406,
            "inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': received 'fanout' "
            "but current is 'direct'",
        ),
        (
            spec.ExchangeBind(destination="amq.fanout", source="nope"),
            404,
            "no exchange 'nope' in vhost '/'",
        ),
    ],
)
def test_refusals(client: Client, method: spec.Method, code: int, text: str) -> None:
    assert closed(client.call(method)) == (code, text)


def test_delete_if_unused_while_bound_is_406(client: Client) -> None:
    client.call(declare("x"), spec.QueueDeclare(queue="q"))
    client.call(spec.QueueBind(queue="q", exchange="x"))
    lines = client.call(spec.ExchangeDelete(exchange="x", if_unused=True))
    assert closed(lines) == (406, "exchange 'x' in vhost '/' in use")


def test_exchange_bindings_route(client: Client) -> None:
    client.call(declare("x"), spec.QueueDeclare(queue="q"))
    client.call(spec.QueueBind(queue="q", exchange="x", routing_key="k"))
    bind = spec.ExchangeBind(destination="x", source="amq.fanout")
    unbind = spec.ExchangeUnbind(destination="x", source="amq.fanout")
    assert client.call(bind) == ["1 exchange.bind-ok"]
    client.feed(publish("k", "amq.fanout"))
    assert client.call(unbind, unbind) == ["1 exchange.unbind-ok"] * 2
    client.feed(publish("k", "amq.fanout"))
    assert client.call(spec.QueuePurge()) == ["1 queue.purge-ok message_count=1"]


def test_no_wait_gets_no_answers(client: Client) -> None:
    ends = {"destination": "x", "source": "amq.fanout", "no_wait": True}
    assert (
        client.call(
            declare("x", no_wait=True),
            declare("x", passive=True, no_wait=True),
            spec.ExchangeBind(**ends),
            spec.ExchangeUnbind(**ends),
            spec.ExchangeDelete(exchange="x", no_wait=True),
        )
        == []
    )


def test_alternate_exchange_needs_read_and_write(client: Client) -> None:
    client.world.apply(commands.SetPermissions("guest", "/", ".*", "^$", ".*"))
    lines = client.call(declare("x", arguments={"alternate-exchange": "ae"}))
    assert closed(lines) == (
        403,
        "write access to exchange 'ae' in vhost '/' refused for user 'guest'",
    )


def test_topic_permission_limits_bindings(client: Client) -> None:
    command = commands.SetTopicPermissions("guest", "/", "amq.topic", "^a", "^a")
    client.world.apply(command)
    client.call(spec.QueueDeclare(queue="q"))
    bind = spec.QueueBind(queue="q", exchange="amq.topic", routing_key="b.#")
    (line,) = client.call(bind)
    assert (
        "ACCESS_REFUSED - read access to topic 'b.#' in exchange 'amq.topic' in vhost '/'" in line
    )


def test_permissions_are_cached_but_not_longer_than_they_hold(client: Client) -> None:
    permissions = client.session._channels[1].permissions
    for number in range(20):
        assert permissions.has("read", "queue", f"q{number}")
    assert len(permissions._granted) == 12
    client.world.apply(commands.ClearPermissions("guest", "/"))
    assert closed(client.call(declare("x19")))[0] == 403


def test_rights_for_an_alternate_are_asked_for_at_the_first_declare_only(client: Client) -> None:
    client.call(declare("x", arguments={"alternate-exchange": "ae"}))
    client.world.apply(commands.SetPermissions("guest", "/", ".*", "^$", "^$"))
    lines = client.call(declare("x", arguments={"alternate-exchange": "ae"}))
    assert lines == ["1 exchange.declare-ok"]


def test_an_unknown_type_is_said_before_a_missing_right(client: Client) -> None:
    """Rows: 1.2 Types direct/fanout/topic/headers"""
    client.world.apply(commands.SetPermissions("guest", "/", "^$", "^$", "^$"))
    lines = client.call(spec.ExchangeDeclare(exchange="x", type="odd"))
    assert closed(lines) == (406, "unknown exchange type 'odd'")


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_a_new_binding_with_too_large_arguments_is_406(kind: str) -> None:
    world = World()
    client = Client(world).open()
    client.call(declare("x", "headers"), declare("y"), spec.QueueDeclare(queue="y"))

    def bind(arguments: dict[str, object]) -> spec.Method:
        if kind == "queue":
            return spec.QueueBind(queue="y", exchange="x", arguments=arguments)
        return spec.ExchangeBind(destination="y", source="x", arguments=arguments)

    most = {f"h{number}": "v" * 246 for number in range(256)}
    assert client.call(bind(most)) == [f"1 {kind}.bind-ok"]
    many = most | {"one": 1}
    world.apply(commands.Bind("/", "x", kind, "y", "", many))  # of an earlier version
    assert client.call(bind(many)) == [f"1 {kind}.bind-ok"]
    large = most | {"h0": "v" * 1_000}
    (line,) = client.call(bind(large))
    assert line.startswith("1 channel.close reply_code=406 reply_text=PRECONDITION_FAILED - ")
    assert "the arguments of a binding may take 65536 bytes and these take 6" in line
    client.call(spec.ChannelCloseOk(), spec.ChannelOpen())
    (line,) = client.call(bind(many | {"two": 2}))
    assert "a binding may have 256 arguments and this one has 258: bind several times" in line
    if kind == "queue":
        client.call(spec.ChannelCloseOk(), spec.ChannelOpen())
        unbind = spec.QueueUnbind(queue="y", exchange="x", arguments=many)
        assert client.call(unbind) == ["1 queue.unbind-ok"]
