"""x-recent-history as routing sees it: a fanout exchange that also keeps its latest messages.

Source: rabbit_exchange_type_recent_history.erl validate/1, maybe_cache_msg/3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TYPE: Final = "x-recent-history"
LENGTH: Final = "x-recent-history-length"
NO_STORE: Final = "x-recent-history-no-store"
LENGTH_DEFAULT: Final = 20


def arguments_fault(arguments: Mapping[str, object]) -> str | None:
    """Say what is wrong with the exchange's arguments, None if nothing is.

    Returns:
        RabbitMQ's text for a 406.
    """
    value = arguments.get(LENGTH, LENGTH_DEFAULT)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return None
    shown = f'<<"{value}">>' if isinstance(value, str) else value
    return f"Invalid argument {shown}, '{LENGTH}' must be a positive integer"


def is_kept(headers: Mapping[str, object] | None) -> bool:
    """False for a message whose publisher does not want it remembered."""
    return not headers or headers.get(NO_STORE) is not True
