"""Log warnings about alternate exchanges that do not exist."""

from __future__ import annotations

import logging
from typing import Final

from broker.errors import quoted

_REMEMBERED: Final = 1_000
_log = logging.getLogger(__name__)


class AlternateExchangeWarnings:
    """Warns of each once, not for every message that is lost by it.

    Source: rabbit_exchange.erl (text), which warned each time.
    """

    def __init__(self) -> None:
        self._told: set[tuple[str, str, str]] = set()

    def note(self, vhost: str, exchange: str, alternate: str) -> None:
        """A message needed an alternate that is not there.

        Args:
            vhost: Of both.
            exchange: The exchange that matched nothing.
            alternate: What it names as its alternate.
        """
        known = (vhost, exchange, alternate)
        if known in self._told:
            return
        if len(self._told) >= _REMEMBERED:
            self._told.clear()
        self._told.add(known)
        _log.warning(
            "alternate exchange for %s does not exist: %s",
            quoted("exchange", exchange, vhost),
            quoted("exchange", alternate, vhost),
        )
