"""Killed nodes are gone before the run says so."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from typing_extensions import override

from chaos.cluster import Cluster, NodeView
from chaos.faults import Effect
from chaos.faults.kill import Kill


class Slow(Cluster):
    """Nodes of which one goes some looks after its SIGKILL, as one in the middle of a sync does."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.ports = dict.fromkeys(names, (1, 2))
        self.killed: set[str] = set()
        self.looks_left = 3

    @override
    def status(self) -> list[NodeView]:
        self.looks_left -= bool(self.killed)
        slow = self.names[-1] if self.looks_left > 0 else ""
        return [
            NodeView(name, "stopped" if name in self.killed - {slow} else "running", 1, True, 1, 2)
            for name in self.names
        ]

    @override
    def signal(
        self, names: Sequence[str], number: signal.Signals, *, views: Sequence[NodeView]
    ) -> None:
        assert number == signal.SIGKILL
        self.killed |= set(names)

    @override
    def attach(self) -> None:
        raise NotImplementedError

    @override
    def stop_node(self, name: str) -> None:
        raise NotImplementedError

    @override
    def start_nodes(self, names: Sequence[str]) -> None:
        raise NotImplementedError

    @override
    def logs(self) -> dict[str, str]:
        raise NotImplementedError


def test_a_node_that_goes_late_counts_as_gone() -> None:
    """Seed 703 of `chaos.matrix --only quorum/long` looked too early at one of three."""
    fault = Kill(Slow(["a", "b", "c"]), ["a", "c"])
    fault.start()
    assert fault.effects() == [Effect("a", "gone", 1), Effect("c", "gone", 1)]
