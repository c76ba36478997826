"""Measures for how long a node's event loop does not answer."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from broker.amqp import spec
from tests.wire.raw import Raw

PAUSE_S = 0.02
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """Processor time a process has had, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class Pulse:
    """Asks a node the simplest question over and over, on a connection of its own.

    A late answer is the node's fault only as far as the node had the processor meanwhile, so the
    lesser of both counts: on a machine that others use too, waiting alone proves nothing.

    Args:
        port: The node's AMQP port on 127.0.0.1.
        pid: Its process.
    """

    def __init__(self, port: int, pid: int) -> None:
        self._raw = Raw(port).to_channel()
        self._pid = pid
        self._worst_s = 0.0
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._feel, name="pulse")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._raw.socket.close()

    def stall_s(self) -> float:
        """The longest the node kept us waiting.

        Raises:
            AssertionError: It stopped answering.
        """
        assert self._error is None, f"no pulse: {self._error!r}"
        return self._worst_s

    def _feel(self) -> None:
        try:
            while not self._is_over.wait(PAUSE_S):
                busy, start = cpu_s(self._pid), time.monotonic()
                self._raw.call(1, spec.ChannelFlow(active=True), spec.ChannelFlowOk)
                waited = time.monotonic() - start
                self._worst_s = max(self._worst_s, min(waited, cpu_s(self._pid) - busy))
        except (AssertionError, OSError) as error:
            self._error = error
