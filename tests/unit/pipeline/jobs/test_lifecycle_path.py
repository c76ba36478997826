"""One message's path, told from forged steps."""

from __future__ import annotations

from pipeline.command.declared import JOBS
from pipeline.jobs.lifecycle.path import Step, in_order, lines, states

SECOND_US = 1_000_000
WHO = {"node": "rabbit@a", "connection": "c1", "channel": 1, "user": "guest"}


def published(place: int, at_us: int, *queues: str) -> Step:
    return Step(
        place, "publish", at_us, at_us - 2000, "orders", "eu", queues=list(queues), **WHO
    )  # fmt: skip


def delivered(place: int, at_us: int, queue: str, number: int = 1, **more: object) -> Step:
    more = {**WHO, "is_redelivered": False, "no_ack": False, **more}
    return Step(place, "deliver", at_us, queue=queue, number=number, **more)


def settled(kind: str, place: int, at_us: int, queue: str, number: int = 1, **more: object) -> Step:
    return Step(place, kind, at_us, queue=queue, number=number, **{**WHO, **more})


def test_a_message_is_followed_from_publish_over_a_dead_letter_exchange_to_its_ack():
    steps = [
        published(0, SECOND_US, "q", "copies"),
        delivered(1, SECOND_US + 5000, "q"),
        settled("requeue", 2, SECOND_US + 6000, "q"),
        delivered(3, SECOND_US + 7000, "q", is_redelivered=True),
        settled("reject", 4, SECOND_US + 8000, "q", dead_letter_exchange=""),
        delivered(5, SECOND_US + 9000, "dead", number=7),
        settled("ack", 6, SECOND_US + 10_500, "dead", number=7),
        delivered(7, SECOND_US + 11_000, "copies", no_ack=True),
    ]
    told = lines(reversed(steps))
    assert [(ms, what) for _, ms, what, _, _ in told] == [
        (2.0, "published to exchange 'orders' with key 'eu', routed to q, copies"),
        (7.0, "delivered from 'q'"),
        (8.0, "requeued in 'q'"),
        (9.0, "delivered again from 'q'"),
        (10.0, "rejected in 'q', dead-lettered to the default exchange"),
        (11.0, "delivered from 'dead'"),
        (12.5, "acked in 'dead'"),
        (13.0, "delivered from 'copies', no ack awaited"),
    ]
    assert told[0][0] == "1970-01-01 00:00:01.000000"
    assert told[0][3:] == ("rabbit@a", "guest by c1, channel 1")
    assert states(steps) == {"q": "rejected", "dead": "acked", "copies": "delivered without ack"}


def test_what_waits_what_is_held_and_what_had_no_queue_are_told_apart():
    assert states([published(0, 1)]) == {None: "unroutable"}
    assert states([published(0, 1, "q")]) == {"q": "waiting"}
    assert states([published(0, 1, "q"), delivered(1, 2, "q")]) == {"q": "held, no ack seen"}


def test_an_ack_settles_the_delivery_of_its_own_channel_alone():
    steps = [
        published(0, 1, "q"),
        delivered(1, 2, "q"),
        delivered(2, 3, "q", channel=2, is_redelivered=True),
        settled("ack", 3, 4, "q"),
    ]
    assert states(steps) == {"q": "held, no ack seen"}
    assert states([*steps, settled("ack", 4, 5, "q", channel=2)]) == {"q": "acked"}


def test_copies_without_a_time_are_told_in_the_order_of_the_trace():
    steps = [published(0, 1, "q")._replace(at_us=None, received_us=None), delivered(1, 2, "q")]
    steps[1] = steps[1]._replace(at_us=None)
    assert [step.place for step in in_order(reversed(steps))] == [0, 1]
    assert [line[:2] for line in lines(steps)] == [("", None), ("", None)]


def test_a_trace_comes_from_one_place():
    assert JOBS["lifecycle"].exactly_one == ("tap", "stream", "lake")
