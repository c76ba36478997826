"""How far a job is, told on standard error: a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from typing_extensions import override

LINE_S: Final = 10.0
"""How far apart plain lines are."""


class Progress(Protocol):
    """Shows how far a job is; jobs ask it whether they should end."""

    def show(self, text: str) -> None:
        """Say what is done now.

        Args:
            text: "1,000 rows, 200 rows/s".
        """
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the job was asked to end: by Ctrl-C or SIGTERM."""
        ...


class Silent(Progress):
    """Shows nothing; for programs that call `run` themselves."""

    @override
    def show(self, text: str) -> None:
        return

    @property
    @override
    def is_stopped(self) -> bool:
        return False


class Stop:
    """Whether a job was asked to end; set by a signal."""

    def __init__(self) -> None:
        self.is_set = False


class Lines(Progress):
    """A plain line every `LINE_S`.

    Args:
        name: Of the run, begins each line.
        stop: Whether it was asked to end.
    """

    def __init__(self, name: str, stop: Stop) -> None:
        self._name = name
        self._stop = stop
        self._next_s = 0.0

    @override
    def show(self, text: str) -> None:
        line = self.line(text, time.monotonic())
        if line:
            print(line, file=sys.stderr, flush=True)

    def line(self, text: str, now_s: float) -> str:
        """The line that is due, "" between two.

        Args:
            text: What is done.
            now_s: Monotonic seconds.
        """
        if now_s < self._next_s:
            return ""
        self._next_s = now_s + LINE_S
        return f"{self._name}: {text}"

    @property
    @override
    def is_stopped(self) -> bool:
        return self._stop.is_set


class Moving(Progress):
    """A line with a spinner.

    Args:
        name: Of the run.
        stop: Whether it was asked to end.
        status: Rich's.
    """

    def __init__(self, name: str, stop: Stop, status: RichStatus) -> None:
        self._name = name
        self._stop = stop
        self._status = status

    @override
    def show(self, text: str) -> None:
        self._status.update(f"{self._name}: {text}".replace("[", r"\["))

    @property
    @override
    def is_stopped(self) -> bool:
        return self._stop.is_set


class RichStatus(Protocol):
    """What is used of `rich.status.Status`."""

    def update(self, status: str) -> None:
        """Show another text."""
        ...


@contextmanager
def shown(name: str, stop: Stop, *, is_quiet: bool) -> Iterator[Progress]:
    """The progress of one run, for as long as it lasts.

    Args:
        name: Of the run.
        stop: Whether it was asked to end.
        is_quiet: Whether nothing is shown.
    """
    if is_quiet or not sys.stderr.isatty():
        yield Quiet(stop) if is_quiet else Lines(name, stop)
        return
    try:
        from rich.console import Console  # noqa: PLC0415  a driver on a cluster may lack it
    except ImportError:
        yield Lines(name, stop)
        return
    with Console(stderr=True).status(name) as status:
        yield Moving(name, stop, status)


class Quiet(Silent):
    """Shows nothing, but can be stopped.

    Args:
        stop: Whether it was asked to end.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    @property
    @override
    def is_stopped(self) -> bool:
        return self._stop.is_set
