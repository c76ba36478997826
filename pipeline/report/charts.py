"""Charts as SVG: bars and lines, in colours of the page they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from pipeline.report.document import Bars, Lines, shown

WIDTH: Final = 720
_BAR: Final = 26
_BARS_MAX: Final = 20
_LABEL: Final = 270
_LABEL_CHARS: Final = 32
_VALUE: Final = 90
_HEIGHT: Final = 240
_LEFT: Final = 70
_RIGHT: Final = 20
_TOP: Final = 14
_BOTTOM: Final = 30
_POINTS_MAX: Final = 600
COLOURS: Final = 6
"""Classes `c0` to `c5` of the page."""


def bars(chart: Bars) -> str:
    """A horizontal bar for each item, the largest first; at most 20, the rest as one."""
    ordered = sorted(chart.items, key=lambda item: (-item[1], item[0]))
    shown_items = ordered[:_BARS_MAX]
    if len(ordered) > _BARS_MAX:
        rest = ordered[_BARS_MAX - 1 :]
        shown_items = [
            *ordered[: _BARS_MAX - 1],
            (f"{len(rest):,} more", sum(value for _, value in rest)),
        ]
    largest = max((value for _, value in shown_items), default=0) or 1
    room = WIDTH - _LABEL - _VALUE
    parts: list[str] = []
    for at, (name, value) in enumerate(shown_items):
        y = at * _BAR
        width = max(value, 0) / largest * room
        parts.append(
            f"<g><title>{escape(name)}: {shown(value)} {escape(chart.unit)}</title>"
            f'<text class="label" x="{_LABEL - 8}" y="{y + 17}" text-anchor="end">'
            f"{escape(_short(name))}</text>"
            f'<rect class="c0" x="{_LABEL}" y="{y + 4}" width="{width:.1f}" '
            f'height="{_BAR - 8}" rx="2"/>'
            f'<text x="{_LABEL + width + 6:.1f}" y="{y + 17}">{shown(value)}</text></g>'
        )
    return _svg(len(shown_items) * _BAR + 4, chart.title, parts)


def lines(chart: Lines) -> str:
    """A line for each name over time; a dot where there is one point alone."""
    points = [point for line in chart.lines.values() for point in line]
    last_s = max((at for at, _ in points), default=0.0)
    end_s = last_s or 1.0
    top = scale(max((value for _, value in points), default=0.0))
    room_x, room_y = WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(at_s: float) -> float:
        return _LEFT + at_s / end_s * room_x

    def y(value: float) -> float:
        return _TOP + room_y - max(value, 0) / top * room_y

    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" '
        f'y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{shown(mark)}</text>'
        for mark in (0.0, top / 2, top)
    ]
    parts += [
        f'<text x="{x(at):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{duration(at)}</text>'
        for at in ((0.0, last_s / 2, last_s) if last_s else (0.0,))
    ]
    for number, (name, line) in enumerate(chart.lines.items()):
        shown_points = thinned(line)
        if len(shown_points) == 1:
            ((at, value),) = shown_points
            parts.append(
                f'<circle class="c{number % COLOURS}" cx="{x(at):.1f}" cy="{y(value):.1f}" r="4">'
                f"<title>{escape(name)}: {shown(value)}</title></circle>"
            )
            continue
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in shown_points)
        parts.append(
            f'<polyline class="l{number % COLOURS}" points="{path}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return _svg(_HEIGHT, chart.title, parts)


def scale(largest: float) -> float:
    """The end of an axis: the next 1, 2 or 5 times a power of ten."""
    if largest <= 0:
        return 1.0
    power: float = 10.0 ** floor(log10(largest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= largest)


def duration(seconds: float) -> str:
    """A time of an axis: 12 s, 3 min, 2.5 h."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"


def thinned(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The largest of each group of points, so that a line has at most 600."""
    size = ceil(len(line) / _POINTS_MAX) or 1
    return [
        max(line[at : at + size], key=lambda point: point[1]) for at in range(0, len(line), size)
    ]


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _short(name: str) -> str:
    return name if len(name) <= _LABEL_CHARS else name[: _LABEL_CHARS - 1] + "…"
