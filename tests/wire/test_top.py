"""`warrenmq top` against a real node, in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

from tests.nodes import Node

WAIT_S = 60.0
COLUMNS, LINES = 120, 30


def _command(node: Node, *words: str) -> list[str]:
    url = f"http://127.0.0.1:{node.management_port}"
    return [sys.executable, "-m", "broker", "top", "--url", url, *words]


def test_one_frame_is_printed_to_a_pipe(node: Node):
    with node.connect() as connection:
        connection.channel().queue_declare("top.once", exclusive=True)
        done = subprocess.run(
            _command(node, "--once", "--filter", r"^top\.once"),
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^top\.once +0 +0 +0 +0 +0 rabbit@", done.stdout, re.MULTILINE), done.stdout
    assert "\x1b" not in done.stdout


class _Terminal:
    """A pseudo-terminal that remembers what was written to it."""

    def __init__(self, command: list[str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environ = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, close_fds=True
        )
        os.close(theirs)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, pattern: str) -> None:
        """Read until the pattern has been written since the last call."""
        seen, deadline_s = "", time.monotonic() + WAIT_S
        while not re.search(pattern, seen):
            assert time.monotonic() < deadline_s, (pattern, seen[-3000:])
            if select.select([self._ours], [], [], 0.5)[0]:
                seen += os.read(self._ours, 65_536).decode("utf-8", "replace")
                seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        os.close(self._ours)


def test_keys_sort_filter_switch_and_quit(node: Node):
    with node.connect() as connection:
        channel = connection.channel()
        for name in ("top.a", "top.b"):
            channel.queue_declare(name, exclusive=True)
        terminal = _Terminal(_command(node, "--interval", "0.3"))
        try:
            terminal.until(r"queues by in/s, largest first")
            terminal.press("s")
            terminal.until(r"queues by out/s, largest first")
            terminal.press("r")
            terminal.until(r"queues by out/s, smallest first")
            terminal.press("/top.b")
            terminal.until(r"names that match: top\.b_")
            terminal.press("\r")
            terminal.until(r"name ~ top\.b \(1\)")
            terminal.press("\t")
            terminal.until(r"connections by from client/s")
            terminal.press("q")
            assert terminal.process.wait(WAIT_S) == 0
        finally:
            terminal.end()
