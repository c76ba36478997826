"""Ages as streams write them: "7D", "12h". Pure.

    age  | a number from 1, decimal digits | Y, M, D, h, m or s

A year has 365 days and a month 30.

Source: rabbit_amqqueue.erl check_max_age/1, unit_value_in_ms/1.
"""

from __future__ import annotations

import re
from typing import Final

_AGE: Final = re.compile(r"([0-9]{1,18})([YMDhms])")
_SECOND_MS: Final = 1_000
_DAY_MS: Final = 24 * 3_600 * _SECOND_MS
_UNITS_MS: Final = {
    "Y": 365 * _DAY_MS,
    "M": 30 * _DAY_MS,
    "D": _DAY_MS,
    "h": 3_600 * _SECOND_MS,
    "m": 60 * _SECOND_MS,
    "s": _SECOND_MS,
}


def age_ms(text: str) -> int | None:
    """Return an age in milliseconds; None if `text` is none, or is 0.

    More than 18 digits are none either: RabbitMQ takes them, and nothing is that old.
    """
    found = _AGE.fullmatch(text)
    if found is None:
        return None
    number, unit = found.groups()
    return int(number) * _UNITS_MS[unit] or None
