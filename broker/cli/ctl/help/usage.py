"""The help of `ctl`: commands by scope, one command's usage, and what to say to a wrong line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from broker.cli.ctl import offline
from broker.cli.ctl.absent import ABSENT
from broker.cli.ctl.api import EXIT_USAGE, CtlError
from broker.cli.ctl.help import scopes, tools
from broker.cli.ctl.listings import LISTINGS
from broker.cli.ctl.status import DESCRIPTIONS
from broker.cli.ctl.table import CHANGES

PROGRAM = "warrenmq ctl"

_ALIKE = 0.6
"""How much of a name has to be right for it to be taken for a mistyped one; difflib's default."""

_OPTIONS = """\
  -n NODE         a node of the local cluster, node1 or rabbit@node1
  --dir DIR       the local cluster's directory (WARRENMQ_DIR, .warrenmq)
  --url URL       a management API, http://127.0.0.1:15672 (WARRENMQ_URL)
  --user U --password P   guest, guest (WARRENMQ_USER, WARRENMQ_PASSWORD)
  -p VHOST        /
  -q, -s          no banners; no banners and no headers
  --formatter F   tab, table, json, csv, pretty_table, erlang
  --no-table-headers, -t SECONDS"""


def names(tool: str = PROGRAM) -> list[str]:
    """The commands that there are, sorted.

    Args:
        tool: One of RabbitMQ's tools: only its own.
    """
    there = {*LISTINGS, *DESCRIPTIONS, *CHANGES, *offline.USAGE, "help", "autocomplete"}
    listed = tools.listed(tool)
    return sorted(there if listed is None else there & listed)


def overview(tool: str = PROGRAM) -> str:
    """The commands by scope, one line each.

    Args:
        tool: What the program is called.
    """
    shown = names(tool)
    width = max(len(name) for name in shown)
    lines = ["Usage", "", f"{tool} [OPTIONS] COMMAND [ARGUMENTS]", "", _OPTIONS, ""]
    lines += ["Available commands:", ""]
    for scope, rows in scopes.grouped(frozenset(shown)):
        lines += [f"{scope}:", ""]
        lines += [f"   {name:<{width}}  {line}".rstrip() for name, line in rows] + [""]
    missing = [name for name in ABSENT if _is_of(name, tool)]
    if missing:
        lines += ["Not here; each says why when it is called:", ""]
        lines += [*_wrapped(sorted(missing)), ""]
    lines.append(f"Use '{tool} help <command>' to learn more about a specific command")
    return "\n".join(lines)


def of_command(name: str, tool: str = PROGRAM) -> str:
    """What one command takes and does.

    Args:
        name: Of the command.
        tool: What the program is called.

    Raises:
        CtlError: 64, there is no such command.
    """
    if name in ABSENT:
        return f"{name} is not supported: {ABSENT[name]}"
    if name not in names():
        raise CtlError(EXIT_USAGE, unknown(name, tool), is_plain=True)
    lines = ["Usage", "", f"{tool} {name} {of_arguments(name)}".rstrip()]
    if name in offline.USAGE and name in CHANGES:
        lines.append(f"{tool} {name} {offline.USAGE[name]}")
    if name in scopes.LINES:
        lines += ["", f"{scopes.LINES[name]}."]
    if name in LISTINGS and LISTINGS[name].has_columns:
        lines += ["", "Columns:", "", *_wrapped(LISTINGS[name].known)]
    return "\n".join([*lines, "", "General options:", "", _OPTIONS])


def unknown(name: str, tool: str = PROGRAM) -> str:
    """What to say to a name that is no command.

    Args:
        name: As typed.
        tool: What the program is called.
    """
    near = difflib.get_close_matches(name, [*names(), *ABSENT], n=1, cutoff=_ALIKE)
    guess = f"Did you mean '{near[0]}'? \n" if near else ""
    return f"\nCommand '{name}' not found. \n{guess}see `{tool} help`"


def misuse(text: str, words: Sequence[str], name: str, tool: str = PROGRAM) -> str:
    """The error, the command line that was typed, and the usage of the command.

    Args:
        text: The error.
        words: What was typed.
        name: Of the command.
        tool: What the program is called.
    """
    return (
        f"Error (argument validation): {text}\nArguments given:\n\t{' '.join(words)}\n\n"
        f"Usage\n\n{tool} {name} {of_arguments(name)}".rstrip()
    )


def of_arguments(name: str) -> str:
    """The arguments and options of a command, as its usage line has them.

    Args:
        name: Of the command; any other has none.
    """
    if name in CHANGES:
        return CHANGES[name].usage
    if name in offline.USAGE:
        return offline.USAGE[name]
    if name not in LISTINGS:
        return {"help": "[<command>]", "autocomplete": "<beginning>"}.get(name, "")
    row = LISTINGS[name]
    parts = {
        "[--vhost <vhost>]": "{vhost}" in row.banner,
        "<name>": "{0}" in row.path,
        "[--no-table-headers]": True,
        "[<column> ...]": row.has_columns,
    }
    return " ".join(part for part, is_there in parts.items() if is_there)


def _is_of(name: str, tool: str) -> bool:
    listed = tools.listed(tool)
    return listed is None or name in listed


def _wrapped(words: Sequence[str], width: int = 92) -> list[str]:
    """Words in lines that begin with three spaces."""
    lines, line = [], "  "
    for word in words:
        if len(line) + 1 + len(word) > width:
            lines.append(line)
            line = "  "
        line += f" {word}"
    return [*lines, line]
