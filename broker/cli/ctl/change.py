"""The parts of commands that change or check something."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple, Self

from broker.cli.ctl.api import EXIT_TEMPORARY, Api, CtlError
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.output import SCRIPTED, Answer
from broker.cli.progress import Meter, Silent, meter

POLL_S = 0.25


class Change(NamedTuple):
    """One command.

    Attributes:
        run: Runs it; its result is printed after the banner, None prints nothing.
        least: Fewest arguments.
        most: Most arguments.
        usage: Its arguments, for the usage line.
        banner: Printed first unless -q; "{0}", "{1}" are arguments, "{rest}" all but the first,
            "{vhost}" is -p, "{priority}" is --priority. Or a function that returns it.
        check: Refuses arguments before the banner is printed.
        is_answer: True if the result of `run` is printed with -q, too.
    """

    run: Callable[[Api, Invocation], str | Answer | None]
    least: int
    most: int
    usage: str
    banner: str | Callable[[Invocation], str] = ""
    check: Callable[[Invocation], None] | None = None
    is_answer: bool = False


class CommandTimeout(CtlError):
    """A command did not get what it waits for within --timeout.

    Args:
        text: Of the error.
    """

    def __init__(self, text: str) -> None:
        super().__init__(EXIT_TEMPORARY, text)


def is_told(call: Invocation) -> bool:
    """Whether long work tells how far it is: not under -q, nor where a program reads the answer."""
    is_scripted = call.values.get("formatter") in SCRIPTED
    return not is_scripted and not call.flags & {"quiet", "silent"}


class PollUntilTimeout:
    """Polls for a result until the limit of `--timeout`, and shows how far it is under `with`.

    Args:
        call: The command.
        default_s: Seconds without --timeout; None for no limit.
    """

    def __init__(self, call: Invocation, default_s: float | None = None) -> None:
        self._limit_s = call.timeout_s or default_s
        self._began = time.monotonic()
        self._meters = contextlib.ExitStack()
        self._meter: Meter = Silent()
        self._is_told = is_told(call)

    def __enter__(self) -> Self:
        self._meter = self._meters.enter_context(meter(is_quiet=not self._is_told))
        return self

    def __exit__(self, *_: object) -> None:
        self._meters.close()

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show how far the work is.

        Args:
            text: What is being done.
            done: How much of it, in what `total` counts; None where that is not known.
            total: All of it.
        """
        self._meter.show(text, done, total)

    def wait(self, what: str, advice: str = "") -> None:
        """Sleep before the next question.

        Args:
            what: What has not happened yet, for the error: "the work has not ended".
            advice: What to do after the error.

        Raises:
            CommandTimeout: The limit is over.
        """
        if self._limit_s is not None and time.monotonic() - self._began > self._limit_s:
            text = f"{what} within {self._limit_s:g} s"
            raise CommandTimeout(f"{text}: {advice}" if advice else text)
        time.sleep(POLL_S)
