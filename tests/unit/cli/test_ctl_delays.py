"""`list_delayed_messages` and `cancel_delayed_messages`: requests, lines and exit codes."""

from __future__ import annotations

import pytest

from broker.cli.ctl.commands import run
from tests.unit.cli.fake_api import FakeApi

PATH = "/api/exchanges/%2F/later/delayed"


def message(number: int, due_ms: int = 1_795_277_251_046) -> dict[str, object]:
    return {
        "number": number,
        "due": due_ms,
        "exchange": "up",
        "routing_key": "k",
        "payload_bytes": 10,
    }


@pytest.fixture
def api():
    fake = FakeApi()
    yield fake
    fake.close()


def ctl(api: FakeApi, *words: str) -> int:
    return run(["--url", api.url, *words], {})


def test_messages_are_listed_with_the_time_at_which_they_are_due(api: FakeApi, capsys):
    api.answers["GET", PATH + "?first=0&count=1000"] = (200, [message(4), message(3)])
    assert ctl(api, "list_delayed_messages", "later") == 0
    assert capsys.readouterr().out == (
        "Listing delayed messages of exchange 'later' in vhost '/' ...\n"
        "number\tdue\trouting_key\tpayload_bytes\n"
        "4\t2026-11-21T16:07:31.046Z\tk\t10\n"
        "3\t2026-11-21T16:07:31.046Z\tk\t10\n"
    )
    assert ctl(api, "list_delayed_messages", "-s", "later", "number", "due_ms", "exchange") == 0
    assert capsys.readouterr().out == "4\t1795277251046\tup\n3\t1795277251046\tup\n"


def test_a_long_list_is_fetched_in_parts(api: FakeApi, capsys):
    api.answers["GET", PATH + "?first=0&count=1000"] = (200, [message(n) for n in range(1000)])
    api.answers["GET", PATH + "?first=1000&count=1000"] = (200, [message(999), message(1000)])
    assert ctl(api, "list_delayed_messages", "-s", "later", "number") == 0
    assert capsys.readouterr().out.split() == [str(number) for number in range(1001)]


def test_vhost_and_name_are_quoted(api: FakeApi, capsys):
    api.answers["GET", "/api/exchanges/my%2Fvhost/a%20b/delayed?first=0&count=1000"] = (200, [])
    assert ctl(api, "list_delayed_messages", "-s", "-p", "my/vhost", "a b") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("list_delayed_messages",), "not enough arguments."),
        (("list_delayed_messages", "later", "colour"), "Info key(s) colour are not supported"),
        (("cancel_delayed_messages", "later"), "needs either message numbers or --all"),
        (("cancel_delayed_messages", "later", "3", "--all"), "needs either"),
        (("cancel_delayed_messages", "later", "three"), "found 'three'"),
        (("cancel_delayed_messages", "later", "²"), "expected a message's number"),
    ],
)
def test_what_makes_no_sense_asks_nothing(api: FakeApi, capsys, words, text):
    assert ctl(api, *words) == 64
    assert text in capsys.readouterr().err
    assert api.asked == []


def test_an_exchange_that_delays_nothing_is_an_error(api: FakeApi, capsys):
    assert ctl(api, "list_delayed_messages", "later") == 65
    assert ctl(api, "cancel_delayed_messages", "later", "--all") == 69
    assert "Not Found" in capsys.readouterr().err


def test_messages_are_cancelled_by_number(api: FakeApi, capsys):
    api.answers["DELETE", PATH] = (200, {"cancelled": 2})
    assert ctl(api, "cancel_delayed_messages", "later", "3", "4", "3") == 0
    assert api.asked == [("DELETE", PATH, {"numbers": [3, 4]})]
    assert capsys.readouterr().out == (
        "Cancelling delayed messages of exchange 'later' in vhost '/' ...\nCancelled 2 messages\n"
    )


def test_a_number_that_was_not_there_is_told(api: FakeApi, capsys):
    api.answers["DELETE", PATH] = (200, {"cancelled": 1})
    assert ctl(api, "cancel_delayed_messages", "later", "3", "4") == 69
    assert "Cancelled 1 messages; 1 of those asked for were not there" in capsys.readouterr().err


def test_all_are_cancelled_at_once(api: FakeApi, capsys):
    api.answers["DELETE", PATH] = (200, {"cancelled": 0})
    assert ctl(api, "cancel_delayed_messages", "-q", "later", "--all") == 0
    assert api.asked == [("DELETE", PATH, {"all": True})]
    assert capsys.readouterr().out == ""
