"""The queue serves again in time, and the run had something to prove. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from chaos.checkers.facts import Facts, Finding, Window

_KILLED_US, _SILENT_US, _UNSYNCHRONISED_US, _HEALED_US = (
    6_000_000, 8_000_000, 9_000_000, 10_000_000,
)  # fmt: skip
_KILLS = ("kill-leader", "kill-mirror", "stop-leader", "restart")
_UNSYNCHRONISED = ("kill-leader-unsynchronised", "stop-leader-unsynchronised")
_LEADER_FAULTS = (
    "kill-leader",
    "pause-leader",
    "stop-leader",
    "restart",
    "cut-leader-from-all",
    "cut-leader-one-way",
    *_UNSYNCHRONISED,
)
_LEADER_GRACE_US = 10_000_000
_CHANGES_MAX = 3
_STARVED_AFTER_US = 3_000_000


def limit_us(facts: Facts, window: Window) -> int:
    """Longest time without a confirm that is promised for a fault.

    From the fault on where the queue is promised to serve meanwhile: 6 s after a process went,
    8 s after one fell silent, 3 s more than 6 before a mirror that lacks messages takes over.
    Else 10 s from the end of the heal.
    """
    if not facts.options.is_available:
        return _HEALED_US
    if window.kind in _UNSYNCHRONISED:
        return _UNSYNCHRONISED_US
    return _KILLED_US if window.kind in _KILLS else _SILENT_US


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
        limit, found_us = limit_us(facts, window), silence_us(facts, window)
        if found_us > limit:
            yield Finding(
                "recovery",
                window.fault,
                detail=f"{window.kind} of {window.target}: {found_us // 1000} ms without a confirm,"
                f" limit {limit // 1000} ms",
            )


def storm(facts: Facts) -> Iterator[Finding]:
    """The leader changes a few times at most for one fault: nodes that quarrel serve nobody.

    Source:
        docs/protocol-rules.md P25; an election for the fault, one that was split, one that hands
        back.
    """
    for window in facts.windows:
        changes = sum(
            event.op == "epoch" and window.start_us < event.ts_us <= window.end_us
            for event in facts.events
        )
        if changes > _CHANGES_MAX:
            yield Finding("storm", window.fault, detail=f"{changes} changes of leader")


def starved(facts: Facts) -> Iterator[Finding]:
    """Every consumer gets something again after the last heal, while others get plenty.

    Nobody is served if plenty was published and confirmed from then on, and of plenty not half
    was delivered. Some less may be: what was published last may come to the drain.
    """
    if not facts.windows:
        return
    after_us = max(window.end_us for window in facts.windows) + _STARVED_AFTER_US
    got = Counter(
        event.recorder
        for event in facts.events
        if event.op == "deliver" and event.type == "ok" and event.ts_us > after_us
    )
    plenty = facts.options.delivered_after_min
    if sum(got.values()) < plenty:
        confirmed = sum(
            publish.ts_us >= after_us
            for op_id, publish in facts.published.items()
            if op_id in facts.confirmed
        )
        if confirmed >= plenty > 2 * sum(got.values()):
            yield Finding(
                "starved", "everybody", detail=f"{sum(got.values())} of {confirmed} delivered"
            )
        return
    consumers = {event.recorder for event in facts.events if event.op == "consume"}
    for name in sorted(consumers - set(got)):
        yield Finding("starved", name, detail=f"nothing of {sum(got.values())} deliveries")


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
    if not any(window.kind == options.fault for window in facts.windows):
        yield Finding("vacuous", "no-fault", detail=f"{options.fault} never happened")
        return
    for window in facts.windows:
        if not _has_effect(facts, window):
            yield Finding("vacuous", f"no-effect/{window.fault}", detail=window.kind)
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


def _has_effect(facts: Facts, window: Window) -> bool:
    """True if all of its targets were touched: processes went or stood still, bytes were held."""
    sizes = [
        event.size for event in facts.events if event.op == "effect" and event.op_id == window.fault
    ]
    return bool(sizes) and min(sizes) > 0


def _leader_changed(facts: Facts, window: Window) -> bool:
    return any(
        event.op == "epoch"
        and event.node != window.target
        and window.start_us < event.ts_us <= window.end_us + _LEADER_GRACE_US
        for event in facts.events
    )
