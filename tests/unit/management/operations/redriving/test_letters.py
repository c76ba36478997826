"""What a dead letter says of its deaths, and what it is when it goes back."""

from __future__ import annotations

import pytest

from broker.amqp.content import Properties, build_message, decode_properties
from broker.fifo.dead_letter import dead_message
from broker.fifo.limits import Reason
from broker.management.operations.browsing.masking import Masks
from broker.management.operations.redriving.letters import read, revived
from broker.message import Message


def published(headers: dict[str, object] | None = None, key: str = "key") -> Message:
    return build_message("origin", key, Properties(headers=headers), b"body")


def dead(message: Message, reason: Reason, queue: str, key: str | None = None) -> Message:
    found, _ = dead_message(
        message, reason=reason, queue=queue, time_s=1_000, exchange="dlx", routing_key=key
    )
    return found


def headers(message: Message) -> dict[str, object]:
    return decode_properties(message).headers or {}


def test_a_message_that_never_died_is_no_dead_letter() -> None:
    assert read(published()) is None
    assert read(published({"x-redrive-count": 3})) is None


def test_the_first_death_is_the_origin_and_the_last_is_asked_for() -> None:
    """A retry through a queue with a time to live: work rejects, retry expires, work rejects."""
    message = published()
    for reason, queue in (("rejected", "work"), ("expired", "retry"), ("rejected", "work")):
        message = dead(message, reason, queue)
    first, last = read(message), read(message, "last")
    assert first is not None
    assert last is not None
    assert (first.reason, first.queue, first.exchange) == ("rejected", "work", "origin")
    assert (first.keys, first.deaths, first.seen_ms) == (("key",), 3, 1_000_000)
    assert (last.queue, last.exchange) == ("work", "dlx")


def test_the_last_death_is_another_queue_than_the_first() -> None:
    last = read(dead(dead(published(), "rejected", "work"), "expired", "retry"), "last")
    assert last is not None
    assert (last.reason, last.queue, last.exchange) == ("expired", "retry", "dlx")


def test_keys_of_cc_follow_the_message_and_come_back_where_a_key_took_them_out() -> None:
    message = dead(published({"CC": ["copy"]}), "rejected", "work", key="all")
    letter = read(message)
    assert letter is not None
    assert letter.keys == ("key", "copy")
    assert "CC" not in headers(message)
    back = revived(message, letter, "origin", "key", letter.keys[1:])
    assert headers(back) == {"CC": ["copy"], "x-redrive-count": 1}


def test_what_goes_back_is_as_it_was_but_for_the_mark() -> None:
    mine: dict[str, object] = {"n": 1, "x-mine": "kept"}
    message = dead(published(mine), "maxlen", "work")
    for count in (1, 2, 3):
        letter = read(message)
        assert letter is not None
        assert letter.redrives == count - 1
        back = revived(message, letter, letter.exchange or "", letter.keys[0], ())
        assert headers(back) == {**mine, "x-redrive-count": count}
        assert (back.exchange, back.routing_key, back.body_size) == ("origin", "key", 4)
        message = dead(back, "maxlen", "work")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, None),
        ({"x-exception-message": "  no stock\nat Shop.java:7"}, "no stock"),
        ({"x-exception-message": "m", "x-exception-type": "T"}, "T"),
        ({"NServiceBus.ExceptionInfo.ExceptionType": "N"}, "N"),
        ({"MT-Fault-ExceptionType": "M", "x-exception-message": "m"}, "M"),
        ({"x-exception-message": "a" * 300}, "a" * 199 + "…"),
        ({"x-exception-message": 7, "MT-Fault-Message": " \n"}, None),
    ],
)
def test_the_exception_is_the_first_line_of_the_first_header(
    given: dict[str, object], shown: str | None
) -> None:
    letter = read(dead(published(given), "rejected", "work"))
    assert letter is not None
    assert letter.exception == shown


@pytest.mark.parametrize("name", ["X-Exception-Message", "headers"])
def test_a_masked_exception_is_not_seen(name: str) -> None:
    message = dead(published({"x-exception-message": "card 4111"}), "rejected", "work")
    letter = read(message, masks=Masks([name]))
    assert letter is not None
    assert letter.exception == "***"


@pytest.mark.parametrize("mark", ["many", -4, True, 2**40, None])
def test_a_mark_of_others_breaks_nothing(mark: object) -> None:
    letter = read(dead(published({"x-redrive-count": mark}), "rejected", "work"))
    assert letter is not None
    assert 0 <= letter.redrives <= 2**31


@pytest.mark.parametrize(
    "given",
    [
        {"x-death": "no list"},
        {"x-death": []},
        {"x-death": [{"queue": "q"}]},
        {"x-first-death-queue": 7, "x-first-death-reason": "r"},
    ],
)
def test_headers_that_say_nothing_are_no_death(given: dict[str, object]) -> None:
    assert read(published(given)) is None


def test_x_death_alone_is_enough_and_the_oldest_entry_counts() -> None:
    def death(queue: str) -> dict[str, object]:
        return {"count": 2, "reason": "expired", "queue": queue, "exchange": queue}

    letter = read(published({"x-death": [death("late"), death("early")]}))
    assert letter is not None
    assert (letter.queue, letter.exchange, letter.deaths) == ("early", "early", 4)
    assert (letter.keys, letter.seen_ms) == ((), None)
