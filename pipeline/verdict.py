"""From findings to a verdict. Pure, and without Spark.

`valid` is true, false or "unknown": a broken promise is false; a run that proves nothing is
unknown; false beats unknown beats true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

Valid = Literal[True, False, "unknown"]

VERDICT = "verdict-spark.json"
"""The file of a verdict, in the run's directory."""

EXIT_CODES: dict[Valid, int] = {True: 0, False: 1, "unknown": 2}
BROKEN_PROMISES = (
    "lost",
    "duplicated",
    "phantom",
    "corrupt",
    "aborted",
    "unroutable",
    "order",
    "flag",
    "held-twice",
    "hole",
    "stored-twice",
    "differs",
    "confirm-twice",
    "confirm-unasked",
    "unanswered",
    "recovery",
    "storm",
    "starved",
    "unhealthy",
    "depth",
)
PROVES_NOTHING = ("undrained", "vacuous", "history")
_SHOWN_MAX = 20
WORDS: dict[Valid, str] = {True: "pass", False: "VIOLATED", "unknown": "cannot judge"}
"""A verdict, for people."""


class Finding(NamedTuple):
    """One violated claim: which, about what, in which queue."""

    kind: str
    subject: str
    queue: str


class Report(NamedTuple):
    """The findings of the audit of one run.

    Attributes:
        run_id: The run.
        findings: Sorted.
        counts: What happened.
        silences_ms: Fault -> the longest time without a confirm.
    """

    run_id: str
    findings: list[Finding]
    counts: Mapping[str, int]
    silences_ms: Mapping[str, int]

    @property
    def valid(self) -> Valid:
        """The verdict."""
        return valid_of(finding.kind for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """What `VERDICT` holds."""
        return {
            "run_id": self.run_id,
            "valid": self.valid,
            "findings": [list(finding) for finding in self.findings],
            "counts": dict(self.counts),
            "silences_ms": dict(self.silences_ms),
        }

    def table(self) -> list[str]:
        """The verdict for people, one line for each claim."""
        found = Counter(finding.kind for finding in self.findings)
        lines = [f"{self.run_id}: {WORDS[self.valid]}", ""]
        lines += [f"  {name:<16} {count:>9}" for name, count in self.counts.items()]
        lines += [f"  silent, {fault:<9} {ms:>8} ms" for fault, ms in self.silences_ms.items()]
        lines += ["", f"  {'claim':<16}  findings"]
        lines += [f"  {kind:<16} {found[kind]:>9}" for kind in (*BROKEN_PROMISES, *PROVES_NOTHING)]
        lines += [f"    {item.kind} {item.queue} {item.subject}" for item in self.findings][
            :_SHOWN_MAX
        ]
        return lines


def valid_of(kinds: Iterable[str]) -> Valid:
    """The verdict that findings of these kinds make."""
    seen = set(kinds)
    if seen & set(BROKEN_PROMISES):
        return False
    return "unknown" if seen else True
