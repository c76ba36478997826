"""The commands on definitions: export_definitions and import_definitions."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from broker.cli.ctl.api import EXIT_DATA, EXIT_USAGE, Api, CtlError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import is_told
from broker.cli.progress import meter

STANDARD: Final = "-"
"""Stands for standard input or output where a path is expected."""

_BAD_REQUEST: Final = 400


def check(call: Invocation) -> None:
    """Refuse formats other than JSON.

    Raises:
        CtlError: 64.
    """
    wanted = call.values.get("format", "json")
    if wanted.lower() != "json":
        raise CtlError(EXIT_USAGE, f"--format {wanted} is not supported: definitions are JSON")


def _path(call: Invocation) -> str:
    return call.arguments[0] if call.arguments else STANDARD


def _endpoint(call: Invocation) -> str:
    is_of_vhost = "vhost" in call.values
    return "/api/definitions" + (f"/{segment(call.vhost)}" if is_of_vhost else "")


def export_banner(call: Invocation) -> str:
    """Of export_definitions; nothing but JSON goes to standard output."""
    path = _path(call)
    return "" if path == STANDARD else f'Exporting definitions in JSON to a file at "{path}" ...'


def export_definitions(api: Api, call: Invocation) -> str | None:
    """Write the definitions of the cluster, or with -p of a vhost, into a file."""
    text = json.dumps(api.get(_endpoint(call)), ensure_ascii=False)
    path = _path(call)
    if path == STANDARD:
        return text
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # password hashes
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise CtlError(EXIT_DATA, f"can't write {path}: {error.strerror}") from error
    return None


def import_banner(call: Invocation) -> str:
    """Of import_definitions."""
    path = _path(call)
    if "dry_run" in call.flags:
        return ""
    where = "standard input" if path == STANDARD else f'a file at "{path}"'
    return f"Importing definitions in JSON from {where} ..."


def import_definitions(api: Api, call: Invocation) -> str | None:
    """Import a file; with --dry-run say what that would do."""
    is_dry, path = "dry_run" in call.flags, _path(call)
    try:
        data = sys.stdin.buffer.read() if path == STANDARD else Path(path).read_bytes()
    except OSError as error:
        raise CtlError(EXIT_DATA, f"can't read {path}: {error.strerror}") from error
    query = ["dry_run=true" if is_dry else "summary=true"]
    if "skip_if_unchanged" in call.flags:
        query.append("skip_if_unchanged=true")
    where = f"{_endpoint(call)}?{'&'.join(query)}"
    with meter(is_quiet=not is_told(call)) as progress:
        progress.show(f"{len(data):,} bytes are being {'compared' if is_dry else 'imported'}")
        status, answer = api.look(where, "POST", body=data)
    if status == _BAD_REQUEST and isinstance(answer, dict) and answer.get("faults"):
        raise CtlError(EXIT_DATA, "\n".join(map(str, answer["faults"])))
    found = api.judge(status, answer)
    if call.values.get("formatter") == "json":
        return json.dumps(found)
    if is_dry:
        return _difference(found)
    return None if call.flags & {"quiet", "silent"} else _summary(found)


def _difference(found: dict[str, Any]) -> str:
    lines = [f"+ {what}" for what in found["add"]]
    lines += [f"~ {each['what']}: {each['differs']}" for each in found["change"]]
    lines += [f"= {text}" for text in found["left"]]
    for each in found.get("policies", ()):
        lines += _touched(each)
    counts = (
        f"{len(found['add'])} to add, {len(found['change'])} to change, "
        f"{len(found['left'])} left as they are, {found['unchanged']} unchanged; nothing was done"
    )
    return "\n".join([*lines, counts])


def _touched(found: dict[str, Any]) -> list[str]:
    """What a policy would touch: a line, and one for each queue and exchange that is named."""
    queues, exchanges = found["queues_changed"], found["exchanges_changed"]
    if not queues and not exchanges:
        return []
    kinds = ((queues, "queue"), (exchanges, "exchange"))
    counts = [f"{count} {kind}{'s' * (count != 1)}" for count, kind in kinds if count]
    lines = [f"{found['what']} touches {' and '.join(counts)}"]
    for each in found["queues"]:
        keys = each["changes"].items()
        changes = [f"{key} {_shown(old)} -> {_shown(new)}" for key, (old, new) in keys]
        kind = "operator_policy" if found["what"].startswith("operator") else "policy"
        changes = changes or [f"policy {_shown(each[kind])} -> {_shown(each[f'{kind}_after'])}"]
        lines.append(f"  {_whether_new(each)}queue '{each['name']}': {', '.join(changes)}")
    for each in found["exchanges"]:
        policies = f"{_shown(each['policy'])} -> {_shown(each['policy_after'])}"
        lines.append(f"  {_whether_new(each)}exchange '{each['name']}': policy {policies}")
    more = queues + exchanges - len(found["queues"]) - len(found["exchanges"])
    return [*lines, f"  and {more} more"] if more else lines


def _whether_new(touched: dict[str, Any]) -> str:
    return "new " if touched.get("added") else ""


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _summary(found: dict[str, Any]) -> str:
    if found.get("skipped"):
        return "The definitions are those that were imported last: nothing was done"
    lines = [f"= {text}" for text in found["left"]]
    counts = (
        f"{found['added']} added, {found['changed']} changed, "
        f"{len(found['left'])} left as they are, {found['unchanged']} unchanged"
    )
    return "\n".join([*lines, counts])
