"""Which form a quorum queue's replica has, and whose turn it is to move messages (decision 0065).

In the older form its entries are cut behind a snapshot with all bodies; in the other the bodies are
in its log, which stays. Each replica changes for itself when it is opened.
"""

from __future__ import annotations

from broker import feature_flags
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.queues.replicas.groups import Groups


def is_logged(queue: Queue, catalogue: Catalogue, groups: Groups) -> bool:
    """True if a replica that is opened now has its bodies in its log.

    A store of delays never has: its order needs more than numbers.

    Args:
        queue: A quorum queue.
        catalogue: Knows whether the feature flag is enabled.
        groups: Know the form that a replica has on disk.
    """
    if queue.delays_for is not None:
        return False
    is_enabled = feature_flags.QUORUM_LOGS in catalogue.features
    return queue.is_logged or is_enabled or groups.keeps_log(queue.uid)


class MoveTurns:
    """Lets one queue of a node move messages at a time: all together they would take too long."""

    def __init__(self) -> None:
        self._is_taken = False

    def begin(self) -> bool:
        """Take the turn; False while another queue has it."""
        is_free, self._is_taken = not self._is_taken, True
        return is_free

    def end(self) -> None:
        """Give it back."""
        self._is_taken = False
