"""Which boots of nodes are over, as well as it is known here (P1)."""

from __future__ import annotations

from typing import Final

from broker.metadata.catalogue import Catalogue
from broker.ports import Clock

STRANGE_MS: Final = 60_000
"""A boot that group 0 does not name for so long has ended."""

STRANGE_BOOTS_MAX: Final = 1_024


class Boots:
    """Judges boots.

    Args:
        catalogue: Which boots live, and the latest that have ended.
        clock: Time.
    """

    def __init__(self, catalogue: Catalogue, clock: Clock) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._strange: dict[tuple[str, str], int] = {}  # not named by group 0, since when

    def is_over(self, node: str, boot: str) -> bool:
        """Whether group 0 has ended a boot.

        One that it does not name may be so new that this node has not heard of it, or have ended
        longer ago than is remembered: time tells.
        """
        record = self._catalogue.node(node)
        if record is not None and record.boot == boot:
            return False
        if record is not None and boot in record.ended_boots:
            return True
        now_ms = self._clock.monotonic_ms()
        if len(self._strange) > STRANGE_BOOTS_MAX:
            self._strange.clear()
        return now_ms - self._strange.setdefault((node, boot), now_ms) >= STRANGE_MS
