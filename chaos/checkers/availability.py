"""The queue serves again in time, and the run had something to prove. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from chaos.checkers.facts import Facts, Finding, Window

RECOVERY_LIMITS_US = {
    "kill-leader": 6_000_000,
    "restart": 6_000_000,
    "pause-leader": 8_000_000,
    "kill-all": 10_000_000,
}
"""Longest time without a confirm: from the fault where the queue is promised to serve meanwhile,
else from the end of its heal."""
_LEADER_GRACE_US = 10_000_000
_LEADER_FAULTS = ("kill-leader", "pause-leader", "restart")


def silence_us(facts: Facts, window: Window) -> int:
    """The longest time without a confirm that a fault may have caused.

    Counted from the fault until its heal is complete and the next confirm has come; where the
    queue can't serve during the fault, only from the heal to the next confirm.
    """
    begin_us = window.start_us if facts.options.is_available else window.end_us
    times = facts.confirm_times_us()
    points = [begin_us, *(at for at in times if at > begin_us)]
    if points[-1] <= window.end_us:
        points.append(max(facts.load_end_us, points[-1]))
    return max((b - a for a, b in pairwise(points) if a <= window.end_us), default=0)


def recovery(facts: Facts) -> Iterator[Finding]:
    """Confirms come again within the limit of the fault's kind."""
    for window in facts.windows:
        limit_us = RECOVERY_LIMITS_US.get(window.kind)
        found_us = silence_us(facts, window)
        if limit_us is not None and found_us > limit_us:
            yield Finding(
                "recovery",
                window.fault,
                detail=f"{window.kind} of {window.target}: {found_us // 1000} ms without a confirm,"
                f" limit {limit_us // 1000} ms",
            )


def healthy(facts: Facts) -> Iterator[Finding]:
    """After the last heal every node serves and the queue has a leader."""
    for event in facts.events:
        if event.op == "health" and event.type == "fail":
            yield Finding("unhealthy", event.node or "cluster", event.queue, event.code)


def vacuous(facts: Facts) -> Iterator[Finding]:
    """Too little happened for a pass to mean anything."""
    options = facts.options
    confirmed = len(facts.confirmed)
    if confirmed < options.confirmed_min:
        yield Finding(
            "vacuous", "few-confirms", detail=f"{confirmed} of {options.confirmed_min} needed"
        )
    if options.fault == "none":
        return
    if not facts.windows:
        yield Finding("vacuous", "no-fault", detail=f"{options.fault} never happened")
        return
    if not options.is_available:
        return
    within = sum(
        any(window.start_us <= at <= window.end_us for window in facts.windows)
        for at in facts.confirm_times_us()
    )
    if within < options.confirmed_in_faults_min:
        yield Finding(
            "vacuous",
            "few-confirms-in-faults",
            detail=f"{within} of {options.confirmed_in_faults_min} needed",
        )
    for window in facts.windows:
        if window.kind in _LEADER_FAULTS and not _leader_changed(facts, window):
            yield Finding(
                "vacuous", f"leader-stayed/{window.fault}", detail=f"it was {window.target}"
            )


def _leader_changed(facts: Facts, window: Window) -> bool:
    return any(
        event.op == "epoch"
        and event.node != window.target
        and window.start_us < event.ts_us <= window.end_us + _LEADER_GRACE_US
        for event in facts.events
    )
