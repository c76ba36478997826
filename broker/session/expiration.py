"""The `expiration` property: milliseconds as a decimal string, checked as RabbitMQ does.

Source:
    rabbit_basic.erl, parse_expiration; rabbit_misc.erl, check_expiry.
"""

from __future__ import annotations

import re

from broker.errors import AmqpError, ReplyCode

_INTEGER = re.compile(r"[+-]?[0-9]+")
_EXPIRY_MAX_MS = 315_360_000_000  # ten years


def check_expiration(text: str) -> int:
    """Parse an expiration in milliseconds.

    Raises:
        AmqpError: 406 for anything but a whole number from 0 to ten years.
    """
    found = _INTEGER.match(text)
    if found is None:
        raise _invalid(text, "no_integer")
    rest = text[found.end() :]
    if rest:
        raise _invalid(text, f'{{leftover_string,"{rest}"}}')
    digits = found.group()
    if len(digits) > len(str(_EXPIRY_MAX_MS)) + 1:
        raise _invalid(text, f"{{value_too_big,{digits}}}")
    value = int(digits)
    if value > _EXPIRY_MAX_MS:
        raise _invalid(text, f"{{value_too_big,{value}}}")
    if value < 0:
        raise _invalid(text, f"{{value_negative,{value}}}")
    return value


def _invalid(text: str, why: str) -> AmqpError:
    return AmqpError(ReplyCode.PRECONDITION_FAILED, f"invalid expiration '{text}': {why}")
