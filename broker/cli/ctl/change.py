"""What a command that changes or checks something is made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from broker.cli.ctl.api import EXIT_TEMPORARY, Api, CtlError
from broker.cli.ctl.arguments import Invocation

POLL_S = 0.25


class Change(NamedTuple):
    """One command.

    Attributes:
        run: Does it; what it returns is printed after the banner, None prints nothing.
        least: Fewest arguments.
        most: Most arguments.
        usage: Its arguments, for the usage line.
        banner: Printed first unless -q; "{0}", "{1}" are arguments, "{rest}" all but the first,
            "{vhost}" is -p, "{priority}" is --priority. Or what makes it.
        check: Refuses arguments before the banner is printed.
        is_answer: What `run` returns is what the command is for: it is printed with -q too.
    """

    run: Callable[[Api, Invocation], str | None]
    least: int
    most: int
    usage: str
    banner: str | Callable[[Invocation], str] = ""
    check: Callable[[Invocation], None] | None = None
    is_answer: bool = False


class TimeIsUp(CtlError):
    """What a command waits for did not come within --timeout.

    Args:
        text: What to say.
    """

    def __init__(self, text: str) -> None:
        super().__init__(EXIT_TEMPORARY, text)


class Patience:
    """How long a command asks again and again before it gives up: `--timeout`.

    Args:
        call: The command.
        default_s: Seconds without --timeout; None never gives up.
    """

    def __init__(self, call: Invocation, default_s: float | None = None) -> None:
        self._limit_s = call.timeout_s or default_s
        self._began = time.monotonic()

    def wait(self, what: str, advice: str = "") -> None:
        """Pause until it is time to ask again.

        Args:
            what: What is not so yet, said when time is up: "the work has not ended".
            advice: What to do then.

        Raises:
            TimeIsUp: And it is not so.
        """
        if self._limit_s is not None and time.monotonic() - self._began > self._limit_s:
            text = f"{what} within {self._limit_s:g} s"
            raise TimeIsUp(f"{text}: {advice}" if advice else text)
        time.sleep(POLL_S)
