"""One page for each run: the verdict, what happened when, and how to repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from chaos import options as run_options
from chaos.checkers.verdict import Verdict
from chaos.history import Event
from chaos.options import Options

_SHOWN_MAX = 20
_TIMELINE_OPS = (
    "fault_start", "fault_end", "effect", "epoch", "member", "load", "health", "drain", "depth",
)  # fmt: skip
_WORDS: dict[bool | str, str] = {True: "pass", False: "VIOLATED", "unknown": "cannot judge"}


def word(valid: bool | str) -> str:  # noqa: FBT001  a verdict is one value of three
    """A verdict for people."""
    return _WORDS[valid]


def summary(verdict: Verdict) -> list[str]:
    """The verdict in a few lines."""
    counts = verdict.counts
    lines = [
        f"{word(verdict.valid)}: {counts['confirmed']} confirmed of {counts['published']}"
        f" published, {counts['unknown']} unknown, {counts['nacked']} nacked,"
        f" {counts['delivered']} delivered ({counts['redelivered']} again),"
        f" {counts['faults']} faults, {counts['leader_changes']} changes of leader"
        + (f", {counts['lost_allowed']} lost as allowed" if counts["lost_allowed"] else "")
    ]
    lines += [
        f"  {item.fault} {item.kind} {item.target}: confirms silent for {item.silence_ms} ms"
        for item in verdict.recoveries
    ]
    kinds = Counter(finding.kind for finding in verdict.findings)
    lines += [f"  {kind}: {count}" for kind, count in sorted(kinds.items())]
    lines += [
        f"    {item.kind} {item.queue} {item.subject}: {item.detail}"
        for item in verdict.findings[:_SHOWN_MAX]
    ]
    return lines


def page(
    options: Options, verdict: Verdict, events: Sequence[Event], logs: Mapping[str, str]
) -> str:
    """The report as Markdown.

    Args:
        options: What was asked.
        verdict: What was found.
        events: The history.
        logs: Ends of the nodes' logs, shown unless the run passed.
    """
    lines = [
        f"# {verdict.run_id}: {word(verdict.valid)}",
        "",
        "Repeat it:",
        "",
        f"    {run_options.command(options)}",
        "",
        *summary(verdict)[:1],
        "",
        "| check | verdict |",
        "|---|---|",
        *(f"| {name} | {word(valid)} |" for name, valid in verdict.checks.items()),
        "",
        "| fault | kind | target | longest time without a confirm |",
        "|---|---|---|---|",
        *(
            f"| {item.fault} | {item.kind} | {item.target} | {item.silence_ms} ms |"
            for item in verdict.recoveries
        ),
        "",
        "## Findings",
        "",
        *(
            f"- {item.kind} {item.queue} `{item.subject}`: {item.detail}"
            for item in verdict.findings[:_SHOWN_MAX]
        ),
    ]
    if len(verdict.findings) > _SHOWN_MAX:
        lines.append(f"- and {len(verdict.findings) - _SHOWN_MAX} more in verdict.json")
    if not verdict.findings:
        lines.append("None.")
    lines += ["", "## Timeline", "", *_timeline(events)]
    if verdict.valid is not True:
        for name, text in logs.items():
            lines += ["", f"## End of the log of {name}", "", "```", text, "```"]
    return "\n".join(lines) + "\n"


def _timeline(events: Sequence[Event]) -> list[str]:
    if not events:
        return ["Nothing happened."]
    begin_us = min(event.ts_us for event in events)
    shown = sorted(
        (event for event in events if event.op in _TIMELINE_OPS), key=lambda event: event.ts_us
    )
    confirms = Counter(
        (event.ts_us - begin_us) // 1_000_000 for event in events if event.op == "confirm"
    )
    lines = [
        f"- {(event.ts_us - begin_us) / 1e6:7.2f} s  {event.op} {event.type} {event.node}"
        f" {event.code}".rstrip()
        + (f" {event.size}" if event.op in ("effect", "drain", "depth") else "")
        for event in shown
    ]
    last_s = max(confirms, default=0)
    lines += ["", "Confirms in each second:", ""]
    lines += [
        "    " + " ".join(f"{confirms[second]:4d}" for second in range(first, first + 10))
        for first in range(0, last_s + 1, 10)
    ]
    return lines
