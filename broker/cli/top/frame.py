"""A sample of the cluster as a picture for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from broker.cli.top.samples import Sample
from broker.cli.top.view import View

Item = dict[str, Any]

_HEAD_LINES: Final = 6
"""Title, rates, totals, the headings of both lists, keys."""

_WIDE: Final = 110
_GIB: Final = 2**30
_SCALES: Final = ((2**40, "T"), (2**30, "G"), (2**20, "M"), (2**10, "K"))
_RATES: Final = (
    ("published", "publish"),
    ("confirmed", "confirm"),
    ("delivered", "deliver_get"),
    ("acked", "ack"),
    ("redelivered", "redeliver"),
    ("returned", "return_unroutable"),
    ("dropped", "drop_unroutable"),
)
_TOTALS: Final = ("queues", "connections", "channels", "consumers")
_HELD: Final = ("flow", "blocking", "blocked")
_BLOCKED: Final = "publishers are blocked"
_NODE_COLUMNS: Final = (
    ("node", "fill"),
    ("state", "left"),
    ("memory", "right"),
    ("of", "right"),
    ("disk free", "right"),
    ("clients", "right"),
)
_QUEUE_COLUMNS: Final = (
    ("queue", "fill"),
    ("in/s", "right"),
    ("out/s", "right"),
    ("ready", "right"),
    ("unacked", "right"),
    ("consumers", "right"),
    ("leader", "left"),
)
_CONNECTION_COLUMNS: Final = (
    ("connection", "fill"),
    ("from client/s", "right"),
    ("to client/s", "right"),
    ("channels", "right"),
    ("state", "left"),
    ("user", "left"),
)
KEYS: Final = (
    "q quit  tab queues, connections  s sort by the next column  r reverse  / filter by name"
)


def rows(sample: Sample, height: int) -> int:
    """How many rows of the list fit below the rest.

    Args:
        sample: The last one.
        height: Lines of the terminal.
    """
    return max(1, height - _HEAD_LINES - len(sample.nodes) - len(_alarms(sample)))


def frame(sample: Sample, view: View, width: int, height: int, at: str) -> RenderableType:
    """Draw a sample.

    Args:
        sample: What was found.
        view: What is shown.
        width: Columns of the terminal.
        height: Its lines.
        at: The time, "12:00:00".
    """
    is_wide = width >= _WIDE
    parts: list[RenderableType] = [_title(sample, view, at)]
    if sample.problem:
        parts.append(_line(sample.problem, "bold red"))
    if sample.overview:
        parts += [_rates(sample), _totals(sample)]
        parts += [_line(text, "bold red") for text in _alarms(sample)]
        parts.append(_nodes(sample.nodes, is_wide=is_wide))
        room = rows(sample, height) - bool(sample.problem)
        draw = _queues if view.shown == "queues" else _connections
        parts.append(draw(sample.items[: max(0, room)], is_wide=is_wide))
    parts.append(_footer(view))
    return Group(*parts)


def clean(text: object) -> str:
    """Return a client's text without anything that a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in str(text))


def count(number: float) -> str:
    """Return 1234567 as "1,234,567"."""
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Return bytes as "1.5G", "20M", "512"."""
    for scale, unit in _SCALES:
        if number >= scale:
            return (
                f"{number / scale:.1f}{unit}"
                if number < 10 * scale
                else f"{number / scale:.0f}{unit}"
            )
    return f"{number:.0f}"


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis", end="\n")


def _title(sample: Sample, view: View, at: str) -> Text:
    overview = sample.overview
    text = _line("WarrenMQ", "bold")
    if overview:
        text.append(f" {overview['product_version']}", "not bold")
    arrow = "largest first" if view.largest_first else "smallest first"
    order = f"  {view.shown} by {view.sorted_by.title}, {arrow}"
    text.append(order, "not bold cyan")
    if view.pattern:
        text.append(f"  name ~ {clean(view.pattern)} ({count(sample.found)})", "not bold yellow")
    text.append(f"  {at}  {sample.url or 'no node answers'}", "not bold dim")
    if overview:  # last: it may be long, and is cut off first
        text.append(f"  {clean(overview['cluster_name'])}", "not bold")
    return text


def _rates(sample: Sample) -> Text:
    stats = sample.overview.get("message_stats", {})
    pieces = [f"{title} {count(_rate(stats, key))}/s" for title, key in _RATES]
    return _line("  ".join(pieces))


def _totals(sample: Sample) -> Text:
    totals, messages = (
        sample.overview.get("object_totals", {}),
        sample.overview.get("queue_totals", {}),
    )
    ready, unacked = messages.get("messages_ready", 0), messages.get("messages_unacknowledged", 0)
    pieces = [f"{key} {count(totals.get(key, 0))}" for key in _TOTALS]
    text = _line("  ".join([*pieces, f"ready {count(ready)}", f"unacked {count(unacked)}"]))
    held = [f"{sample.states[state]} in {state}" for state in _HELD if sample.states.get(state)]
    if held:
        text.append(f"  publishers held: {', '.join(held)}", "yellow")
    return text


def _alarms(sample: Sample) -> list[str]:
    found = []
    for node in sample.nodes:
        name = clean(node["name"])
        if not node.get("running"):
            found.append(f"{name} does not answer")
            continue
        if node.get("mem_alarm"):
            amounts = f"{size(node['mem_used'])} of {size(node['mem_limit'])}"
            found.append(f"{name}: memory alarm, {amounts}: {_BLOCKED}")
        if node.get("disk_free_alarm"):
            amounts = f"{size(node['disk_free'])} free, limit {size(node['disk_free_limit'])}"
            found.append(f"{name}: disk alarm, {amounts}: {_BLOCKED}")
    return found


def _table(columns: Iterable[tuple[str, str]]) -> Table:
    table = Table(
        box=None, padding=(0, 1, 0, 0), expand=True, header_style="reverse", pad_edge=False
    )
    for title, justify in columns:
        ratio = 1 if justify == "fill" else None
        table.add_column(
            title,
            justify="left" if justify == "fill" else justify,  # type: ignore[arg-type]
            ratio=ratio,
            no_wrap=True,
            overflow="ellipsis",
        )
    return table


def _nodes(nodes: list[Item], *, is_wide: bool) -> Table:
    more = [("loop ms", "right"), ("files", "right")] if is_wide else []
    table = _table([*_NODE_COLUMNS, *more, ("up", "right")])
    for node in nodes:
        name = Text(clean(node["name"]))
        if not node.get("running"):
            table.add_row(name, Text("down", "bold red"))
            continue
        state = Text("drained", "yellow") if node.get("being_drained") else Text("up", "green")
        style = "bold red" if node.get("mem_alarm") else ""
        cells = [
            Text(size(node.get("mem_used", 0)), style),
            Text(size(node.get("mem_limit", 0))),
            Text(size(node.get("disk_free", 0)), "bold red" if node.get("disk_free_alarm") else ""),
            Text(count(node.get("sockets_used", 0))),
        ]
        if is_wide:
            turn = node.get("event_loop", {}).get("longest_turn_ms", 0)
            cells += [Text(count(turn)), Text(count(node.get("fd_used", 0)))]
        table.add_row(name, state, *cells, Text(_age(node.get("uptime", 0))))
    return table


def _queues(items: list[Item], *, is_wide: bool) -> Table:
    wide = [("vhost", "left"), ("type", "left"), ("state", "left")] if is_wide else []
    table = _table([*_QUEUE_COLUMNS, *wide])
    for item in items:
        stats = item.get("message_stats", {})
        cells = [
            clean(item["name"]),
            count(_rate(stats, "publish")),
            count(_rate(stats, "deliver_get")),
            *_known(item, ("messages_ready", "messages_unacknowledged", "consumers"), count),
            clean(item.get("leader") or item.get("node") or "none"),
        ]
        if is_wide:
            cells += _known(item, ("vhost", "type", "state"), clean)
        table.add_row(*map(Text, cells))
    return table


def _connections(items: list[Item], *, is_wide: bool) -> Table:
    wide = [("vhost", "left"), ("node", "left")] if is_wide else []
    table = _table([*_CONNECTION_COLUMNS, *wide])
    for item in items:
        given = (item.get("client_properties") or {}).get("connection_name")
        cells = [
            clean(given or item["name"]),
            size(item.get("recv_oct_details", {}).get("rate", 0)),
            size(item.get("send_oct_details", {}).get("rate", 0)),
            *_known(item, ("channels",), count),
            *_known(item, ("state", "user"), clean),
        ]
        if is_wide:
            cells += _known(item, ("vhost", "node"), clean)
        table.add_row(*map(Text, cells))
    return table


def _known(item: Item, keys: Iterable[str], show: Callable[[Any], str]) -> list[str]:
    """Show values; what is not known is empty, not 0."""
    return ["" if item.get(key) is None else show(item[key]) for key in keys]


def _rate(stats: Item, key: str) -> float:
    return float(stats.get(f"{key}_details", {}).get("rate", 0.0))


def _age(milliseconds: float) -> str:
    seconds = int(milliseconds // 1000)
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds % 60}s"


def _footer(view: View) -> Text:
    if view.typed is not None:
        return _line(
            f"names that match: {clean(view.typed)}_  (enter takes it, escape does not)", "yellow"
        )
    return _line(KEYS, "dim")
