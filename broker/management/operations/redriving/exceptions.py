"""The exception that a dead letter died of, as client frameworks write it into headers. Pure.

The broker writes why a message left its queue, "rejected"; a framework that rejects may have
written the exception. Types are preferred: in texts there are often names and numbers of one
message, and they are no group.

Source: Spring AMQP, RepublishMessageRecoverer (x-exception-message); NServiceBus,
"Message headers" (NServiceBus.ExceptionInfo.*); MassTransit, MessageHeaders.cs (MT-Fault-*).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.amqp.fields import valid_text
from broker.management.operations.browsing.masking import Masks

HEADERS: Final = (
    "x-exception-type",
    "NServiceBus.ExceptionInfo.ExceptionType",
    "MT-Fault-ExceptionType",
    "x-exception-message",
    "NServiceBus.ExceptionInfo.Message",
    "MT-Fault-Message",
)
"""The first of them that a message has counts."""

CHARACTERS_MAX: Final = 200
"""Of the first line; what is cut ends with an ellipsis."""

OTHERS: Final = "(others)"
"""Stands for the exceptions beyond those that are told apart."""


def exception_in(headers: Mapping[str, object], masks: Masks) -> str | None:
    """Return the exception that a message names, as it may be seen.

    Args:
        headers: Of the message.
        masks: What is hidden: "***" then.

    Returns:
        None where it names none. Spaces are single, lines but the first are left out.
    """
    for name in HEADERS:
        value = headers.get(name)
        if isinstance(value, str) and value.strip():
            seen = masks.hidden({"headers": {name: value}}, set())
            return _shown(seen, name)
    return None


def _shown(seen: object, name: str) -> str:
    of = seen.get("headers") if isinstance(seen, dict) else seen
    value = of.get(name) if isinstance(of, dict) else of  # all headers may be masked as one
    line = " ".join(valid_text(str(value)).strip().splitlines()[0].split())
    return line if len(line) <= CHARACTERS_MAX else line[: CHARACTERS_MAX - 1] + "…"
