"""What `warrenmq top` shows, and what each key changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from urllib.parse import urlencode


class Order(NamedTuple):
    """What a list can be sorted by.

    Attributes:
        title: As the frame names it.
        key: As the HTTP API does (`sort=`).
        largest_first: What is asked for first.
    """

    title: str
    key: str
    largest_first: bool = True


QUEUES: Final = (
    Order("in/s", "message_stats.publish_details.rate"),
    Order("out/s", "message_stats.deliver_get_details.rate"),
    Order("ready", "messages_ready"),
    Order("unacked", "messages_unacknowledged"),
    Order("consumers", "consumers"),
    Order("name", "name", largest_first=False),
)
CONNECTIONS: Final = (
    Order("from client/s", "recv_oct_details.rate"),
    Order("to client/s", "send_oct_details.rate"),
    Order("channels", "channels"),
    Order("state", "state", largest_first=False),
    Order("user", "user", largest_first=False),
)
ORDERS: Final = {"queues": QUEUES, "connections": CONNECTIONS}
LISTS: Final = tuple(ORDERS)
_COLUMNS: Final = {
    "queues": "name,vhost,type,state,leader,node,messages_ready,messages_unacknowledged,consumers,"
    "message_stats",
    "connections": "name,user,vhost,state,node,channels,recv_oct_details,send_oct_details,"
    "client_properties",
}
_PATTERN_CHARACTERS_MAX: Final = 200
_ENTER: Final = ("\r", "\n")
_ESCAPE: Final = "\x1b"
_ERASE: Final = ("\x7f", "\b")


@dataclass(frozen=True, slots=True)
class View:
    """What is shown.

    Attributes:
        shown: One of `LISTS`.
        order: Index into the list's orders.
        reverse: The other way round than an order's first.
        pattern: A regular expression for names; "" for all.
        typed: A pattern that is being typed; None while none is.
        is_over: The user has left.
    """

    shown: str = "queues"
    order: int = 0
    reverse: bool = False
    pattern: str = ""
    typed: str | None = None
    is_over: bool = False

    @property
    def orders(self) -> tuple[Order, ...]:
        """What the list can be sorted by."""
        return ORDERS[self.shown]

    @property
    def sorted_by(self) -> Order:
        """The order in force."""
        return self.orders[self.order]

    @property
    def largest_first(self) -> bool:
        """True if large values come first."""
        return self.sorted_by.largest_first != self.reverse

    def path(self, rows: int) -> str:
        """What to ask the HTTP API for.

        Args:
            rows: How many items there is room for.
        """
        query = {
            "page": 1,
            "page_size": max(1, min(rows, 500)),
            "sort": self.sorted_by.key,
            "sort_reverse": str(self.largest_first).lower(),
            "columns": _COLUMNS[self.shown],
        }
        if self.pattern:
            query |= {"name": self.pattern, "use_regex": "true"}
        return f"/api/{self.shown}?{urlencode(query)}"


def on_key(view: View, key: str) -> View:
    """Return the view after a key.

    Args:
        view: Before.
        key: One character; arrows and the like count as escape.
    """
    if view.typed is not None:
        return _typing(view, view.typed, key)
    if key in ("q", "Q", "\x03", "\x04"):
        return replace(view, is_over=True)
    if key == "s":
        return replace(view, order=(view.order + 1) % len(view.orders), reverse=False)
    if key == "r":
        return replace(view, reverse=not view.reverse)
    if key == "/":
        return replace(view, typed=view.pattern)
    if key == _ESCAPE:
        return replace(view, pattern="")
    if key in ("\t", "c"):
        other = LISTS[(LISTS.index(view.shown) + 1) % len(LISTS)]
        return replace(view, shown=other, order=0, reverse=False, pattern="")
    return view


def _typing(view: View, typed: str, key: str) -> View:
    if key in _ENTER:
        return replace(view, pattern=typed, typed=None)
    if key == _ESCAPE:
        return replace(view, typed=None)
    if key in _ERASE:
        return replace(view, typed=typed[:-1])
    if key.isprintable() and len(typed) < _PATTERN_CHARACTERS_MAX:
        return replace(view, typed=typed + key)
    return view
