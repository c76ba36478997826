"""Bad input by amount or time: floods, half-sent bodies, clients that hang.

The cases of the table in `test_bad_input` that a row cannot tell. Bounds that are too large to be
reached here are reached in `tests/unit/server`.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.machine import lateness
from tests.nodes import Node, wait_until
from tests.wire.pulse import rss_bytes
from tests.wire.raw import (
    BODY,
    HEARTBEAT,
    Raw,
    content_header,
    frame,
    open_vhost,
    plain,
    publish,
    start_ok,
)
from tests.wire.refusals import declare, ends, refused, user_with, whole
from tests.wire.test_bad_input import GROWTH_MAX_BYTES, serves
from tests.wire.test_management import exchange

CONNECTIONS_MAX = 3
CHANNELS_MAX = 5
CONSUMERS_MAX = 2
MESSAGE_MAX = 1_000
QUEUES_MAX = 8
BEAT_S = 1
DROP_WITHIN_S = 3 * BEAT_S + 4.0
"""Three intervals, ticks of a second, and what two busy cores may add."""


@pytest.fixture(scope="module")
def small_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with few places."""
    settings = [
        f"connection_max={CONNECTIONS_MAX}",
        f"channel_max_per_node={CHANNELS_MAX}",
        f"consumer_max_per_channel={CONSUMERS_MAX}",
        f"max_message_size={MESSAGE_MAX}",
        f"cluster_queue_limit={QUEUES_MAX}",
    ]
    one = Node("small", tmp_path_factory.mktemp("small"), settings)
    try:
        one.start()
        yield one
    finally:
        one.end()


def test_36_half_sent_bodies_on_many_channels(node: Node) -> None:
    """20 MB of them, again and again, take the room of once; the first may enlarge the heap."""
    assert node.process is not None
    half_sent_bodies(node)
    before = rss_bytes(node.process.pid)
    for _ in range(3):
        half_sent_bodies(node)
    assert rss_bytes(node.process.pid) - before < GROWTH_MAX_BYTES


def half_sent_bodies(node: Node) -> None:
    others = len(node.api("GET", "/connections"))
    with Raw(node.amqp_port).to_running() as raw:
        channels = range(1, 201)
        raw.send(*[method_frame(channel, spec.ChannelOpen()) for channel in channels])
        for _ in channels:
            raw.expect(spec.ChannelOpenOk)
        for channel in channels:
            raw.send(publish(channel, "nowhere"), content_header(channel, 1 << 20))
            raw.send(frame(BODY, channel, bytes(100_000)))
        raw.open_channel(1_000)
        serves(node)
    # Else what this one left half-sent and what the next one sends are there together.
    wait_until(lambda: len(node.api("GET", "/connections")) <= others, "it is gone")


def holding(node: Node, queue: str, count: int, size: int) -> Raw:
    """A consumer with a heartbeat of a second that is sent messages and reads none."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(queue)
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("", queue, bytes(size))
    raw = Raw(node.amqp_port).to_channel(heartbeat=BEAT_S)
    raw.call(1, spec.BasicConsume(queue, "tag"), spec.BasicConsumeOk)
    return raw


def comes_back(node: Node, queue: str, count: int) -> None:
    """All messages are ready again in time, as redelivered; then the queue goes."""
    with node.connect() as connection:
        channel = connection.channel()

        def ready() -> int:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

        assert ready() < count
        wait_until(lambda: ready() == count, "the messages are back", DROP_WITHIN_S)
        assert channel.basic_get(queue)[0].redelivered
        channel.queue_delete(queue)


@pytest.mark.parametrize("is_beating", [False, True], ids=["silent", "beating"])
def test_39_who_does_not_read_is_dropped(node: Node, *, is_beating: bool) -> None:
    with holding(node, "bad.unread", 8, 4_000_000) as raw:
        is_over = threading.Event()

        def beat() -> None:
            while is_beating and not is_over.wait(BEAT_S / 2):
                raw.send(frame(HEARTBEAT, 0, b""))

        beats = threading.Thread(target=beat)
        beats.start()
        try:
            comes_back(node, "bad.unread", 8)
        finally:
            is_over.set()
            beats.join()
    serves(node)


def test_40_missed_heartbeats(node: Node) -> None:
    with holding(node, "bad.silent", 1, 10) as raw:
        raw.expect(spec.BasicDeliver)
        start = time.monotonic()
        comes_back(node, "bad.silent", 1)
        assert time.monotonic() - start > BEAT_S
        raw.rest()  # ends: the node has hung up
    serves(node)


def test_50_connection_max(small_node: Node) -> None:
    """Case 50.

    Rows: 1.1 Limits
    """
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(Raw(small_node.amqp_port).to_running())
        with Raw(small_node.amqp_port).to_opening() as late:
            late.send(open_vhost())
            close = late.expect(spec.ConnectionClose)
            text = f"NOT_ALLOWED - connection refused: node connection limit ({CONNECTIONS_MAX}) is"
            assert (close.reply_code, close.reply_text) == (530, f"{text} reached")
            late.send(method_frame(0, spec.ConnectionCloseOk()))
            assert late.read() is None
    wait_until(lambda: is_free(small_node), "the places are free again", 2.0)
    serves(small_node)


@contextmanager
def limited(node: Node, path: str, value: int) -> Iterator[None]:
    """A limit on a user or a vhost, for as long as the context lasts."""
    node.api("PUT", path, {"value": value})
    try:
        yield
    finally:
        node.api("DELETE", path)


def turned_away(node: Node, text: str) -> None:
    """A further connection gets as far as connection.open."""
    with Raw(node.amqp_port).to_opening() as late:
        late.send(open_vhost())
        late.connection_closed(530, f"NOT_ALLOWED - {text}")


def test_50_max_connections_of_a_vhost(node: Node) -> None:
    """Case 50.

    Rows: 1.1 Limits
    """
    with limited(node, "/vhost-limits/%2F/max-connections", 0):
        text = "access to vhost '/' refused for user 'guest': connection limit (0) is reached"
        turned_away(node, text)
    serves(node)


def test_50_max_connections_of_a_user(node: Node) -> None:
    """Case 50.

    Rows: 1.1 Limits
    """
    with limited(node, "/user-limits/guest/max-connections", 0):
        turned_away(
            node,
            "connection refused for user 'guest': user connection limit (0) is reached",
        )
    serves(node)


def test_51_max_channels_of_a_user(node: Node) -> None:
    """Case 51.

    Rows: 1.1 channel_max
    """
    name = "eve51"
    limit = limited(node, f"/user-limits/{name}/max-channels", 2)
    with user_with(node, name, (".*",) * 3), limit, Raw(node.amqp_port, name) as first:
        first.to_channel().open_channel(2)
        with Raw(node.amqp_port, name).to_running() as second:
            second.send(method_frame(1, spec.ChannelOpen()))
            text = (
                f"NOT_ALLOWED - number of channels opened for user '{name}' has reached the "
                "maximum allowed user limit of (2)"
            )
            second.connection_closed(530, text)
        first.call(2, spec.ChannelClose(), spec.ChannelCloseOk)
        first.open_channel(3)
    serves(node)


def test_51_channel_max_per_node(small_node: Node) -> None:
    """Case 51.

    Rows: 1.1 channel_max
    """
    with Raw(small_node.amqp_port).to_running() as raw:
        for number in range(1, CHANNELS_MAX + 1):
            raw.open_channel(number)
        raw.send(method_frame(CHANNELS_MAX + 1, spec.ChannelOpen()))
        text = (
            f"NOT_ALLOWED - number of channels opened on node '{small_node.user_name}' has reached "
            f"the maximum allowed limit of ({CHANNELS_MAX})"
        )
        raw.connection_closed(530, text)
    serves(small_node)


def test_76_a_message_that_is_too_large(small_node: Node) -> None:
    """Case 76: refused at its header; one of exactly the limit passes.

    Rows: 1.1 Max message size
    """
    with Raw(small_node.amqp_port).to_channel() as raw:
        raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        raw.send(whole("nowhere", body=bytes(MESSAGE_MAX)))
        assert raw.expect(spec.BasicAck).delivery_tag == 1
        raw.send(whole("nowhere", body=bytes(MESSAGE_MAX + 1)))
        text = f"message size {MESSAGE_MAX + 1} is larger than configured max size {MESSAGE_MAX}"
        raw.channel_closed(406, f"PRECONDITION_FAILED - {text}")
    serves(small_node)


def test_84_more_consumers_than_a_channel_may_have(small_node: Node) -> None:
    """Case 84.

    Rows: 1.8 basic.consume
    """
    with Raw(small_node.amqp_port).to_channel() as raw:
        declare(raw, "bad.84.max")
        for number in range(CONSUMERS_MAX):
            raw.call(1, spec.BasicConsume("bad.84.max", f"tag{number}"), spec.BasicConsumeOk)
        text = f"NOT_ALLOWED - reached maximum ({CONSUMERS_MAX}) of consumers per channel"
        ends(raw, spec.BasicConsume("bad.84.max", "more"), 530, text)
    serves(small_node)


def test_91_max_queues_of_a_vhost(node: Node) -> None:
    """Case 91.

    Rows: 1.1 Limits
    """
    limit = limited(node, "/vhost-limits/%2F/max-queues", 0)
    with limit, Raw(node.amqp_port).to_channel() as raw:
        text = (
            "PRECONDITION_FAILED - cannot declare queue 'bad.91': queue limit in vhost '/' (0) is "
            "reached"
        )
        refused(raw, spec.QueueDeclare("bad.91"), 406, text)
    serves(node)


def test_91_cluster_queue_limit(small_node: Node) -> None:
    """Case 91: a declaration of what is there is no new queue.

    Rows: 1.1 Limits
    """
    wait_until(lambda: not small_node.api("GET", "/queues"), "others' queues are gone")
    reason = f"cannot declare queue 'bad.91': queue limit in cluster ({QUEUES_MAX}) is reached"
    with Raw(small_node.amqp_port).to_channel() as raw:
        for _ in range(2):
            for number in range(QUEUES_MAX):
                declare(raw, f"bad.91.{number}")
        path = "/queues/%2F/bad.91"
        assert exchange(small_node, "PUT", path, {}) == (
            400,
            {"error": "bad_request", "reason": reason},
        )
        refused(raw, spec.QueueDeclare("bad.91"), 406, f"PRECONDITION_FAILED - {reason}")
        raw.open_channel(2)
        raw.call(2, spec.QueueDelete("bad.91.0"), spec.QueueDeleteOk)
        raw.call(2, spec.QueueDeclare("bad.91", exclusive=True), spec.QueueDeclareOk)
    wait_until(lambda: not small_node.api("GET", "/queues"), "the connection's queues are gone")
    serves(small_node)


def is_free(node: Node) -> bool:
    with Raw(node.amqp_port).to_opening() as raw:
        raw.send(open_vhost())
        answer = raw.read()
        return answer is not None and isinstance(answer.method, spec.ConnectionOpenOk)


def test_57_a_flood_of_failing_logins_slows_itself_only(small_node: Node) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(Raw(small_node.amqp_port)) for _ in range(60)]
        for stranger in strangers:
            stranger.to_starting().send(start_ok(plain("somebody", "wrong")))
        start = time.monotonic()
        serves(small_node)  # guest has logged in from here before
        for stranger in strangers:
            assert stranger.expect(spec.ConnectionClose).reply_code == 403
        assert 2.0 < time.monotonic() - start < 6.0 * lateness()
