"""x-delayed-message as routing sees it: which type it routes by, which messages it holds back.

The holding back is not done here: the walk puts the exchange's store in place of its bindings.

Source: rabbit_exchange_type_delayed_message.erl validate/1, route/2;
rabbit_delayed_message_utils.erl get_delay/1: whole numbers, numbers as text, floats (cut).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from broker.amqp.fields import Timestamp

TYPE: Final = "x-delayed-message"
INNER_TYPE: Final = "x-delayed-type"
HEADER: Final = "x-delay"

DELAY_MS_MAX: Final = 315_360_000_000
"""Ten years, as for every other time a queue is told. The plugin's timers end at 2^32-1 ms."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")


def inner_fault(inner: object) -> str:
    """The text for a 406 for an `x-delayed-type` that can't be."""
    if inner == TYPE:
        return f"Invalid argument, '{TYPE}' can't be used for '{INNER_TYPE}'"
    if isinstance(inner, str):
        return f"unknown exchange type '{inner}'"
    return f"Invalid argument, '{INNER_TYPE}' must be an existing exchange type"


def asked_ms(headers: Mapping[str, object] | None) -> int | None:
    """Return the header `x-delay` as milliseconds.

    Args:
        headers: A message's headers, None where it has none.

    Returns:
        The number as sent, negative ones too; None where there is none. Text that is no number
        asks for nothing (the plugin's channel process dies of it).
    """
    value = None if headers is None else headers.get(HEADER)
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    if isinstance(value, float):
        return math.trunc(value) if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool | Timestamp):
        return value
    return None


def delay_ms(headers: Mapping[str, object] | None) -> int:
    """Return the milliseconds for which a message is held back; 0 for none.

    One that was held back carries the header negated, so it never is again. Beyond `DELAY_MS_MAX`
    counts as that; basic.publish refuses such a delay before.
    """
    return min(max(asked_ms(headers) or 0, 0), DELAY_MS_MAX)
