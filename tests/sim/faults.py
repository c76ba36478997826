"""The fault injector: one fault per step, chosen by the seed, healed after a while."""

from __future__ import annotations

import random

from tests.sim.cluster import Cluster

FULL_MS_MAX = 6_000
WIPE_GAP_MS = 1_000
LURK_MS = 4_000
LOST_MS = 8_000  # long enough for the others to elect somebody, could they


class Nemesis:
    """Runs until it is stopped; `heal` ends what lasts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.is_stopped = False
        self._steps = {
            "crash": self._crash,
            "pause": self._pause,
            "cut": self._cut,
            "one_way": self._one_way,
            "churn": self._churn,
            "recreate": self._recreate,
            "transfer": self._transfer,
        }
        self._chosen = [fault for fault in cluster.options.faults if fault in self._steps]
        if self._chosen:
            cluster.clock.after(500, self._step)
        self._disks = random.Random(cluster.options.seed * 7919 + 3)
        if cluster.options.full_disk_gap_ms:
            cluster.clock.after(500, self._fill)
        self._eager_faults = random.Random(cluster.options.seed * 7919 + 6)
        if cluster.options.eager_fault_gap_ms and cluster.options.lag_entries_max:
            cluster.clock.after(500, self._hit_eager_follower)

        self._wipes = random.Random(cluster.options.seed * 7919 + 10)
        self._wipe_gap_ms = cluster.options.wipe_gap_ms
        if cluster.planted.loses_disks and not cluster.options.minority_stays_down:
            self._wipe_gap_ms = WIPE_GAP_MS
        if self._wipe_gap_ms:
            cluster.clock.after(500, self._wipe)

    def heal(self) -> None:
        self.is_stopped = True
        self.cluster.network.cut.clear()
        for node in self.cluster.nodes.values():
            node.full_until_ms = 0

    def _step(self) -> None:
        if self.is_stopped:
            return
        cluster = self.cluster
        gap = cluster.options.fault_gap_ms
        cluster.clock.after(1 + int(cluster.rng.random() * 2 * gap), self._step)
        self._steps[cluster.rng.choice(self._chosen)]()

    def _fill(self) -> None:
        """A disk has no room for a while: what is written is held, and nobody is told."""
        if self.is_stopped:
            return
        cluster, draw = self.cluster, self._disks
        gap_ms = cluster.options.full_disk_gap_ms
        cluster.clock.after(1 + int(draw.random() * 2 * gap_ms), self._fill)
        name = draw.choice(cluster.names)
        length_ms = 500 + int(draw.random() * FULL_MS_MAX)
        cluster.note(f"{name} has a full disk for {length_ms} ms")
        cluster.count("full disks")
        cluster.nodes[name].full_until_ms = cluster.clock.now_ms + length_ms

    def _wipe(self) -> None:
        """A voter's disk is lost, often the leader's, while others lag."""
        if self.is_stopped:
            return
        cluster, draw = self.cluster, self._wipes
        cluster.clock.after(1 + int(draw.random() * 2 * self._wipe_gap_ms), self._wipe)
        leader = cluster.leader()
        if leader is None or len(leader.node.configuration.voters) < 3:
            return
        voters = leader.node.configuration.voters
        others = draw.sample([name for name in voters if name != leader.name], len(voters) - 1)
        lagging = others[: len(voters) // 2]
        if draw.random() < 0.8:
            links = [(leader.name, name) for name in lagging]
            self._cut_links(links + [(to, sender) for sender, to in links], LURK_MS)
        victim = leader.name if draw.random() < 0.7 else others[-1]
        cluster.clock.after(1 + int(draw.random() * 600), self._wipe_now, victim)

    def _wipe_now(self, victim: str) -> None:
        cluster, draw = self.cluster, self._wipes
        if self.is_stopped or not cluster.readmission.may_lose(victim):
            return
        cluster.readmission.wipe(victim, 1 + int(draw.random() * 200))
        if draw.random() < 0.7:
            self._lie_in_wait(victim, cluster.clock.now_ms + LURK_MS)
        else:
            cluster.clock.after(1 + int(draw.random() * 1_500), cluster.crash, victim)

    def _lie_in_wait(self, victim: str, until_ms: int) -> None:
        """The leader dies when the one without a memory has heard who votes, and not yet all.

        Then what was confirmed is where it does harm to believe that one.
        """
        cluster = self.cluster
        if self.is_stopped or cluster.clock.now_ms > until_ms:
            return
        fed, leader = cluster.nodes[victim].replica, cluster.leader()
        if fed is not None and leader is not None and bool(fed.node.configuration.voters):
            if fed.node.last_index < fed.checker.commit_max:
                cluster.count("half fed")
                cluster.crash(leader.name, LOST_MS)
            return
        cluster.clock.after(1, self._lie_in_wait, victim, until_ms)

    def _hit_eager_follower(self) -> None:
        """Whoever a leader relies on alone stops, is cut off for a while, or is restarted.

        Sometimes the leader dies when it has just gone round it.
        """
        if self.is_stopped:
            return
        cluster, draw = self.cluster, self._eager_faults
        gap_ms = cluster.options.eager_fault_gap_ms
        cluster.clock.after(1 + int(draw.random() * 2 * gap_ms), self._hit_eager_follower)
        leader = cluster.leader()
        if leader is None or not leader.node.state.thrifty.eager_followers:
            return
        name = draw.choice(leader.node.state.thrifty.eager_followers)
        cluster.count("eager followers hit")
        chance = draw.random()
        if chance < 0.4:
            cluster.pause(name)
        elif chance < 0.7:
            cluster.crash(name)
        else:
            self._cut_links([(leader.name, name), (name, leader.name)])
        if draw.random() < 0.3:
            cluster.clock.after(1 + int(draw.random() * 100), cluster.crash, leader.name)

    def _victim(self) -> str:
        """Any node, but the leader more often than chance would have it."""
        cluster = self.cluster
        leader = cluster.leader()
        if leader is not None and cluster.rng.random() < 0.4:
            return leader.name
        return cluster.rng.choice(cluster.names)

    def _length(self) -> int:
        return 50 + int(self.cluster.rng.random() * self.cluster.options.fault_length_ms)

    def _crash(self) -> None:
        if self.cluster.rng.random() < 0.1:
            for name in self.cluster.names:
                self.cluster.crash(name)
        else:
            self.cluster.crash(self._victim())

    def _pause(self) -> None:
        self.cluster.pause(self._victim())

    def _cut(self) -> None:
        cluster = self.cluster
        if cluster.rng.random() < 0.5:
            side = [self._victim()]
        else:
            side = [name for name in cluster.names if cluster.rng.random() < 0.5]
        links = [
            (one, other)
            for one in cluster.names
            for other in cluster.names
            if (one in side) != (other in side)
        ]
        self._cut_links(links)

    def _one_way(self) -> None:
        victim = self._victim()
        others = [name for name in self.cluster.names if name != victim]
        if self.cluster.rng.random() < 0.5:
            self._cut_links([(victim, other) for other in others])
        else:
            self._cut_links([(other, victim) for other in others])

    def _cut_links(self, links: list[tuple[str, str]], length_ms: int = 0) -> None:
        cluster = self.cluster
        cluster.note(f"cut {links}")
        cluster.count("cuts")
        cluster.network.cut.update(links)
        length_ms = length_ms or self._length()
        cluster.clock.after(length_ms, cluster.network.cut.difference_update, links)

    def _churn(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            self.cluster.change_at(leader.name)

    def _recreate(self) -> None:
        if self.cluster.rng.random() < 0.3:
            self.cluster.recreate()

    def _transfer(self) -> None:
        cluster = self.cluster
        leader = cluster.leader()
        if leader is not None:
            to = cluster.rng.choice(leader.node.configuration.voters)
            cluster.note(f"{leader.name} hands over to {to}")
            leader.node.transfer_leadership(to)
            leader.process()
