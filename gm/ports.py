"""Ports: what the rings of a node need of their embedder. Interfaces, no code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from gm.core.effects import RingDelivery
from gm.core.view import MemberId

Defer: TypeAlias = Callable[[Callable[[], None]], object]
"""Run something once, after what runs now and soon; `loop.call_soon` fits."""


class ViewStore(Protocol):
    """The agreed list of views, the same for all members. Only it orders views.

    Whoever follows the store pushes views into each ring, in order (`RingHandle.view_changed`);
    some may be skipped. Rings propose neither deaths nor joins, only the erasures below.
    """

    def erase(self, ring: int, member: MemberId) -> None:
        """Remove a dead member from the view; asked again until a view without it is seen.

        Must change nothing where the member is not there, or lives.
        """
        ...


class Transport(Protocol):
    """Carries bytes between nodes: a stream each way, in order and complete while it lives.

    A stream that breaks may lose what was on its way. Then a new one is made, and both its ends
    call `RingHost.link_up` before the first payload of it is handed in or out. Payloads of several
    calls within a loop turn should leave together.
    """

    def send(self, node: str, payload: bytes) -> None:
        """Send, or drop if the stream is down. At most about 3 MiB."""
        ...


class Clock(Protocol):
    """A monotonic clock."""

    def monotonic_ms(self) -> int:
        """Milliseconds, monotonic."""
        ...


class RingOwner(Protocol):
    """The owner of a ring, which replicates something over it.

    Called between turns, never from within a call to the ring, in the order of these methods.
    It may call the ring from here. Whatever it raises stops this ring (`stopped`) and no other.
    """

    def births(self, members: list[MemberId]) -> None:
        """Members came in; none of their broadcasts was delivered before.

        Not called for members of the view the ring was opened with.
        """
        ...

    def deliver(self, batch: list[RingDelivery]) -> None:
        """Take broadcasts of other members, in order for each publisher.

        Call `RingHandle.synced`, now or later, with the highest ticket that is durable here or
        need not be. Nothing is forwarded before that, so no broadcast comes back.
        """
        ...

    def returned(self, numbers: list[int]) -> None:
        """Every member of the view has these broadcasts of this member (P19)."""
        ...

    def deaths(self, members: list[MemberId]) -> None:
        """Members are gone, and all they had in flight was delivered (GM6, P22)."""
        ...

    def stopped(self, why: str) -> None:
        """This member is no longer in the ring, and the ring is closed here.

        Args:
            why: For the log. The member was removed, which is no error, or a bug was found; then it
                should also leave, so that the others do not wait for it.
        """
        ...
