"""All checkers over one history, and how their verdicts merge. Pure.

`valid` is true, false or "unknown". A finding of a broken promise is false; one that says that
the run proves nothing is unknown; a checker that crashes is unknown. False beats unknown beats
true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from chaos.checkers import availability, confirms, order, queue, stream
from chaos.checkers.facts import Facts, Finding, gather
from chaos.history import Event
from chaos.options import Options

Valid = Literal[True, False, "unknown"]
Checker = Callable[[Facts], Iterable[Finding]]

EXIT_CODES: dict[Valid, int] = {True: 0, False: 1, "unknown": 2}

SEVERITIES: dict[str, Valid] = {
    "lost": False,
    "duplicated": False,
    "phantom": False,
    "corrupt": False,
    "aborted": False,
    "unroutable": False,
    "order": False,
    "flag": False,
    "held-twice": False,
    "hole": False,
    "stored-twice": False,
    "differs": False,
    "confirm-twice": False,
    "confirm-unasked": False,
    "unanswered": False,
    "recovery": False,
    "storm": False,
    "starved": False,
    "unhealthy": False,
    "depth": False,
    "undrained": "unknown",
    "vacuous": "unknown",
    "history": "unknown",
    "crash": "unknown",
}


class Recovery(msgspec.Struct, frozen=True):
    """The time without a confirm around one fault."""

    fault: str
    kind: str
    target: str
    silence_ms: int


class Verdict(msgspec.Struct, frozen=True):
    """The judgement of a run.

    Attributes:
        run_id: The run.
        valid: True, false or "unknown".
        checks: Name -> its own verdict.
        findings: All of them, sorted.
        counts: What happened, for people and for trust.
        recoveries: One for each fault.
    """

    run_id: str
    valid: bool | str
    checks: dict[str, bool | str]
    findings: list[Finding]
    counts: dict[str, int]
    recoveries: list[Recovery]


def complete(facts: Facts) -> Iterator[Finding]:
    """Each recorder's events are there, 1 to n."""
    last: Counter[str] = Counter()
    for event in facts.events:
        last[event.recorder] += 1
        if event.event_no != last[event.recorder]:
            yield Finding("history", event.recorder, detail=f"event {last[event.recorder]} missing")
            last[event.recorder] = event.event_no


CHECKERS: dict[str, Checker] = {
    "history": complete,
    "lost": queue.lost,
    "depth": queue.depth,
    "phantom": queue.phantom,
    "refused": queue.refused,
    "duplicated": queue.duplicated,
    "flag": queue.flag,
    "held-twice": queue.held_twice,
    "hole": stream.hole,
    "stored-twice": stream.stored_twice,
    "differs": stream.differs,
    "order": order.first_deliveries,
    "confirm-once": confirms.once,
    "answered": confirms.answered,
    "recovery": availability.recovery,
    "storm": availability.storm,
    "starved": availability.starved,
    "healthy": availability.healthy,
    "vacuous": availability.vacuous,
}


def merge(verdicts: Iterable[Valid]) -> Valid:
    """The verdict of several: false beats unknown beats true."""
    seen = set(verdicts)
    if False in seen:
        return False
    return "unknown" if "unknown" in seen else True


def judge(
    events: Iterable[Event], options: Options, checkers: dict[str, Checker] | None = None
) -> Verdict:
    """Judge a history.

    Args:
        events: The history, in any order.
        options: What the run was asked to do.
        checkers: Name -> checker; all of them by default.

    Returns:
        The verdict; it never raises because of what the history holds.
    """
    facts = gather(events, options)
    findings: list[Finding] = []
    checks: dict[str, bool | str] = {}
    merged: list[Valid] = []
    for name, checker in (CHECKERS if checkers is None else checkers).items():
        found = _run(name, checker, facts)
        valid = merge(SEVERITIES[finding.kind] for finding in found)
        findings += found
        checks[name] = valid
        merged.append(valid)
    return Verdict(
        run_id=facts.events[0].run_id if facts.events else "",
        valid=merge(merged),
        checks=checks,
        findings=sorted(findings),
        counts=_counts(facts),
        recoveries=[
            Recovery(
                window.fault, window.kind, window.target,
                availability.silence_us(facts, window) // 1000,
            )
            for window in facts.windows
        ],
    )  # fmt: skip


def _run(name: str, checker: Checker, facts: Facts) -> list[Finding]:
    try:
        return list(checker(facts))
    except Exception as error:  # noqa: BLE001  a crashing checker is unknown, never a pass
        return [Finding("crash", name, detail=f"{type(error).__name__}: {error}")]


def _counts(facts: Facts) -> dict[str, int]:
    ops = Counter(event.op for event in facts.events)
    return {
        "events": len(facts.events),
        "published": len(facts.published),
        "confirmed": len(facts.confirmed),
        "nacked": ops["nack"],
        "unknown": ops["unknown"],
        "delivered": ops["deliver"] + ops["get"],
        "acked": ops["ack"],
        "requeued": ops["requeue"],
        "redelivered": sum(
            event.redelivered for deliveries in facts.deliveries.values() for event in deliveries
        ),
        "lost_allowed": sum(publish.ts_us < facts.joined_us for publish in queue.missing(facts)),
        "faults": len(facts.windows),
        "confirmed_in_faults": sum(
            any(window.start_us <= at <= window.end_us for window in facts.windows)
            for at in facts.confirm_times_us()
        ),
        "leader_changes": max((event.epoch for event in facts.events), default=0),
    }
