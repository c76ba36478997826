"""Options of the source: what is refused says which, and never shows a password."""

from __future__ import annotations

import pytest

from pipeline.connector import options
from pipeline.connector.failures import OptionRefused

URL = "amqp://u:secret@a:5672/v"


def read(**given: str) -> options.Source:
    return options.source(
        {"url": URL, "stream": "s", **{k.replace("__", "."): v for k, v in given.items()}}
    )


def test_defaults():
    found = read()
    assert (found.stream, found.starting, found.ending) == ("s", "first", "next")
    assert found.columns == options.COLUMNS
    assert found.fails_on_loss
    assert (found.rows_max, found.bytes_max, found.partitions_min) == (0, 0, 0)
    assert found.broker.vhost == "v"
    assert found.broker.settings.tls.is_verified


def test_names_are_in_any_case_and_those_of_spark_are_left_alone():
    found = read(MAXROWSPERTRIGGER="7", checkpointLocation="/x", queryName="q")
    assert found.rows_max == 7


def test_several_urls_and_one_login():
    given = {"url": "amqp://a, amqp://b:1", "user": "u", "password": "secret", "stream": "s"}
    found = options.source({**given, "httpUrl": "http://a:15672"}).broker
    assert [(e.where, e.user, e.password) for e in found.endpoints] == [
        ("a:5672", "u", "secret"),
        ("b:1", "u", "secret"),
    ]
    assert [(e.where, e.user) for e in found.http] == [("a:15672", "u")]


def test_the_http_api_has_the_login_of_amqp_unless_it_has_its_own():
    assert read(httpUrl="http://a:1").broker.http[0].password == "secret"
    assert read(httpUrl="http://x:y@a:1").broker.http[0].password == "y"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"strem": "s"}, "unknown option 'strem'; did you mean stream?"),
        ({"maxrowspertriger": "1"}, "did you mean maxRowsPerTrigger?"),
        ({"wholly": "1"}, "unknown option 'wholly'$"),
        ({"path": "/x"}, "has no path"),
        ({"queue": "orders"}, "warrenmq ctl add_tap queue orders; then option tap=queue/orders"),
        ({"filter": "eu"}, r"left out from one that is lost.*headers\['x-stream-filter-value'\]"),
        ({"superStream": "x"}, "exactly one of the options stream, superStream and tap"),
        ({"stream": ""}, "exactly one of"),
        ({"columns": "offset,bdoy"}, "no column 'bdoy'; did you mean body?"),
        ({"columns": "body,body"}, "named twice"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger: '0' is not a whole number from 1"),
        ({"prefetch": "65536"}, "prefetch: '65536' is not a whole number from 1 to 65535"),
        ({"minPartitions": "x"}, "minPartitions: 'x'"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss: 'yes' is neither true nor false"),
        ({"consumerName": "x"}, "consumerName needs httpUrl"),
        ({"consumerName": "x" * 256}, "longer than 255"),
        ({"mechanism": "MD5"}, "mechanism: 'MD5'"),
        ({"url": ""}, "option url is missing"),
        ({"url": "amqp://u:secret@a/v,amqp://b/w"}, "the same vhost"),
        ({"url": "http://u:secret@a"}, "option url: a URL in it does not begin with amqp://"),
        ({"httpUrl": "amqp://u:secret@a"}, "option httpUrl: .* http:// or https://"),
    ],
)
def test_what_is_refused(given, text):
    with pytest.raises(OptionRefused, match=text) as refused:
        read(**given)
    assert "secret" not in str(refused.value)


def test_a_tap_is_its_stream():
    given = {"url": URL}
    assert options.source({**given, "tap": "queue/a.b/c"}).stream == "tap.queue.a.b/c"
    with pytest.raises(OptionRefused, match="neither queue/NAME nor exchange/NAME"):
        options.source({**given, "tap": "orders"})


def test_options_do_not_show_passwords():
    found = read(httpUrl="http://u:secret@a:1", password="secret", user="u")
    assert "secret" not in repr(found)
