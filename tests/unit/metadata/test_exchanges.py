"""Exchanges and bindings: RabbitMQ's results and refusals."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from tests.unit.metadata.cluster import BOOT_ONE, ONE, founded, refusal

DEFAULT = (403, "operation not permitted on the default exchange")


def test_every_vhost_has_the_predeclared_exchanges():
    asker = founded()
    asker.ask(commands.AddVhost("v"))
    listed = {
        (each.name, each.type, each.internal) for each in asker.machine.catalogue.exchanges("v")
    }
    assert listed == {
        ("", "direct", False),
        ("amq.direct", "direct", False),
        ("amq.fanout", "fanout", False),
        ("amq.headers", "headers", False),
        ("amq.match", "headers", False),
        ("amq.rabbitmq.trace", "topic", True),
        ("amq.topic", "topic", False),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"type_": "direct"}, "inequivalent arg 'type' for exchange 'x' in vhost '/': "
         "received 'direct' but current is 'fanout'"),
        ({"durable": False}, "inequivalent arg 'durable' for exchange 'x' in vhost '/': "
         "received 'false' but current is 'true'"),
        ({"auto_delete": True}, "inequivalent arg 'auto_delete' for exchange 'x' in vhost '/': "
         "received 'true' but current is 'false'"),
        ({"internal": True}, "inequivalent arg 'internal' for exchange 'x' in vhost '/': "
         "received 'true' but current is 'false'"),
        ({"arguments": {"alternate-exchange": "ae"}},
         "inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/': "
         "received the value 'ae' of type 'longstr' but current is none"),
    ],
)  # fmt: skip
def test_redeclare_with_another_meaning_is_406(changes, text):
    asker = founded()
    assert asker.exchange("x") is True
    assert refusal(asker.exchange("x", **changes)) == (406, text)


def test_redeclare_with_other_arguments_is_ok_and_creates_nothing():
    asker = founded()
    asker.exchange("x")
    assert asker.exchange("x", arguments={"x-foo": 1}) is False
    assert asker.exchange("amq.topic", "topic") is False


def test_reserved_unknown_and_default_are_refused():
    asker = founded()
    assert refusal(asker.exchange("amq.mine")) == (
        403,
        "exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    )
    assert refusal(asker.exchange("x", "bogus")) == (406, "unknown exchange type 'bogus'")
    assert refusal(asker.exchange("", "direct")) == DEFAULT
    assert refusal(asker.ask(commands.DeleteExchange("/", ""))) == DEFAULT
    assert refusal(asker.ask(commands.DeleteExchange("/", "amq.direct"))) == (
        403,
        "deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    )
    assert refusal(asker.exchange("x", arguments={"alternate-exchange": 5})) == (
        406,
        "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
    )


def test_delete_is_idempotent_and_if_unused_looks_at_bindings_as_source():
    asker = founded()
    asker.exchange("x")
    asker.queue("q")
    asker.bind("amq.fanout", "x", kind="exchange")
    asker.bind("x", "q")
    result = asker.ask(commands.DeleteExchange("/", "x", if_unused=True))
    assert refusal(result) == (406, "exchange 'x' in vhost '/' in use")
    asker.unbind("x", "q")
    assert asker.ask(commands.DeleteExchange("/", "x", if_unused=True)) is True
    assert asker.ask(commands.DeleteExchange("/", "x")) is False
    assert asker.machine.catalogue.bindings("/") == []


def test_bind_twice_is_one_binding_and_arguments_are_part_of_it():
    asker = founded()
    asker.queue("q")
    assert asker.bind("amq.direct", "q", "k") is True
    assert asker.bind("amq.direct", "q", "k") is False
    assert asker.bind("amq.direct", "q", "k", arguments={"a": 1}) is True
    assert asker.bind("amq.direct", "q", "k", arguments={"a": True}) is True
    assert len(asker.machine.catalogue.bindings_to("/", "queue", "q")) == 3
    assert asker.unbind("amq.direct", "q", "k") is True
    assert asker.unbind("amq.direct", "q", "k") is False
    route = asker.machine.catalogue.route("/", "amq.direct", "k")
    assert route is not None
    assert [queue.name for queue in route.queues] == ["q"]


@pytest.mark.parametrize(
    ("source", "destination", "kind", "expected"),
    [
        ("x", "q", "queue", (404, "no exchange 'x' in vhost '/'")),
        ("amq.direct", "gone", "queue", (404, "no queue 'gone' in vhost '/'")),
        ("amq.direct", "gone", "exchange", (404, "no exchange 'gone' in vhost '/'")),
        ("x", "gone", "queue", (404, "no exchange 'x' in vhost '/'")),
        ("", "q", "queue", DEFAULT),
        ("amq.direct", "", "exchange", DEFAULT),
    ],
)
def test_bind_refusals(source, destination, kind, expected):
    asker = founded()
    asker.queue("q")
    assert refusal(asker.bind(source, destination, kind=kind)) == expected


def test_unbind_of_what_is_missing_is_ok():
    asker = founded()
    assert asker.unbind("x", "gone") is False
    assert asker.unbind("amq.direct", "gone") is False


def test_bind_to_an_older_incarnation_is_404_and_unbind_does_nothing():
    asker = founded()
    asker.queue("q")
    old = asker.index
    asker.ask(commands.DeleteQueue(old))
    asker.queue("q")
    asker.bind("amq.direct", "q", "k")
    assert refusal(asker.bind("amq.direct", "q", "j", uid=old))[0] == 404
    assert asker.unbind("amq.direct", "q", "k", uid=old) is False
    assert len(asker.machine.catalogue.bindings("/")) == 1


def test_only_the_owner_binds_an_exclusive_queue():
    asker = founded()
    owner = f"{ONE}/{BOOT_ONE}/1"
    asker.queue("q", exclusive_owner=owner)
    assert refusal(asker.bind("amq.direct", "q"))[0] == 405
    assert asker.bind("amq.direct", "q", connection=owner) is True
    assert refusal(asker.unbind("amq.direct", "q", connection="x/y/2"))[0] == 405


def test_bad_topic_and_headers_bindings_are_406():
    asker = founded()
    asker.queue("q")
    assert refusal(asker.bind("amq.topic", "q", "#.a.#.#"))[0] == 406
    assert refusal(asker.bind("amq.headers", "q", arguments={"x-match": "some"}))[0] == 406
    assert asker.bind("amq.fanout", "q", "#.#.#") is True


def test_auto_delete_exchange_goes_with_its_last_binding_as_source():
    asker = founded()
    asker.exchange("x", auto_delete=True)
    asker.queue("q")
    asker.queue("r")
    asker.bind("x", "q")
    asker.bind("x", "r")
    asker.unbind("x", "q")
    assert asker.machine.catalogue.exchange("/", "x") is not None
    queue = asker.machine.catalogue.queue("/", "r")
    assert queue is not None
    asker.ask(commands.DeleteQueue(queue.uid))
    assert asker.machine.catalogue.exchange("/", "x") is None


def test_auto_delete_exchange_without_bindings_stays():
    asker = founded()
    asker.exchange("x", auto_delete=True)
    asker.bind("amq.fanout", "x", kind="exchange")
    asker.unbind("amq.fanout", "x", kind="exchange")
    assert asker.machine.catalogue.exchange("/", "x") is not None


def test_chain_of_auto_delete_exchanges_falls_at_once():
    asker = founded()
    asker.queue("q")
    uid = asker.index
    for number in range(1_200):
        asker.exchange(f"x{number}", auto_delete=True)
        if number:
            asker.bind(f"x{number - 1}", f"x{number}", kind="exchange")
    asker.bind("x1199", "q")
    asker.ask(commands.DeleteQueue(uid))
    assert not any(each.auto_delete for each in asker.machine.catalogue.exchanges("/"))


def test_exchange_bound_to_itself_can_be_deleted():
    asker = founded()
    asker.exchange("x", auto_delete=True)
    asker.bind("x", "x", kind="exchange")
    assert asker.ask(commands.DeleteExchange("/", "x")) is True
    assert asker.machine.catalogue.bindings("/") == []


def test_names_that_no_frame_could_carry_are_refused():
    """The HTTP API could send them; a short string holds 255 bytes."""
    asker = founded()
    assert asker.exchange("x" * 255) is True
    assert refusal(asker.exchange("x" * 256))[0] == 406
    assert refusal(asker.queue("\N{BUTTERFLY}" * 64))[0] == 406
    asker.queue("q")
    assert refusal(asker.bind("amq.direct", "q", "k" * 256))[0] == 406


def test_bindings_move_at_once_and_keep_an_auto_delete_source():
    asker = founded()
    asker.exchange("gone-when-unbound", "topic", auto_delete=True)
    asker.queue("old")
    asker.queue("new")
    asker.bind("gone-when-unbound", "old", "a.#")
    asker.bind("amq.direct", "old", "both")
    asker.bind("amq.direct", "new", "both")
    catalogue = asker.machine.catalogue
    old, new = catalogue.queue("/", "old"), catalogue.queue("/", "new")
    assert asker.ask(commands.MoveBindings(old.uid, new.uid)) == 2
    assert catalogue.bindings_to("/", "queue", "old") == []
    for exchange, key in (("gone-when-unbound", "a.b"), ("amq.direct", "both")):
        route = catalogue.route("/", exchange, key)
        assert [queue.name for queue in route.queues] == ["new"]
    assert asker.ask(commands.MoveBindings(old.uid, new.uid)) == 0


def test_bindings_that_can_not_move():
    asker = founded()
    asker.ask(commands.AddVhost("v"))
    asker.queue("q")
    asker.queue("v", vhost="v")
    asker.queue("mine", exclusive_owner=f"{ONE}/{BOOT_ONE}/1")
    asker.bind("amq.direct", "q", "k")
    catalogue = asker.machine.catalogue
    queue, mine = catalogue.queue("/", "q"), catalogue.queue("/", "mine")
    elsewhere = catalogue.queue("v", "v")
    assert refusal(asker.ask(commands.MoveBindings(queue.uid, elsewhere.uid)))[0] == 404
    assert refusal(asker.ask(commands.MoveBindings(99, queue.uid)))[0] == 404
    assert refusal(asker.ask(commands.MoveBindings(queue.uid, mine.uid)))[0] == 405
    asker.ask(commands.MoveBindings(queue.uid, queue.uid))
    assert len(catalogue.bindings_to("/", "queue", "q")) == 1
