"""Prometheus' text format, by hand and in steps: a library takes 10 us a sample. Pure.

Source: prometheus.io/docs/instrumenting/exposition_formats, text format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, Literal, NamedTuple

from broker.management.pace import STEP

CONTENT_TYPE: Final = "text/plain; version=0.0.4"

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One name with its samples.

    Attributes:
        name: Of the metric.
        type: "counter", "gauge" or "untyped".
        help: What it counts.
        samples: Labels and value of each.
    """

    name: str
    type: Literal["counter", "gauge", "untyped"]
    help: str
    samples: Iterable[tuple[Labels, float]]


def written(families: Iterable[Family]) -> Generator[None, None, bytes]:
    """Write families, in steps (`broker.management.pace`)."""
    lines: list[str] = []
    count = 0
    for family in families:
        lines.append(f"# TYPE {family.name} {family.type}")
        lines.append(f"# HELP {family.name} {family.help}")
        for labels, value in family.samples:
            lines.append(f"{family.name}{_labels(labels)} {value}")
            count += 1
            if not count % STEP:
                yield
    lines.append("")
    return "\n".join(lines).encode("utf-8", "replace")


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{key}="{_escaped(value)}"' for key, value in labels]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
