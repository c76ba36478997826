"""What a viewer is told that has an older version of an answer."""

from __future__ import annotations

import msgspec

from broker.management.live.history import CHANGES_MAX, History

TEXT = "x" * 200


def answer(number: int) -> bytes:
    return msgspec.json.encode({"number": number, "text": TEXT})


def told(history: History, version: int) -> list[tuple[str, object]]:
    return [(each.kind, msgspec.json.decode(each.body)) for each in history.since(version)]


def test_a_new_viewer_gets_the_whole_and_then_changes():
    history = History()
    assert history.since(0) == []
    history.answered(answer(1), 10)
    assert told(history, 0) == [("value", {"number": 1, "text": TEXT})]
    history.answered(answer(2), 20)
    assert told(history, 1) == [("change", {"patch": {"number": 2}})]
    assert told(history, 0) == [("value", {"number": 2, "text": TEXT})]


def test_the_same_again_is_no_news_but_younger():
    history = History()
    history.answered(answer(1), 10)
    history.answered(answer(1), 20)
    assert (history.version, history.checked_ms) == (1, 20)
    assert history.since(1) == []


def test_a_slow_viewer_gets_the_changes_it_missed_or_the_whole_of_the_last():
    history = History()
    for number in range(1, CHANGES_MAX + 3):
        history.answered(answer(number), number)
    last = history.version
    missed = told(history, last - CHANGES_MAX)
    assert [kind for kind, _ in missed] == ["change"] * CHANGES_MAX
    assert told(history, last - CHANGES_MAX - 1) == [("value", {"number": last, "text": TEXT})]


def test_after_an_error_the_whole_is_told_again():
    history = History()
    history.answered(answer(1), 10)
    history.failed(b'{"status":404}', 20)
    history.failed(b'{"status":404}', 30)
    assert history.version == 2
    assert told(history, 1) == [("error", {"status": 404})]
    history.answered(answer(1), 40)
    assert told(history, 2) == [("value", {"number": 1, "text": TEXT})]
    assert told(history, 1) == [("value", {"number": 1, "text": TEXT})]
