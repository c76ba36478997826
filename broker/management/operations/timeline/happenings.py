"""What happened: the differences between two looks at the cluster, and several nodes' notes as one.

Pure. Most of what happens is seen by several nodes. Each notes it for itself, so that it is still
known when one of them is gone; the same news from several nodes is one when it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

SAME_MS: Final = 15_000
"""Two nodes notice the same within this time: a node that hangs is held dead after 10 s."""

TOGETHER_MIN: Final = 8
"""From so many queues on that go from one node to another at once, they are one line."""

NAMED_MAX: Final = 200
"""Queues that such a line names."""


class Happening(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the timeline.

    Attributes:
        at_ms: When it was seen, milliseconds since the epoch, by the clock of who saw it.
        kind: "node.up", "node.down", "node.joined", "node.forgotten", "maintenance.begun",
            "maintenance.ended", "link.lost", "link.back", "metadata.leader", "queue.leader",
            "copy.added", "copy.removed", "alarm.set", "alarm.cleared".
        node: Which node it is about; of a link the one that hears nothing.
        other: The other end of a link; the node that led before; the resource of an alarm.
        vhost: Of the queue.
        queues: Names of queues: one, or the first of many.
        count: How many queues; 0 where it is about none.
        detail: The boot of a node.
    """

    at_ms: int
    kind: str
    node: str
    other: str = ""
    vhost: str = ""
    queues: tuple[str, ...] = ()
    count: int = 0
    detail: str = ""


class ClusterView(NamedTuple):
    """The cluster as one node sees it.

    Attributes:
        here: That node.
        boots: Members and their living boots, "" for those that have none.
        drained: Members in maintenance mode.
        silent: Members that this node does not hear though nothing proves that they are gone.
        metadata_leader: Who leads group 0; "" while nobody does.
        alarms: Of this node.
    """

    here: str
    boots: Mapping[str, str]
    drained: frozenset[str]
    silent: frozenset[str]
    metadata_leader: str
    alarms: frozenset[str]


class QueueChange(NamedTuple):
    """Something that changed about one queue.

    Attributes:
        at_ms: When.
        kind: "queue.leader", "copy.added" or "copy.removed".
        vhost: The queue's.
        queue: Its name.
        node: Who leads it now, or where the copy is or was.
        before: Who led it before; "" of a copy.
    """

    at_ms: int
    kind: str
    vhost: str
    queue: str
    node: str
    before: str = ""


class Shown(NamedTuple):
    """A line with those who saw it."""

    happening: Happening
    seen_by: tuple[str, ...]


def began(view: ClusterView, now_ms: int) -> Iterator[Happening]:
    """The lines of a node that begins to look: what is not as it should be is news."""
    boot = view.boots.get(view.here, "")
    yield Happening(now_ms, "node.up", view.here, detail=boot)
    yield from differences(view._replace(silent=frozenset(), alarms=frozenset()), view, now_ms)


def differences(before: ClusterView, after: ClusterView, now_ms: int) -> Iterator[Happening]:
    """What happened between two looks, but for queues.

    Args:
        before: The earlier one.
        after: The later one.
        now_ms: Time of the later one, milliseconds since the epoch.
    """
    yield from _boots(before.boots, after.boots, now_ms)
    for node, begins in _sets(before.drained, after.drained):
        kind = "maintenance.begun" if begins else "maintenance.ended"
        yield Happening(now_ms, kind, node)
    for other, is_silent in _sets(before.silent, after.silent):
        if other in after.boots:
            yield Happening(now_ms, "link.lost" if is_silent else "link.back", after.here, other)
    if after.metadata_leader and after.metadata_leader != before.metadata_leader:
        leader, past = after.metadata_leader, before.metadata_leader
        yield Happening(now_ms, "metadata.leader", leader, past)
    for resource, is_set in _sets(before.alarms, after.alarms):
        yield Happening(now_ms, "alarm.set" if is_set else "alarm.cleared", after.here, resource)


def _boots(before: Mapping[str, str], after: Mapping[str, str], now_ms: int) -> Iterator[Happening]:
    for node, boot in after.items():
        past = before.get(node)
        if past is None:
            yield Happening(now_ms, "node.joined", node)
        if past and past != boot:
            yield Happening(now_ms, "node.down", node, detail=past)
        if boot and past != boot:
            yield Happening(now_ms, "node.up", node, detail=boot)
    for node in before.keys() - after.keys():
        yield Happening(now_ms, "node.forgotten", node)


def _sets(before: frozenset[str], after: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """What came (True) and what went."""
    for name in sorted(before ^ after):
        yield name, name in after


def of_queues(changes: Iterable[QueueChange]) -> Iterator[Happening]:
    """Lines for queues with other leaders or copies: one for many to which the same happened."""
    alike: dict[tuple[str, str, str], list[QueueChange]] = {}
    for change in changes:
        alike.setdefault((change.kind, change.node, change.before), []).append(change)
    for (kind, node, before), found in alike.items():
        if len(found) < TOGETHER_MIN:
            for each in found:
                yield Happening(each.at_ms, kind, node, before, each.vhost, (each.queue,), 1)
            continue
        names = tuple(each.queue for each in found[:NAMED_MAX])
        vhosts = {each.vhost for each in found}
        vhost = vhosts.pop() if len(vhosts) == 1 else ""
        at_ms = min(each.at_ms for each in found)
        yield Happening(at_ms, kind, node, before, vhost, names, len(found))


def put_together(notes: Mapping[str, Iterable[Happening]]) -> list[Shown]:
    """Make one timeline of several nodes' notes, the newest first.

    Args:
        notes: By node.
    """
    every = sorted(
        ((each, node) for node, found in notes.items() for each in found),
        key=lambda pair: (pair[0].at_ms, pair[1]),
    )
    shown: list[tuple[Happening, list[str]]] = []
    last: dict[tuple[str, ...], int] = {}
    for each, node in every:
        key = _subject(each)
        index = last.get(key)
        if index is not None:
            known, seen_by = shown[index]
            if each.at_ms - known.at_ms <= SAME_MS and node not in seen_by:
                seen_by.append(node)
                if each.count > known.count:
                    shown[index] = (msgspec.structs.replace(each, at_ms=known.at_ms), seen_by)
                continue
        last[key] = len(shown)
        shown.append((each, [node]))
    return [Shown(each, tuple(sorted(seen_by))) for each, seen_by in reversed(shown)]


def _subject(each: Happening) -> tuple[str, ...]:
    """What makes two notes the same news."""
    queue = each.queues if each.count == 1 else ()
    return (each.kind, each.node, each.other, each.vhost, each.detail, *queue)


_SENTENCES: Final = {
    "node.up": "{node} runs",
    "node.down": "{node} went down",
    "node.joined": "{node} joined the cluster",
    "node.forgotten": "{node} was removed from the cluster",
    "maintenance.begun": "{node} is in maintenance",
    "maintenance.ended": "{node} is out of maintenance",
    "link.lost": "{node} hears nothing from {other}",
    "link.back": "{node} hears {other} again",
    "metadata.leader": "{node} leads the metadata",
    "queue.leader": "{queues} led by {node} now, before by {other}",
    "copy.added": "{node} has a copy of {things} now",
    "copy.removed": "{node} has no copy of {things} any more",
    "alarm.set": "{other} alarm on {node}",
    "alarm.cleared": "{other} alarm on {node} is over",
}


def sentence(each: Happening) -> str:
    """A line for people."""
    is_one = each.count == 1 and bool(each.queues)
    things = f"'{each.queues[0]}'" if is_one else f"{each.count:,} queues"
    of_newer = "{kind} {node} {other}"  # a node of a newer version notes what we have no words for
    return _SENTENCES.get(each.kind, of_newer).format(
        kind=each.kind,
        node=_short(each.node),
        other=_short(each.other),
        things=things,
        queues=f"{things} {'is' if is_one else 'are'}",
    )


def _short(node: str) -> str:
    return node.partition("@")[2] or node
