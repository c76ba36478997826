"""A browse is told once; what goes on with it is not, and nobody escapes by an invented place."""

from __future__ import annotations

from broker.management.operations.browsing.sessions import (
    LASTING_MS,
    REMEMBERED_MAX,
    BrowseSessions,
    Viewer,
)

ANN = Viewer("ann", "10.0.0.1", 7)


def test_pages_of_a_browse_are_no_news_and_a_new_one_is() -> None:
    sessions = BrowseSessions()
    assert sessions.is_news(ANN, 0, goes_on=False)
    assert not sessions.is_news(ANN, 1, goes_on=True)
    assert sessions.is_news(ANN, 2, goes_on=False)


def test_a_place_that_nobody_was_given_is_news() -> None:
    sessions = BrowseSessions()
    assert sessions.is_news(ANN, 0, goes_on=True)
    for other in (ANN._replace(user="bob"), ANN._replace(address="x"), ANN._replace(queue_uid=8)):
        assert sessions.is_news(other, 1, goes_on=True)


def test_a_browse_lasts_until_nothing_is_asked_for_a_while() -> None:
    sessions = BrowseSessions()
    sessions.is_news(ANN, 0, goes_on=False)
    assert not sessions.is_news(ANN, LASTING_MS - 1, goes_on=True)
    assert not sessions.is_news(ANN, 2 * LASTING_MS - 2, goes_on=True)
    assert sessions.is_news(ANN, 3 * LASTING_MS - 2, goes_on=True)


def test_what_is_remembered_is_bounded_and_the_longest_unused_goes() -> None:
    sessions = BrowseSessions()
    sessions.is_news(ANN, 0, goes_on=False)
    for uid in range(100, 100 + REMEMBERED_MAX):
        sessions.is_news(ANN._replace(queue_uid=uid), 1, goes_on=False)
    assert sessions.is_news(ANN, 2, goes_on=True)
    assert not sessions.is_news(ANN._replace(queue_uid=99 + REMEMBERED_MAX), 2, goes_on=True)
