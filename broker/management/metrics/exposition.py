"""Prometheus' text format, by hand and in steps: a library takes 10 us a sample. Pure.

Source: prometheus.io/docs/instrumenting/exposition_formats, text format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4"

LINES: Final = 64
"""Samples that are written between two steps: some 5 us where all are the same, else 30."""

CHUNK_BYTES: Final = 64 << 10
"""About how long a piece of the text is: one that is sent at once holds nobody up."""

Labels = tuple[tuple[str, str], ...]
FamilyType = Literal["counter", "gauge", "histogram", "untyped"]


class Columns(NamedTuple):
    """Samples of many objects; where neighbours have the same value, they are written at once.

    Attributes:
        labels: What stands behind the name.
        values: As many; read once, as they are written.
    """

    labels: Sequence[str]
    values: Iterable[float]


class Family(NamedTuple):
    """One name with its samples.

    Attributes:
        name: Of the metric.
        type: "counter", "gauge", "histogram" or "untyped".
        help: What it counts.
        samples: What stands behind the name (`labelled`; of a histogram with its ending before) and
            the value of each; read once, as it is written.
    """

    name: str
    type: FamilyType
    help: str
    samples: Iterable[tuple[str, float]] | Columns


def written(families: Iterable[Family]) -> Generator[None, None, list[bytes]]:
    """Write families, in steps (`broker.management.pace`).

    Returns:
        The text in pieces of about `CHUNK_BYTES`.
    """
    chunks: list[bytes] = []
    lines: list[str] = []
    size_bytes = 0
    for family in families:
        name, samples = family.name, family.samples
        lines += (f"# TYPE {name} {family.type}\n", f"# HELP {name} {family.help}\n")
        texts = _columns(name, *samples) if isinstance(samples, Columns) else _lines(name, samples)
        for text in texts:
            lines.append(text)
            size_bytes += len(text)
            if size_bytes >= CHUNK_BYTES:
                chunks.append("".join(lines).encode("utf-8", "replace"))
                lines.clear()
                size_bytes = 0
            yield
    chunks.append("".join(lines).encode("utf-8", "replace"))
    return chunks


def _lines(name: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Yield the text of `LINES` samples at a time."""
    every = iter(samples)
    while some := [f"{name}{labels} {value}\n" for labels, value in islice(every, LINES)]:
        yield "".join(some)


def _columns(name: str, labels: Sequence[str], values: Iterable[float]) -> Iterator[str]:
    """As `_lines`: most of many queues have the same, and a join is ten times as fast."""
    every = iter(values)
    for start in range(0, len(labels), LINES):
        some, found = labels[start : start + LINES], list(islice(every, LINES))
        end = f" {found[0]}\n"
        if found.count(found[0]) == len(some):
            yield name + f"{end}{name}".join(some) + end
        else:
            yield from _lines(name, zip(some, found, strict=True))


def labelled(labels: Labels) -> str:
    """Return labels as they stand behind a name: once for each object, however many names."""
    if not labels:
        return ""
    return "{" + ",".join([f'{key}="{_escaped(value)}"' for key, value in labels]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
