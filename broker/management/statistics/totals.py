"""Sums over the queues and connections of a node, and where they come from. Pure.

    up to EXACT_MAX of both   all are looked at for who asks: nothing is older than the request
    more                      the last sample added them up, as it looks at all of them anyway

So viewers of 10,000 queues have none of them looked at. What they see is as old as the sample:
`broker.management.reports` says how often there is one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.ports import QueueStat

EXACT_MAX: Final = 1_000
"""Up to so many objects what a listing shows of all of them is found for it: it takes 2 ms."""


class Sums(msgspec.Struct, array_like=True):
    """Totals over the queues that a node serves in one vhost."""

    queues: int = 0
    ready: int = 0
    unacked: int = 0
    consumers: int = 0


class Totals(msgspec.Struct, array_like=True):
    """Sums of one node.

    Attributes:
        queues: By vhost.
        connections: By user.
        channels: By user.
        is_sampled: A sample added them up: nothing was looked at for who asks.
    """

    queues: dict[str, Sums] = {}
    connections: dict[str, int] = {}
    channels: dict[str, int] = {}
    is_sampled: bool = False

    @property
    def things(self) -> int:
        """How many queues and connections were added up."""
        return sum([each.queues for each in self.queues.values()]) + sum(self.connections.values())

    def add_connection(self, user: str, channels: int) -> None:
        """Count a client that has logged in.

        Args:
            user: Its user.
            channels: How many it has open.
        """
        self.connections[user] = self.connections.get(user, 0) + 1
        self.channels[user] = self.channels.get(user, 0) + channels

    def add_queue(self, vhost: str, stat: QueueStat) -> None:
        """Count a queue that is served here, and what is in it.

        Args:
            vhost: Of the queue.
            stat: Its counts.
        """
        sums = self.queues.get(vhost)
        if sums is None:
            sums = self.queues[vhost] = Sums()
        sums.queues += 1
        sums.ready += stat.ready
        sums.unacked += stat.unacked
        sums.consumers += stat.consumers
