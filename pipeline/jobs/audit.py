"""Histories of chaos runs, judged: which promises were kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException

from pipeline import judge, session
from pipeline.audit import SETTINGS
from pipeline.command.configuration import Config
from pipeline.command.progress import Progress, Silent
from pipeline.quality import QualityFailed
from pipeline.report.document import Bars, Cell, Report, Table
from pipeline.verdict import VERDICT, WORDS, Finding
from pipeline.verdict import Report as Verdict

_SHOWN: Final = 200
_COUNTS: Final = ("events", "published", "confirmed", "delivered", "lost_allowed", "faults")


def run(spark: Any, config: Config, progress: Progress | None = None) -> Report:
    """Judge runs one after another; each verdict goes beside its history, too.

    A run that can't be read is a finding, and the others are judged.

    Args:
        spark: The session.
        config: Of the job.
        progress: Shows how far it is.
    """
    verdicts: dict[str, Verdict] = {}
    unread: dict[str, str] = {}
    with session.changed(spark, SETTINGS):
        for name in config.texts("runs"):
            (progress or Silent()).show(f"judges {name}")
            try:
                found = judge.run(spark, Path(name), config.text("format"))
                judge.write(Path(name), found)
            except (OSError, ValueError, KeyError, QualityFailed, PySparkException) as error:
                unread[name] = judge.told(error)
            else:
                verdicts[name] = found
            if progress is not None and progress.is_stopped:
                break
    return report(config.name, verdicts, unread)


def report(name: str, verdicts: Mapping[str, Verdict], unread: Mapping[str, str]) -> Report:
    """The report of an audit.

    Args:
        name: Of the job's run.
        verdicts: The directory of a chaos run -> what was found in its history.
        unread: The directory of a chaos run that has no verdict -> why.
    """
    found = [(run, item) for run, verdict in verdicts.items() for item in verdict.findings]
    kept = sum(verdict.valid is True for verdict in verdicts.values())
    return Report(
        name=name,
        title="what chaos runs promise",
        facts={
            "runs": len(verdicts) + len(unread),
            "all promises kept": kept,
            "events": sum(verdict.counts["events"] for verdict in verdicts.values()),
        },
        findings=[
            *(line for run, verdict in verdicts.items() for line in _lines(run, verdict)),
            *(f"{run} cannot be judged: {why}" for run, why in unread.items()),
        ],
        notes=[f"{VERDICT} in the directory of each run has all findings"] if found else [],
        charts=[Bars("the longest time without a confirm", "ms", _silences(verdicts))],
        tables=[
            Table(
                "Runs",
                ("run", "verdict", *_COUNTS),
                [_row(run, verdict) for run, verdict in verdicts.items()],
            ),
            Table(
                "Findings",
                ("run", "claim", "queue", "about"),
                [(run, item.kind, item.queue, item.subject) for run, item in found[:_SHOWN]],
                len(found),
            ),
        ],
    )


def _row(run: str, verdict: Verdict) -> tuple[Cell, ...]:
    return (run, WORDS[verdict.valid], *(verdict.counts[each] for each in _COUNTS))


def _lines(run: str, verdict: Verdict) -> Iterator[str]:
    """A line for each claim that does not hold."""
    first: dict[str, Finding] = {}
    for item in verdict.findings:
        first.setdefault(item.kind, item)
    for kind, count in sorted(Counter(item.kind for item in verdict.findings).items()):
        where = f" in queue '{first[kind].queue}'" if first[kind].queue else ""
        more = f", and {count - 1} more" if count > 1 else ""
        yield f"{run}: {kind}: {first[kind].subject}{where}{more}"


def _silences(verdicts: Mapping[str, Verdict]) -> list[tuple[str, float]]:
    longest = [
        (f"{Path(run).name} {fault}", float(ms))
        for run, verdict in verdicts.items()
        for fault, ms in verdict.silences_ms.items()
    ]
    return sorted(longest, key=lambda one: (-one[1], one[0]))[:20]
