"""Ports: what the rings of a node need of whoever embeds them. Promises, no code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from gm.core.effects import Delivery
from gm.core.view import MemberId

Defer: TypeAlias = Callable[[Callable[[], None]], object]
"""Run something once, after what runs now and soon; `loop.call_soon` fits."""


class ViewStore(Protocol):
    """The agreed list of views, the same for all: total order comes from here, never from a ring.

    Views are pushed into each ring by whoever follows the store (`Ring.view_changed`), in order;
    some may be skipped. A death or a join is not a ring's to propose: only this is.
    """

    def erase(self, ring: int, member: MemberId) -> None:
        """Remove a dead member from the view; asked again until a view without it is seen.

        Must change nothing where the member is not there, or lives.
        """
        ...


class Transport(Protocol):
    """Carries bytes between nodes: a stream each way, in order, nothing missing while it lives.

    A stream that breaks may lose what was on its way. Then a new one is made, and both its ends
    call `Host.link_up` before the first payload of it is handed in or out. Payloads of several
    calls within a loop turn should leave together.
    """

    def send(self, node: str, payload: bytes) -> None:
        """Send, or drop if the stream is down. At most about 3 MiB."""
        ...


class Clock(Protocol):
    """Time that never jumps."""

    def monotonic_ms(self) -> int:
        """Milliseconds, monotonic."""
        ...


class RingOwner(Protocol):
    """The owner of a ring: it replicates something over it.

    Called between turns, never from within a call to the ring, in the order of these methods.
    It may call the ring from here. Whatever it raises stops this ring (`stopped`) and no other.
    """

    def births(self, members: list[MemberId]) -> None:
        """Members came in; nothing they broadcast was delivered before.

        Not told of those in the view the ring was opened with.
        """
        ...

    def deliver(self, batch: list[Delivery]) -> None:
        """Broadcasts of others, in order for each publisher.

        Call `Ring.synced` with the highest ticket that is durable here or needs not be, now or
        later; nothing is forwarded, so nobody's broadcast comes back, before it.
        """
        ...

    def returned(self, numbers: list[int]) -> None:
        """Every member of the view has these broadcasts of this member (P19)."""
        ...

    def deaths(self, members: list[MemberId]) -> None:
        """Members are gone, and all they had in flight was delivered (GM6, P22)."""
        ...

    def stopped(self, why: str) -> None:
        """This member is not in the ring any more, and the ring is closed here.

        Args:
            why: For people. Either it was removed, a normal thing to happen, or a bug was found;
                then it should also leave, so that the others do not wait for it.
        """
        ...
