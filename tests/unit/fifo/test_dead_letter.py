"""The headers of dead letters, decoded by pamqp."""

from __future__ import annotations

import datetime as dt
import struct

import msgspec
import pamqp.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp import content, fields
from broker.amqp.content import Properties, build_message
from broker.amqp.fields import Binary, Long, Timestamp
from broker.amqp.frames import body_of
from broker.fifo.dead_letter import DEATHS_MAX, dead_message, deaths_of, is_cycle, undelayed
from broker.message import Message

REASONS = ("expired", "rejected", "maxlen", "delivery_limit")


def _message(headers: dict[str, object] | None = None, **properties: object) -> Message:
    return build_message("ex", "rk", Properties(headers=headers, **properties), b"body")


def _die(
    message: Message,
    reason: str = "expired",
    queue: str = "q",
    *,
    time_s: int = 1_000,
    key: str | None = None,
) -> Message:
    return dead_message(
        message, reason=reason, queue=queue, time_s=time_s, exchange="dlx", routing_key=key
    )[0]


def _headers(message: Message) -> dict[str, object]:
    """A message's headers as a client reads them."""
    _, _, header = pamqp.frame.unmarshal(message.content)
    return header.properties.headers


def _pairs(message: Message) -> list[tuple[str, str, int]]:
    return [(d["queue"], d["reason"], d["count"]) for d in _headers(message)["x-death"]]


def test_a_first_death_is_told_with_the_types_clients_expect():
    """Java clients cast the count to Long; a 32-bit integer breaks them.

    Rows: 1.5 x-death; 1.5 Message changes
    """
    dead = _die(_message({"CC": ["c1", "c2"]}, expiration="0500"))
    at = dt.datetime.fromtimestamp(1_000, dt.UTC)
    assert _headers(dead) == {
        "CC": ["c1", "c2"],
        "x-death": [
            {
                "count": 1,
                "reason": "expired",
                "queue": "q",
                "time": at,
                "exchange": "ex",
                "routing-keys": ["rk", "c1", "c2"],
                "original-expiration": "500",
            }
        ],
        "x-first-death-exchange": "ex",
        "x-first-death-queue": "q",
        "x-first-death-reason": "expired",
        "x-last-death-exchange": "ex",
        "x-last-death-queue": "q",
        "x-last-death-reason": "expired",
    }
    death = fields.raw_entries(content.raw_headers(dead))[-1]
    raw = content.raw_headers(dead)[death[1] : death[2]]
    for wire in (
        b"\x07x-deathA",
        b"\x05countl" + struct.pack(">q", 1),
        b"\x04timeT" + struct.pack(">Q", 1_000),
        b"\x06reasonS",
        b"\x05queueS",
        b"\x08exchangeS",
        b"\x0crouting-keysA",
        b"\x13original-expirationS\0\0\0\x03500",
    ):
        assert wire in raw


def test_death_changes_exchange_and_expiration_and_nothing_else():
    """Rows: 1.5 Message changes"""
    before = Properties(
        content_type="text/plain",
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        timestamp=5,
        expiration="9",
        user_id="u",
    )
    message = build_message("ex", "rk", before, b"x" * 500, frame_max=100, channel=7)
    message = msgspec.structs.replace(message, expires_ms=99, dedup="d")
    dead = _die(message)
    after = content.decode_properties(dead)
    assert msgspec.structs.replace(after, headers=None) == msgspec.structs.replace(
        before, expiration=None
    )
    assert body_of(dead) == b"x" * 500
    assert (dead.exchange, dead.routing_key, dead.channel) == ("dlx", "rk", 7)
    assert (dead.persistent, dead.priority, dead.ttl_ms, dead.expires_ms) == (True, 7, -1, 0)
    assert dead.dedup == ""


def test_a_repeated_death_counts_on_and_moves_to_the_front():
    """Rows: 1.5 x-death"""
    message = _message(expiration="9")
    one = _die(message, "expired", "wait", time_s=1)
    two = _die(one, "rejected", "work", time_s=2)
    three = _die(two, "expired", "wait", time_s=3)
    assert _pairs(three) == [("wait", "expired", 2), ("work", "rejected", 1)]
    assert _headers(three)["x-death"][0] == {**_headers(one)["x-death"][0], "count": 2}
    assert _headers(three)["x-death"][0]["original-expiration"] == "9"
    assert _headers(three)["x-death"][1]["exchange"] == "dlx"
    assert _headers(three)["x-first-death-queue"] == "wait"
    assert _headers(three)["x-last-death-queue"] == "wait"
    assert _headers(two)["x-last-death-reason"] == "rejected"


def test_a_dead_letter_routing_key_replaces_all_keys():
    """Rows: 1.5 Routing key"""
    message = msgspec.structs.replace(_message({"CC": ["c"], "a": 1}), bcc=("b",))
    dead, copies = dead_message(
        message, reason="maxlen", queue="q", time_s=1, exchange="dlx", routing_key="k"
    )
    assert (dead.routing_key, copies, dead.bcc) == ("k", [], ())
    headers = _headers(dead)
    assert "CC" not in headers
    assert headers["a"] == 1
    assert headers["x-death"][0]["routing-keys"] == ["rk", "c"]


def test_without_one_it_goes_by_all_keys_it_came_with():
    """Rows: 1.5 Routing key"""
    message = msgspec.structs.replace(_message({"CC": ["c", 5]}), bcc=("b",))
    dead, copies = dead_message(
        message, reason="maxlen", queue="q", time_s=1, exchange="dlx", routing_key=None
    )
    assert (dead.routing_key, copies, dead.bcc) == ("rk", ["c", "b"], ("b",))
    assert _headers(dead)["x-death"][0]["routing-keys"] == ["rk", "c"]


def test_headers_of_the_publisher_keep_their_bytes():
    entries = [
        b"\x01al" + struct.pack(">q", 5),
        b"\x01bs\x00\x05",
        b"\x01ci\x00\x00\x00\x05",
        b"\x01\xffx\x00\x00\x00\x01z",
        b"\x02CCA\x00\x00\x00\x06S\x00\x00\x00\x01c",
        b"\x01al" + struct.pack(">q", 6),
    ]
    message = content.with_raw_headers(
        _message(), fields.join_entries(entries), without_expiration=False
    )
    for each in (_die(message), _die(_die(message), "rejected")):
        table = content.raw_headers(each)
        kept = [table[start:stop] for _, start, stop in fields.raw_entries(table)]
        assert kept[: len(entries)] == entries
        assert len(kept) == len(entries) + 7


def test_what_a_client_republished_is_continued():
    """pika sends its integers as 32 bits and its timestamps as datetimes.

    Rows: 1.5 x-death
    """
    theirs = {"count": 4, "reason": "rejected", "queue": "q", "time": Timestamp(7), "exchange": "e"}
    older = {"count": 2, "reason": "expired", "queue": "r", "time": 8, "exchange": "", "mine": 1}
    headers = {"x-death": [theirs, older], "x-first-death-queue": "first"}
    dead = _die(_message(headers), "rejected")
    assert _pairs(dead) == [("q", "rejected", 5), ("r", "expired", 2)]
    assert _headers(dead)["x-death"][1]["mine"] == 1
    assert _headers(dead)["x-first-death-queue"] == "first"
    assert "x-first-death-reason" not in _headers(dead)
    raw = content.raw_headers(dead)
    assert raw.count(b"\x05countl") == 2
    assert raw.count(b"\x04timeT") == 2


@pytest.mark.parametrize(
    "theirs",
    [
        "text",
        {"count": 1, "reason": "expired", "queue": "q"},
        [],
        ["text"],
        [{"count": 1, "reason": "expired"}],
        [{"count": "1", "reason": "expired", "queue": "q"}],
        [{"count": -1, "reason": "expired", "queue": "q"}],
        [{"count": 2**63 - 1, "reason": "expired", "queue": "q"}],
        [{"count": 1, "reason": None, "queue": "q"}],
        [{"count": 1, "reason": "expired", "queue": b"\xff"}],
    ],
    ids=repr,
)
def test_an_x_death_no_broker_wrote_counts_as_none(theirs):
    dead = _die(_message({"x-death": theirs, "x-first-death-queue": "lie"}))
    assert _pairs(dead) == [("q", "expired", 1)]
    assert _headers(dead)["x-first-death-queue"] == "q"
    assert len(fields.raw_entries(content.raw_headers(dead))) == 7


@pytest.mark.parametrize(
    "incomplete",
    [
        {"reason": "expired", "queue": "q"},
        {"count": "1", "reason": "expired", "queue": "q"},
        {"count": 1, "queue": "q"},
        {"count": 1, "reason": "expired"},
        {},
        "text",
        5,
    ],
    ids=repr,
)
def test_an_incomplete_entry_of_x_death_alone_is_skipped(incomplete):
    """Rows: 1.5 x-death"""
    known = {"count": 4, "reason": "expired", "queue": "q"}
    other = {"count": 2, "reason": "rejected", "queue": "r"}
    dead = _die(_message({"x-death": [other, incomplete, known], "x-first-death-queue": "r"}))
    assert _pairs(dead) == [("q", "expired", 5), ("r", "rejected", 2)]
    assert _headers(dead)["x-first-death-queue"] == "r"
    assert deaths_of(_message({"x-death": [other, incomplete]})) == [("r", "rejected")]


def test_a_message_that_came_back_by_itself_is_a_cycle():
    """Rows: 1.5 Cycle detection"""
    one = _die(_message(), "expired", "a")
    assert is_cycle(one, "a")
    assert not is_cycle(one, "b")
    two = _die(one, "maxlen", "b")
    assert is_cycle(two, "a")
    assert is_cycle(two, "b")


def test_a_rejection_since_the_last_visit_is_no_cycle():
    """Rows: 1.5 Cycle detection"""
    message = _die(_message(), "expired", "wait")
    message = _die(message, "rejected", "work")
    assert not is_cycle(message, "wait")
    assert not is_cycle(message, "work")
    message = _die(message, "expired", "other")
    assert is_cycle(message, "other")
    assert not is_cycle(message, "work")
    assert not is_cycle(message, "wait")
    assert deaths_of(message) == [("other", "expired"), ("work", "rejected"), ("wait", "expired")]


def test_a_message_that_never_died_is_no_cycle():
    assert deaths_of(_message()) == []
    assert not is_cycle(_message({"x-death": "x"}), "q")


@given(
    deaths=st.lists(st.tuples(st.sampled_from(REASONS), st.sampled_from("abc")), min_size=1),
    key=st.none() | st.just("k"),
)
@settings(deadline=None)
def test_deaths_in_any_order_are_counted_by_pair(deaths, key):
    before = _message({"a": Long(1)}, delivery_mode=2, priority=4, expiration="77")
    message, told, counts = before, [], {}
    for number, (reason, queue) in enumerate(deaths):
        message = _die(message, reason, queue, time_s=number, key=key)
        counts[queue, reason] = counts.get((queue, reason), 0) + 1
        told = [(queue, reason), *[pair for pair in told if pair != (queue, reason)]]
    assert _pairs(message) == [(*pair, counts[pair]) for pair in told]
    assert deaths_of(message) == told
    headers = _headers(message)
    assert headers["x-first-death-reason"] == deaths[0][0]
    assert headers["x-first-death-queue"] == deaths[0][1]
    assert headers["x-first-death-exchange"] == "ex"
    assert headers["x-last-death-reason"] == deaths[-1][0]
    assert headers["x-last-death-queue"] == deaths[-1][1]
    first = {pair: number for number, pair in reversed(list(enumerate(deaths)))}
    for death in headers["x-death"]:
        assert death["time"].timestamp() == first[death["reason"], death["queue"]]
        assert ("original-expiration" in death) == (death["time"].timestamp() == 0)
    assert (message.persistent, message.priority, message.ttl_ms) == (True, 4, -1)
    assert body_of(message) == b"body"
    assert content.raw_headers(message).startswith(b"\x01al" + bytes(7) + b"\x01", 4)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5).map(Binary)
    | st.integers(0, 2**64 - 1).map(Timestamp),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)
ENTRIES = st.fixed_dictionaries(
    {"queue": VALUES | st.just("q"), "reason": VALUES | st.just("expired"), "count": VALUES},
    optional={"time": VALUES, "exchange": VALUES, "routing-keys": VALUES},
)


@given(theirs=VALUES | st.lists(ENTRIES | VALUES, max_size=3), copies=VALUES)
@settings(deadline=None)
def test_whatever_a_client_puts_there_is_survived(theirs, copies):
    headers = {"x-death": theirs, "CC": copies, "x-last-death-queue": theirs}
    message = _die(_die(_message(headers)), "rejected", key="k")
    content.facts_of(content.raw_properties(message))
    assert deaths_of(message)[:2] == [("q", "rejected"), ("q", "expired")]


def test_only_the_latest_deaths_are_told():
    many = [{"count": 1, "reason": "expired", "queue": str(n)} for n in range(DEATHS_MAX + 5)]
    dead = _die(_message({"x-death": many}))
    assert len(deaths_of(dead)) == DEATHS_MAX
    assert deaths_of(dead)[:2] == [("q", "expired"), ("0", "expired")]


def test_headers_that_leave_no_room_give_way_to_the_deaths():
    full = {f"h{n}": None for n in range(fields.ENTRIES_MAX)}
    dead = _die(_message(full))
    assert len(fields.raw_entries(content.raw_headers(dead))) == 7
    assert is_cycle(dead, "q")


def test_deaths_that_leave_no_room_give_way_to_the_latest():
    keys = ["k"] * 15
    many = [
        {"count": 1, "reason": "expired", "queue": str(n), "routing-keys": keys} for n in range(819)
    ]
    message = _message({"x-death": many})
    assert len(deaths_of(message)) == 819
    dead = _die(message)
    assert deaths_of(dead) == [("q", "expired")]
    content.facts_of(content.raw_properties(dead))


@pytest.mark.parametrize(
    ("wire", "negative"),
    [
        (b"b\x05", b"b\xfb"),
        (b"s\x00\x05", b"s\xff\xfb"),
        (b"I" + struct.pack(">i", 5), b"I" + struct.pack(">i", -5)),
        (b"l" + struct.pack(">q", 5), b"l" + struct.pack(">q", -5)),
        (b"B\xff", b"I" + struct.pack(">i", -255)),
        (b"i\xff\xff\xff\xff", b"l" + struct.pack(">q", -(2**32 - 1))),
        (b"S\x00\x00\x00\x0250", b"I" + struct.pack(">i", -50)),
        (b"d" + struct.pack(">d", 7.9), b"I" + struct.pack(">i", -7)),
        (b"d" + struct.pack(">d", 1e300), b"d" + struct.pack(">d", 1e300)),
        (b"S\x00\x00\x00\x01x", b"S\x00\x00\x00\x01x"),
        (b"V", b"V"),
    ],
    ids=repr,
)
def test_a_delay_that_is_over_is_negative(wire, negative):
    table = fields.join_entries([b"\x01al" + bytes(8), b"\x07x-delay" + wire, b"\x01bV"])
    message = content.with_raw_headers(_message(expiration="60"), table, without_expiration=False)
    over = undelayed(msgspec.structs.replace(message, ttl_ms=5, expires_ms=99))
    assert content.raw_headers(over) == table.replace(
        b"\x07x-delay" + wire, b"\x07x-delay" + negative
    ).replace(table[:4], (len(table) - 4 + len(negative) - len(wire)).to_bytes(4, "big"), 1)
    assert (over.ttl_ms, over.expires_ms, over.exchange) == (60, 0, "ex")
    assert body_of(over) == b"body"
