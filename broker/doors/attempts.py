"""Rate limits for login attempts, and counts of them. Pure.

Two buckets of tokens stand before each attempt: one for the address and the user together, one for
the address. An attempt takes a token before the password is looked at; a right one puts it back, so
that whoever knows the password is never slowed, and a guess costs what it costs whether it is right
or wrong: who is over the rate learns nothing. A user that has logged in from an address lately does
not ask the address's bucket: a neighbour that guesses at other users does not hold it up. The same
password from another address is not held up by anything.

    attempt of (A, X) -> bucket (A, X) -> X known from A? -> bucket A -> password
                             |                                 |
                             +--------- empty: wait, or go ----+

All times are monotonic milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.doors.admission import source

USER_BURST: Final = 10
"""Wrong passwords for one user from one address that are answered at once."""

USER_PER_S: Final = 1
ADDRESS_BURST: Final = 40
"""Wrong passwords from one address, for whomever, that are answered at once."""

ADDRESS_PER_S: Final = 5
WAIT_MS_MAX: Final = 3_000
"""How long an attempt waits for its turn; also how late a refusal is: RabbitMQ's
SILENT_CLOSE_DELAY."""

REMEMBERED_MAX: Final = 8_192
"""Buckets of each kind, and sources counted: the oldest go."""

NAME_MAX: Final = 256
"""Characters of a user's name that count."""

LINES_MAX: Final = 64
"""Addresses whose failures are told each second by name."""


class Ticket(NamedTuple):
    """An attempt that was let to the password, now or soon.

    Attributes:
        wait_ms: How long it waits before.
        pair: Address and user.
        is_charged: The address's bucket gave a token, too.
    """

    wait_ms: int
    pair: tuple[str, str]
    is_charged: bool


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_ms: int
    is_known: bool = False  # a right password came

    def look(self, burst: int, per_s: int, now_ms: int) -> int:
        """Fill by the time that has passed; return how long it is empty, milliseconds."""
        self.tokens = min(burst, self.tokens + (now_ms - self.at_ms) * per_s / 1000)
        self.at_ms = now_ms
        return 0 if self.tokens >= 1 else math.ceil((1 - self.tokens) * 1000 / per_s)


class Attempts:
    """The buckets of a node."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], _Bucket] = {}
        self._addresses: dict[str, _Bucket] = {}

    def ask(self, address: str, user: str, now_ms: int, *, wait_ms_max: int) -> Ticket | int:
        """Ask whether an attempt may be made; settle a ticket afterwards.

        Args:
            address: The client's.
            user: The name it gives.
            now_ms: Monotonic time.
            wait_ms_max: How long it would wait for its turn.

        Returns:
            A ticket; or, over the rate, in how many milliseconds another may be tried.
        """
        here, name = source(address), user[:NAME_MAX]
        pair = self._pairs.get((here, name))
        wait_ms = 0 if pair is None else pair.look(USER_BURST, USER_PER_S, now_ms)
        around = None
        if pair is None or not pair.is_known:
            around = self._addresses.pop(here, None) or _Bucket(ADDRESS_BURST, now_ms)
            wait_ms = max(wait_ms, around.look(ADDRESS_BURST, ADDRESS_PER_S, now_ms))
            self._addresses[here] = around
            _forget_oldest(self._addresses)
        if wait_ms > wait_ms_max:
            return wait_ms
        if around is not None:
            around.tokens -= 1
        pair = self._pairs.pop((here, name), None) or _Bucket(USER_BURST, now_ms)
        pair.tokens -= 1
        self._pairs[(here, name)] = pair
        _forget_oldest(self._pairs)
        return Ticket(wait_ms, (here, name), around is not None)

    def settle(self, ticket: Ticket, *, is_right: bool) -> None:
        """Note what came of an attempt; a right one gives back what it took, and one token more.

        Only who knows a user's password can fill the bucket before that user: a crowd behind one
        address, most of which is right, is not slowed by the few that are wrong.
        """
        pair = self._pairs.get(ticket.pair)
        if not is_right or pair is None:
            return
        pair.tokens = min(USER_BURST, pair.tokens + 2)
        pair.is_known = True
        around = self._addresses.get(ticket.pair[0])
        if ticket.is_charged and around is not None:
            around.tokens = min(ADDRESS_BURST, around.tokens + 1)


class Tally:
    """Attempts by protocol and by source, as RabbitMQ's `auth/attempts` counts them.

    Source: rabbit_core_metrics.erl, auth_attempt_succeeded/3, auth_attempt_failed/3.
    """

    def __init__(self) -> None:
        self._protocols: dict[str, list[int]] = {}
        self._sources: dict[tuple[str, str, str], list[int]] = {}

    def note(self, protocol: str, address: str, user: str, *, is_right: bool) -> None:
        """Count one.

        Args:
            protocol: "amqp091" or "http".
            address: The client's.
            user: The name it gave.
            is_right: It was let in.
        """
        key = (protocol, address, user[:NAME_MAX])
        counts = self._sources.pop(key, None) or [0, 0]
        self._sources[key] = counts
        _forget_oldest(self._sources)
        counts[is_right] += 1
        self._protocols.setdefault(protocol, [0, 0])[is_right] += 1

    def reset(self) -> None:
        """Count anew."""
        self._protocols.clear()
        self._sources.clear()

    def by_protocol(self) -> list[dict[str, object]]:
        """Return attempts by protocol, as `GET /api/auth/attempts/NODE` shows them."""
        return [
            {"protocol": protocol, **_shown(counts)} for protocol, counts in self._protocols.items()
        ]

    def by_source(self) -> list[dict[str, object]]:
        """Return attempts by address, as `GET /api/auth/attempts/NODE/source` shows them."""
        return [
            {"remote_address": address, "username": user, "protocol": protocol, **_shown(counts)}
            for (protocol, address, user), counts in self._sources.items()
        ]


class FailureLog:
    """Which failed logins have a line of their own in the log: the first of an address each second.

    The others are counted, and told together with the next tick.
    """

    def __init__(self) -> None:
        self._more: dict[str, int] = {}
        self._elsewhere = 0

    def note(self, address: str) -> bool:
        """Return whether this failure is to be logged now."""
        here = source(address)
        if here in self._more:
            self._more[here] += 1
            return False
        if len(self._more) >= LINES_MAX:
            self._elsewhere += 1
            return False
        self._more[here] = 0
        return True

    def tick(self) -> list[tuple[str, int]]:
        """Say how many more there were since the last tick, by address; once a second."""
        told = [(address, count) for address, count in self._more.items() if count]
        if self._elsewhere:
            told.append(("other addresses", self._elsewhere))
        self._more.clear()
        self._elsewhere = 0
        return told


def _shown(counts: list[int]) -> dict[str, object]:
    failed, succeeded = counts
    return {
        "auth_attempts": failed + succeeded,
        "auth_attempts_failed": failed,
        "auth_attempts_succeeded": succeeded,
    }


def _forget_oldest(table: dict[Any, Any]) -> None:
    if len(table) > REMEMBERED_MAX:
        del table[next(iter(table))]
