"""Carries a schedule out, and writes what really happened to the history."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from chaos.cluster import Cluster, ClusterFailed, QueueView, wait_until
from chaos.containers import ComposeCluster
from chaos.faults import Effect, Fault, links
from chaos.faults.disconnect import Disconnect
from chaos.faults.kill import Kill, Stop
from chaos.faults.pause import Pause
from chaos.faults.schedule import Planned
from chaos.history import Epoch, Recorder
from chaos.options import UNSYNCHRONISED_FAULTS, Options
from chaos.proxies import Proxies

_LEADER_TIMEOUT_S = 15.0
_AGREED_TIMEOUT_S = 30.0
_SYNCHRONISED_TIMEOUT_S = 60.0
_WATCH_S = 0.2
_CALM_S = 3.0
_HALF = 0.5


class Nemesis:
    """Breaks and heals nodes and links; watches who leads the queue and who has copies.

    Args:
        cluster: The nodes.
        proxies: Between them, None if they meet directly.
        options: The run's.
        queue: The queue whose leader is the target.
        recorder: Where faults go; used by the thread that calls `run`.
        watcher: Where changes of leader and mirrors go; used by the watching thread.
        epoch: Raised with each change of leader.
    """

    def __init__(
        self,
        cluster: Cluster,
        proxies: Proxies | None,
        options: Options,
        queue: str,
        recorder: Recorder,
        watcher: Recorder,
        epoch: Epoch,
    ) -> None:
        self._cluster = cluster
        self._proxies = proxies
        self._options = options
        self._queue = queue
        self._recorder = recorder
        self._watcher = watcher
        self._epoch = epoch
        self._count = 0
        self._hidden: tuple[str, ...] = ()
        self._seen: dict[str, str] = {}
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
            if fault.kind in UNSYNCHRONISED_FAULTS:
                self._unsynchronise()
            elif self._options.when_synchronised:
                self.wait_synchronised()
            self._one(fault.kind, fault.down_s, self._made(fault))
            time.sleep(_CALM_S)

    def wait_synchronised(self) -> None:
        """Wait until every mirror that the queue should have holds every message.

        Raises:
            ClusterFailed: They do not, in time.
        """
        wanted = self._mirrors_wanted()

        def holds() -> bool:
            view = self._cluster.view(self._queue)
            return view is not None and len(view.synchronised & view.mirrors) >= wanted

        wait_until(holds, f"{wanted} mirrors are synchronised", _SYNCHRONISED_TIMEOUT_S)

    def _one(self, kind: str, down_s: float, fault: Fault) -> None:
        self._count += 1
        self._hidden = fault.hidden
        self._write("fault_start", kind, fault.target)
        began = time.monotonic()
        fault.start()
        self._prove(fault.effects())
        _sleep_until(began + down_s)
        fault.heal()
        self._wait_agreed(fault.hidden)
        self._hidden = ()
        self._prove(fault.effects())
        self._write("fault_end", kind, fault.target)

    def _wait_agreed(self, hidden: Sequence[str]) -> None:
        """Wait until nodes that did not know what the cluster did name the leader it has now.

        Raises:
            ClusterFailed: They do not, in time.
        """
        others = [name for name in self._cluster.names if name not in hidden]

        def agree() -> bool:
            known = self._cluster.leader(self._queue, others)
            return known is not None and all(
                self._cluster.leader(self._queue, [name]) == known for name in hidden
            )

        if others:
            what = f"{', '.join(hidden)} names the leader that the others name"
            wait_until(agree, what, _AGREED_TIMEOUT_S)

    def _made(self, fault: Planned) -> Fault:
        """The fault that was planned, aimed at whoever leads now."""
        cluster, names = self._cluster, self._cluster.names
        if fault.kind == "kill-all":
            return Kill(cluster, names)
        leader = self._view().leader
        if fault.kind in ("restart", "stop-leader", "stop-leader-unsynchronised"):
            return Stop(cluster, [leader])
        if fault.kind == "pause-leader":
            return Pause(cluster, [leader])
        others = [name for name in names if name != leader]
        other = others[int(fault.draw * len(others))]
        if fault.kind == "kill-mirror":
            return Kill(cluster, [other])
        if fault.kind in ("kill-leader", "kill-leader-unsynchronised"):
            return Kill(cluster, [leader])
        return self._made_of_links(fault, leader, other)

    def _made_of_links(self, fault: Planned, leader: str, other: str) -> Fault:
        if isinstance(self._cluster, ComposeCluster) and fault.kind == "cut-leader-from-all":
            return Disconnect(self._cluster, leader)
        if self._proxies is None:
            raise ClusterFailed(
                f"{fault.kind} needs proxies between the nodes, and only a cluster that the run"
                " starts itself has them: leave out --cluster and --compose"
            )
        names, both = self._cluster.names, (self._cluster, self._proxies)
        is_reset = fault.draw < _HALF
        match fault.kind:
            case "cut-leader-from-one":
                chosen = links.between(leader, other)
                return links.Cut(*both, chosen, target=leader, hidden=[other], is_reset=is_reset)
            case "cut-leader-from-all":
                chosen = links.around(leader, names)
                return links.Cut(*both, chosen, target=leader, hidden=[leader], is_reset=is_reset)
            case "cut-leader-one-way":
                is_out = self._options.direction == "out"
                chosen = links.out_of(leader, names) if is_out else links.into(leader, names)
                return links.Cut(*both, chosen, target=leader, hidden=[leader], is_reset=is_reset)
            case "delay-links":
                return links.Delay(*both, links.every(names), target=",".join(names))
            case "stall-links":
                return links.Cut(*both, links.every(names), target=",".join(names))
        raise ClusterFailed(f"nobody knows the fault {fault.kind}")

    def _unsynchronise(self) -> None:
        """Kill every mirror once: it comes back empty, and what it lacks is not sent to it.

        Raises:
            ClusterFailed: The mirrors do not come back, or hold every message after all.
        """
        leader = self._view().leader
        for name in self._cluster.names:
            if name != leader:
                self._one("kill-mirror", 0.0, Kill(self._cluster, [name]))
        wanted = self._mirrors_wanted()

        def holds() -> bool:
            view = self._cluster.view(self._queue)
            return view is not None and len(view.mirrors - view.synchronised) >= wanted

        wait_until(holds, f"{wanted} mirrors are there, unsynchronised", _SYNCHRONISED_TIMEOUT_S)

    def _mirrors_wanted(self) -> int:
        options = self._options
        if options.queue == "classic":
            return 0
        others = len(self._cluster.names) - 1
        if options.queue == "mirrored" and options.ha_mode == "exactly":
            return min(others, int(options.ha_params) - 1)
        if options.queue == "mirrored" and options.ha_mode == "nodes":
            return len(options.ha_params.split(",")) - 1
        return others

    def _view(self) -> QueueView:
        found: list[QueueView] = []

        def is_known() -> bool:
            view = self._cluster.view(self._queue)
            if view is not None:
                found.append(view)
            return view is not None

        wait_until(is_known, f"a node says who leads {self._queue}", _LEADER_TIMEOUT_S)
        return found[0]

    def _write(self, op: str, kind: str, target: str) -> None:
        self._recorder.write(
            op, "info", op_id=f"fault-{self._count}", node=target, queue=self._queue, code=kind
        )

    def _prove(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._recorder.write(
                "effect",
                "info",
                op_id=f"fault-{self._count}",
                node=effect.node,
                queue=self._queue,
                size=effect.size,
                code=effect.what,
            )

    def _watch(self) -> None:
        """Ask who leads, again and again; nodes that may not know are not asked."""
        leader: str | None = None
        while not self._ended.wait(_WATCH_S):
            asked = [name for name in self._cluster.names if name not in self._hidden]
            view = self._cluster.view(self._queue, asked)
            if view is None:
                continue
            if view.leader != leader:
                if leader is not None:
                    self._epoch.number += 1
                leader = view.leader
                self._watcher.write("epoch", "info", node=leader, queue=self._queue)
            self._note_members(view)

    def _note_members(self, view: QueueView) -> None:
        for name in self._cluster.names:
            role = "left"
            if name == view.leader:
                role = "leader"
            elif name in view.mirrors:
                role = "synchronised" if name in view.synchronised else "joined"
            if self._seen.get(name, "left") != role:
                self._watcher.write("member", "info", node=name, queue=self._queue, code=role)
            self._seen[name] = role


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
