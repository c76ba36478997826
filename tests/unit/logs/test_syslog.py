from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from broker.config import SyslogSettings
from broker.logs import syslog
from broker.logs.formatting import PlainFormatter
from broker.logs.syslog import SyslogHandler
from broker.logs.syslog_message import Sender, datagram, framed, rfc3164, rfc5424
from tests.certificates import Authority
from tests.nodes import free_ports, wait_until

AT = datetime(2026, 2, 3, 4, 5, 6, 789_000, timezone(timedelta(hours=1)))
SENDER = Sender("host", "broker", 7, 3)


def test_messages_are_those_of_the_rfcs() -> None:
    assert rfc3164(SENDER, 6, AT, "é x") == "<30>Feb  3 04:05:06 host broker[7]: é x".encode()
    expected = b"<27>1 2026-02-03T03:05:06.789Z host broker 7 - - x"
    assert rfc5424(SENDER, 3, AT, "x") == expected
    assert framed(b"abc", is_counted=True) == b"3 abc"
    assert framed(b"abc", is_counted=False) == b"abc\n"
    assert len(datagram("é".encode() * 5_000)) == 8_192
    assert len(datagram(b"x" + "é".encode() * 5_000)) == 8_191


def _record(text: str, **fields: object) -> logging.LogRecord:
    now_s = datetime.now(UTC).timestamp()
    made = logging.makeLogRecord({"msg": text, "created": now_s, "levelno": logging.WARNING})
    vars(made).update(fields)
    return made


@pytest.fixture
def handlers() -> Iterator[list[SyslogHandler]]:
    made: list[SyslogHandler] = []
    yield made
    for each in made:
        each.close()


def _handler(handlers: list[SyslogHandler], **settings: object) -> SyslogHandler:
    handler = SyslogHandler(SyslogSettings(**settings))  # type: ignore[arg-type]
    handler.setFormatter(PlainFormatter())
    handlers.append(handler)
    return handler


def test_a_line_is_one_datagram_whatever_is_in_it(handlers: list[SyslogHandler]) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        port = server.getsockname()[1]
        handler = _handler(handlers, port=port, facility="local3", identity="mq")
        handler.emit(_record("login\n<0>forged", user="a b"))
        found = server.recv(10_000).decode()
    assert found.startswith("<156>")  # local3 (19), warning (4)
    assert "mq[" in found
    assert found.endswith(': login\\n<0>forged user="a b"')


def test_a_server_that_comes_late_or_comes_back_gets_the_lines(
    handlers: list[SyslogHandler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syslog, "RETRY_S", 0.05)
    (port,) = free_ports(1)
    handler = _handler(handlers, transport="tcp", protocol="rfc5424", port=port)
    handler.emit(_record("first"))
    wait_until(handler._waiting.empty, "the thread has taken it")
    for text in ("second", "third"):
        with closing(socket.create_server(("127.0.0.1", port))) as server:
            server.settimeout(10)
            handler.emit(_record(text))
            connection, _ = server.accept()
            received = b""
            while text.encode() not in received:
                received += connection.recv(4096)
            connection.close()
        if text == "second":
            assert received.index(b"first") < received.index(b"second")
        length, _, rest = received.partition(b" ")
        assert len(rest) >= int(length)
        assert rest.startswith(b"<28>1 ")


def test_nobody_waits_for_a_server_that_is_away(
    handlers: list[SyslogHandler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syslog, "WAITING_MAX", 100)
    (port,) = free_ports(1)
    handler = _handler(handlers, transport="tcp", port=port)
    began_s = time.monotonic()
    for _ in range(2_000):
        handler.emit(_record("x"))
    assert handler._dropped >= 1_800
    handler.close()
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("is_trusted", [True, False])
def test_over_tls_the_server_must_be_the_one_that_is_meant(
    handlers: list[SyslogHandler], tmp_path: Path, *, is_trusted: bool
) -> None:
    authority, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    pair = authority.pair("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certfile, pair.keyfile)
    trusted = authority if is_trusted else other
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        cacertfile = str(trusted.certfile)
        handler = _handler(handlers, transport="tls", port=port, cacertfile=cacertfile)
        handler.emit(_record("secretly"))
        plain, _ = server.accept()
        if is_trusted:
            with context.wrap_socket(plain, server_side=True) as connection:
                assert connection.recv(4096).endswith(b"]: secretly\n")
        else:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(plain, server_side=True)
