"""The host of one replica in the simulator, in place of raft/host.py."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from raft.core.messages import CONFIG, NORMAL, HardState, Message, Snapshot
from raft.core.node import NodeConfig, SavedState
from raft.core.ready import Ready
from tests.sim.checkers import Seen, fail
from tests.sim.disk import Batch, Disk
from tests.sim.machine import SessionMachine

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster


class SimReplica:
    """A core, its machine and its disk; follows the order that ready.py demands."""

    def __init__(self, cluster: Cluster, name: str, group: int, disk: Disk) -> None:
        self.cluster = cluster
        self.name = name
        self.disk = disk
        self.checker = cluster.checker(group)
        self.is_dead = False
        self.machine = SessionMachine()
        self.seen = Seen()
        self.reads: dict[int, int] = {}  # context -> index the read must cover
        self._snapshot_pending = False
        self._is_hedge_due = False
        live, stored, options = disk.live, disk.live.stored, cluster.options
        self.checker.restarted(name, live.hard_state)
        if stored is not None:
            self.machine.restore(stored.meta.index, stored.parts)
        saved = SavedState(
            live.hard_state,
            stored.meta.configuration if stored is not None else live.initial,
            stored.meta.index if stored is not None else 0,
            is_blank=live.is_blank and cluster.planted.knows_it_is_blank,
        )
        is_read = options.seed % 2 == 0  # group 0 is read at followers, queues are not
        config = NodeConfig(
            group=group,
            name=name,
            append_entries_max=options.append_entries_max,
            inflight_appends_max=options.inflight_appends_max,
            quiesce_after_ticks=options.quiesce_after_ticks,
            cache_entries_max=8,
            push_commits=is_read,
            apply_behind_max=0 if is_read else 4,
            apply_idle_min=2,
            lag_entries_max=0 if is_read else options.lag_entries_max,
            lag_bytes_max=400,
        )
        rng = random.Random(cluster.rng.random())
        self.node = cluster.planted.node_class(config, saved, live, rng)
        self.node.set_tracer(cluster.traced)
        self.seen.term = live.hard_state.term

    def process(self) -> None:
        """Run Readys until there is none."""
        node = self.node
        self.checker.stepped(self.name, node, self.seen, self.disk)
        while node.has_ready() and not self.is_dead:
            ready = node.ready()
            self.checker.handed_out(self.name, node, ready)
            self._write(ready)
            for message in ready.messages_now:
                self._post(message)
            self._apply(ready)
            node.advance(ready)
            self._promise(ready)
            self.checker.stepped(self.name, node, self.seen, self.disk)
            self._maybe_snapshot()
        if node.wants_hedge and not self._is_hedge_due:
            self._is_hedge_due = True
            self.cluster.hedge_after(self)

    def hedge(self) -> None:
        """Ask the core about delays, some time after it wished so."""
        self._is_hedge_due = False
        before = self.node.state.thrifty.eager_followers
        withheld = self.node.wants_hedge
        self.node.hedge()
        if withheld and not self.node.wants_hedge:
            self.cluster.count("hedges")
            self.cluster.note(f"{self.name} went round {before}")
        self.process()

    def _write(self, ready: Ready) -> None:
        batch: Batch = []
        if ready.snapshot is not None:
            batch.append(("install", ready.snapshot))
        if ready.entries:
            batch.append(("append", ready.entries))
        new = ready.hard_state
        if new is not None:
            if self.cluster.planted.splits_hard_state:
                half = HardState(self.disk.live.hard_state.term, new.vote)
                self.disk.write([("put_hard_state", half)])
            batch.append(("put_hard_state", new))
        if batch:
            self.disk.write(batch)

    def _apply(self, ready: Ready) -> None:
        machine = self.machine
        if ready.snapshot is not None:
            machine.restore(ready.snapshot.meta.index, ready.snapshot.parts)
            self.checker.applied(self.name, machine.applied_index, machine.digest)
        for entry in ready.committed:
            if entry.kind == NORMAL:
                client, next_number = machine.apply(entry.index, entry.data)
                if self.node.is_leader:
                    self.cluster.confirm(self, client, next_number)
            machine.applied_index = entry.index
            self.checker.applied(self.name, entry.index, machine.digest)
            if entry.kind == CONFIG:
                self.cluster.count("changes")
        for read in ready.read_states:
            needed = self.reads.pop(read.context, None)
            if needed is not None and read.index < needed:
                fail("linearizable read", f"{self.name} read at {read.index}, after {needed}")
            self.cluster.count("reads")

    def _promise(self, ready: Ready) -> None:
        """After the sync, send what waits for it."""
        cluster = self.cluster
        mark = self.disk.written
        is_full = cluster.nodes[self.name].full_until_ms > cluster.clock.now_ms
        if not cluster.planted.promises_wait or (is_full and not cluster.planted.full_disk_waits):
            for message in ready.messages_after_sync:
                self._post(message)
            ready.messages_after_sync.clear()
        options, rng = cluster.options, cluster.rng
        delay, fails = 0, False
        if ready.must_sync:
            delay = 1 + int(rng.random() * options.sync_ms_max)
            if not cluster.network.is_healed:
                fails = rng.random() < options.failed_sync
                if rng.random() < options.slow_sync:
                    delay += int(rng.random() * 1500)
        cluster.sync_after(self, delay, self._synced, ready, mark, fails)

    def _synced(self, ready: Ready, mark: int, fails: bool) -> None:
        if fails:
            if not self.cluster.planted.trusts_failed_sync:
                self.cluster.count("failed syncs")
                self.cluster.crash(self.name)
                return
            self.disk.poison()
        self.disk.sync_to(mark)
        for message in ready.messages_after_sync:
            self._post(message)
        self.node.synced(ready.number)
        self.process()

    def _post(self, message: Message) -> None:
        if not self.is_dead:
            self.checker.leaves(self.name, message, self.disk)
            self.cluster.send(message)

    def _maybe_snapshot(self) -> None:
        node, every = self.node, self.cluster.options.snapshot_every
        index = node.applied_index
        if self._snapshot_pending or index - self.disk.live.base_index < every:
            return
        self._snapshot_pending = True
        self.cluster.count("snapshots")
        snapshot = Snapshot(node.snapshot_meta(index), self.machine.snapshot())
        self.disk.write([("save_snapshot", snapshot)])
        self.cluster.sync_after(self, 3, self._snapshot_durable, index, self.disk.written)

    def _snapshot_durable(self, index: int, mark: int) -> None:
        self._snapshot_pending = False
        self.disk.sync_to(mark)
        kept_from = index - self.cluster.options.snapshot_every // 4
        if kept_from >= self.node.first_index:
            self.node.compact(kept_from)
            self.disk.write([("trim", kept_from)])
