"""Memory and disk alarms: limits, which alarms are on in the cluster, what the log says. Pure.

An alarm on any node stops publishers on all of them (docs/rabbitmq-behaviour.md 1.21). Every node
keeps the set of (resource, node) and blocks its own clients while the set is not empty.

Source: rabbit_alarm.erl, vm_memory_monitor.erl, rabbit_disk_monitor.erl (limits, interval, texts).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.config import Settings

MEMORY: Final = "memory"
DISK: Final = "disk"
RESOURCES: Final = (MEMORY, DISK)

MEMORY_INTERVAL_MS: Final = 2_500
DISK_INTERVAL_MIN_MS: Final = 100
DISK_INTERVAL_MAX_MS: Final = 10_000
DISK_FAST_RATE_BYTES_PER_MS: Final = 250_000
"""A disk that fills at half of that (125 MB/s) is read before it has passed the limit."""

LIMIT_MAX_BYTES: Final = 2**60
"""What is above counts as this: a limit has to fit a report."""

_MIB: Final = 1024 * 1024
_MB: Final = 1000 * 1000
_STARS: Final = "*" * 58


class AlarmLimits(NamedTuple):
    """The limits of alarms.

    Attributes:
        memory_relative: Share of the memory.
        memory_bytes: Wins over the share when not None.
        disk_bytes: Free space.
        disk_relative: Free space as times the memory; wins over the bytes when not None.
    """

    memory_relative: float
    memory_bytes: int | None
    disk_bytes: int
    disk_relative: float | None

    def memory_limit(self, total_bytes: int) -> int:
        """More resident memory than this is an alarm; 0 always is.

        Args:
            total_bytes: Memory of the machine or its container.
        """
        if self.memory_bytes is not None:
            return min(self.memory_bytes, LIMIT_MAX_BYTES)
        return int(min(total_bytes * self.memory_relative, LIMIT_MAX_BYTES))

    def disk_limit(self, total_bytes: int) -> int:
        """Less free space than this is an alarm.

        Args:
            total_bytes: Memory of the machine or its container.
        """
        if self.disk_relative is not None:
            return int(min(total_bytes * self.disk_relative, LIMIT_MAX_BYTES))
        return min(self.disk_bytes, LIMIT_MAX_BYTES)


def limits_of(settings: Settings) -> AlarmLimits:
    """Return the limits that a node starts with."""
    return AlarmLimits(
        settings.vm_memory_high_watermark,
        settings.vm_memory_high_watermark_bytes,
        settings.disk_free_limit_bytes,
        settings.disk_free_limit_relative,
    )


def disk_interval_ms(free_bytes: int, limit_bytes: int) -> int:
    """Return the milliseconds between looks at free space: 10 s, near the limit down to 100 ms."""
    ideal = 2 * (free_bytes - limit_bytes) // DISK_FAST_RATE_BYTES_PER_MS
    return max(DISK_INTERVAL_MIN_MS, min(DISK_INTERVAL_MAX_MS, ideal))


class Board:
    """The alarms of all nodes, as one node knows them.

    Args:
        node: This node.

    Attributes:
        node: This node.
        reason: What blocked clients are told; "" without an alarm.
    """

    __slots__ = ("_alarms", "node", "reason")

    def __init__(self, node: str) -> None:
        self.reason = ""
        self.node = node
        self._alarms: dict[str, frozenset[str]] = {}

    @property
    def here(self) -> frozenset[str]:
        """This node's own alarms."""
        return self._alarms.get(self.node, frozenset())

    def others(self) -> list[str]:
        """Other nodes with an alarm."""
        return [node for node in self._alarms if node != self.node]

    def put(self, node: str, resources: Iterable[str]) -> list[str]:
        """Note all alarms of a node; none clears them.

        Args:
            node: Whose.
            resources: Of RESOURCES; what else a newer node may tell is passed over.

        Returns:
            Lines for the log; empty: nothing has changed.
        """
        before = self._alarms.get(node, frozenset())
        after = frozenset(resources).intersection(RESOURCES)
        if after:
            self._alarms[node] = after
        else:
            self._alarms.pop(node, None)
        lines: list[str] = []
        for resource in RESOURCES:
            if resource in after - before:
                lines += _set_lines(resource, node)
            elif resource in before - after:
                lines.append(f"{resource} resource limit alarm cleared on node {node}")
                if not self._is_on(resource):
                    lines.append(f"{resource} resource limit alarm cleared across the cluster")
        found = [resource for resource in RESOURCES if self._is_on(resource)]
        self.reason = f"low on {' & '.join(found)}" if found else ""
        return lines

    def _is_on(self, resource: str) -> bool:
        return any(resource in resources for resources in self._alarms.values())


def _set_lines(resource: str, node: str) -> list[str]:
    return [
        f"{resource} resource limit alarm set on node {node}.",
        _STARS,
        "*** Publishers will be blocked until this alarm clears ***",
        _STARS,
    ]


# The log of the node that measures


def memory_limit_text(limit_bytes: int, total_bytes: int) -> str:
    """Say where the watermark lies."""
    return (
        f"Memory high watermark set to {limit_bytes // _MIB} MiB ({limit_bytes} bytes) "
        f"of {total_bytes // _MIB} MiB ({total_bytes} bytes) total"
    )


def disk_limit_text(limit_bytes: int) -> str:
    """Say where the limit of the disk lies."""
    return f"Disk free limit set to {limit_bytes // _MB}MB"


def memory_text(used_bytes: int, limit_bytes: int) -> str:
    """Say that the memory's alarm has changed."""
    state = "set" if used_bytes > limit_bytes else "clear"
    return f"vm_memory_high_watermark {state}. Memory used:{used_bytes} allowed:{limit_bytes}"


def disk_text(free_bytes: int, limit_bytes: int) -> str:
    """Say that the disk's alarm has changed."""
    state = "insufficient" if free_bytes < limit_bytes else "sufficient"
    return f"Free disk space is {state}. Free bytes: {free_bytes}. Limit: {limit_bytes}"
