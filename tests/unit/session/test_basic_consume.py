from __future__ import annotations

import msgspec
import pytest

from broker.amqp import fields, spec
from broker.amqp.assembler import Ack, MethodCommand
from broker.amqp.content import Properties, build_message, decode_properties, raw_properties
from broker.amqp.frames import content_frames
from broker.fifo.commands import Release, Requeue, SetPrefetch
from broker.message import Delivery
from broker.metadata import commands
from broker.session.basic_consume import counted
from broker.session.effects import Attach, ChannelEnded
from broker.session.facts import SessionLimits
from tests.unit.session.rig import Client, World, commands_of, kinds_of, publish
from tests.wire import every_field


@pytest.fixture
def client() -> Client:
    client = Client(World()).open()
    client.call(spec.QueueDeclare(queue="q"), spec.QueueDeclare(queue="r"))
    return client


def close_text(lines: list[str]) -> str:
    assert len(lines) == 1
    assert lines[0].startswith("1 channel.close")
    return lines[0].split(" - ", 1)[1].rsplit(" failed_class_id=60", 1)[0]


def consume(client: Client, queue: str = "q", tag: str = "c", **rest: object) -> list[str]:
    return client.call(spec.BasicConsume(queue=queue, consumer_tag=tag, **rest))


def test_consume_ok_precedes_the_first_delivery(client: Client) -> None:
    """Rows: 1.8 basic.consume"""
    client.feed(publish())
    assert consume(client) == [
        "1 basic.consume-ok consumer_tag=c",
        "1 basic.deliver consumer_tag=c delivery_tag=1 routing_key=q 'x'",
    ]


def test_no_wait_consume_gets_no_ok(client: Client) -> None:
    client.feed(publish())
    assert consume(client, no_wait=True) == [
        "1 basic.deliver consumer_tag=c delivery_tag=1 routing_key=q 'x'"
    ]


def test_queues_get_arguments_without_the_marks_of_their_wire_types(client: Client) -> None:
    """Whatever encodes them later knows plain values only; listings show what the client gave."""
    given = every_field.values()
    assert consume(client, arguments=given) == ["1 basic.consume-ok consumer_tag=c"]
    (asked,) = [each for each in client.world.log if isinstance(each, Attach)]
    assert asked.checkout.arguments == fields.plain_table(given)
    msgspec.msgpack.encode(asked.checkout.arguments)
    ((shown,),) = [each.consumers for each in client.session.listing()]
    assert shown.arguments == given


def test_a_timestamp_is_no_priority(client: Client) -> None:
    lines = consume(client, arguments={"x-priority": fields.Timestamp(5)})
    assert close_text(lines) == (
        "invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got timestamp\""
    )


def test_delivery_tags_count_every_delivery_of_the_channel(client: Client) -> None:
    """Consumers with and without acks, and basic.get, share one count.

    Rows: 1.9 delivery tags
    """
    consume(client, "q", "a")
    consume(client, "r", "b", no_ack=True)
    lines = client.feed(publish("q"), publish("r"), publish("q"))
    client.call(spec.BasicCancel(consumer_tag="a"))
    lines += client.feed(publish("q"), MethodCommand(1, spec.BasicGet(queue="q")))
    tags = [word for line in lines for word in line.split() if word.startswith("delivery_tag")]
    assert tags == [f"delivery_tag={n}" for n in (1, 2, 3, 4)]


def test_server_names_consumers(client: Client) -> None:
    """Rows: 1.8 basic.consume"""
    (line,) = client.call(spec.BasicConsume(queue="q"))
    assert line.startswith("1 basic.consume-ok consumer_tag=amq.ctag-name1-")


def test_tag_in_use_is_530(client: Client) -> None:
    """Rows: 1.8 basic.consume"""
    consume(client)
    consume(client, "r")
    assert client.error is not None
    assert (client.error.code, client.error.text) == (530, "attempt to reuse consumer tag 'c'")


def test_more_consumers_than_allowed_is_530() -> None:
    client = Client(World(), limits=SessionLimits(consumers_per_channel=1)).open()
    client.call(spec.QueueDeclare(queue="q"))
    consume(client, tag="a")
    consume(client, tag="b")
    assert client.error is not None
    assert client.error.text == "reached maximum (1) of consumers per channel"


def test_missing_queue_is_404_and_empty_name_needs_a_declare(client: Client) -> None:
    assert close_text(consume(client, "nope")) == "no queue 'nope' in vhost '/'"
    client.call(spec.ChannelCloseOk())
    client.open()
    assert close_text(consume(client, "")) == "no previously declared queue"


def test_empty_name_is_the_queue_declared_last(client: Client) -> None:
    consume(client, "")
    assert client.feed(publish("r")) == [
        "1 basic.deliver consumer_tag=c delivery_tag=1 routing_key=r 'x'"
    ]


def test_exclusive_consumer_refuses_others(client: Client) -> None:
    """Rows: 1.8 exclusive consumer"""
    consume(client, exclusive=True)
    text = close_text(consume(client, tag="d"))
    assert text == "queue 'q' in vhost '/' in exclusive use"
    assert client.session.channel_count == 1


def test_no_read_permission_is_403(client: Client) -> None:
    client.world.apply(commands.SetPermissions("guest", "/", ".*", ".*", "^x$"))
    text = close_text(consume(client))
    assert text == "read access to queue 'q' in vhost '/' refused for user 'guest'"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"x-priority": "high"},
            "invalid arg 'x-priority' for queue 'q' in vhost '/': "
            '"expected integer, got longstr"',
        ),
        (
            {"x-cancel-on-ha-failover": 1},
            "invalid arg 'x-cancel-on-ha-failover' for queue 'q' in vhost '/': "
            "{unacceptable_type,signedint}",
        ),
        (
            {"x-stream-offset": "first"},
            "invalid arg 'x-stream-offset' for queue 'q' in vhost '/' of queue type "
            "rabbit_classic_queue",
        ),
    ],
)
def test_bad_consumer_arguments_are_406(
    client: Client, arguments: dict[str, object], text: str
) -> None:
    """Rows: 1.8 consumer priority; 1.8 x-cancel-on-ha-failover; 1.8 x-stream-offset"""
    assert close_text(consume(client, arguments=arguments)).startswith(text)


def test_quorum_queues_know_no_failover_of_a_master(client: Client) -> None:
    """Rows: 1.16 consumer args"""
    quorum: dict[str, object] = {"x-queue-type": "quorum"}
    client.call(spec.QueueDeclare(queue="qq", durable=True, arguments=quorum))
    text = close_text(consume(client, "qq", arguments={"x-cancel-on-ha-failover": True}))
    assert text == (
        "invalid arg 'x-cancel-on-ha-failover' for queue 'qq' in vhost '/' of queue type "
        "rabbit_quorum_queue"
    )


@pytest.mark.parametrize("wanted", [True, False])
def test_a_classic_queues_consumer_may_ask_to_end_at_a_failover(
    client: Client, wanted: bool
) -> None:
    lines = consume(client, arguments={"x-cancel-on-ha-failover": wanted})
    assert lines == ["1 basic.consume-ok consumer_tag=c"]


def test_prefetch_is_for_consumers_that_come_later(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    consume(client, "q", "before")
    client.call(spec.BasicQos(prefetch_count=1))
    consume(client, "r", "after")
    assert len(client.feed(*[publish("q")] * 3, *[publish("r")] * 3)) == 4


def test_prefetch_size_is_540(client: Client) -> None:
    client.call(spec.BasicQos(prefetch_size=9))
    assert client.error is not None
    assert (client.error.code, client.error.text) == (540, "prefetch_size!=0 (9)")


def test_channel_limit_spans_consumers_and_parks_the_rest(client: Client) -> None:
    client.call(spec.BasicQos(prefetch_count=3, global_=True))
    consume(client, "q", "a")
    consume(client, "r", "b")
    assert len(client.feed(*[publish("q")] * 3, *[publish("r")] * 3)) == 3
    assert len(client.feed(Ack(1, 2, True))) == 2
    assert len(client.feed(Ack(1, 4, True))) == 1


def test_parked_deliveries_go_back_when_their_consumer_is_cancelled(client: Client) -> None:
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    consume(client, "q", "a")
    consume(client, "r", "b")
    client.feed(publish("q"), publish("r"))
    client.world.log.clear()
    assert client.call(spec.BasicCancel(consumer_tag="b")) == ["1 basic.cancel-ok consumer_tag=b"]
    assert [each.tag for each in commands_of(client.world.log, Requeue)] == ["b"]
    assert client.call(spec.BasicGet(queue="r", no_ack=True)) == [
        "1 basic.get-ok delivery_tag=2 redelivered routing_key=r 'x'"
    ]


def test_qos_per_consumer_takes_the_channel_limit_away(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    consume(client)
    assert len(client.feed(*[publish()] * 3)) == 1
    client.world.log.clear()
    lines = client.call(spec.BasicQos(prefetch_count=0))
    assert [each.prefetch for each in commands_of(client.world.log, SetPrefetch)] == [0]
    assert len(lines) == 3
    assert lines[-1].startswith("1 basic.deliver") or "1 basic.qos-ok" in lines


def test_no_ack_consumers_have_no_limit(client: Client) -> None:
    """Rows: 1.8 default prefetch"""
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    consume(client, no_ack=True)
    assert len(client.feed(*[publish()] * 5)) == 5


def test_quorum_queue_under_channel_limit_is_540(client: Client) -> None:
    """Rows: 1.16 global qos"""
    arguments: dict[str, object] = {"x-queue-type": "quorum"}
    client.call(spec.QueueDeclare(queue="qq", durable=True, arguments=arguments))
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    consume(client, "qq")
    assert client.error is not None
    assert (client.error.code, client.error.text) == (
        540,
        "queue 'qq' in vhost '/' does not support global qos",
    )


def test_cancel_of_unknown_tag_is_ok(client: Client) -> None:
    """Rows: 1.8 basic.cancel"""
    assert client.call(spec.BasicCancel(consumer_tag="z")) == ["1 basic.cancel-ok consumer_tag=z"]
    assert client.call(spec.BasicCancel(consumer_tag="z", no_wait=True)) == []


def test_unacked_of_a_cancelled_consumer_stay_with_the_channel(client: Client) -> None:
    """Rows: 1.8 basic.cancel"""
    consume(client)
    client.feed(publish())
    client.call(spec.BasicCancel(consumer_tag="c"))
    assert client.call(spec.BasicGet(queue="q")) == ["1 basic.get-empty"]
    assert client.feed(Ack(1, 1, False)) == []


def test_lost_queue_cancels_the_consumer_if_the_client_understands_it(client: Client) -> None:
    """Rows: 1.8 cancel notify; 1.1 Client capabilities honoured"""
    consume(client)
    client.open(2)
    lines = client.call(spec.QueueDelete(queue="q"), channel=2)
    assert lines == ["1 basic.cancel consumer_tag=c no_wait", "2 queue.delete-ok"]
    assert client.call(spec.BasicCancel(consumer_tag="c")) == ["1 basic.cancel-ok consumer_tag=c"]


def test_the_channel_that_deletes_the_queue_hears_delete_ok_first(client: Client) -> None:
    """Rows: 1.8 cancel notify; 1.3 queue.delete"""
    consume(client)
    client.call(spec.BasicConsume(queue="q", consumer_tag="d"))
    assert client.call(spec.QueueDelete(queue="q")) == [
        "1 queue.delete-ok",
        "1 basic.cancel consumer_tag=c no_wait",
        "1 basic.cancel consumer_tag=d no_wait",
    ]
    client.call(spec.QueueDeclare(queue="r"), spec.BasicConsume(queue="r", consumer_tag="e"))
    client.open(2)
    lines = client.call(spec.QueueDelete(queue="r"), channel=2)
    assert lines == ["1 basic.cancel consumer_tag=e no_wait", "2 queue.delete-ok"]


def test_no_cancel_notify_without_the_capability() -> None:
    """Rows: 1.8 cancel notify; 1.1 Client capabilities honoured"""
    client = Client(World(), cancel_notify=False).open()
    client.call(spec.QueueDeclare(queue="q"))
    consume(client)
    assert client.call(spec.QueueDelete(queue="q")) == ["1 queue.delete-ok"]


def test_get_tells_how_many_remain_and_empty(client: Client) -> None:
    """Rows: 1.9 basic.get"""
    client.feed(publish(), publish())
    assert client.call(spec.BasicGet(queue="q")) == [
        "1 basic.get-ok delivery_tag=1 routing_key=q message_count=1 'x'"
    ]
    client.call(spec.BasicGet(queue="q", no_ack=True))
    assert client.call(spec.BasicGet(queue="q")) == ["1 basic.get-empty"]


def test_what_get_holds_is_released_with_the_channel(client: Client) -> None:
    client.feed(publish())
    client.call(spec.BasicGet(queue="q"))
    client.world.log.clear()
    client.call(spec.ChannelClose())
    assert kinds_of(client.world.log) == [Release, ChannelEnded]


def test_queue_on_a_dead_node_is_404(client: Client) -> None:
    """Rows: 1.3 Durable non-mirrored queue on dead node"""
    client.world.apply(
        commands.DeclareQueue("/", "far", True, False, None, {}, "rabbit@b", ("rabbit@b",))
    )
    client.world.apply(commands.EndBoot("rabbit@b", "f" * 16))
    text = close_text(consume(client, "far"))
    assert text == (
        "home node 'rabbit@b' of durable queue 'far' in vhost '/' is down or inaccessible"
    )


def test_mirrored_queue_whose_master_is_dead_is_waited_for(client: Client) -> None:
    """A mirror is about to take over; its home is the dead master's until then (P22).

    Rows: 1.3 Queue op during failover
    """
    client.world.apply(commands.SetPolicy("/", "p", "^far$", {"ha-mode": "all"}))
    client.world.apply(
        commands.DeclareQueue("/", "far", True, False, None, {}, "rabbit@b", ("rabbit@b",))
    )
    client.world.apply(commands.EndBoot("rabbit@b", "f" * 16))
    assert consume(client, "far") == ["1 basic.consume-ok consumer_tag=c"]


QUORUM: dict[str, object] = {"x-queue-type": "quorum"}
SINGLE: dict[str, object] = {**QUORUM, "x-single-active-consumer": True}


def test_get_on_a_quorum_queue_with_a_single_active_consumer_is_405(client: Client) -> None:
    """Rows: 1.9 basic.get; 1.16 SAC"""
    client.call(spec.QueueDeclare(queue="qq", durable=True, arguments=SINGLE))
    (line,) = client.call(spec.BasicGet(queue="qq"))
    assert (
        "reply_code=405 reply_text=RESOURCE_LOCKED - cannot obtain access to locked queue 'qq' in "
        "vhost '/'. basic.get operations are not supported by quorum queues with single active "
        "consumer" in line
    )


def test_quorum_queues_ignore_the_exclusive_flag(client: Client) -> None:
    """Rows: 1.16 exclusive consume flag"""
    client.call(spec.QueueDeclare(queue="qq", durable=True, arguments=QUORUM))
    for tag in "ab":
        lines = consume(client, "qq", tag, exclusive=True)
        assert lines == [f"1 basic.consume-ok consumer_tag={tag}"]


def test_no_quorum_queue_under_channel_wide_qos_without_acks_either(client: Client) -> None:
    """Rows: 1.16 global qos"""
    client.call(spec.QueueDeclare(queue="qq", durable=True, arguments=QUORUM))
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    consume(client, "qq", no_ack=True)
    assert client.error is not None
    assert client.error.code == 540


def test_both_scopes_of_qos_hold_together(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.call(spec.BasicQos(prefetch_count=2), spec.BasicQos(prefetch_count=3, global_=True))
    consume(client, "q", "a")
    consume(client, "r", "b")
    lines = client.feed(*[publish("q")] * 5, *[publish("r")] * 5)
    assert [line.split("consumer_tag=")[1][0] for line in lines] == ["a", "a", "b"]


def test_what_get_takes_under_a_channel_limit_does_not_count(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.call(spec.BasicQos(prefetch_count=2, global_=True))
    client.feed(*[publish("q")] * 8)
    for _ in range(3):
        assert client.call(spec.BasicGet(queue="q"))[0].startswith("1 basic.get-ok")
    assert len(consume(client)) == 3
    assert client.feed(Ack(1, 2, True)) == []  # of gets: nothing gets room by it
    assert len(client.feed(Ack(1, 5, True))) == 2  # a get and two deliveries


def test_what_get_took_before_the_channel_limit_was_set_counts(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.feed(*[publish("q")] * 6)
    for _ in range(2):
        client.call(spec.BasicGet(queue="q"))
    client.call(spec.BasicQos(prefetch_count=2, global_=True))
    client.call(spec.BasicGet(queue="q"))
    assert consume(client) == ["1 basic.consume-ok consumer_tag=c"]
    assert client.feed(Ack(1, 3, False)) == []
    assert len(client.feed(Ack(1, 1, False))) == 1


def test_consumers_without_acks_wait_while_the_channel_limit_is_reached(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    consume(client, "q", "early", no_ack=True)
    consume(client, "r", "acks")
    assert len(client.feed(publish("q"), publish("r"))) == 2
    consume(client, "q", "late", no_ack=True)
    assert client.feed(*[publish("q")] * 3) == []
    client.world.run(client, client.session.set_active(active=False))
    client.world.run(client, client.session.set_active(active=True))  # a socket that was full
    assert client.take() == []
    assert len(client.feed(Ack(1, 2, False))) == 3
    assert len(client.feed(publish("r"))) == 1
    assert client.feed(publish("q"), publish("r")) == []
    assert len(client.call(spec.BasicQos(prefetch_count=2, global_=True))) == 3


def test_a_reply_consumer_must_fit_among_the_others() -> None:
    client = Client(World(), limits=SessionLimits(consumers_per_channel=1)).open()
    client.call(spec.QueueDeclare(queue="q"))
    consume(client)
    consume(client, "amq.rabbitmq.reply-to", "replies", no_ack=True)
    assert client.error is not None
    assert client.error.text == "reached maximum (1) of consumers per channel"


def test_a_quorum_queue_s_repeated_deliveries_tell_their_count() -> None:
    """In a header of their own, a long; the rest stays as the publisher wrote it.

    Rows: 1.16 delivery-limit
    """
    sent = {"mine": 1, "x-delivery-count": "faked", "l": [True]}
    with_headers = build_message("", "q", Properties(headers=sent, message_id="m"), b"body" * 9)
    bare = build_message("", "q", Properties(), b"")
    once = [Delivery(1, 0, with_headers)]
    assert counted(once) == once
    first, again, empty = counted([*once, Delivery(2, 3, with_headers), Delivery(3, 1, bare)])
    assert first.message is with_headers
    found = decode_properties(again.message)
    assert found.headers == {"mine": 1, "l": [True], "x-delivery-count": 3}
    assert found.message_id == "m"
    assert b"\x10x-delivery-countl" in raw_properties(again.message)
    assert content_frames(again.message, 1, 4096).endswith(b"body" * 9 + b"\xce")
    assert decode_properties(empty.message).headers == {"x-delivery-count": 1}
