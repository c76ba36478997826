"""How far long work is, told while it goes on: on standard error, so that results stay alone.

On a terminal the last line moves; elsewhere there is a plain line every now and then, for logs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import click
from typing_extensions import override

LINE_S: Final = 10.0
"""How far apart plain lines are; work that ends sooner tells nothing."""


class Meter(Protocol):
    """Shows how far work is."""

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Say what is done.

        Args:
            text: What is waited for, or what is counted: "messages have moved".
            done: How many; None where nothing is counted.
            total: Of how many; None where that is not known.
        """
        ...


class Silent(Meter):
    """For -q and for answers that programs read."""

    @override
    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        return


class Lines(Meter):
    """A plain line every `LINE_S`.

    Args:
        now_s: Monotonic seconds, as those of `line`.
    """

    def __init__(self, now_s: float) -> None:
        self._next_s = now_s + LINE_S

    @override
    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        line = self.line(text, done, total, time.monotonic())
        if line is not None:
            click.echo(line, err=True)

    def line(self, text: str, done: int | None, total: int | None, now_s: float) -> str | None:
        """The line that is due, None between two.

        Args:
            text: As for `show`.
            done: As for `show`.
            total: As for `show`.
            now_s: Monotonic seconds.
        """
        if now_s < self._next_s:
            return None
        self._next_s = now_s + LINE_S
        return counted(text, done, total)


def counted(text: str, done: int | None, total: int | None) -> str:
    """A text with its count: "5,000 of 20,000 messages have moved".

    Args:
        text: What is counted.
        done: How many, or None.
        total: Of how many, or None.
    """
    if done is None:
        return text
    return f"{done:,} of {total:,} {text}" if total else f"{done:,} {text}"


@contextmanager
def meter(*, is_quiet: bool) -> Iterator[Meter]:
    """The meter that fits standard error.

    Args:
        is_quiet: Show nothing.
    """
    if is_quiet:
        yield Silent()
    elif sys.stderr.isatty():
        with _moving() as found:
            yield found
    else:
        yield Lines(time.monotonic())


@contextmanager
def _moving() -> Iterator[Meter]:
    """A line with a bar, where the total is known, and the time it has taken; gone at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), BarColumn(), shown, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        class Moving(Meter):
            @override
            def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
                described = counted(text, done, total)
                progress.update(task, description=described, completed=done or 0, total=total)

        yield Moving()
