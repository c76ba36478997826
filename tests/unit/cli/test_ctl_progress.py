"""Long commands tell how far they are: moving on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from broker.cli.progress import LINE_S, Lines, counted
from tests.unit.cli.fake_api import FakeApi

DONE = (200, {"running": False, "moved": 2, "kept": [], "nodes": []})
RUNNING = (200, {"running": True, "moved": 1, "kept": [], "nodes": []})


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    fake.answers["POST", "/api/rebalance/queues"] = (204, None)
    fake.answers["GET", "/api/rebalance/queues"] = [RUNNING, RUNNING, RUNNING, DONE]
    yield fake
    fake.close()


def at_terminal(api: FakeApi, *options: str) -> tuple[str, str]:
    """Standard output, and what a terminal at standard error has been sent."""
    ours, theirs = pty.openpty()
    words = ["ctl", "--url", api.url, "rebalance", "all", *options]
    run = subprocess.Popen(
        [sys.executable, "-m", "broker", *words],
        stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    sent = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not data:
            break
        sent += data
    os.close(ours)
    out = run.communicate()[0]
    assert run.returncode == 0
    return out.decode(), sent.decode()


def test_a_terminal_shows_what_has_been_done_and_the_result_stays_alone(api: FakeApi):
    out, sent = at_terminal(api)
    assert "1 queues have moved" in sent
    assert "queues have moved" not in out
    assert "Node name" in out


@pytest.mark.parametrize("options", [("-q",), ("--formatter", "json")], ids=" ".join)
def test_nothing_is_told_where_nobody_wants_it(api: FakeApi, options: tuple[str, ...]):
    assert at_terminal(api, *options)[1] == ""


def test_a_pipe_gets_no_control_sequences_and_short_work_tells_nothing(api: FakeApi):
    words = ["ctl", "--url", api.url, "rebalance", "all"]
    run = subprocess.run(
        [sys.executable, "-m", "broker", *words], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""


def test_plain_lines_come_every_ten_seconds():
    lines = Lines(100.0)
    assert lines.line("queues have moved", 1, None, 100.0 + LINE_S - 1) is None
    assert lines.line("queues have moved", 2000, None, 100.0 + LINE_S) == "2,000 queues have moved"
    assert lines.line("queues have moved", 2001, None, 101.0 + LINE_S) is None
    assert lines.line("nodes run", 1, 3, 100.0 + 2 * LINE_S) == "1 of 3 nodes run"


def test_what_is_not_counted_is_a_text():
    assert counted("waiting", None, None) == "waiting"
