"""Recipes with features of queues and exchanges, as RabbitMQ's users write them, on three nodes.

Publishers, consumers and the home of a queue are different nodes.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from tests.cluster.recipe import (
    PATIENCE_S,
    Inbox,
    bound_dlx,
    count,
    deaths,
    drained,
    make,
    name,
    now_s,
    put,
)
from tests.cluster.typed import ctl
from tests.machine import lateness, standstills
from tests.nodes import Node, Trio, wait_until

_PERSISTENT = pika.BasicProperties(delivery_mode=2)


# 1: alternate exchanges


def test_an_alternate_exchange_by_policy(ends: tuple[BlockingChannel, ...], trio: Trio) -> None:
    """Recipe 1.

    Rows: 1.2 Alternate exchange; 1.10 mandatory
    """
    here, there, third = ends
    node = trio.nodes[1]
    normal, other = name("normalExchange"), name("myAE")
    definition = f'{{"alternate-exchange":"{other}"}}'
    assert ctl(node, "set_policy", "AE", f"^{normal}$", definition) == 0
    here.exchange_declare(normal, "direct")
    good, lost = (third.queue_declare("", exclusive=True).method.queue for _ in range(2))
    third.queue_bind(good, normal, "normalKey")
    there.confirm_delivery()
    there.basic_publish(normal, "errorKey", b"its AE is missing")
    here.exchange_declare(other, "topic")
    there.basic_publish(normal, "errorKey", b"its AE has no bindings")
    with pytest.raises(UnroutableError):
        there.basic_publish(normal, "errorKey", b"nowhere", mandatory=True)
    third.queue_bind(lost, other, "errorKey")
    there.basic_publish(normal, "normalKey", b"routed", mandatory=True)
    there.basic_publish(normal, "errorKey", b"rescued", mandatory=True)
    there.basic_publish(normal, "otherKey", b"unroutable there too")
    inbox = Inbox(third, lost)
    assert inbox.wait(1) == [b"rescued"]
    assert inbox.got[0][1].routing_key == "errorKey"
    assert inbox.got[0][1].exchange == normal
    assert drained(third, good) == [b"routed"]
    assert ctl(node, "clear_policy", "AE") == 0
    there.basic_publish(normal, "errorKey", b"gone")
    inbox.turn()
    assert inbox.bodies == [b"rescued"]
    for exchange in (normal, other):
        here.exchange_delete(exchange)


# 2 and 3: TTL and expiry


def test_messages_expire_by_policy_argument_and_property(
    ends: tuple[BlockingChannel, ...], trio: Trio, plain_kind: str
) -> None:
    """Recipe 2: the smaller one counts, at the head only; 0 is at once or never.

    Rows: 1.4 per-queue TTL; 1.4 per-message TTL; 1.4 When removed; 1.4 TTL 0; 1.16 TTL
    """
    here, there, third = ends
    node = trio.nodes[1]
    there.confirm_delivery()
    bare = make(here, plain_kind)
    short = make(here, plain_kind, message_ttl=1_000)
    words = ("set_policy", "TTL", f"^({bare}|{short})$", '{"message-ttl":60000}')
    assert ctl(node, *words, "--apply-to", "queues") == 0
    started = now_s()
    for queue in (bare, short):
        put(there, queue, "as the queue says")
        put(there, queue, "as it says itself", expiration="500")
    put(there, short, "longer than the queue", expiration="60000")
    wait_until(lambda: count(third, short) == 0, "the short ones", PATIENCE_S)
    assert now_s() - started >= 1.0
    assert count(third, bare) == 2, "behind a long one a short one waits, and is counted"
    assert drained(third, bare) == [b"as the queue says"], "but is never delivered"

    put(there, bare, "nobody waits", expiration="0")
    assert count(third, bare) == 0
    inbox = Inbox(third, bare)
    put(there, bare, "somebody waits", expiration="0")
    assert inbox.wait(1) == [b"somebody waits"]
    assert ctl(node, "clear_policy", "TTL") == 0
    for queue in (bare, short):
        here.queue_delete(queue)


def exists(node: Node, queue: str) -> bool:
    with node.connect() as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except ChannelClosedByBroker:
            return False
    return True


def is_listed(node: Node, queue: str) -> bool:
    """Asked of the API: a declare, passive or not, would be a use."""
    return queue in {each["name"] for each in node.api("GET", "/queues/%2F")}


def test_an_unused_queue_goes(trio: Trio, plain_kind: str) -> None:
    """Recipe 3: consumers, and basic.get, are uses.

    Rows: 1.4 x-expires
    """
    with trio.nodes[0].connect() as connection:
        channel = connection.channel()
        kept, got = (make(channel, plain_kind, expires=2_000) for _ in range(2))
        left = make(channel, plain_kind, expires=2_000)
        put(channel, left, "does not keep it")
        with trio.nodes[1].connect() as other:
            inbox = Inbox(other.channel(), kept)
            getter = other.channel()
            started = now_s()
            while is_listed(trio.nodes[2], left):
                inbox.turn()
                getter.basic_get(got)
                assert now_s() - started < PATIENCE_S * lateness()
            took_s = now_s() - started
            assert took_s >= 1.9
            assert is_listed(trio.nodes[2], kept)
            assert is_listed(trio.nodes[2], got)
    wait_until(lambda: not is_listed(trio.nodes[2], kept), "its consumer is gone", PATIENCE_S)


# 4 and 5: dead lettering


def test_the_dead_are_kept_with_why(ends: tuple[BlockingChannel, ...], kind: str) -> None:
    """Recipe 4: expired, rejected without requeue, and over the limit.

    Rows: 1.5 Triggers; 1.5 Config; 1.5 x-death; 1.5 Message changes; 1.6 drop-head (default)
    """
    here, there, third = ends
    exchange, dead = bound_dlx(here, kind)
    dlx = {"dead_letter_exchange": exchange, "dead_letter_routing_key": "dlxKey"}
    normal = make(here, kind, message_ttl=1_000, **dlx)
    bounded = make(here, kind, max_length=1, **dlx)
    there.confirm_delivery()
    inbox = Inbox(third, dead)

    started = now_s()
    put(there, normal, "expires", expiration="60000", headers={"mine": 1})
    inbox.wait(1)
    came_at, method, properties, body = inbox.got[0]
    assert came_at - started >= 0.9
    assert (body, method.exchange, method.routing_key) == (b"expires", exchange, "dlxKey")
    (death,) = deaths(properties)
    assert death["reason"] == "expired"
    assert (death["queue"], death["count"]) == (normal, 1)
    assert (death["exchange"], death["routing-keys"]) == ("", [normal])
    assert death["original-expiration"] == "60000"
    assert properties.expiration is None
    assert properties.headers["mine"] == 1
    assert properties.headers["x-first-death-reason"] == "expired"
    assert properties.headers["x-first-death-queue"] == normal

    refusing = Inbox(here, normal, acks=False)
    put(there, normal, "rejected")
    refusing.wait(1)
    here.basic_reject(refusing.got[0][1].delivery_tag, requeue=False)
    put(there, bounded, "first")
    put(there, bounded, "second")
    inbox.wait(3)
    found = {body: deaths(properties)[0] for _, _, properties, body in inbox.got[1:]}
    assert {body: (each["reason"], each["queue"]) for body, each in found.items()} == {
        b"rejected": ("rejected", normal),
        b"first": ("maxlen", bounded),
    }
    for queue in (normal, bounded, dead):
        third.queue_delete(queue)


@pytest.mark.long
@pytest.mark.alone  # a time: beside other clusters the slowest of 400 took 0.22 to 0.24 s
def test_delays_by_levels(ends: tuple[BlockingChannel, ...], plain_kind: str) -> None:
    """Recipe 5: a routing key chooses a queue with a TTL; what expires there is due.

    Rows: 1.11 sender selected delay
    """
    here, there, third = ends
    levels_s, rate_per_s, seconds, late_max_s = (1, 2, 3, 5), 100, 4, 0.2
    source, due = name("levels"), name("due")
    here.exchange_declare(source, "direct", durable=True)
    here.exchange_declare(due, "direct", durable=True)
    inboxes = {}
    for level_s in levels_s:
        waiting = make(
            here, plain_kind, message_ttl=level_s * 1_000, dead_letter_exchange=due
        )  # fmt: skip
        here.queue_bind(waiting, source, f"delay.{level_s}")
        there.queue_bind(ready := make(here, plain_kind), due, f"delay.{level_s}")
        inboxes[level_s] = Inbox(third, ready, auto_ack=True, acks=False)
    total = rate_per_s * seconds

    def publish() -> None:
        started = now_s()
        for number in range(total):
            wait_s = started + number / rate_per_s - now_s()
            if wait_s > 0:
                time.sleep(wait_s)  # the rate
            level_s = levels_s[number % len(levels_s)]
            there.basic_publish(source, f"delay.{level_s}", repr(now_s()).encode(), _PERSISTENT)

    publisher = threading.Thread(target=publish, daemon=True)

    def all_came() -> bool:
        third.connection.process_data_events(time_limit=0.02)
        return sum(len(each.got) for each in inboxes.values()) == total

    with standstills() as stood:
        publisher.start()
        wait_until(all_came, "all of them", seconds + max(levels_s) + PATIENCE_S)
    publisher.join(PATIENCE_S)
    for level_s, inbox in inboxes.items():
        times_s = [(float(body), at) for at, _, _, body in inbox.got]
        late_s = [at - sent_at - level_s for sent_at, at in times_s]
        assert len(late_s) == total / len(levels_s)
        assert min(late_s) >= -0.01
        own_s = [late - stood.during(*each) for late, each in zip(late_s, times_s, strict=True)]
        assert max(own_s) < late_max_s * lateness()


# 6: priorities


@pytest.mark.parametrize("kind", ["classic", "mirrored"])
def test_waiting_messages_go_by_priority(
    ends: tuple[BlockingChannel, ...], mirrors: None, kind: str
) -> None:
    """Recipe 6.

    Rows: 1.7 x-max-priority; 1.7 message priority; 1.7 with mirroring
    """
    here, there, third = ends
    queue = make(here, kind, max_priority=10)
    there.confirm_delivery()
    priorities = [1, 5, 5, 10, 0, None, 200, 3, 5, 10]
    for number, priority in enumerate(priorities):
        put(there, queue, str(number), priority=priority)
    third.basic_qos(prefetch_count=1)
    expected = [b"%d" % number for number in (3, 6, 9, 1, 2, 8, 7, 0, 4, 5)]
    assert Inbox(third, queue).wait(10) == expected
    here.queue_delete(queue)


# 7: RPC


@pytest.mark.parametrize("reply_to", ["a queue of its own", "amq.rabbitmq.reply-to"])
def test_rpc_replies_match(ends: tuple[BlockingChannel, ...], reply_to: str) -> None:
    """Recipe 7: client, server and the requests' queue on three nodes.

    Rows: 1.11 RPC with reply queue; 1.11 direct reply-to
    """
    home, client, server = ends
    requests = make(home, "classic")
    is_direct = reply_to.startswith("amq.")
    if not is_direct:
        reply_to = client.queue_declare("", exclusive=True).method.queue

    def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        meant = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body * 2, meant)
        channel.basic_ack(method.delivery_tag)

    server.basic_consume(requests, answer)
    inbox = Inbox(client, reply_to, acks=False, auto_ack=True)
    for number in range(20):
        put(client, requests, f"{number},", reply_to=reply_to, correlation_id=f"c{number}")

    def all_answered() -> bool:
        server.connection.process_data_events(time_limit=0.02)
        inbox.turn()
        return len(inbox.got) == 20

    wait_until(all_answered, "twenty replies", PATIENCE_S)
    assert {properties.correlation_id: body for _, _, properties, body in inbox.got} == {
        f"c{number}": f"{number},{number},".encode() for number in range(20)
    }
    if is_direct:
        lost = client.connection.channel()
        put(lost, requests, "x", reply_to="amq.rabbitmq.reply-to")
        with pytest.raises(ChannelClosedByBroker, match="fast reply consumer does not exist"):
            lost.queue_declare(requests, passive=True)
    home.queue_delete(requests)


# 8: durability


@pytest.mark.long
def test_what_a_restart_of_all_nodes_keeps(own_trio: Trio) -> None:
    """Recipe 8: durable exchange, durable queue, persistent message; then each missing in turn.

    Rows: 1.10 durability; 1.2 Binding durability; 1.4 x-expires
    """
    here, there, _ = own_trio.nodes
    expires_s = 6
    with here.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("kept", "direct", durable=True)
        channel.exchange_declare("lost", "direct")
        channel.queue_declare("kept", durable=True)
        channel.queue_declare("lost")
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
        renewed = [make(channel, kind, expires=expires_s * 1_000) for kind in ("classic", "quorum")]
        declared = now_s()
        for exchange in ("kept", "lost"):
            for queue in ("kept", "lost", "quorum"):
                channel.queue_bind(queue, exchange, queue)
    with there.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in ("kept", "lost", "quorum"):
            channel.basic_publish("kept", queue, b"persistent", _PERSISTENT, mandatory=True)
            channel.basic_publish("kept", queue, b"transient", mandatory=True)
    for each in own_trio.nodes:
        each.stop(30)
    wait_until(lambda: now_s() - declared > expires_s, "they would have expired")
    own_trio.start()
    assert all(is_listed(here, queue) for queue in renewed), "their time starts anew"
    with there.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        assert drained(channel, "kept") == [b"persistent"], "a transient message is gone"
        assert drained(channel, "quorum") == [b"persistent", b"transient"], "Raft keeps all"
        channel.basic_publish("kept", "kept", b"by its binding", mandatory=True)
        assert drained(channel, "kept") == [b"by its binding"]
        with pytest.raises(UnroutableError):
            channel.basic_publish("kept", "lost", b"to nobody", mandatory=True)
    assert not exists(here, "lost"), "a transient queue is gone"
    with there.connect() as connection, pytest.raises(ChannelClosedByBroker, match="no exchange"):
        connection.channel().exchange_declare("lost", passive=True)
    for queue in renewed:
        wait_until(lambda: not is_listed(here, queue), "and comes to its end", 20)  # noqa: B023


# 9: transactions and confirms


def test_transactions_and_confirms(ends: tuple[BlockingChannel, ...], kind: str) -> None:
    """Recipe 9; the four rates are what `make bench` measures.

    Rows: 1.10 tx.select/commit/rollback; 1.10 confirm.select; 1.10 when acked
    """
    here, there, third = ends
    queue = make(here, kind)
    ten = [b"%d" % number for number in range(10)]
    there.tx_select()
    for body in ten:
        put(there, queue, b"no" + body)
    there.tx_rollback()
    for body in ten:
        put(there, queue, body)
    assert count(third, queue) == 0, "nothing before the commit"
    there.tx_commit()
    assert count(third, queue) == 10
    tags = [third.basic_get(queue)[0].delivery_tag for _ in range(10)]
    third.tx_select()
    third.basic_ack(tags[-1], multiple=True)
    third.tx_rollback()
    third.basic_ack(tags[-1], multiple=True)
    third.tx_commit()
    third.close()
    assert count(here, queue) == 0

    confirming = there.connection.channel()
    confirming.confirm_delivery()
    for body in ten:
        put(confirming, queue, body)
    assert drained(here, queue) == ten
    with pytest.raises(ChannelClosedByBroker, match="cannot switch from confirm to tx mode"):
        confirming.tx_select()
    here.queue_delete(queue)
