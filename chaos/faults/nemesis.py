"""Carries a schedule out, and writes what really happened to the history."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from chaos.cluster import ClusterFailed, LocalCluster, wait_until
from chaos.faults import kill, pause
from chaos.faults.schedule import Planned
from chaos.history import Epoch, Recorder

_LEADER_TIMEOUT_S = 15.0
_WATCH_S = 0.2
_CALM_S = 3.0


class Nemesis:
    """Breaks and heals nodes; watches who leads the queue.

    Args:
        cluster: The nodes.
        queue: The queue whose leader is the target.
        recorder: Where faults go; used by the thread that calls `run`.
        watcher: Where changes of leader go; used by the watching thread.
        epoch: Raised with each change of leader.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        queue: str,
        recorder: Recorder,
        watcher: Recorder,
        epoch: Epoch,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._recorder = recorder
        self._watcher = watcher
        self._epoch = epoch
        self._hidden: tuple[str, ...] = ()
        self._leader: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def begin(self) -> None:
        """Begin to watch the leader."""
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def run(self, faults: Sequence[Planned], load_began: float) -> None:
        """Do what was planned, each not before its time and after the heal of the one before.

        Args:
            faults: The plan.
            load_began: When, on the monotonic clock, in seconds.

        Raises:
            ClusterFailed: A target does not exist, or does not heal.
        """
        for fault in faults:
            _sleep_until(load_began + fault.at_s)
            self._one(fault)
            time.sleep(_CALM_S)

    def _one(self, fault: Planned) -> None:
        targets = self._targets(fault)
        views = self._cluster.status()
        self._hidden = tuple(targets)
        self._write("fault_start", fault, targets)
        began = time.monotonic()
        if fault.kind == "pause-leader":
            pause.start(self._cluster, targets, views=views)
        elif fault.kind == "restart":
            kill.stop_gently(self._cluster, targets)
        else:
            kill.start(self._cluster, targets, views=views)
        _sleep_until(began + fault.down_s)
        if fault.kind == "pause-leader":
            pause.heal(self._cluster, targets)
        else:
            kill.heal(self._cluster, targets)
        self._hidden = ()
        self._write("fault_end", fault, targets)

    def _targets(self, fault: Planned) -> list[str]:
        if fault.kind == "kill-all":
            return self._cluster.names
        wait_until(
            lambda: self._cluster.leader(self._queue) is not None,
            f"a node says who leads {self._queue}",
            _LEADER_TIMEOUT_S,
        )
        leader = self._cluster.leader(self._queue)
        if leader is None:
            raise ClusterFailed(f"{self._queue} has no leader")
        return [leader]

    def _write(self, op: str, fault: Planned, targets: Sequence[str]) -> None:
        self._recorder.write(
            op,
            "info",
            op_id=f"fault-{fault.number}",
            node=",".join(targets),
            queue=self._queue,
            code=fault.kind,
        )

    def _watch(self) -> None:
        """Ask who leads, again and again; nodes that are down or paused are not asked."""
        while not self._ended.wait(_WATCH_S):
            asked = [name for name in self._cluster.names if name not in self._hidden]
            leader = self._cluster.leader(self._queue, asked)
            if leader is None or leader == self._leader:
                continue
            if self._leader is not None:
                self._epoch.number += 1
            self._leader = leader
            self._watcher.write("epoch", "info", node=leader, queue=self._queue)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
