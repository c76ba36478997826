"""The queues of the cluster as this node sees them: those that it serves, and handles of others.

What runs here follows from the catalogue alone: after each applied change of group 0 the registry
compares the two and closes the difference (docs/protocol-rules.md P6). So a queue is started the
same way after a declare, after a restart and after a snapshot.

Invariants:
1. A classic queue runs at its home only, a quorum replica at each member only. A mirrored queue's
   machine runs at its master only (`mirrored`), and channels of every node reach it by batches.
2. A local queue is found by `uid`, never by name: a namesake is another queue.
3. Commands and replies for queues unknown here are dropped; the sender repeats them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from broker.audit.actor import BROKER, Actor
from broker.counters import MessageCounts, QueueingCounts
from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import CommandBatch, Drop, Purge, owner_of
from broker.fifo.config import QueueConfig
from broker.fifo.machine import QueueMachine
from broker.metadata.queue_settings import QueueSettings, settings_of
from broker.metadata.records import REPLICATED, Queue
from broker.metadata.results import Changes
from broker.metadata.streams.settings import StreamSettings, stream_settings_of
from broker.ports import Done, QueueDetails, QueueLook, QueueStat
from broker.queues.classic import ClassicQueue
from broker.queues.client.remote import RemoteQueue
from broker.queues.dead_letters import DeadLetters
from broker.queues.deletes import Deletes
from broker.queues.envelopes import QueueReply
from broker.queues.gate import Delete
from broker.queues.handle import QueueHandle
from broker.queues.machine_settings import config_of
from broker.queues.mirrored.mirrored_queues import MirroredQueues, RingInfo
from broker.queues.mirrored.ports import AllLinked, Neighbours
from broker.queues.node import Boots, Loopback, NodeContext
from broker.queues.paging import kept_log
from broker.queues.paging.memory_budget import LAZY_RAM_BYTES
from broker.queues.paging.node_pager import Pageable
from broker.queues.quorum import QuorumQueue
from broker.queues.recent_history import RecentHistoryReplayer
from broker.queues.replicas.forms import MoveTurns, is_logged
from broker.queues.replicas.groups import Groups
from broker.queues.replicas.replica import Replica, leader_of
from broker.queues.replicas.stream_reading import StreamReading
from broker.queues.streams.client import StreamClient
from broker.queues.streams.log import log_file_bytes
from broker.queues.streams.replica import StreamReplica

_log = logging.getLogger(__name__)

CLASSIC_BOOTS_TICKS: Final = 10
"""Classic queues end dead boots when a boot ends, and every so many ticks, since some count as over
only after a time (`Boots.is_over`). Asking 10,000 queues each second took a tenth of a core."""

SWEEP_TICKS: Final = 10
"""Clients and replicas that had nothing to do are visited once in so many ticks. To come to a queue
that the processor's caches have forgotten takes 5 to 10 us, and of thousands most are idle."""

T = TypeVar("T")


class QueueRegistry:
    """All queues of the cluster, from this node (`broker.server.context.Queues`).

    Args:
        context: This node. Its transport reaches all other nodes.
        groups: Raft groups, for quorum queues.
        neighbours: Links between nodes.

    Attributes:
        mirrored: This node's part in mirrored queues.
        moves: Whose turn it is to move messages.
        reading: The logs of streams that can be read here.
    """

    def __init__(
        self, context: NodeContext, groups: Groups, neighbours: Neighbours | None = None
    ) -> None:
        transport = Loopback(context.node, context.transport, self)
        self._context = node = replace(context, transport=transport)
        self._node = node.node
        self._catalogue = node.catalogue
        self._store = node.store
        self._transport = transport
        self._groups = groups
        self._classic: dict[int, ClassicQueue] = {}
        self._replicas: dict[int, Replica] = {}
        self._remote: dict[int, RemoteQueue] = {}
        self._followed: set[int] = set()  # opened with the policies of `_followed_version`
        self._followed_version = -1
        self._warned: dict[int, tuple[str, ...]] = {}  # warnings about settings, logged already
        self._boots = Boots(node.catalogue, node.clock)
        self._ticks = 0
        self._untended: set[int] = set()  # visited since `take_untended`
        self.moves = MoveTurns()
        self.reading = StreamReading(node, self._replicas)
        self.led_lately: dict[int, str] = {}
        self._deletes = Deletes(node, self._classic, self)
        self._dead_letters = DeadLetters(node, self)
        self._recent_history = RecentHistoryReplayer(node, self, self._dead_letters)
        self.mirrored = MirroredQueues(node, self, neighbours or AllLinked())

    # For channels (`Queues`).

    def open(self, queue: Queue) -> QueueHandle:
        """The handle of a queue, made at first use."""
        uid = queue.uid
        local = self._classic.get(uid)  # `find`: every publish asks
        handle = local if local is not None and local.is_direct else self._remote.get(uid)
        if handle is not None:
            return handle
        current = self._catalogue.queue_by_uid(queue.uid)
        if current is None:  # the record is from before the queue's delete
            return self._open_remote(queue, is_gone=True)
        if current.type == "classic" and current.ring is None and current.home == self._node:
            local = local or self._start_classic(current)
            local.is_direct = True
            return local
        return self._open_remote(current, is_gone=False)

    def _open_remote(self, queue: Queue, *, is_gone: bool) -> RemoteQueue:
        if queue.type == "stream":
            remote: RemoteQueue = StreamClient(queue, self._context, self.reading)
        else:
            remote = RemoteQueue(queue, self._context)
        if is_gone:
            remote.deleted()
        else:
            self._remote[queue.uid] = remote
            self._note_damage(queue)
        return remote

    def find(self, uid: int) -> QueueHandle | None:
        """The handle of a queue, if it was ever opened here."""
        local = self._classic.get(uid)
        return local if local is not None and local.is_direct else self._remote.get(uid)

    def delete(
        self, queue: Queue, done: Done, *, if_unused: bool, if_empty: bool, by: Actor = BROKER
    ) -> None:
        """Delete a queue through the node that serves it (P5)."""
        self._deletes.delete(Delete(queue, done, if_unused, if_empty, by))

    def delete_here(
        self, queue: Queue, done: Done, *, if_unused: bool, if_empty: bool, by: Actor = BROKER
    ) -> None:
        """Delete a classic queue that is served here."""
        self._deletes.delete_here(Delete(queue, done, if_unused, if_empty, by))

    # For queues that run here (`QueueHost`).

    def unused(self, uid: int, then: Callable[[], None]) -> None:
        """Have a classic queue deleted that nobody uses."""
        self._deletes.unused(uid, then)

    def expired(self, uid: int) -> None:
        """Have a quorum queue deleted that nobody uses."""
        expired = self._replicas[uid]
        assert isinstance(expired, QuorumQueue), "streams do not expire"
        self._deletes.expired(expired)

    def begins_to_lead(self, uid: int, term: int) -> None:
        """A replica here leads: end dead boots in it, and tell all nodes where to send (P17)."""
        self._context.counts.elections += 1
        self._replicas[uid].end_boots(self.is_over)
        self.led_lately[uid] = self._node
        self._tell_all(QueueReply(uid, term))

    def outdated(self, uid: int) -> None:
        """Open a replica again in the form that the state needs which it was sent."""
        self._context.defer(lambda: self.reopen(uid, must_be_logged=True))

    def reopen(self, uid: int, *, must_be_logged: bool = False) -> None:
        """Close a replica, and open it again when what it wrote is durable."""
        replica = self._replicas.get(uid)
        if replica is not None:
            replica.stop()
            self._groups.close(uid, erase=False)
            self._groups.when_settled(
                uid, lambda: self._open_again(replica, must_be_logged=must_be_logged)
            )

    def _open_again(self, replica: Replica, *, must_be_logged: bool) -> None:
        queue = self._catalogue.queue_by_uid(replica.record.uid)
        if queue is not None and self._replicas.get(queue.uid) is replica:
            del self._replicas[queue.uid]
            self._start(queue, must_be_logged=must_be_logged)
            self._tell_readers(queue.uid)

    # For mirrored queues (`mirrored.ports.MirroredQueueHost`).

    def serve(self, queue: Queue, machine: QueueMachine | None) -> ClassicQueue:
        """Begin to serve a mirrored queue here, or find that it is served already."""
        local = self._classic.get(queue.uid)
        if local is None:
            if queue.ring is not None and queue.ring.epoch > 1:
                self._tell_all(QueueReply(queue.uid, queue.ring.epoch))  # earlier batches are lost
            return self._start_classic(queue, machine)
        local.record = queue
        return local

    def config(self, queue: Queue) -> QueueConfig:
        """Return the configuration of the machine of a mirrored queue's master."""
        return config_of(queue, self._settings(queue), is_mirrored=True)

    def ram_limit(self, queue: Queue) -> int | None:
        """Return the memory limit that the queue's mode sets for a copy of it, in bytes."""
        is_lazy = settings_of(queue, self._catalogue.effective_policy(queue)).is_lazy
        return LAZY_RAM_BYTES if is_lazy else None

    def unserve(self, queue: Queue) -> None:
        """Another node serves a mirrored queue now, or nobody does."""
        self._deletes.stopped(queue.uid)
        local = self._classic.pop(queue.uid, None)
        if local is not None and self._catalogue.queue_by_uid(queue.uid) is not None:
            if queue.ring is not None and queue.ring.is_down:  # it waits for this node's copy
                local.note_fresh()
            local.leave(self._remote.get(queue.uid) or self._open_remote(queue, is_gone=False))

    @property
    def counts(self) -> QueueingCounts:
        """What queues did here since the node serves."""
        return self._context.counts

    @property
    def dead_letter_bytes(self) -> int:
        """Bytes of dead messages that wait to be routed or published."""
        return self._dead_letters.waiting_bytes

    def served(self, uid: int) -> ClassicQueue | None:
        """A classic queue that is served here."""
        return self._classic.get(uid)

    def is_over(self, node: str, boot: str) -> bool:
        """True if group 0 has ended a boot."""
        return self._boots.is_over(node, boot)

    def ring_info(self, queue: Queue) -> RingInfo | None:
        """Return a mirrored queue's ring as listings show it; None for other queues."""
        return self.mirrored.info(queue)

    def lease_back(self) -> None:
        """The lease may be back: go on with what waited for it."""
        self.mirrored.lease_back()
        self._dead_letters.lease_back()
        self._recent_history.try_again()

    # For other nodes.

    def receive_ring(self, node: str, payload: bytes | memoryview) -> None:
        """Hand a node's ring bytes to the ring they are for."""
        self.mirrored.receive(node, payload)

    def ring_link_up(self, node: str) -> None:
        """A new data stream to or from a node is open."""
        self.mirrored.link_up(node)

    def receive_commands(self, uid: int, batch: CommandBatch) -> None:
        """Hand a batch to the queue it is for, unless its boot has ended (P1)."""
        if self.is_over(*owner_of(batch.session)):
            return
        classic = self._classic.get(uid)
        if classic is not None:
            classic.receive(batch)
            return
        quorum = self._replicas.get(uid)
        if quorum is not None:
            quorum.receive(batch)

    def receive_queue_reply(self, node: str, reply: QueueReply) -> None:
        """Hand a reply to the channels that wait for it."""
        remote = self._remote.get(reply.uid)
        if remote is not None:
            remote.receive(node, reply)

    def stat_here(self, uid: int, done: Done, *, is_declare: bool = False) -> None:
        """Return the counts of a queue that is served here; a declare renews its x-expires."""
        queue = self._served(uid)
        if queue is None:
            done(Refusal(ReplyCode.NOT_FOUND, f"queue {uid} is not served by {self._node}"))
        elif isinstance(queue, ClassicQueue):
            queue.stat(done, is_declare=is_declare)
        else:
            done(queue.stat())

    def move_here(self, uid: int, index: int) -> None:
        """Move messages of a quorum queue that is led here: another replica needs that."""
        quorum = self._replicas.get(uid)
        if isinstance(quorum, QuorumQueue):
            quorum.moves_wanted(index)

    def _served(self, uid: int) -> ClassicQueue | Replica | None:
        """A queue that is served here; else None."""
        classic = self._classic.get(uid)
        if classic is not None:
            return classic
        replica = self._replicas.get(uid)
        return replica if replica is not None and replica.is_leading else None

    def count_here(self, uid: int) -> QueueStat | None:
        """Counts of messages and consumers only, of a queue that is served here; else None."""
        queue = self._served(uid)
        if isinstance(queue, ClassicQueue):
            return queue.machine.stat()
        return None if queue is None else queue.stat()

    def levels_here(self, uid: int) -> QueueStat | None:
        """As `count_here`, and what a classic queue has in memory and on disk."""
        classic = self._classic.get(uid)
        count = self.count_here(uid)
        return count if classic is None or count is None else classic.pager.stat(count)

    def counts_here(self, uid: int) -> MessageCounts | None:
        """What is counted at a queue that is served here; else None."""
        queue = self._served(uid)
        return None if queue is None else queue.counts

    def details_here(self, uid: int, now_ms: int) -> QueueDetails | None:
        """What listings show beside the counts of a queue that is served here; else None.

        Args:
            uid: The queue's incarnation.
            now_ms: Milliseconds since the epoch.
        """
        queue = self._served(uid)
        return None if queue is None else queue.details(now_ms)

    def look_here(self, uid: int, now_ms: int) -> QueueLook | None:
        """As `details_here`: what metrics show."""
        queue = self._served(uid)
        return None if queue is None else queue.look(now_ms)

    def consumer_count(self, uid: int) -> int:
        """Return a queue's number of consumers: all if it is served here, else this node's."""
        classic = self._classic.get(uid)
        if classic is not None:
            return classic.machine.stat().consumers
        remote = self._remote.get(uid)
        return 0 if remote is None else remote.consumer_count

    def quorum_here(self, uid: int) -> QuorumQueue | None:
        """Return a quorum queue, or a store; None unless its leader is here."""
        queue = self._served(uid)
        return queue if isinstance(queue, QuorumQueue) else None

    def cancel_delays(self, store: Queue, numbers: list[int] | None, done: Done) -> None:
        """Remove messages from an x-delayed-message exchange's store.

        Args:
            store: The store.
            numbers: Message numbers, None for all; those that are gone are ignored.
            done: Gets how many were removed.
        """
        handle = self._remote.get(store.uid) or self._open_remote(store, is_gone=False)
        handle.submit(Purge() if numbers is None else Drop(numbers), done)

    # For group 0.

    def reconcile(self, changes: Changes) -> None:
        """Close the differences between the catalogue and what runs here (P6)."""
        if changes.restored:
            self.reconcile_all()
            return
        if changes.nodes_changed:  # also if a boot began: it may end the one before
            self._check_homes()  # before deletes: a queue lost with its home was not just deleted
        for queue in changes.queues_removed:
            self._stop(queue.uid)
        for queue in changes.queues_added:
            self._start(queue)
        for queue in changes.queues_changed:
            self._moved(queue)
        if changes.boots_ended:
            self._end_boots()
            self.mirrored.boots_ended()
        if changes.nodes_changed:
            self.retarget()
            self.mirrored.touch_all()
        for queue in changes.policy_queues:
            self._follow(queue.uid)
            self.mirrored.touch(queue.uid)
        for binding in changes.history_bindings:
            self._recent_history.replay(binding)

    def begin_replica(self, uid: int) -> None:
        """Begin this node's replica of a queue, if it has one: at the start, before all else.

        So not all are begun in the turn of `reconcile_all`. A queue that was deleted meanwhile has
        none; a later change of one is found there.
        """
        queue = self._catalogue.queue_by_uid(uid)
        if queue is not None and queue.type != "classic":
            self._start(queue)

    def opening(self) -> Iterator[None]:
        """Open the classic queues that this node serves, one in each step, before it serves.

        `reconcile_all` does what is left, and follows what has changed meanwhile.
        """
        for uid in [queue.uid for queue in self._catalogue.queues_on(self._node)]:
            queue = self._catalogue.queue_by_uid(uid)
            if queue is not None and self._is_home(queue) and uid not in self._classic:
                if self._followed_version != self._catalogue.version:
                    self._followed_version = self._catalogue.version
                    self._followed.clear()
                self._start_classic(queue)
                self._followed.add(uid)
                yield

    def reconcile_all(self) -> None:
        """Compare everything: at the start and after a snapshot."""
        self._check_homes()
        wanted = {queue.uid: queue for queue in self._catalogue.all_queues()}
        for uid in [*self._classic, *self._replicas, *self._remote]:
            if uid not in wanted:
                self._stop(uid)
        for uid in self._store.queues():
            if uid not in wanted or self.mirrored.is_old_copy(wanted[uid]):
                self._store.delete_queue(uid)
        for queue in wanted.values():
            self._start(queue)
        followed = self._followed if self._followed_version == self._catalogue.version else ()
        for uid in {*self._replicas, *self._remote, *self._classic}:
            known = [
                each.record
                for each in (self._replicas.get(uid), self._remote.get(uid), self._classic.get(uid))
                if each
            ]
            if any(each is not wanted[uid] and each != wanted[uid] for each in known):
                self._moved(wanted[uid])
            if uid not in followed:
                self._follow(uid)
        self._end_boots()
        self.mirrored.boots_ended()
        self.retarget()
        self.mirrored.touch_all()

    def retarget(self) -> None:
        """Nodes joined or left: have every handle look up its queue's node again."""
        for remote in list(self._remote.values()):
            remote.retarget()

    def link_up(self, node: str) -> None:
        """A link to a node was opened anew: repeat what may have been lost with the old one."""
        self.stir(self._replicas)  # their groups may have waited for that node
        for queue in (*self._classic.values(), *self._replicas.values(), *self._remote.values()):
            queue.link_up(node)

    def drained(self, node: str) -> None:
        """A link has room again: go on with what waited for it."""
        for classic in list(self._classic.values()):
            classic.drained(node)
        for remote in list(self._remote.values()):
            remote.drained(node)

    def tick(self) -> Iterator[None]:
        """Once a second, in steps: give up requests that waited too long, repeat the others."""
        self._deletes.tick()
        self._dead_letters.tick()
        self._recent_history.try_again()
        self.mirrored.tick()
        self._ticks += 1
        stirred = self._context.stirred.copy()
        self._context.stirred.clear()
        for remote in _still_there(self._remote, self._due(self._remote, stirred)):
            if remote.tick():
                self._context.stirred.add(remote.record.uid)
            yield
        for classic in _still_there(self._classic, list(self._classic)):
            if self._ticks % CLASSIC_BOOTS_TICKS == 0:
                classic.end_boots(self.is_over)
            classic.tick()
            yield
        for replica in _still_there(self._replicas, self._due(self._replicas, stirred)):
            self._untended.add(replica.record.uid)
            replica.end_boots(self.is_over)
            if replica.tick():
                self._context.stirred.add(replica.record.uid)
            yield
        self.reading.rest()

    def _due(self, queues: Iterable[int], stirred: set[int]) -> list[int]:
        """The queues to visit in this tick."""
        part = self._ticks % SWEEP_TICKS
        return [uid for uid in queues if uid in stirred or uid % SWEEP_TICKS == part]

    def stir(self, uids: Iterable[int]) -> None:
        """Have the next tick visit queues."""
        self._context.stirred.update(uids)

    def take_untended(self) -> list[Replica]:
        """This node's replicas whose members must be looked at: visited since the last call."""
        uids, self._untended = self._untended, set()
        return [replica for uid in uids if (replica := self._replicas.get(uid)) is not None]

    def local_classic(self) -> list[ClassicQueue]:
        """The classic queues that this node serves."""
        return list(self._classic.values())

    def local_replicas(self) -> list[Replica]:
        """This node's replicas of quorum queues and streams."""
        return list(self._replicas.values())

    def local_quorum(self) -> list[QuorumQueue]:
        """This node's replicas of quorum queues."""
        return [each for each in self._replicas.values() if isinstance(each, QuorumQueue)]

    def local_streams(self) -> list[StreamReplica]:
        """This node's replicas of streams."""
        return [each for each in self._replicas.values() if isinstance(each, StreamReplica)]

    def replica(self, uid: int) -> list[Replica]:
        """This node's replica of a quorum queue or stream, if it has one."""
        found = self._replicas.get(uid)
        return [] if found is None else [found]

    def in_memory(self) -> Iterator[Pageable]:
        """Classic queues and mirrors of this node, for its pager."""
        for classic in self._classic.values():
            yield classic.pager
        yield from self.mirrored.mirrors()

    def remotes(self) -> list[RemoteQueue]:
        """This node's clients of queues that other nodes may serve."""
        return list(self._remote.values())

    def served_here(self) -> list[Queue]:
        """Queues that this node serves: homes and led replicas."""
        led = [replica.record for replica in self._replicas.values() if replica.is_leading]
        return [queue.record for queue in self._classic.values()] + led

    def is_leaderless(self, uid: int) -> bool:
        """True if a replica is here and knows of no leader, or is about to lead."""
        replica = self._replicas.get(uid)
        if replica is None or replica.is_leading:
            return False
        return replica.group is None or replica.group.leader in {None, self._node}

    def leader_of(self, queue: Queue) -> str:
        """The node that serves a queue, as far as known here."""
        return leader_of(queue, self._replicas.get(queue.uid))

    def stop(self) -> None:
        """Close everything; delete nothing."""
        self.mirrored.stop()
        self._dead_letters.stop()
        for queue in (*self._classic.values(), *self._replicas.values()):
            queue.stop()
        self._classic.clear()
        self._replicas.clear()
        self._remote.clear()

    # Parts.

    def _start(self, queue: Queue, *, must_be_logged: bool = False) -> None:
        if queue.type == "classic":
            if self._is_home(queue) and queue.uid not in self._classic:
                self._start_classic(queue)
            self.mirrored.changed(queue)
        elif self._node in queue.members and queue.uid not in self._replicas:
            if queue.type == "stream":
                self._start_stream(queue)
            elif queue.type == "quorum":
                logged = must_be_logged or is_logged(queue, self._catalogue, self._groups)
                self._start_quorum(queue, is_logged=logged)

    def _is_home(self, queue: Queue) -> bool:
        """True for a classic queue without mirrors that this node serves."""
        return queue.type == "classic" and queue.ring is None and queue.home == self._node

    def _start_classic(self, queue: Queue, machine: QueueMachine | None = None) -> ClassicQueue:
        started = ClassicQueue(
            queue, self._settings(queue), self._context, self, self._dead_letters, machine
        )
        self._classic[queue.uid] = started
        return started

    def _start_quorum(self, queue: Queue, *, is_logged: bool) -> None:
        replica = QuorumQueue(
            queue,
            self._settings(queue),
            self._context,
            self,
            self._dead_letters,
            is_logged=is_logged,
        )
        self._replicas[queue.uid] = replica
        size = kept_log.LOG_BYTES if is_logged else 0
        group = self._groups.open(queue, replica, segment_bytes=size)
        if group is not None:
            replica.opened(group)
        self._note_damage(queue)

    def _start_stream(self, queue: Queue) -> None:
        settings = self._stream_settings(queue)
        replica = StreamReplica(queue, settings, self._context, self)
        self._replicas[queue.uid] = replica
        size = log_file_bytes(settings.segment_bytes)
        group = self._groups.open(queue, replica, segment_bytes=size)
        if group is not None:
            replica.group = group
        self.reading.forget(queue.uid)
        self._note_damage(queue)

    def _stream_settings(self, queue: Queue) -> StreamSettings:
        return stream_settings_of(queue, self._catalogue.effective_policy(queue))

    def _settings(self, queue: Queue) -> QueueSettings:
        """Return a queue's present settings; log once what they ask for that can't be done."""
        settings = settings_of(queue, self._catalogue.effective_policy(queue))
        is_told = queue.home != self._node or self._warned.get(queue.uid) == settings.warnings
        if settings.warnings and not is_told:
            self._warned[queue.uid] = settings.warnings
            for text in settings.warnings:
                _log.warning(text)
        return settings

    def _follow(self, uid: int) -> None:
        """Policies have changed: apply them to a queue that runs here."""
        running = self._classic.get(uid) or self._replicas.get(uid)
        queue = self._catalogue.queue_by_uid(uid)
        if isinstance(running, StreamReplica):
            if queue is not None:
                running.follow(self._stream_settings(queue))
        elif running is not None and queue is not None:
            settings = self._settings(queue)
            running.follow(settings)
            self._dead_letters.follow(uid, settings)

    def _stop(self, uid: int) -> None:
        self._deletes.stopped(uid)
        self._dead_letters.forget(uid)
        self._warned.pop(uid, None)
        self.mirrored.removed(uid)
        classic = self._classic.pop(uid, None)
        if classic is not None:
            classic.deleted()
        replica = self._replicas.pop(uid, None)
        if replica is not None:
            replica.stop()
            self._groups.close(uid, erase=True)
        self.reading.forget(uid)
        remote = self._remote.pop(uid, None)
        if remote is not None:
            remote.deleted()
        if self._store.has_queue(uid):  # a copy of a ring that this node has left
            self._store.delete_queue(uid)

    def _moved(self, queue: Queue) -> None:
        """Members, the ring, its policy or the leader hint changed."""
        self._context.stirred.add(queue.uid)
        if queue.type == "classic":
            local = self._classic.get(queue.uid)
            if local is not None:
                local.record = queue
            self._start(queue)
        replica = self._replicas.get(queue.uid)
        if replica is not None:
            replica.record = queue
            if self._node not in queue.members:
                del self._replicas[queue.uid]
                replica.stop()
                self._groups.close(queue.uid, erase=True)
        elif queue.type in REPLICATED:
            self._start(queue)
        remote = self._remote.get(queue.uid)
        if remote is not None:
            remote.record = queue
            remote.retarget()
            self._tell_readers(queue.uid)

    def replica_failed(self, uid: int, why: str) -> None:
        """A replica's log turned out to be damaged: its consumers read elsewhere.

        Args:
            uid: The queue.
            why: What is wrong with the log.
        """
        replica = self._replicas.get(uid)
        if replica is None or self._groups.damage(uid):
            return
        self._groups.failed(replica.record, why)
        replica.stop()
        self._note_damage(replica.record)
        self._tell_readers(uid)

    def begin_anew(self, uid: int) -> bool:
        """Begin a damaged replica anew, without data: the queue's leader has let it in again.

        Returns:
            False where that is not wanted any more.
        """
        queue = self._catalogue.queue_by_uid(uid)
        if queue is None or not self._groups.damage(uid) or self._node not in queue.members:
            return False
        _log.warning("queue.replica_replaced", extra={"queue": queue.name, "vhost": queue.vhost})
        self._replicas.pop(uid).stop()
        self._groups.close(uid, erase=True)
        self._start(queue)
        self._tell_readers(uid)
        return True

    def damaged_here(self) -> list[int]:
        """Queues whose replica here has a damaged log."""
        return [uid for uid in self._replicas if self._groups.damage(uid)]

    def _note_damage(self, queue: Queue) -> None:
        """Tell who waits for a queue that nobody will serve it before an operator acts."""
        remote = self._remote.get(queue.uid)
        if remote is not None and queue.type in REPLICATED:
            is_only = queue.members == (self._node,)
            remote.is_damaged = is_only and bool(self._groups.damage(queue.uid))

    def _tell_readers(self, uid: int) -> None:
        remote = self._remote.get(uid)
        if isinstance(remote, StreamClient):
            remote.members_changed()

    def _check_homes(self) -> None:
        for remote in list(self._remote.values()):
            remote.check_home()

    def _end_boots(self) -> None:
        """End what dead boots have in the queues here; repeated, as a proposal may be lost."""
        for queue in (*self._classic.values(), *self._replicas.values()):
            queue.end_boots(self.is_over)

    def _tell_all(self, reply: QueueReply) -> None:
        for node in self._catalogue.nodes():
            if node.alive:
                self._transport.send_queue_reply(node.name, reply)


def _still_there(queues: dict[int, T], uids: list[int]) -> Iterator[T]:
    """Yield some of a table, unless they have gone meanwhile."""
    return (queue for uid in uids if (queue := queues.get(uid)) is not None)
