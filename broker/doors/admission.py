"""The places of one listener: so many, for so long, and shared fairly between addresses. Pure.

Who is in is a *stranger* until it has shown who it is; then it is *known*. A stranger, and a known
one that asks for nothing, may have to give way: when all places are taken, or too many strangers
are in, the oldest of those goes whose address holds the most. So one address that fills the
listener pushes out its own connections, never another's; one that is alone has all places. Where
nobody may give way the newcomer is refused.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

LOG_EVERY_MS: Final = 1_000
"""How often refusals are told."""

_IN_IPV4: Final = "::ffff:"
_IPV6_NETWORK_BITS: Final = 64


class Guest(Protocol):
    """A connection, as far as its place is concerned."""

    def abort(self) -> None:
        """Drop the socket now."""
        ...


class Refusals(NamedTuple):
    """Refusals that are to be logged.

    Attributes:
        number: Connections refused or dropped for want of places since the last time.
        address: The last one's.
    """

    number: int
    address: str


@lru_cache(maxsize=4096)
def source(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 of an IPv6 client.

    Args:
        address: As the socket tells it.
    """
    bare = address.removeprefix(_IN_IPV4).partition("%")[0]
    if ":" not in bare:
        return bare
    try:
        return str(ipaddress.ip_network((bare, _IPV6_NETWORK_BITS), strict=False))
    except ValueError:
        return bare


@lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    """True for an address of this machine alone.

    Args:
        address: As the socket tells it.
    """
    try:
        return ipaddress.ip_address(address.removeprefix(_IN_IPV4)).is_loopback
    except ValueError:
        return False


class Admission:
    """The places of one listener. All times are monotonic milliseconds.

    Args:
        most: Connections at a time.
        own: Places beyond `most` for connections from this machine.
        deadline_ms: How long a stranger may stay one; None: somebody else looks.

    Attributes:
        most: As given; may change.
        refused: Connections refused or dropped for want of places since the start.
        overdue: Strangers dropped at their deadline since the start.
    """

    def __init__(self, most: int, *, own: int = 0, deadline_ms: int | None = None) -> None:
        self.most = most
        self.refused = 0
        self.overdue = 0
        self._own = own
        self._deadline_ms = deadline_ms
        self._sources: dict[Guest, str] = {}
        self._idle: dict[str, dict[Guest, None]] = {}  # may give way, the oldest first
        self._counts: dict[str, int] = {}
        self._strangers: dict[Guest, int] = {}  # in since, in order
        self._untold = 0
        self._last_refused = ""
        self._told_ms: int | None = None

    def __len__(self) -> int:
        """Connections that are in."""
        return len(self._sources)

    def enter(self, guest: Guest, address: str, now_ms: int) -> bool:
        """Let a stranger in; another may be dropped for it.

        Args:
            guest: The connection.
            address: The client's.
            now_ms: Monotonic time.

        Returns:
            False: it is not in, and is to be closed.
        """
        here = source(address)
        most = self.most + (self._own if is_loopback(address) else 0)
        if len(self._sources) >= most and not self._make_room(here):
            self._note_refusal(here)
            return False
        self._sources[guest] = here
        self._idle.setdefault(here, {})[guest] = None
        self._counts[here] = self._counts.get(here, 0) + 1
        self._strangers[guest] = now_ms
        return True

    def know(self, guest: Guest, *, is_busy: bool) -> None:
        """Note that the connection has authenticated.

        Args:
            guest: Who is in; one that is not any more is passed over.
            is_busy: It asks for something, and gives way to nobody before it says otherwise.
        """
        here = self._sources.get(guest)
        if here is None:
            return
        self._strangers.pop(guest, None)
        self._not_idle(guest, here)
        if not is_busy:
            self._idle.setdefault(here, {})[guest] = None  # the newest of them

    def leave(self, guest: Guest) -> None:
        """Note that the connection is gone."""
        here = self._sources.pop(guest, None)
        if here is None:
            return
        self._strangers.pop(guest, None)
        self._not_idle(guest, here)
        self._counts[here] -= 1
        if not self._counts[here]:
            del self._counts[here]

    def tick(self, now_ms: int) -> Refusals | None:
        """Drop strangers whose time is over; called about once a second.

        Returns:
            What is to be logged, at most once a second.
        """
        if self._deadline_ms is not None:
            late = []
            for guest, since_ms in self._strangers.items():
                if now_ms - since_ms < self._deadline_ms:
                    break
                late.append(guest)
            for guest in late:
                self.overdue += 1
                self.leave(guest)
                guest.abort()
        if not self._untold or (
            self._told_ms is not None and now_ms - self._told_ms < LOG_EVERY_MS
        ):
            return None
        told = Refusals(self._untold, self._last_refused)
        self._untold, self._told_ms = 0, now_ms
        return told

    def _make_room(self, newcomer: str) -> bool:
        """Drop who holds most; the newcomer's own address counts with the newcomer."""
        counts = self._counts
        with_idle = [
            (counts[each] + (each == newcomer), each == newcomer, each) for each in self._idle
        ]
        held, _, crowd = max(with_idle, default=(0, False, ""))
        if held == 0 or held < counts.get(newcomer, 0) + 1:
            return False  # the newcomer's address holds more, and nothing it could let go
        guest = next(iter(self._idle[crowd]))
        self.leave(guest)
        self._note_refusal(crowd)
        guest.abort()
        return True

    def _not_idle(self, guest: Guest, here: str) -> None:
        idle = self._idle.get(here)
        if idle is not None:
            idle.pop(guest, None)
            if not idle:
                del self._idle[here]

    def _note_refusal(self, address: str) -> None:
        self.refused += 1
        self._untold += 1
        self._last_refused = address
