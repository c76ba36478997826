"""What a command that changes or checks something is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.cli.ctl.api import Api
from broker.cli.ctl.arguments import Invocation


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
