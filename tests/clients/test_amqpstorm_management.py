"""amqpstorm's client of the management API: every method that it has, over HTTPS."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pytest
from amqpstorm.management import ApiError, ManagementApi
from amqpstorm.management.base import ManagementHandler
from pika.exceptions import ConnectionClosedByBroker

from tests.nodes import wait_until
from tests.tls_place import TlsPlace

VHOST: Final = {"virtual_host": "storm house"}
RULE: Final = {"configure": "^q", "write": ".*", "read": ""}
HAS_ALL: Final = {"configure_regex": "^q", "write_regex": ".*", "read_regex": ""}


class Refused(NamedTuple):
    """An error of the API: its status, and a part of what amqpstorm makes of it."""

    status: int
    text: str = ""


class Has(NamedTuple):
    """A dictionary with at least these items."""

    items: dict[str, Any]


class Names(NamedTuple):
    """A list of dictionaries, in this order, by an item of each."""

    values: list[Any]
    item: str = "name"


class Bodies(NamedTuple):
    """A list of messages."""

    values: list[str]


NOTHING: Final = None
MISSING: Final = Refused(404, "NOT-FOUND")
Row = tuple[str, tuple[Any, ...], dict[str, Any], Any]

TABLE: Final[tuple[Row, ...]] = (
    # what there is of a node
    ("whoami", (), {}, Has({"name": "guest", "tags": ["administrator"]})),
    ("overview", (), {}, Has({"rabbitmq_version": "3.13.7", "node": "rabbit@tls"})),
    ("cluster_name", (), {}, {"name": "rabbit@tls"}),
    ("nodes", (), {}, Names(["rabbit@tls"])),
    ("node", ("rabbit@tls",), {}, Has({"running": True, "type": "disc"})),
    ("node", ("rabbit@nowhere",), {}, MISSING),
    ("top", (), {}, MISSING),  # rabbitmq_top's, which RabbitMQ has to be told to load
    ("healthchecks.get", (), {}, {"status": "ok"}),
    ("healthchecks.get", ("rabbit@tls",), {}, {"status": "ok"}),
    ("healthchecks.get", ("rabbit@nowhere",), {}, MISSING),
    ("aliveness_test", (), {}, {"status": "ok"}),
    ("aliveness_test", ("storm house",), {}, MISSING),
    # vhosts and users
    ("virtual_host.create", ("storm house",), {}, NOTHING),
    ("virtual_host.create", ("storm house",), {}, NOTHING),
    ("virtual_host.get", ("storm house",), {}, Has({"name": "storm house", "tracing": False})),
    ("virtual_host.list", (), {}, Names(["/", "storm house"])),
    ("aliveness_test", ("storm house",), {}, {"status": "ok"}),
    ("queue.delete", ("aliveness-test",), VHOST, NOTHING),
    ("user.create", ("ann", "secret"), {"tags": "management,policymaker"}, NOTHING),
    ("user.create", ("bob", "secret"), {"tags": ["monitoring"]}, NOTHING),
    ("user.get", ("ann",), {}, Has({"name": "ann", "tags": ["management", "policymaker"]})),
    ("user.create", ("ann", "another"), {}, NOTHING),
    ("user.get", ("ann",), {}, Has({"tags": []})),
    ("user.list", (), {}, Names(["ann", "bob", "guest"])),
    ("user.set_permission", ("ann", "storm house"), HAS_ALL, NOTHING),
    ("user.get_permission", ("ann", "storm house"), {}, Has(RULE)),
    ("user.get_permissions", ("ann",), {}, Names(["storm house"], "vhost")),
    ("virtual_host.get_permissions", ("storm house",), {}, Names(["ann", "guest"], "user")),
    ("user.delete_permission", ("ann", "storm house"), {}, NOTHING),
    ("user.get_permission", ("ann", "storm house"), {}, MISSING),
    ("user.set_permission", ("ann", "storm house"), {"read_regex": "("}, Refused(400)),
    ("user.delete", ("ann",), {}, NOTHING),
    ("user.delete", ("ann",), {}, MISSING),
    ("user.delete", (["bob"],), {}, NOTHING),
    ("user.get", ("bob",), {}, MISSING),
    # queues
    (
        "queue.declare",
        ("q 1",),
        {**VHOST, "durable": True, "arguments": {"x-max-length": 10}},
        NOTHING,
    ),
    ("queue.declare", ("q2",), {**VHOST, "auto_delete": True}, NOTHING),
    ("queue.declare", ("q2",), {**VHOST, "durable": True}, Refused(400)),
    ("queue.declare", ("q3",), {**VHOST, "passive": True}, MISSING),
    ("queue.declare", ("q 1",), {**VHOST, "passive": True}, Has({"durable": True})),
    ("queue.get", ("q 1",), VHOST, Has({"arguments": {"x-max-length": 10}, "type": "classic"})),
    ("queue.list", (), {**VHOST, "page_size": 1}, Names(["q 1", "q2"])),
    ("queue.list", (), {**VHOST, "page_size": None}, Names(["q 1", "q2"])),
    (
        "queue.list",
        (),
        {"show_all": True, "name": "^q.?[12]$", "use_regex": True},
        Names(["q 1", "q2"]),
    ),
    ("queue.list", ("nowhere",), {}, MISSING),
    # exchanges and bindings
    ("exchange.declare", ("e 1", "topic"), {**VHOST, "durable": True}, NOTHING),
    (
        "exchange.declare",
        ("e2", "fanout"),
        {**VHOST, "internal": True, "arguments": {"alternate-exchange": "e 1"}},
        NOTHING,
    ),
    ("exchange.declare", ("e2", "direct"), VHOST, Refused(400)),
    ("exchange.declare", ("e3", "nonsense"), VHOST, Refused(400)),
    ("exchange.declare", ("e2",), {**VHOST, "passive": True}, Has({"internal": True})),
    ("exchange.get", ("e 1",), VHOST, Has({"type": "topic", "durable": True})),
    (
        "exchange.list",
        (),
        {**VHOST, "page_size": 1, "name": "^e.", "use_regex": True},
        Names(["e 1", "e2"]),
    ),
    ("exchange.bind", ("e2", "e 1", "a.#"), VHOST, NOTHING),
    ("exchange.bind", ("e2", "e 1", "b"), {**VHOST, "arguments": {"x": 1}}, NOTHING),
    ("exchange.bindings", ("e 1",), VHOST, Names(["a.#", "b"], "routing_key")),
    ("exchange.unbind", ("e2", "e 1", "b"), VHOST, MISSING),  # has arguments, and so another key
    ("exchange.unbind", ("e2", "e 1", "a.%23"), VHOST, NOTHING),
    ("queue.bind", ("q 1", "e 1", "a.b"), VHOST, NOTHING),
    ("queue.bind", ("q3", "e 1", "a.b"), VHOST, MISSING),
    ("queue.bindings", ("q 1",), VHOST, Names(["", "e 1"], "source")),
    # messages
    (
        "basic.publish",
        ("bee", "a.b"),
        {**VHOST, "exchange": "e 1", "properties": {"headers": {"a": 1}}},
        {"routed": True},
    ),
    ("basic.publish", ("lost", "c"), {**VHOST, "exchange": "e 1"}, {"routed": False}),
    (
        "basic.publish",
        ("aGVsbG8=", "q 1"),
        {**VHOST, "payload_encoding": "base64"},
        {"routed": True},
    ),
    ("basic.publish", ("*", "q 1"), {**VHOST, "payload_encoding": "base64"}, Refused(400)),
    ("basic.publish", ("", "q 1"), {**VHOST, "exchange": "nowhere"}, MISSING),
    ("basic.get", ("q 1",), {**VHOST, "requeue": True, "count": 9}, Bodies(["bee", "hello"])),
    (
        "basic.get",
        ("q 1",),
        {**VHOST, "requeue": True, "to_dict": True, "encoding": "base64", "truncate": 2},
        [
            {
                "payload_bytes": 3,
                "redelivered": True,
                "exchange": "e 1",
                "routing_key": "a.b",
                "message_count": 1,
                "properties": {"headers": {"a": 1}},
                "payload": "YmU=",
                "payload_encoding": "base64",
            }
        ],
    ),
    ("basic.get", ("q 1",), VHOST, Bodies(["bee"])),
    ("queue.purge", ("q 1",), VHOST, NOTHING),
    ("basic.get", ("q 1",), VHOST, Bodies([])),
    ("basic.get", ("q3",), VHOST, MISSING),
    # and their ends
    ("queue.unbind", ("q 1", "e 1", "a.b"), VHOST, NOTHING),
    ("queue.unbind", ("q 1", "e 1", "a.b"), VHOST, MISSING),
    ("queue.delete", ("q 1",), VHOST, NOTHING),
    ("queue.delete", ("q 1",), VHOST, MISSING),
    ("exchange.delete", ("e 1",), VHOST, NOTHING),
    ("exchange.delete", ("e 1",), VHOST, MISSING),
    ("exchange.delete", ("amq.topic",), VHOST, Refused(403, "ACCESS-REFUSED")),
    ("virtual_host.delete", ("storm house",), {}, NOTHING),
    ("virtual_host.delete", ("storm house",), {}, MISSING),
)
OF_CONNECTIONS: Final = frozenset(
    ("channel.get", "channel.list", "connection.close", "connection.get", "connection.list")
)


@pytest.fixture
def api(tls_place: TlsPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManagementApi]:
    """A client that trusts the node's authority, and only that."""
    for each in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # go before what it is told
        monkeypatch.delenv(each, raising=False)
    url = f"https://localhost:{tls_place.https_port}"
    trusted = str(tls_place.authority.certfile)
    with ManagementApi(url, "guest", "guest", verify=trusted) as client:
        yield client
        client.http_client.session.close()


def public(thing: object) -> set[str]:
    """The names of its methods."""
    members = inspect.getmembers(type(thing), inspect.isfunction)
    return {name for name, _ in members if not name.startswith("_")}


def methods(api: ManagementApi) -> set[str]:
    """The names of all that it can be asked."""
    handlers = [(name, getattr(api, name)) for name in dir(api) if not name.startswith("_")]
    found = public(api)
    for name, handler in handlers:
        if isinstance(handler, ManagementHandler):
            found |= {f"{name}.{each}" for each in public(handler)}
    return found


def said(answer: Any, like: Any) -> Any:
    """What a row speaks of in an answer."""
    if isinstance(like, Has):
        return Has({key: answer.get(key) for key in like.items})
    if isinstance(like, Names):
        return Names([each[like.item] for each in answer], like.item)
    if isinstance(like, Bodies):
        return Bodies([each.body for each in answer])
    return answer


def asked(api: ManagementApi, row: Row) -> Any:
    name, arguments, options, expected = row
    try:
        answer = attrgetter(name)(api)(*arguments, **options)
    except ApiError as error:
        is_as_expected = isinstance(expected, Refused) and expected.text in str(error)
        return Refused(error.error_code, expected.text if is_as_expected else str(error))
    return said(answer, expected)


def test_every_method_of_its_management_api(api: ManagementApi) -> None:
    assert {row[0] for row in TABLE} | OF_CONNECTIONS == methods(api)
    try:
        for row in TABLE:
            assert asked(api, row) == row[3], row
    finally:
        with suppress(ApiError):
            api.virtual_host.delete("storm house")


def test_connections_and_channels(api: ManagementApi, tls_place: TlsPlace) -> None:
    properties = [{"connection_name": f"storm {number}"} for number in range(2)]
    with (
        tls_place.connect(client_properties=properties[0]) as first,
        tls_place.connect(client_properties=properties[1]) as second,
    ):
        for connection in (first, second, second):
            connection.channel()

        def connections(**options: Any) -> dict[str, str]:
            listed = api.connection.list(**options)
            names = {each.get("user_provided_name"): each["name"] for each in listed}
            return {own: names[own] for own in ("storm 0", "storm 1") if own in names}

        def channels(**options: Any) -> list[str]:
            ours, listed = connections().values(), api.channel.list(**options)
            found = [each for each in listed if each["connection_details"]["name"] in ours]
            return sorted(each["name"] for each in found)

        wait_until(lambda: len(channels()) == 3, "its channels are listed", 15)
        ours = connections()
        assert channels() == channels(page_size=1)
        assert channels() == sorted(
            [f"{ours['storm 0']} (1)", f"{ours['storm 1']} (1)", f"{ours['storm 1']} (2)"]
        )
        assert connections(page_size=1) == ours
        exactly = f"^{ours['storm 0']}$"
        assert connections(name=exactly, use_regex=True) == {"storm 0": ours["storm 0"]}
        assert api.connection.get(ours["storm 0"])["ssl"] is True
        assert api.channel.get(channels()[0])["number"] == 1
        api.connection.close(ours["storm 0"], reason="of the storm")
        with pytest.raises(ConnectionClosedByBroker, match="CONNECTION_FORCED - of the storm"):
            first.process_data_events(10)
        wait_until(lambda: list(connections()) == ["storm 1"], "one is left", 15)
        for ask in (api.connection.get, api.connection.close, api.channel.get):
            with pytest.raises(ApiError, match="NOT-FOUND"):
                ask(ours["storm 0"])
