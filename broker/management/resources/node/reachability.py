"""Which members can't reach which: partitions, kept apart from nodes that have ended. Pure.

RabbitMQ tells of a partition when it is over (Mnesia's `inconsistent_database`) and until a node
is restarted. Here it is told while it lasts: a node that comes back takes part again by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

ENDED: Final = "ended"
SILENT: Final = "silent"


def partitions(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return, by node, the members that it does not hear though they may live.

    Args:
        reports: What each node that answers says of itself: `peers_heard`, `peers_silent` and
            `peers_ended`. A node of an older version says none of them.

    Returns:
        Only nodes that do not hear someone. A member whose process is proven by some node to have
        ended, and that no node hears, is missing: it is down, and no partition.
    """
    ended = _ended(reports)
    found = {
        node: sorted(set(report.get("peers_silent", ())) - ended)
        for node, report in sorted(reports.items())
    }
    return {node: others for node, others in found.items() if others}


def unheard(reports: Mapping[str, Mapping[str, Any]], members: Collection[str]) -> dict[str, str]:
    """Return the members that no node that answers hears, and what is known of them.

    Args:
        reports: As of `partitions`.
        members: All of the cluster.

    Returns:
        "ended": the process of the node is proven gone. "silent": it is cut off, stands still, or
        its machine is off; which of them can't be told from here.
    """
    heard = _heard(reports)
    ended = _ended(reports)
    silent = {name for report in reports.values() for name in report.get("peers_silent", ())}
    return {
        name: ENDED if name in ended else SILENT
        for name in sorted(members)
        if name not in heard and name in ended | silent
    }


def _heard(reports: Mapping[str, Mapping[str, Any]]) -> set[str]:
    found = {name for report in reports.values() for name in report.get("peers_heard", ())}
    return found | set(reports)


def _ended(reports: Mapping[str, Mapping[str, Any]]) -> set[str]:
    found = {name for report in reports.values() for name in report.get("peers_ended", ())}
    return found - _heard(reports)
