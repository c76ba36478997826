"""Exchanges and bindings over the wire, routing and refusals, on a real node.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node
from tests.wire.exchanges import drained, publish, queues, refused

# The exchanges themselves


def test_predeclared_exchanges_are_there(channel: BlockingChannel) -> None:
    """Rows: 1.2 Pre-declared per vhost."""
    for name in ("direct", "fanout", "topic", "headers", "match", "rabbitmq.trace"):
        channel.exchange_declare(f"amq.{name}", passive=True)


def test_a_redeclare_must_mean_the_same(node: Node, channel: BlockingChannel, name: str) -> None:
    """Case 60; arguments other than alternate-exchange are not compared.

    Rows: 1.2 declare equivalence
    """
    channel.exchange_declare(name, "direct", arguments={"alternate-exchange": "ae"})
    same = {"alternate-exchange": "ae", "x-other": 1}
    channel.exchange_declare(name, "direct", arguments=same)
    subject = f"for exchange '{name}' in vhost '/'"
    for changes, text in (
        (
            {"exchange_type": "fanout"},
            f"'type' {subject}: received 'fanout' but current is 'direct'",
        ),
        ({"durable": True}, f"'durable' {subject}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, f"'auto_delete' {subject}: received 'true' but current is 'false'"),
        ({"internal": True}, f"'internal' {subject}: received 'true' but current is 'false'"),
        (
            {"arguments": {}},
            f"'alternate-exchange' {subject}: received none but current is the value 'ae' of type "
            "'longstr'",
        ),
        (
            {"arguments": {"alternate-exchange": "other"}},
            f"'alternate-exchange' {subject}: received 'other' but current is 'ae'",
        ),
    ):
        asked = {"exchange_type": "direct", "arguments": same, **changes}
        found = refused(node, lambda each, asked=asked: each.exchange_declare(name, **asked))
        assert found == (406, f"inequivalent arg {text}")


def test_passive_declare_tells_only_whether_it_is_there(
    node: Node, channel: BlockingChannel, name: str
) -> None:
    """Case 62.

    Rows: 1.2 passive declare
    """
    channel.exchange_declare(name, "direct", durable=True)
    channel.exchange_declare(name, "topic", passive=True)
    assert refused(node, lambda each: each.exchange_declare("gone", passive=True)) == (
        404,
        "no exchange 'gone' in vhost '/'",
    )
    assert refused(node, lambda each: each.exchange_declare("", passive=True))[0] == 403


def test_delete_is_idempotent_and_if_unused_counts_bindings(
    node: Node, channel: BlockingChannel, name: str
) -> None:
    """Case 70.

    Rows: 1.2 exchange.delete
    """
    channel.exchange_delete(name)
    channel.exchange_declare(name, "fanout")
    (queue,) = queues(channel, 1)
    channel.queue_bind(queue, name)
    assert refused(node, lambda each: each.exchange_delete(name, if_unused=True)) == (
        406,
        f"exchange '{name}' in vhost '/' in use",
    )
    channel.queue_unbind(queue, name)
    channel.exchange_delete(name, if_unused=True)
    assert refused(node, lambda each: each.exchange_delete("amq.direct")) == (
        403,
        "deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    )


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (
            lambda each: each.exchange_declare("amq.own", "direct"),
            403,
            "exchange name 'amq.own' contains reserved prefix 'amq.*'",
        ),
        (
            lambda each: each.exchange_declare("x", "x-nothing"),
            406,
            "unknown exchange type 'x-nothing'",
        ),
        (
            lambda each: each.exchange_declare("", "direct"),
            403,
            "operation not permitted on the default exchange",
        ),
        (
            lambda each: each.exchange_delete(""),
            403,
            "operation not permitted on the default exchange",
        ),
        (
            lambda each: each.queue_bind(each.queue_declare("").method.queue, "", "k"),
            403,
            "operation not permitted on the default exchange",
        ),
        (
            lambda each: each.queue_unbind(each.queue_declare("").method.queue, "", "k"),
            403,
            "operation not permitted on the default exchange",
        ),
        (
            lambda each: each.queue_bind("gone", "amq.direct"),
            404,
            "no queue 'gone' in vhost '/'",
        ),
        (
            lambda each: each.queue_bind(each.queue_declare("").method.queue, "gone"),
            404,
            "no exchange 'gone' in vhost '/'",
        ),
        (
            lambda each: each.exchange_bind("gone", "amq.direct"),
            404,
            "no exchange 'gone' in vhost '/'",
        ),
        (
            lambda each: each.queue_bind(
                each.queue_declare("").method.queue, "amq.headers", "", {"x-match": "most"}
            ),
            406,
            'Invalid x-match field value <<"most">>; expected all, any, all-with-x, or any-with-x',
        ),
        (
            lambda each: each.queue_bind(
                each.queue_declare("").method.queue, "amq.topic", "#.a.#.b.#"
            ),
            406,
            "invalid topic binding key '#.a.#.b.#': more than 2 '#' words",
        ),
        (
            lambda each: each.exchange_declare(
                "x", "x-consistent-hash", arguments={"hash-header": "a", "hash-property": "b"}
            ),
            406,
            "hash-header and hash-property are mutually exclusive",
        ),
        (
            lambda each: each.exchange_declare(
                "x", "x-delayed-message", arguments={"x-delayed-type": "x-delayed-message"}
            ),
            406,
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
        (
            lambda each: each.exchange_declare("x", "direct", arguments={"alternate-exchange": 5}),
            406,
            "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
        ),
    ],
)
def test_what_is_refused(node: Node, call: Any, code: int, text: str) -> None:
    """Cases 59, 68, 69, 71, 72 and 73.

    Rows: 1.2 Default exchange; 1.2 queue.bind
    """
    assert refused(node, call) == (code, text)


def test_publishing_to_a_missing_or_an_internal_exchange_closes_the_channel(
    node: Node, channel: BlockingChannel, name: str
) -> None:
    """Case 74. What is bound to an internal exchange gets what comes by another.

    Rows: 1.2 internal
    """
    channel.exchange_declare(name, "fanout", internal=True)
    channel.exchange_declare(f"{name}-door", "fanout")
    channel.exchange_bind(name, f"{name}-door")
    (queue,) = queues(channel, 1)
    channel.queue_bind(queue, name)
    assert publish(channel, f"{name}-door")
    assert drained(channel, queue) == ["m"]

    def publish_and_hear(to: str) -> Any:
        def call(each: BlockingChannel) -> None:
            each.basic_publish(to, "", b"m")
            each.queue_declare("", exclusive=True)

        return call

    assert refused(node, publish_and_hear(name)) == (
        403,
        f"cannot publish to internal exchange '{name}' in vhost '/'",
    )
    assert refused(node, publish_and_hear("gone")) == (404, "no exchange 'gone' in vhost '/'")


def test_auto_delete_goes_with_the_last_binding_it_is_the_source_of(
    node: Node, channel: BlockingChannel, name: str
) -> None:
    """Rows: 1.2 auto_delete"""
    channel.exchange_declare(name, "direct", auto_delete=True)
    one, two = queues(channel, 2)
    channel.exchange_bind(name, "amq.fanout", "as destination")
    channel.exchange_unbind(name, "amq.fanout", "as destination")
    channel.queue_bind(one, name, "a")
    channel.queue_bind(two, name, "b")
    channel.queue_unbind(one, name, "a")
    channel.exchange_declare(name, passive=True)
    channel.queue_delete(two)
    assert refused(node, lambda each: each.exchange_declare(name, passive=True))[0] == 404


# Routing


def test_types_of_the_protocol(channel: BlockingChannel, name: str) -> None:
    """An empty routing key is one empty word.

    Rows: 1.2 Types direct/fanout/topic/headers
    """
    (queue,) = queues(channel, 1)
    for kind, key, matching, other in (
        ("direct", "a.b", ["a.b"], ["a", "a.*"]),
        ("fanout", "any", ["", "x"], []),
        ("topic", "a.*.#", ["a.b", "a.b.c.d", "a."], ["a", "b.a"]),
        ("topic", "*", ["", "a"], ["a.b"]),
    ):
        exchange = f"{name}-{kind}-{len(key)}"
        channel.exchange_declare(exchange, kind)
        channel.queue_bind(queue, exchange, key)
        assert [publish(channel, exchange, each) for each in matching] == [True] * len(matching)
        assert [publish(channel, exchange, each) for each in other] == [False] * len(other)


def test_headers_match_in_all_four_modes(channel: BlockingChannel) -> None:
    """Rows: 1.2 headers x-match"""
    modes = ("all", "any", "all-with-x", "any-with-x")
    found = queues(channel, 4)
    for mode, queue in zip(modes, found, strict=True):
        arguments = {"x-match": mode, "kind": "report", "pages": 3, "x-seen": 1, "author": None}
        channel.queue_bind(queue, "amq.headers", "", arguments)

    def reached(**given: object) -> list[str]:
        headers = {key.replace("_", "-"): value for key, value in given.items()}
        publish(channel, "amq.headers", headers=headers)
        return [mode for mode, queue in zip(modes, found, strict=True) if drained(channel, queue)]

    assert reached(kind="report", pages=3, author="ann") == ["all", "any", "any-with-x"]
    assert reached(kind="report", pages=3, author="ann", x_seen=1) == list(modes)
    assert reached(pages="3", x_seen=1) == ["any-with-x"]
    assert reached(author=7) == ["any", "any-with-x"]
    assert reached(pages=True) == []


def test_bindings_between_exchanges_end_in_one_copy_for_each_queue(
    channel: BlockingChannel, name: str
) -> None:
    """Case 97.

    Rows: 1.2 e2e bindings
    """
    one, two = f"{name}-1", f"{name}-2"
    (queue,) = queues(channel, 1)
    for exchange in (one, two):
        channel.exchange_declare(exchange, "fanout")
        channel.queue_bind(queue, exchange)
    channel.exchange_bind(one, two)
    channel.exchange_bind(two, one)
    assert publish(channel, one)
    assert drained(channel, queue) == ["m"]
    channel.exchange_unbind(two, one)
    channel.exchange_unbind(two, one)  # idempotent
    channel.queue_unbind(queue, one)
    assert not publish(channel, one)


def test_alternates_follow_each_other_until_one_routes(
    channel: BlockingChannel, node: Node, name: str
) -> None:
    """A message that the alternate takes is not returned; that one is missing is logged once.

    Rows: 1.2 Alternate exchange
    """
    first, second = f"{name}-1", f"{name}-2"
    channel.exchange_declare(name, "direct", arguments={"alternate-exchange": first})
    channel.exchange_declare(first, "direct", arguments={"alternate-exchange": second})
    for key in ("k", "l"):
        assert not publish(channel, name, key)  # the second is missing
    channel.exchange_declare(second, "fanout", arguments={"alternate-exchange": name})
    assert not publish(channel, name, "k")  # round in a circle
    (queue,) = queues(channel, 1)
    channel.queue_bind(queue, second)
    assert publish(channel, name, "k", "lost")
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == (name, "k", b"lost")
    text = (
        f"alternate exchange for exchange '{first}' in vhost '/' does not exist: exchange "
        f"'{second}' in vhost '/'"
    )
    assert node.log_path.read_text().count(text) == 1


def test_bindings_are_idempotent_and_their_arguments_tell_them_apart(
    channel: BlockingChannel, name: str
) -> None:
    """Rows: 1.2 queue.bind; 1.2 queue.unbind / exchange.unbind"""
    channel.exchange_declare(name, "direct")
    (queue,) = queues(channel, 1)
    for _ in range(2):
        channel.queue_bind(queue, name, "k")
    channel.queue_bind(queue, name, "k", {"a": 1})
    assert publish(channel, name, "k")
    assert drained(channel, queue) == ["m"]
    channel.queue_unbind(queue, name, "k")
    assert publish(channel, name, "k")
    channel.queue_unbind(queue, name, "k", {"a": 1})
    channel.queue_unbind(queue, name, "k")
    channel.queue_unbind("gone", name, "k")
    channel.queue_unbind(queue, "gone", "k")
    assert not publish(channel, name, "k")


def test_default_exchange_leads_to_every_queue_by_its_name(channel: BlockingChannel) -> None:
    """A CC that repeats the routing key makes no second copy.

    Rows: 1.2 Default exchange; 1.11 CC / BCC
    """
    one, two, three = queues(channel, 3)
    assert publish(channel, "", one, headers={"CC": [one, two], "BCC": [three, 7]})
    assert [len(drained(channel, queue)) for queue in (one, two)] == [1, 1]
    _, properties, _ = channel.basic_get(three, auto_ack=True)
    assert properties.headers == {"CC": [one, two]}
    assert not publish(channel, "", "no such queue")


def test_a_binding_has_at_most_256_arguments_of_64_kib(node: Node, name: str) -> None:
    """RabbitMQ has no limit; every message of a headers exchange is compared with them."""

    def bind(channel: BlockingChannel, arguments: dict[str, Any]) -> None:
        channel.queue_bind(channel.queue_declare("", exclusive=True).method.queue, "amq.headers")
        channel.exchange_declare(name, "fanout", auto_delete=True)
        channel.exchange_bind(name, "amq.headers", arguments=arguments)

    many: dict[str, Any] = {f"h{number}": number for number in range(257)}
    code, text = refused(node, lambda channel: bind(channel, many))
    assert (code, text) == (
        406,
        "a binding may have 256 arguments and this one has 257: bind several times, with fewer "
        "arguments each",
    )
    code, text = refused(node, lambda channel: bind(channel, {"h": "v" * 65_536}))
    assert code == 406
    assert text.startswith("the arguments of a binding may take 65536 bytes and these take 65547")
