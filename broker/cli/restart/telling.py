"""How long work tells what it does: a line for each step, and on a terminal what it waits for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click
from typing_extensions import override


class Teller(Protocol):
    """Tells people how far the work is."""

    def done(self, text: str) -> None:
        """A step is over."""
        ...

    def waits(self, text: str) -> None:
        """What is waited for, and why; told once for each text."""
        ...


class Lines(Teller):
    """Plain lines, for logs and pipes."""

    def __init__(self) -> None:
        self._last = ""

    @override
    def done(self, text: str) -> None:
        self._last = ""
        click.echo(text)

    @override
    def waits(self, text: str) -> None:
        if text != self._last:
            self._last = text
            click.echo(f"{text} ...")


@contextmanager
def teller() -> Iterator[Teller]:
    """Plain lines, or a moving last line where standard output is a terminal."""
    if not sys.stdout.isatty():
        yield Lines()
        return
    from rich.console import Console

    console = Console()
    with console.status("") as status:

        class Moving(Teller):
            @override
            def done(self, text: str) -> None:
                console.print(text, markup=False, highlight=False)

            @override
            def waits(self, text: str) -> None:
                status.update(f"{text} ...".replace("[", "\\["))

        yield Moving()
