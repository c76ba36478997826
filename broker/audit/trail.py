"""Writes the audit log: one JSON object a line, to the logger `broker.audit`.

The logger has a level and a file only where `log.audit.file` names one (`broker.cli.log_output`);
else every call here ends at one comparison. What can't be written ends no change: it is in the log.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from broker.audit.actor import Actor
from broker.audit.changes import (
    Password,
    State,
    Subject,
    has_changed,
    queue_state,
    subject,
    without_secrets,
)
from broker.errors import Refusal, ReplyCode
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AnyCommand
from broker.metadata.results import Declared

LOGGER: Final = "broker.audit"
LINE_CHARACTERS_MAX: Final = 65_536

_log = logging.getLogger(__name__)
_trail = logging.getLogger(LOGGER)
_trail.propagate = False  # its lines are no lines of the log
_trail.setLevel(logging.CRITICAL + 1)


def is_kept() -> bool:
    """True if this process keeps an audit log."""
    return _trail.isEnabledFor(logging.INFO)


@dataclass(slots=True)
class Pending:
    """A change that is under way."""

    node: str
    by: Actor
    command: AnyCommand
    catalogue: Catalogue
    subject: Subject
    before: State | None

    def end(self, result: object) -> None:
        """Write the line, unless nothing has changed.

        Args:
            result: Of the command, or a Refusal.
        """
        try:
            self._end(result)
        except Exception:  # noqa: BLE001 - the change is made: its answer must not be lost
            _log.exception("audit.not_written: %s", self.subject.operation)

    def _end(self, result: object) -> None:
        before = self.before
        if isinstance(result, Refusal):
            is_unknown = result.code is ReplyCode.INTERNAL_ERROR
            outcome = "unknown" if is_unknown else "refused"
            _write(self.node, self.by, self.subject, outcome, result.text, before, None)
            return
        if isinstance(result, Declared):
            after: State | None = queue_state(result.queue)
        else:
            after = self.subject.state(self.catalogue)
        if not has_changed(self.command, result, before, after):
            return
        password = None if after is None else after.get("password")
        if isinstance(password, Password) and before and before["password"] != password:
            after = {**(after or {}), "password": password.changed()}
        _write(self.node, self.by, self.subject, "done", "", before, after)


def begin(node: str, by: Actor, command: AnyCommand, catalogue: Catalogue) -> Pending | None:
    """Look at what a command is going to change.

    Args:
        node: This node.
        by: Who asks.
        command: Before it is proposed.
        catalogue: As it is now.

    Returns:
        None where no audit log is kept, or the command has no line in it.
    """
    if not is_kept() or by.part_of:
        return None
    try:
        found = subject(command, catalogue)
        before = None if found is None else found.state(catalogue)
    except Exception:  # noqa: BLE001 - no change fails for want of a line
        _log.exception("audit.not_written: %s", type(command).__name__)
        return None
    return None if found is None else Pending(node, by, command, catalogue, found, before)


def note(
    node: str, by: Actor, operation: str, object_: State, outcome: str = "done", reason: str = ""
) -> None:
    """Write a line about what is no single command of group 0.

    Args:
        node: This node.
        by: Who asks.
        operation: "definitions.import", ...
        object_: What it is about.
        outcome: "done" or "refused".
        reason: Why it was refused.
    """
    if is_kept():
        nothing = Subject(operation, object_, lambda _catalogue: None)
        _write(node, by, nothing, outcome, reason, None, None)


def _write(
    node: str,
    by: Actor,
    what: Subject,
    outcome: str,
    reason: str,
    before: State | None,
    after: State | None,
) -> None:
    line: dict[str, object] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "node": node,
        "user": by.user,
        "via": by.via,
        "from": by.address,
        "operation": what.operation,
        "object": without_secrets(what.object),
        "outcome": outcome,
    }
    if reason:
        line["reason"] = without_secrets(reason)
    states = {"before": without_secrets(before), "after": without_secrets(after)}
    text = json.dumps(line | states)  # ASCII: what breaks a line anywhere is escaped
    if len(text) > LINE_CHARACTERS_MAX:
        cut = {"left_out_characters": len(text)}
        text = json.dumps(line | dict.fromkeys(states, cut))
    if len(text) > LINE_CHARACTERS_MAX:
        text = json.dumps(line | {"object": cut, "reason": "", "before": cut, "after": cut})
    _trail.info("%s", text)
