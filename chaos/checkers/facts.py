"""A history sorted into what the checkers ask about. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.history import Event, last_ts_us
from chaos.options import Options

SETTLE_GRACE_US = 2_000_000


class Finding(NamedTuple):
    """One violated claim.

    Attributes:
        kind: Which claim; `verdict.SEVERITIES` lists them.
        subject: The message, operation, node or fault it is about; with `kind` and `queue` its
            identity, equal in every implementation of the judge.
        queue: The queue, "" if it is about none.
        detail: For people.
    """

    kind: str
    subject: str
    queue: str = ""
    detail: str = ""


class Copy(NamedTuple):
    """A message in a queue."""

    queue: str
    msg_id: str


class Window(NamedTuple):
    """A fault, from just before it happened until its heal was complete.

    Attributes:
        fault: Its op_id.
        kind: As in the options.
        target: Names of nodes, joined by commas.
        start_us: When it began.
        end_us: When every node served again.
        changed_us: When another leader than the target was first seen, 0 if none was.
    """

    fault: str
    kind: str
    target: str
    start_us: int
    end_us: int
    changed_us: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Derived tables.

    Attributes:
        events: The history, ordered by recorder and event_no.
        options: What the run was asked to do.
        published: op_id -> its publish.
        by_copy: The publish of each copy.
        answers: op_id -> confirms and nacks it got.
        confirmed: op_ids that got a confirm and were not returned.
        refused: op_ids that were returned, or failed before they were sent.
        deliveries: Copy -> its deliveries by time, gets included.
        acks: Copy -> its acks.
        releases: Copy -> its acks and requeues.
        lost_connections: Connection -> when it ended unexpectedly.
        ended_connections: Connection -> when it ended, for whatever reason.
        windows: The faults by time.
        load_end_us: When publishers were told to stop, or the end of the history.
        joined_us: When the last mirror joined that became master without all messages, where
            that is allowed: what was published before may be lost with the old master. Else 0.
    """

    events: Sequence[Event]
    options: Options
    published: dict[str, Event] = field(default_factory=dict)
    by_copy: dict[Copy, Event] = field(default_factory=dict)
    answers: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    confirmed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    deliveries: dict[Copy, list[Event]] = field(default_factory=lambda: defaultdict(list))
    acks: dict[Copy, list[Event]] = field(default_factory=lambda: defaultdict(list))
    releases: dict[Copy, list[Event]] = field(default_factory=lambda: defaultdict(list))
    lost_connections: dict[str, int] = field(default_factory=dict)
    ended_connections: dict[str, int] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    load_end_us: int = 0
    joined_us: int = 0

    def confirm_times_us(self) -> list[int]:
        """When confirms came, in order of time."""
        return sorted(
            event.ts_us for answers in self.answers.values() for event in answers
            if event.op == "confirm"
        )  # fmt: skip

    def is_ack_uncertain(self, ack: Event) -> bool:
        """True if a fault or the loss of its connection may have swallowed an ack.

        A fault may until it is healed; but once another leader was seen, acks through the other
        nodes are as good as ever.
        """
        ended_us = self.lost_connections.get(ack.connection)
        if ended_us is not None and ended_us <= ack.ts_us + SETTLE_GRACE_US:
            return True
        for window in self.windows:
            until_us = window.end_us
            if window.changed_us and ack.node not in window.target.split(","):
                until_us = min(until_us, window.changed_us + SETTLE_GRACE_US)
            if window.start_us <= ack.ts_us + SETTLE_GRACE_US and ack.ts_us <= until_us:
                return True
        return False

    def is_disturbed(self, from_us: int, until_us: int, healing_us: int = SETTLE_GRACE_US) -> bool:
        """True if a fault was on or near: what a client saw may be late by the settling time.

        Args:
            from_us: Since when.
            until_us: Until when.
            healing_us: How long a fault may be felt after its heal.
        """
        return any(
            window.start_us - SETTLE_GRACE_US <= until_us and from_us <= window.end_us + healing_us
            for window in self.windows
        )


def gather(events: Iterable[Event], options: Options) -> Facts:
    """Sort a history into its facts."""
    ordered = sorted(events, key=lambda event: (event.recorder, event.event_no))
    facts = Facts(
        events=ordered,
        options=options,
        windows=_windows(ordered),
        load_end_us=min(
            (event.ts_us for event in ordered if event.op == "load" and event.type == "ok"),
            default=last_ts_us(ordered),
        ),
        joined_us=_joined_us(ordered) if options.promotes_unsynchronised else 0,
    )
    for event in ordered:
        _sort_in(facts, event)
    facts.confirmed.difference_update(facts.refused)
    for deliveries in facts.deliveries.values():
        deliveries.sort(key=lambda event: (event.ts_us, event.recorder, event.event_no))
    return facts


def _sort_in(facts: Facts, event: Event) -> None:
    copy = Copy(event.queue, event.msg_id)
    match event.op, event.type:
        case "publish", "invoke":
            facts.published[event.op_id] = event
            facts.by_copy[copy] = event
        case ("publish", "fail") | ("return", _):
            facts.refused.add(event.op_id)
        case "confirm", _:
            facts.answers[event.op_id].append(event)
            facts.confirmed.add(event.op_id)
        case "nack", _:
            facts.answers[event.op_id].append(event)
        case (("deliver" | "get"), "ok"):
            facts.deliveries[copy].append(event)
        case (("ack" | "requeue"), _):
            facts.releases[copy].append(event)
            if event.op == "ack":
                facts.acks[copy].append(event)
        case "close", _:
            facts.ended_connections[event.connection] = event.ts_us
            if event.type == "info":
                facts.lost_connections[event.connection] = event.ts_us


def _joined_us(events: Sequence[Event]) -> int:
    """When the last of those joined who were seen to lead before they were synchronised."""
    watched = sorted(
        (event for event in events if event.op in ("epoch", "member")),
        key=lambda event: (event.ts_us, event.recorder, event.event_no),
    )
    roles: dict[str, Event] = {}
    latest_us = 0
    for event in watched:
        if event.op == "member":
            roles[event.node] = event
        elif (role := roles.get(event.node)) is not None and role.code == "joined":
            latest_us = max(latest_us, role.ts_us)
    return latest_us


def _windows(events: Sequence[Event]) -> tuple[Window, ...]:
    ends = {event.op_id: event.ts_us for event in events if event.op == "fault_end"}
    last_us = last_ts_us(events)
    windows = [
        Window(
            event.op_id, event.code, event.node, event.ts_us,
            end_us := ends.get(event.op_id, last_us),
            min(
                (
                    seen.ts_us for seen in events
                    if seen.op == "epoch" and event.ts_us < seen.ts_us <= end_us
                    and seen.node != event.node
                ),
                default=0,
            ),
        )
        for event in events
        if event.op == "fault_start"
    ]  # fmt: skip
    return tuple(sorted(windows, key=lambda window: window.start_us))
