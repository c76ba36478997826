from __future__ import annotations

import pytest

from broker.fifo.ready.places import Place
from broker.management.operations.browsing.question import Question, Refused, question_in

NOW_MS = 10_000_000


def asked(
    *,
    is_stream: bool = False,
    header: tuple[str, ...] = (),
    json: tuple[str, ...] = (),
    **query: str,
) -> Question:
    several = {"header": list(header), "json": list(json)}
    names = query | {key: each[0] for key, each in several.items() if each}
    return question_in(names, several, 7, ("pin",), is_stream=is_stream, now_ms=NOW_MS)


def test_nothing_asks_for_the_first_messages() -> None:
    assert asked() == Question(masked=("pin",))
    assert asked(is_stream=True).start == ("first", 0)


def test_all_of_it() -> None:
    found = asked(
        header=("a=b=c", "d"),
        json=("x[0]=1",),
        count="5",
        truncate="0",
        position="3",
        key="k",
        body="",
        body_regex="r",
        after="7.-2.9",
    )
    assert found.headers == (("a", "b=c"), ("d", None))
    assert (found.count, found.truncate, found.start) == (5, 0, ("position", 2))
    assert (found.key, found.body, found.body_regex, found.json) == ("k", None, "r", ("x[0]=1",))
    assert found.after == Place(-2, 9)


@pytest.mark.parametrize(
    ("query", "start"),
    [
        ({"offset": "last"}, ("last", 0)),
        ({"offset": "17"}, ("offset", 17)),
        ({"offset": "1h"}, ("timestamp", NOW_MS - 3_600_000)),
        ({"timestamp": "1700000000000"}, ("timestamp", 1_700_000_000_000)),
    ],
)
def test_a_stream_is_begun_anywhere(query: dict[str, str], start: tuple[str, int]) -> None:
    found = asked(is_stream=True, **query)
    if "h" in query.get("offset", ""):
        assert found.start[0] == "timestamp"
        assert found.start[1] == max(0, start[1])
    else:
        assert found.start == start


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"count": "0"}, "count must be a number from 1 to 100"),
        ({"count": "-1"}, "count must be"),
        ({"count": "9" * 30}, "count must be"),
        ({"count": "٣"}, "count must be"),
        ({"truncate": "70000"}, "truncate must be"),
        ({"position": "0"}, "position must be"),
        ({"position": "100001"}, "position must be"),
        ({"hedaer": "x"}, "unknown: hedaer; there are after, at, body,"),
        ({"offset": "1"}, "unknown: offset"),
        ({"after": "7.1"}, "after must be a token"),
        ({"after": "7.x.1"}, "after must be a token"),
        ({"after": "7.--1.1"}, "after must be a token"),
        ({"at": "8.0.1"}, "at is of a queue that was deleted"),
        ({"body": "x" * 257}, "body is longer than 256"),
        ({"key": "\udcff"}, "key is not UTF-8"),
        ({"header": ("=x",)}, "header must be NAME"),
        ({"header": ("a",) * 6, "json": ("b",) * 5}, "more than 10 conditions"),
        ({"json": ("a..",)}, "json: no path at character 2"),
        ({"is_stream": True, "position": "1"}, "unknown: position"),
        ({"is_stream": True, "offset": "soon"}, "offset must be first, last, next"),
        ({"is_stream": True, "offset": "1", "timestamp": "1"}, "either offset or timestamp"),
        ({"is_stream": True, "timestamp": "yesterday"}, "timestamp must be"),
    ],
)
def test_what_is_wrong_says_what_would_be_right(query: dict[str, object], reason: str) -> None:
    with pytest.raises(Refused, match=f"^{reason}"):
        asked(**query)  # type: ignore[arg-type]
