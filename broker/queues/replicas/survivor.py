"""Whether one replica of a queue may go on alone, and which others that gives up. Pure.

An operator asks for it where the logs of a majority are damaged or lost. All that this replica has
is kept. What a majority confirmed without it is lost, if there is any: nobody can tell.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from broker.metadata.records import Queue

_DAMAGED: Final = "its log is damaged"


class Condition(enum.StrEnum):
    """How a member's replica is."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    BLANK = "blank"  # it has no data, and waits for a leader to let it in
    ABSENT = "absent"  # the node runs, and has none


class MemberState(msgspec.Struct, array_like=True, frozen=True):
    """What a node says of its replica.

    Attributes:
        condition: How it is.
        leader: The node that leads, as far as it knows; "".
        last_entry: Term and index of its newest entry.
        voters: Members whose copies count, as its log says.
        why: What is wrong with its log.
    """

    condition: Condition
    leader: str = ""
    last_entry: tuple[int, int] = (0, 0)
    voters: tuple[str, ...] = ()
    why: str = ""


States = Mapping[str, MemberState | None]
"""By node, of all members and of those that this replica counts as voters; None: no answer."""


def refusal(queue: Queue, node: str, states: States, *, is_forced: bool) -> str:
    """Say why a replica must not go on alone, and what to do next; "" if it may.

    Args:
        queue: With replicas.
        node: That of the replica.
        states: Of the members.
        is_forced: Members of which nothing is known are given up, too.
    """
    here = states.get(node) or MemberState(Condition.ABSENT)
    others = {name: states.get(name) for name in queue.members if name != node}
    whole = [name for name, each in others.items() if each and each.condition is Condition.WHOLE]
    if here.condition is not Condition.WHOLE:
        return _not_here(queue, node, here, whole)
    leader = next((name for name, each in states.items() if each and each.leader == name), "")
    if leader:
        return (
            f"it has a leader, {leader}, so nothing has to be given up; delete_member removes "
            "single replicas"
        )
    if 2 * len({node, *whole} & set(here.voters)) > len(here.voters):
        return (
            f"the replicas on {_joined([node, *whole])} are whole, which is a majority: they elect "
            "a leader by themselves; try again if that takes more than some seconds"
        )
    newer = [name for name in whole if _last(others[name]) > here.last_entry]
    if newer:
        return (
            f"the replica on {newer[0]} is whole, too, and has newer entries: run it on {newer[0]}"
        )
    return "" if is_forced else _unknown(queue, node, here, others)


def _not_here(queue: Queue, node: str, here: MemberState, whole: list[str]) -> str:
    if here.condition is Condition.DAMAGED:
        why = f"the log of its replica on {node} is damaged ({here.why})"
    elif here.condition is Condition.BLANK:
        why = f"its replica on {node} has no data"
    else:
        why = f"{node} has no replica of it"
    others = [name for name in queue.members if name != node]
    if whole:
        return f"{why}: run it on {_joined(whole, 'or')}, whose replica is whole"
    if others:
        return f"{why}: run it on another member, once it is up: {_joined(others, 'or')}"
    return f"{why}, and there is no other: see set_log_aside"


def _unknown(queue: Queue, node: str, here: MemberState, others: States) -> str:
    """Why only force may give members up."""
    found = []
    for name, state in others.items():
        if state is None:
            found.append(
                f"node {name} is not reached: start it; if it is gone for good, run "
                f"'forget_cluster_node {name}' and then this command again"
            )
        elif state.condition is Condition.WHOLE:
            found.append(f"the replica on {name} is whole, but not a majority with this one")
        elif state.condition is Condition.ABSENT:
            found.append(f"node {name} has not opened its replica: try again")
    if node not in here.voters:
        found.append(f"the replica on {node} has no vote: it may lack much of what was confirmed")
    if not found:
        return ""
    return "; ".join(found) + (
        ". With --force they are given up as they are: confirmed messages that only they have are "
        "lost, and their replicas are removed"
        if others
        else ". With --force it goes on as it is"
    )


def given_up(queue: Queue, node: str, states: States) -> dict[str, str]:
    """Name the members that are given up when a replica goes on alone, and how they are.

    Args:
        queue: Before it does.
        node: That of the replica.
        states: Of the members.
    """
    here = states.get(node)
    names = [*queue.members, *(() if here is None else here.voters)]
    return {
        name: _how(states.get(name), is_member=name in queue.members)
        for name in dict.fromkeys(names)
        if name != node
    }


def _how(state: MemberState | None, *, is_member: bool) -> str:
    if not is_member:
        return "no member any more"
    if state is None:
        return "not reached"
    return _DAMAGED if state.condition is Condition.DAMAGED else str(state.condition)


def outcome(node: str, last: tuple[int, int], lost: Mapping[str, str]) -> str:
    """Tell the operator what was done, what may be lost, and what comes next.

    Args:
        node: That of the replica that goes on.
        last: Term and index of its newest entry.
        lost: From `given_up`.
    """
    named = ", ".join(f"{name} ({how})" for name, how in lost.items()) or "nobody"
    return (
        f"the replica on {node} goes on alone, with all it has, up to entry {last[1]} of term "
        f"{last[0]}. Given up: {named}. Confirmed messages that only those had may be lost: each "
        "was on a majority, of which this replica need not have been one. Give the queue replicas "
        "again (add_member, for a stream add_replica), or wait until that is done by itself."
    )


def _last(state: MemberState | None) -> tuple[int, int]:
    return (0, 0) if state is None else state.last_entry


def _joined(names: list[str], word: str = "and") -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
