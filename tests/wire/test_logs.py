"""A running node's log by `ctl`: the last lines, levels, rotation, where it is."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest

from broker.cli.ctl import commands as ctl
from tests.nodes import Node, free_ports, wait_until

Said = pytest.CaptureFixture[str]
BEGINS = re.compile(r"(\d{4}-\d\d-\d\d |  )")


@pytest.fixture(scope="module")
def logging_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("logs")
    (port,) = free_ports(1)  # nobody is there when the node starts
    syslog = ["log.syslog=true", "log.syslog.transport=tcp", f"log.syslog.port={port}"]
    settings = [f"log.file={folder / 'own.log'}", *syslog, "log.exchange=true"]
    one = Node("logs", folder, settings=settings)
    try:
        one.start()
        yield one
    finally:
        one.end()


def _ctl(node: Node, *words: str) -> int:
    return ctl.run(words, {"WARRENMQ_URL": f"http://127.0.0.1:{node.management_port}"})


def test_the_last_lines_are_those_of_the_file(logging_node: Node, capsys: Said):
    assert _ctl(logging_node, "log_location", "-q") == 0
    path = Path(capsys.readouterr().out.splitlines()[0])
    assert _ctl(logging_node, "log_tail", "-N", "3", "-q") == 0
    assert capsys.readouterr().out.splitlines() == path.read_text().splitlines()[-3:]


def test_a_level_acts_at_once_and_on_its_category_alone(logging_node: Node, capsys: Said):
    credentials = pika.PlainCredentials("nobody", "x")

    def is_logged() -> bool:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(logging_node.parameters(credentials=credentials))
        capsys.readouterr()
        assert _ctl(logging_node, "log_tail", "-q") == 0
        return "login refused: user 'nobody'" in capsys.readouterr().out

    assert _ctl(logging_node, "set_log_level", "connection", "none") == 0
    assert not is_logged()
    assert _ctl(logging_node, "set_log_level", "connection", "error") == 0
    wait_until(is_logged, "a refused login is logged; of several in a second the first is")
    assert _ctl(logging_node, "set_log_level", "info") == 0


def test_a_rotated_log_begins_anew_and_keeps_the_old_one(logging_node: Node, capsys: Said):
    assert _ctl(logging_node, "log_location", "-q") == 0
    path = Path(capsys.readouterr().out.splitlines()[0])
    before = path.read_text()
    assert _ctl(logging_node, "rotate_logs") == 0
    assert path.with_name(f"{path.name}.1").read_text().startswith(before)
    assert len(path.read_text()) < len(before)


def test_lines_are_streamed_as_they_are_written(logging_node: Node, capsys: Said):
    ended = threading.Event()

    def refused_logins() -> None:
        while not ended.is_set():
            credentials = pika.PlainCredentials("streamed", "x")
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                pika.BlockingConnection(logging_node.parameters(credentials=credentials))
            ended.wait(0.3)

    client = threading.Thread(target=refused_logins)
    client.start()
    began_s = time.monotonic()
    try:
        assert _ctl(logging_node, "log_tail_stream", "--duration", "2", "-q") == 0
    finally:
        ended.set()
        client.join()
    assert time.monotonic() - began_s >= 2
    assert "login refused: user 'streamed'" in capsys.readouterr().out


def test_no_name_of_a_client_breaks_a_line(logging_node: Node, capsys: Said):
    evil = "a\r\n2026-01-01 00:00:00.000+00:00 [error] forged\x1b[31m"
    assert _ctl(logging_node, "set_log_level", "debug") == 0
    # Without CR and LF: the broker takes them out of names, as RabbitMQ does, and pika then waits
    # for a declare-ok with the name that it sent.
    name = evil.replace("\r", "\x0b").replace("\n", "\u2028")
    with logging_node.connect(client_properties={"connection_name": evil}) as connection:
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.exchange_declare(name, "topic", passive=True)
    credentials = pika.PlainCredentials(evil, evil)
    lines: list[str] = []

    def is_logged() -> bool:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(logging_node.parameters(credentials=credentials))
        capsys.readouterr()
        assert _ctl(logging_node, "log_tail", "-N", "500", "-q") == 0
        lines[:] = capsys.readouterr().out.splitlines()
        return any("login refused" in line and "forged" in line for line in lines)

    wait_until(is_logged, "the refused login is logged; of several in a second the first is")
    assert _ctl(logging_node, "set_log_level", "info") == 0
    assert [line for line in lines if not (BEGINS.match(line) and line.isprintable())] == []


def test_a_syslog_server_that_comes_late_gets_the_lines_that_waited(logging_node: Node):
    setting = next(each for each in logging_node.settings if each.startswith("log.syslog.port"))
    with socket.create_server(("127.0.0.1", int(setting.partition("=")[2]))) as server:
        server.settimeout(40)  # the node tries again after 5 s at most
        connection, _ = server.accept()
        received = b""
        with connection:
            while b"Server startup complete" not in received.rpartition(b"\n")[0]:
                part = connection.recv(65_536)
                assert part, received
                received += part
    (line,) = [line for line in received.splitlines() if b"Server startup complete" in line]
    assert re.match(rb"<30>[A-Z][a-z]{2} [ 1-3]\d \d\d:\d\d:\d\d \S+ warrenmq\[\d+\]: ", line)
    assert received.splitlines()[0].startswith((b"<28>", b"<30>"))  # what waited comes first


def test_lines_are_messages_with_their_level_as_routing_key_and_beget_no_lines(logging_node: Node):
    found = logging_node.api("GET", "/exchanges/%2F/amq.rabbitmq.log")
    assert (found["type"], found["durable"], found["internal"]) == ("topic", True, True)
    assert _ctl(logging_node, "set_log_level", "debug") == 0
    with logging_node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("lines", exclusive=True)
        channel.queue_bind("lines", "amq.rabbitmq.log", "#")
        channel.queue_declare("few", exclusive=True, arguments={"x-max-length": 1})
        channel.queue_bind("few", "amq.rabbitmq.log", "error")
        credentials = pika.PlainCredentials("told", "x")
        bodies: list[tuple[str, str]] = []

        def is_told() -> bool:
            if not channel.queue_declare("lines", passive=True).method.message_count:
                with pytest.raises(pika.exceptions.AMQPConnectionError):  # one a second has a line
                    pika.BlockingConnection(logging_node.parameters(credentials=credentials))
            for method, properties, body in iter(
                lambda: channel.basic_get("lines", auto_ack=True), (None, None, None)
            ):
                assert properties.headers == {"node": "rabbit@logs"}
                assert properties.content_type == "text/plain"
                bodies.append((method.routing_key, body.decode()))
            return any("login refused: user 'told'" in body for _, body in bodies)

        wait_until(is_told, "the refused login is published")
        assert all(f"[{key}]" in body for key, body in bodies)
        assert "error" in {key for key, _ in bodies}
        assert channel.queue_declare("few", passive=True).method.message_count == 1
        logging_node.api("GET", "/overview")
        connection.process_data_events(1)  # a second in which nothing happens but log lines
        quiet = channel.queue_declare("lines", passive=True).method.message_count
        connection.process_data_events(1)
        again = channel.queue_declare("lines", passive=True).method.message_count
        assert again - quiet < 50
    assert _ctl(logging_node, "set_log_level", "info") == 0
