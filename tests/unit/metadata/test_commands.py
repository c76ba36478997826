"""Requests on the wire."""

from __future__ import annotations

from broker.amqp import fields
from broker.metadata import commands
from broker.routing.headers import HeadersMatcher
from tests.unit.metadata.cluster import founded
from tests.unit.routing.shorthands import Shorthand


def test_marked_field_values_arrive_plain():
    given = {
        "time": fields.Timestamp(5),
        "bytes": fields.Binary(b"x\xff"),
        "float": fields.Float32(1.5),
        "nested": [{"void": None}, True],
    }
    data = commands.encode_request("b", 1, 1, commands.SetParameter("", "", "n", given))
    command = commands.decode_request(data).command
    assert isinstance(command, commands.SetParameter)
    assert command.value == {
        "time": 5,
        "bytes": b"x\xff",
        "float": 1.5,
        "nested": [{"void": None}, True],
    }
    assert type(command.value["bytes"]) is bytes


def test_headers_binding_on_marked_values_matches_messages_that_carry_them():
    """The binding has been through the log, the message has not."""
    headers = {"a": fields.Decimal(scale=2, value=314), "b": fields.Binary(b"\xff")}
    asker = founded()
    asker.queue("q")
    asker.bind("amq.headers", "q", arguments={"x-match": "all", **headers})
    route = asker.machine.catalogue.route("/", "amq.headers", "", headers)
    assert route is not None
    assert [queue.name for queue in route.queues] == ["q"]
    matcher = Shorthand(HeadersMatcher())
    matcher.bind("", "q", headers)
    assert list(matcher.match("", headers=headers)) == ["q"]
