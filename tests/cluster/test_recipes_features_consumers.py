"""Recipes with consumers and limits, as RabbitMQ's users type them, on three real nodes.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from tests.cluster.recipe import (
    Inbox,
    bound_dlx,
    count,
    deaths,
    drained,
    make,
    put,
)
from tests.nodes import wait_until

# 10: prefetch


def test_the_slow_one_holds_its_five(ends: tuple[BlockingChannel, ...], plain_kind: str) -> None:
    """Recipe 10, first half: two consumers of unequal speed.

    Rows: 1.8 prefetch; 1.8 round robin
    """
    here, slow, quick = ends
    queue = make(here, plain_kind)
    for channel in (slow, quick):
        channel.basic_qos(prefetch_count=5)
    held = Inbox(slow, queue, acks=False)
    taken = Inbox(quick, queue)
    here.confirm_delivery()
    for number in range(40):
        put(here, queue, str(number))
    held.wait(5)
    taken.wait(35)
    held.turn()
    assert len(held.got) == 5
    assert sorted(map(int, held.bodies + taken.bodies)) == list(range(40))
    slow.basic_ack(held.got[-1][1].delivery_tag, multiple=True)
    wait_until(lambda: count(here, queue) == 0, "all acked")
    here.queue_delete(queue)


def test_both_limits_hold_together(ends: tuple[BlockingChannel, ...]) -> None:
    """Recipe 10, second half: 3 for each consumer, 5 for all of the channel.

    Rows: 1.8 prefetch
    """
    here, there, _ = ends
    queue = make(here, "classic")
    here.confirm_delivery()
    for number in range(20):
        put(here, queue, str(number))
    there.basic_qos(prefetch_count=3)
    there.basic_qos(prefetch_count=5, global_qos=True)
    inboxes = [Inbox(there, queue, acks=False) for _ in range(2)]

    def held() -> int:
        inboxes[0].turn()
        return sum(len(each.got) for each in inboxes)

    wait_until(lambda: held() == 5, "five of both")
    assert [held() for _ in range(5)] == [5] * 5
    assert max(len(each.got) for each in inboxes) == 3
    fullest = max(inboxes, key=lambda each: len(each.got))
    there.basic_ack(fullest.got[0][1].delivery_tag)
    wait_until(lambda: held() == 6, "one more")
    assert [held() for _ in range(5)] == [6] * 5
    here.queue_delete(queue)


# 11: what comes back


def test_what_comes_back(ends: tuple[BlockingChannel, ...], kind: str) -> None:
    """Recipe 11: a dead consumer, reject with requeue, basic.recover.

    They are at their old places when a consumer dies. Rejected one by one, a quorum queue without
    a delivery limit puts them at its tail.

    Rows: 1.9 requeue position; 1.9 channel/conn close; 1.9 basic.recover(requeue=true);
        1.8 delivery flags; 1.16 requeue position
    """
    here, there, third = ends
    queue = make(here, kind)
    here.confirm_delivery()
    for number in range(5):
        put(here, queue, str(number))
    there.basic_qos(prefetch_count=3)
    Inbox(there, queue, acks=False).wait(3)
    assert count(here, queue) == 2
    there.connection.close()
    wait_until(lambda: count(here, queue) == 5, "all are back")
    back, others = [b"0", b"1", b"2"], [b"3", b"4"]
    for body in back[:2]:
        method, _, got = third.basic_get(queue)
        assert (got, method.redelivered) == (body, True)
    third.basic_nack(0, multiple=True, requeue=True)
    wait_until(lambda: count(here, queue) == 5, "all are back")
    order = back[2:] + others + back[:2] if kind == "quorum" else back + others
    inbox = Inbox(third, queue, acks=False)
    assert inbox.wait(5) == order
    assert {body for _, method, _, body in inbox.got if method.redelivered} == set(back)
    third.basic_recover(requeue=True)
    assert sorted(inbox.wait(10)[5:]) == sorted(order)
    assert all(method.redelivered for _, method, *_ in inbox.got[5:])
    here.queue_delete(queue)


# 12: mandatory


def test_a_mandatory_publish_without_a_binding(ends: tuple[BlockingChannel, ...]) -> None:
    """Recipe 12: basic.return 312, then the confirm, which this client waits for.

    Rows: 1.10 mandatory; 1.10 when acked
    """
    here, there, _ = ends
    there.confirm_delivery()
    with pytest.raises(UnroutableError) as error:
        there.basic_publish("amq.direct", "nobody", b"back", mandatory=True)
    (returned,) = error.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", "nobody")
    assert returned.body == b"back"
    queue = make(here, "classic")
    put(there, queue, "still open")
    assert drained(here, queue) == [b"still open"]
    here.queue_delete(queue)


# 23: poison messages


def test_a_message_always_rejected_ends_as_a_dead_letter(
    ends: tuple[BlockingChannel, ...],
) -> None:
    """Recipe 23.

    Rows: 1.16 delivery-limit; 1.16 what counts; 1.5 Triggers
    """
    here, there, third = ends
    exchange, dead = bound_dlx(here, "quorum")
    queue = make(
        here,
        "quorum",
        delivery_limit=3,
        dead_letter_exchange=exchange,
        dead_letter_routing_key="dlxKey",
    )
    put(here, queue, "poison")
    inbox = Inbox(there, queue, acks=False)
    counts = []
    for number in range(4):
        inbox.wait(number + 1)
        _, method, properties, _ = inbox.got[number]
        counts.append((properties.headers or {}).get("x-delivery-count", 0))
        there.basic_reject(method.delivery_tag, requeue=True)
    assert counts == [0, 1, 2, 3]
    letters = Inbox(third, dead)
    assert letters.wait(1) == [b"poison"]
    (death,) = deaths(letters.got[0][2])
    assert (death["reason"], death["queue"], death["count"]) == ("delivery_limit", queue, 1)
    inbox.turn()
    assert len(inbox.got) == 4
    for each in (queue, dead):
        here.queue_delete(each)


# 24: who gets them


def test_one_active_consumer_and_the_next_one(
    ends: tuple[BlockingChannel, ...], plain_kind: str
) -> None:
    """Recipe 24, first half.

    Rows: 1.8 SAC; 1.16 SAC
    """
    here, there, third = ends
    queue = make(here, plain_kind, single_active_consumer=True)
    first, second = Inbox(there, queue), Inbox(third, queue)
    here.confirm_delivery()
    for number in range(4):
        put(here, queue, str(number))
    assert first.wait(4) == [b"0", b"1", b"2", b"3"]
    second.turn()
    assert second.got == []
    there.basic_cancel(first.tag)
    put(here, queue, "4")
    assert second.wait(1) == [b"4"]
    assert len(first.got) == 4
    here.queue_delete(queue)


def test_higher_priority_first(ends: tuple[BlockingChannel, ...], plain_kind: str) -> None:
    """Recipe 24: the others get what the preferred one has no credit for.

    Rows: 1.8 consumer priority; 1.16 consumer priority
    """
    here, there, third = ends
    queue = make(here, plain_kind)
    for channel in (there, third):
        channel.basic_qos(prefetch_count=3)
    low = Inbox(there, queue, acks=False)
    high = Inbox(third, queue, acks=False, arguments={"x-priority": 10})
    here.confirm_delivery()
    for number in range(5):
        put(here, queue, str(number))
    assert high.wait(3) == [b"0", b"1", b"2"]
    assert low.wait(2) == [b"3", b"4"]
    here.queue_delete(queue)


def test_an_exclusive_consumer_is_alone(ends: tuple[BlockingChannel, ...]) -> None:
    """Recipe 24: the second one is refused, before and after.

    Rows: 1.8 exclusive consumer; 1.16 exclusive consume flag
    """
    here, there, third = ends
    queue = make(here, "classic")
    alone = Inbox(there, queue, exclusive=True)
    with pytest.raises(ChannelClosedByBroker) as error:
        Inbox(third, queue)
    assert error.value.reply_code == 403
    assert (
        error.value.reply_text == f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    )
    there.basic_cancel(alone.tag)
    beside = third.connection.channel()
    Inbox(beside, queue)
    with pytest.raises(ChannelClosedByBroker, match="in exclusive use"):
        Inbox(there, queue, exclusive=True)
    quorum = make(here, "quorum")
    Inbox(here, quorum, exclusive=True)
    both = Inbox(beside, quorum, exclusive=True)
    assert both.tag, "a quorum queue takes no notice of the flag"
    for each in (queue, quorum):
        here.queue_delete(each)


# 25: limits


@pytest.mark.parametrize(
    ("kind", "overflow"),
    [
        ("classic", "drop-head"),
        ("quorum", "drop-head"),
        ("mirrored", "drop-head"),
        ("classic", "reject-publish"),
        ("quorum", "reject-publish"),
        ("mirrored", "reject-publish"),
        ("classic", "reject-publish-dlx"),
        ("mirrored", "reject-publish-dlx"),
    ],
)
def test_ten_and_no_more(
    ends: tuple[BlockingChannel, ...], mirrors: None, kind: str, overflow: str
) -> None:
    """Recipe 25.

    Rows: 1.6 max-length / -bytes; 1.6 drop-head (default); 1.6 reject-publish;
        1.6 reject-publish-dlx; 1.10 nack; 1.16 length limits
    """
    here, there, third = ends
    exchange, dead = bound_dlx(here, "classic")
    dlx = {"dead_letter_exchange": exchange, "dead_letter_routing_key": "dlxKey"}
    queue = make(here, kind, max_length=10, overflow=overflow, **dlx)
    there.confirm_delivery()
    for number in range(10):
        put(there, queue, str(number))
    refused: list[Any] = []
    for number in range(10, 13):
        try:
            put(there, queue, str(number))
        except NackError:
            refused.append(b"%d" % number)
    old, new = [b"0", b"1", b"2"], [b"10", b"11", b"12"]
    drops = overflow == "drop-head"
    assert refused == ([] if drops else new)
    died = {"drop-head": old, "reject-publish": [], "reject-publish-dlx": new}[overflow]
    inbox = Inbox(third, dead)
    assert inbox.wait(len(died)) == died
    assert [deaths(properties)[0]["reason"] for _, _, properties, _ in inbox.got] == (
        ["maxlen"] * len(died)
    )
    first = 3 if drops else 0
    assert drained(here, queue) == [b"%d" % number for number in range(first, first + 10)]
    for each in (queue, dead):
        here.queue_delete(each)
