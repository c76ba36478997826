"""How long a message asks an x-delayed-message exchange to keep it.

Source: rabbit_delayed_message_utils.erl get_delay/1 of the plugin, which takes whole numbers,
numbers as text and floats (cut), and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from broker.amqp.fields import Timestamp

HEADER: Final = "x-delay"

DELAY_MS_MAX: Final = 315_360_000_000
"""Ten years, as for every other time a queue is told. The plugin's timers end at 2^32-1 ms."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")


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


def delay_of(headers: Mapping[str, object] | None) -> int:
    """Return how many milliseconds a message is to be kept; 0 is not at all.

    A message that was kept carries the header negated, so it is never kept again. Beyond
    `DELAY_MS_MAX` counts as that; basic.publish refuses such a delay before.
    """
    return min(max(asked_ms(headers) or 0, 0), DELAY_MS_MAX)
