"""Links between nodes that are cut, cut one way, slow, or stand still for a while."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from chaos.cluster import Cluster, wait_until
from chaos.faults import Effect
from chaos.proxies import Link, Proxies

DELAY_MS, JITTER_MS = 100, 50
_READY_TIMEOUT_S = 30.0


class Cut:
    """A cut of some links: nothing gets through, and connections hang, new ones too.

    Args:
        cluster: The nodes.
        proxies: Between them.
        links: Which; a cut both ways names both directions.
        target: The node it is about, for the history.
        hidden: Nodes that may not know what the cluster does meanwhile.
        is_reset: Whether the heal breaks what was held, as a reboot of a switch may, instead of
            letting it go on.
    """

    what = "held"

    def __init__(
        self,
        cluster: Cluster,
        proxies: Proxies,
        links: Sequence[Link],
        *,
        target: str,
        hidden: Sequence[str] = (),
        is_reset: bool = False,
    ) -> None:
        self._cluster = cluster
        self._proxies = proxies
        self._links = tuple(links)
        self._is_reset = is_reset
        self._before = proxies.touched_bytes()
        self._is_healed = False
        self.target = target
        self.hidden = tuple(hidden)

    def start(self) -> None:
        """Hold everything back."""
        self._proxies.hold(self._links)

    def heal(self) -> None:
        """Let it go on, and wait until every node serves.

        Raises:
            ClusterFailed: One does not.
        """
        self._proxies.heal(is_reset=self._is_reset)
        self._is_healed = True
        wait_until(
            lambda: all(view.is_ready for view in self._cluster.status()),
            "every node serves again",
            _READY_TIMEOUT_S,
        )

    def effects(self) -> list[Effect]:
        """Return the bytes held or delayed on each link; known after the heal."""
        if not self._is_healed:
            return []
        now = self._proxies.touched_bytes()
        return [
            Effect(f"{a}>{b}", self.what, now[a, b] - self._before[a, b]) for a, b in self._links
        ]


class Delay(Cut):
    """Everything on some links comes 100 ms later, 50 ms more or less."""

    what = "delayed"

    def start(self) -> None:
        """Slow them down."""
        self._proxies.delay(self._links, delay_ms=DELAY_MS, jitter_ms=JITTER_MS)


def between(a: str, b: str) -> list[Link]:
    """Both directions between two nodes."""
    return [(a, b), (b, a)]


def around(node: str, names: Sequence[str]) -> list[Link]:
    """Every direction between a node and the others."""
    return [link for other in names if other != node for link in between(node, other)]


def out_of(node: str, names: Sequence[str]) -> list[Link]:
    """Return the links from a node to the others."""
    return [(node, other) for other in names if other != node]


def into(node: str, names: Sequence[str]) -> list[Link]:
    """Return the links from the others to a node."""
    return [(other, node) for other in names if other != node]


def every(names: Sequence[str]) -> list[Link]:
    """All links."""
    return list(itertools.permutations(names, 2))
