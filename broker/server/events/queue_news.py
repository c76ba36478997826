"""Which queues got another leader, master or members since somebody looked last: for the timeline.

Raft groups and group 0 tell it as it happens, so nobody has to go through all queues to find out.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from broker.metadata.records import REPLICATED, Queue
from broker.metadata.results import Changes
from broker.ports import Clock

NEWS_MAX: Final = 20_000
"""The oldest go where nobody looks; a node that dies moves the leaders of all it led."""


class QueueSeen(NamedTuple):
    """How a queue is from now on.

    Attributes:
        at_ms: Since when, milliseconds since the epoch.
        uid: The queue's incarnation.
        leader: Its leader or master; "" where that has not changed.
        members: Its members, or nodes of its ring; None where those have not changed.
    """

    at_ms: int
    uid: int
    leader: str
    members: tuple[str, ...] | None = None


class QueueNews:
    """What this node has seen of queues. Owner: the serving part of the node.

    Args:
        clock: Time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: deque[QueueSeen] = deque(maxlen=NEWS_MAX)

    def of(self, uid: int) -> GroupNews:
        """The ear for the leaders of one Raft group."""
        return GroupNews(self, uid)

    def led(self, uid: int, leader: str) -> None:
        """Note who leads a queue."""
        self._seen.append(QueueSeen(self._clock.now_ms(), uid, leader))

    def follow(self, changes: Changes) -> None:
        """Note what group 0 changed."""
        for queue in (*changes.queues_added, *changes.queues_changed):
            if queue.ring is not None or queue.type in REPLICATED:
                now_ms = self._clock.now_ms()
                self._seen.append(QueueSeen(now_ms, queue.uid, master_of(queue), members_of(queue)))

    def take(self) -> list[QueueSeen]:
        """What was noted since the last call, the oldest first."""
        seen = list(self._seen)
        self._seen.clear()
        return seen


class GroupNews:
    """Told of the leaders of one queue."""

    __slots__ = ("_news", "_uid")

    def __init__(self, news: QueueNews, uid: int) -> None:
        self._news = news
        self._uid = uid

    def leader_changed(self, leader: str | None) -> None:
        """Note a leader; that there is none is no news: there will be one, or the queue is down."""
        if leader is not None:
            self._news.led(self._uid, leader)


def master_of(queue: Queue) -> str:
    """The master of a mirrored queue; "" for others, and while there is none."""
    ring = queue.ring
    return "" if ring is None or ring.master is None else ring.master.node


def members_of(queue: Queue) -> tuple[str, ...]:
    """Nodes with a replica, or with the master or a living mirror."""
    if queue.ring is None:
        return queue.members
    return tuple(sorted({member.node for member in queue.ring.alive()}))
