"""What a shell may complete on the command line of `ctl`: commands, options, columns, values.

click's scripts for bash, zsh and fish ask for it (docs/ctl.md). Nothing is asked of a node: the
shell waits meanwhile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from click.shell_completion import CompletionItem

from broker.cli.cluster.layout import Layout
from broker.cli.ctl.api import CtlError
from broker.cli.ctl.arguments import is_valued, parse
from broker.cli.ctl.help import scopes, usage
from broker.cli.ctl.listings import LISTINGS
from broker.cli.ctl.node.plugins import PLUGINS
from broker.cli.ctl.output import FORMATTERS

_OPTION: Final = re.compile(r"--[a-z][a-z-]+")
_GENERAL: Final = (
    "--node", "--vhost", "--formatter", "--quiet", "--silent", "--timeout", "--url", "--dir",
    "--user", "--password", "--no-table-headers", "--help",
)  # fmt: skip
_PLUGIN_COMMANDS: Final = ("enable", "disable", "is_enabled", "set")


def candidates(words: Sequence[str], incomplete: str, tool: str) -> list[CompletionItem]:
    """What the word at the cursor may become.

    Args:
        words: Those before it, behind `ctl`.
        incomplete: Its beginning.
        tool: What the program is called.
    """
    found = [CompletionItem(name, help=line) for name, line in _names(words, incomplete, tool)]
    return [item for item in found if item.value.startswith(incomplete)]


def _names(words: Sequence[str], incomplete: str, tool: str) -> Iterable[tuple[str, str]]:
    before = words[-1] if words else ""
    if is_valued(before):
        return ((value, "") for value in _values(before))
    command = _command(words)
    if incomplete.startswith("-"):
        own = _OPTION.findall(usage.of_arguments(command)) if command else []
        return ((option, "") for option in dict.fromkeys((*own, *_GENERAL)))
    if command in ("", "help"):
        return ((name, scopes.LINES.get(name, "")) for name in usage.names(tool))
    if command in LISTINGS and LISTINGS[command].has_columns:
        return ((column, "") for column in LISTINGS[command].known)
    if command in _PLUGIN_COMMANDS:
        return ((name, plugin.note) for name, plugin in PLUGINS.items())
    return ()


def _command(words: Sequence[str]) -> str:
    try:
        return parse(words).command
    except CtlError:
        return ""


def _values(option: str) -> Iterable[str]:
    """Values of an option that are known without a node."""
    if option == "--formatter":
        return FORMATTERS
    if option in ("-n", "--node"):
        layout = Layout(os.environ.get("WARRENMQ_DIR") or ".warrenmq")
        return [place.name for place in layout.nodes()] if layout.exists else ()
    return ()
