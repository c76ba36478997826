"""Routes to the node that serves a queue: a home, a master, or a leader.

A quorum queue's leader is found by its replies: the node that replies under the highest term
leads. The catalogue names the server of a classic queue: its home, or a mirrored queue's master. It
also tells whether a machine has ended, which loses all that it knew of this node's channels. A
machine goes on when its queue becomes mirrored or stops being so.

Invariants:
1. `HomeRoute.look` reports the end of each machine once, and never reports one that goes on.
2. A reply that `admits` lets through is from the machine that commands are sent to now.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.metadata.catalogue import Catalogue
from broker.metadata.mirroring.steps import designable
from broker.metadata.records import Queue
from broker.queues.envelopes import QueueReply


class Server(NamedTuple):
    """A classic queue's machine: where it runs, and which one it is.

    Attributes:
        node: Where it runs.
        boot: That node's boot id.
        epoch: The epoch of its ring; for a plain queue, of the last ring that it had.
        is_plain: There is no ring now.
    """

    node: str
    boot: str
    epoch: int
    is_plain: bool

    def goes_on_as(self, later: Server | None) -> bool:
        """True if this is the machine that `later` describes.

        The first master of a ring is the plain queue's home, and a ring is dissolved at its
        master; every other master begins a new epoch (`broker.metadata.rings`).
        """
        if later is None or (later.node, later.boot) != (self.node, self.boot):
            return False
        return later.epoch <= self.epoch + self.is_plain


class HomeRoute:
    """The route to a classic queue, plain or mirrored.

    Args:
        record: The queue.
        catalogue: Says who is alive.

    Attributes:
        record: As given; replaced when it changes, before `look`.
        server: The machine that commands are sent to; None while there is none.
    """

    def __init__(self, record: Queue, catalogue: Catalogue) -> None:
        self.record = record
        self._catalogue = catalogue
        self.server = self._find()
        self._epoch_min = self._first_epoch()

    @property
    def target(self) -> str | None:
        """The node to send batches to; None while there is none."""
        return None if self.server is None else self.server.node

    @property
    def epoch(self) -> int:
        """The epoch of the present or next server; higher than all before, or 0."""
        if self.server is not None:
            return self.server.epoch
        ring = self.record.ring
        return self.record.past_epoch if ring is None else ring.epoch + 1

    @property
    def is_mirrored(self) -> bool:
        """True for a queue whose next master will know what was published."""
        return self.record.ring is not None

    def look(self) -> bool:
        """Look the server up again, and compare it with the one before.

        Returns:
            True if the machine that commands were sent to has ended.
        """
        asked, self.server = self.server, self._find()
        if asked is not None and asked.goes_on_as(self.server):
            assert self.server is not None, "it goes on"
            if self.server.is_plain:
                self._epoch_min = 0
            return False
        self._epoch_min = self._first_epoch()
        return asked is not None

    def admits(self, node: str, epoch: int) -> bool:
        """True if a reply is from the machine that commands are sent to now.

        Args:
            node: The node that replied.
            epoch: The reply's, 0 for a plain queue. A home may have founded a ring already.
        """
        server = self.server
        return (
            server is not None
            and node == server.node
            and self._epoch_min <= epoch <= server.epoch + server.is_plain
        )

    def is_down(self) -> bool:
        """True if no node serves the queue and none will soon (P12)."""
        if self.server is not None:
            return False
        ring = self.record.ring
        if ring is None:
            return True
        return ring.is_down and designable(self._catalogue, self.record) is None

    def _find(self) -> Server | None:
        record, ring = self.record, self.record.ring
        if ring is None:
            home = self._catalogue.node(record.home)
            if home is None or home.boot is None:
                return None
            return Server(record.home, home.boot, record.past_epoch, True)
        master = ring.master
        if master is None:
            return None
        node = self._catalogue.node(master.node)
        if node is None or node.boot != master.boot:
            return None  # it has ended: the ring's record will say so soon
        return Server(master.node, master.boot, ring.epoch, False)

    def _first_epoch(self) -> int:
        """The lowest epoch that the machine's replies may carry: 0 if the queue was plain."""
        server = self.server
        if server is None or server.is_plain or server.epoch == self.record.past_epoch + 1:
            return 0
        return server.epoch


class LeaderRoute:
    """The route to a quorum queue.

    Args:
        record: The queue.
        catalogue: Says who is alive.

    Attributes:
        record: As given; replaced when its members or the leader hint change.
        term: The highest term that a leader has replied with.
    """

    def __init__(self, record: Queue, catalogue: Catalogue) -> None:
        self.record = record
        self.term = 0
        self._catalogue = catalogue
        self._leader: str | None = None

    @property
    def target(self) -> str | None:
        """Return the node that leads, as far as known; None if no node can."""
        if self._leader is not None:
            return self._leader
        if self._is_alive(self.record.home):
            return self.record.home
        for member in self.record.members:
            if self._is_alive(member):
                return member
        return None

    @property
    def is_leaderless(self) -> bool:
        """True while so many members are dead that no leader can be elected."""
        members = self.record.members
        return 2 * sum([self._is_alive(member) for member in members]) <= len(members)

    @property
    def epoch(self) -> int:
        """0: a quorum queue has the same machine for ever, whichever node leads."""
        return 0

    def look(self) -> None:
        """Nodes or members changed: forget a leader that has died."""
        if self._leader is not None and not self._is_alive(self._leader):
            self._leader = None

    def forget(self) -> None:
        """Forget a leader that has been silent for long."""
        self._leader = None

    def hear(self, node: str, reply: QueueReply) -> bool:
        """Learn from a reply which node leads.

        Returns:
            True if the leader is a new one: everything must be sent to it.
        """
        if reply.leader is not None:
            return self._redirected(node, reply)
        if reply.epoch > self.term or self._leader is None:
            self.term = max(self.term, reply.epoch)
            self._leader = node
            return True
        return False

    def _redirected(self, node: str, reply: QueueReply) -> bool:
        """Follow the redirection of a node that does not lead; True if the leader is a new one.

        A follower may not know the term of the leader that it names, so it is believed while no
        leader is known; but two mistaken followers must not redirect this node to and fro.
        """
        was_asked_as_leader = self._leader == node
        if was_asked_as_leader:
            self._leader = None
        if not reply.leader or reply.leader == node:
            return False
        is_stale = reply.epoch < self.term
        if is_stale and (was_asked_as_leader or self._leader is not None):
            return False
        if self._leader == reply.leader:
            return False
        self._leader = reply.leader
        return True

    def _is_alive(self, node: str) -> bool:
        found = self._catalogue.node(node)
        return found is not None and found.alive
