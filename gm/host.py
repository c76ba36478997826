"""Runs all rings of this node: bytes to members, effects to the transport and to ring owners.

Whatever is put into a ring marks it. At the end of the turn the effects of each marked ring are
taken once, so that what came together leaves together. The host decides nothing and reads no clock
of its own.

A message for a member that is not open here yet may be early, since views travel apart from
messages (P21): it is kept for a while, within a limit. A message for a former member, or for a ring
that never opens, is counted and dropped. So is a damaged payload: it never breaks the link, which
all rings and everything else share.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVarTuple

from gm.core.effects import Counters, MemberEffects
from gm.core.member import Member
from gm.core.view import MemberId, View
from gm.errors import PayloadDamaged, RingClosed
from gm.ports import Clock, Defer, RingOwner, Transport, ViewStore
from gm.settings import RingHostConfig
from gm.wire import convert
from gm.wire.convert import Frame

_Args = TypeVarTuple("_Args")

_log = logging.getLogger(__name__)


class RingHandle:
    """The handle by which an owner uses a ring on this node. Made by `RingHost.open`."""

    __slots__ = ("_host", "id", "is_closed", "member", "owner")

    def __init__(self, ring: int, member: Member, owner: RingOwner, host: RingHost) -> None:
        self.id = ring
        self.member = member
        self.owner = owner
        self.is_closed = False
        self._host = host

    @property
    def me(self) -> MemberId:
        """This node's member."""
        return self.member.me

    @property
    def view(self) -> View:
        """The latest view that it knows."""
        return self.member.view

    @property
    def is_live(self) -> bool:
        """True once it has its neighbour's state; before that it must not broadcast."""
        return self.member.is_live

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of own broadcasts that have not come round; their origin must limit them (P14)."""
        return self.member.in_flight_bytes

    @property
    def counters(self) -> Counters:
        """Counts of what happened here so far."""
        return self.member.counters

    def broadcast(self, payload: bytes) -> int:
        """Send to all other members; see `Member.broadcast`.

        Raises:
            RingClosed: If the ring is closed here.
            ValueError: If the payload is empty or too long.
            InvariantViolated: If this member is not live.
        """
        if self.is_closed:
            raise RingClosed(f"ring {self.id} is closed here, open it again as a new member")
        number = self.member.broadcast(payload)
        self._host.mark(self)
        return number

    def synced(self, ticket: int) -> None:
        """Deliveries up to this ticket are durable here, or need not be."""
        if not self.is_closed:
            self.member.synced(ticket)
            self._host.mark(self)

    def view_changed(self, view: View) -> None:
        """Take a later view; an old one changes nothing."""
        self._host.act(self, self.member.view_changed, view)


class _Early:
    """Frames for members that are not open here yet."""

    def __init__(self, config: RingHostConfig) -> None:
        self._config = config
        self._frames: deque[tuple[int, int, Frame]] = deque()  # (kept until ms, bytes, frame)
        self._size_bytes = 0

    def put(self, frame: Frame, size_bytes: int, now_ms: int) -> bool:
        if self._size_bytes + size_bytes > self._config.early_bytes_max:
            return False
        self._frames.append((now_ms + self._config.early_ms, size_bytes, frame))
        self._size_bytes += size_bytes
        return True

    def take(self, ring: int, member: MemberId) -> list[Frame]:
        found = [f for _, _, f in self._frames if f.ring == ring and f.to == member]
        if found:
            self._keep(lambda _, f: f.ring != ring or f.to != member)
        return found

    def expire(self, now_ms: int) -> int:
        """Drop frames that are too old; return how many."""
        before = len(self._frames)
        if before and self._frames[0][0] <= now_ms:
            self._keep(lambda until_ms, _: until_ms > now_ms)
        return before - len(self._frames)

    def _keep(self, is_kept: Callable[[int, Frame], bool]) -> None:
        self._frames = deque(entry for entry in self._frames if is_kept(entry[0], entry[2]))
        self._size_bytes = sum(size for _, size, _ in self._frames)


class RingHost:
    """The rings of one node.

    Args:
        name: This node.
        transport: How bytes reach other nodes.
        store: Asked to erase dead members.
        defer: Runs a function at the end of the turn.
        clock: For the age of early messages and repeated erasures.
        config: MemberLimits.
        make_member: For the simulator's planted bugs; `Member` by default.

    Attributes:
        damaged_count: Payloads that were no ring messages, or lied about their sender.
        early_count: Messages kept for a member that was not open yet.
        foreign_count: Messages dropped: for a former member, or for one that did not open in time.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        store: ViewStore,
        defer: Defer,
        clock: Clock,
        *,
        config: RingHostConfig | None = None,
        make_member: Callable[..., Member] = Member,
    ) -> None:
        self.name = name
        self.damaged_count = 0
        self.early_count = 0
        self.foreign_count = 0
        self._config = config or RingHostConfig()
        self._transport = transport
        self._store = store
        self._defer = defer
        self._clock = clock
        self._make_member = make_member
        self._rings: dict[int, RingHandle] = {}
        self._early = _Early(self._config)
        self._dirty: dict[RingHandle, None] = {}  # insertion order: work must not depend on hashes
        self._is_turn_due = False
        self._erased_ms = 0

    # -- rings --------------------------------------------------------------------------------

    def ring(self, ring: int) -> RingHandle | None:
        """An open ring."""
        return self._rings.get(ring)

    def open(
        self, ring: int, me: MemberId, view: View, owner: RingOwner, *, founder: bool
    ) -> RingHandle:
        """Open this node's member of a ring.

        Args:
            ring: Its number, the same on all nodes, never used for another ring.
            me: The member, alive in `view`.
            view: The latest view known here.
            owner: Who is told what happens.
            founder: It belongs to the ring's first view, or recovered as its only member: it
                begins with nothing. Any other begins with its left neighbour's state.

        Raises:
            ValueError: If the ring is open, or `me` is no living member on this node.
        """
        if ring in self._rings:
            raise ValueError(f"ring {ring} is open already")
        if me.node != self.name:
            raise ValueError(f"{me} does not live on {self.name}")
        member = self._make_member(me, view, founder=founder, limits=self._config.limits)
        opened = RingHandle(ring, member, owner, self)
        self._rings[ring] = opened
        self.mark(opened)
        for frame in self._early.take(ring, me):
            self.act(opened, member.receive, frame.sender, frame.view_version, frame.message)
        return opened

    def close(self, ring: int) -> None:
        """Close a ring here; its owner is told nothing more. One that is not open is no error."""
        closing = self._rings.pop(ring, None)
        if closing is not None:
            closing.is_closed = True
            self._dirty.pop(closing, None)

    # -- from below ---------------------------------------------------------------------------

    def receive(self, node: str, payload: bytes | memoryview) -> None:
        """Take a payload that came from a node; a damaged one is counted and dropped."""
        try:
            frame = convert.decode(payload, sender=node, to=self.name)
        except PayloadDamaged as error:
            self.damaged_count += 1
            _log.warning("gm.payload_damaged", extra={"node": node, "error": str(error)[:200]})
            return
        ring = self._rings.get(frame.ring)
        if ring is not None and frame.to == ring.me:
            receive = ring.member.receive
            self.act(ring, receive, frame.sender, frame.view_version, frame.message)
        elif ring is not None and frame.to.version <= ring.view.version:
            self.foreign_count += 1
        elif self._early.put(frame, len(payload), self._clock.monotonic_ms()):
            self.early_count += 1
        else:
            self.foreign_count += 1

    def link_up(self, node: str) -> None:
        """A new data stream to or from a node is up; call it for either, before it is used."""
        for ring in list(self._rings.values()):
            self.act(ring, ring.member.link_up, node)

    def tick(self) -> None:
        """Call it some times a second: forgets what came too early, repeats erasures."""
        now_ms = self._clock.monotonic_ms()
        self.foreign_count += self._early.expire(now_ms)
        if now_ms - self._erased_ms >= self._config.erase_again_ms:
            self._erased_ms = now_ms
            for ring in list(self._rings.values()):
                for dead in ring.member.erasures_due():
                    self._store.erase(ring.id, dead)

    # -- turns --------------------------------------------------------------------------------

    def act(self, ring: RingHandle, do: Callable[[*_Args], None], *args: *_Args) -> None:
        """Have a ring's member do something, and carry out what follows at the turn's end.

        Args:
            ring: One of this host's; a closed one does nothing more.
            do: A method of its member. If it raises, the ring stops, and no other does.
            args: What the method is given.
        """
        if ring.is_closed:
            return
        try:
            do(*args)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a ring's work
            self._fail(ring, error)
            return
        self.mark(ring)

    def mark(self, ring: RingHandle) -> None:
        """Carry out the effects of a ring at the end of this turn."""
        self._dirty[ring] = None
        if not self._is_turn_due:
            self._is_turn_due = True
            self._defer(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        dirty, self._dirty = self._dirty, {}
        for ring in dirty:
            if not ring.is_closed:
                self._carry_out(ring)

    def _carry_out(self, ring: RingHandle) -> None:
        """Carry out effects in the order that effects.py demands."""
        try:
            effects = ring.member.take_effects()
            for to, view_version, message in effects.sends:
                payload = convert.encode(ring.id, to, ring.me, view_version, message)
                self._transport.send(to.node, payload)
            self._tell(ring, effects)
            for dead in effects.erase_due:
                self._store.erase(ring.id, dead)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a ring's work
            self._fail(ring, error)
            return
        if effects.stopped and not ring.is_closed:
            self.close(ring.id)
            ring.owner.stopped("it was removed from the ring")

    def _tell(self, ring: RingHandle, effects: MemberEffects) -> None:
        owner = ring.owner
        if effects.births:
            owner.births(effects.births)
        if effects.deliveries and not ring.is_closed:
            owner.deliver(effects.deliveries)
        if effects.returned and not ring.is_closed:
            owner.returned(effects.returned)
        if effects.deaths and not ring.is_closed:
            owner.deaths(effects.deaths)

    def _fail(self, ring: RingHandle, error: Exception) -> None:
        """Stop one ring and keep the evidence; the others go on."""
        _log.critical(
            "gm.ring_failed", extra={"ring": ring.id, "error": repr(error)}, exc_info=error
        )
        if not ring.is_closed:
            self.close(ring.id)
            # Later: this may be within a call of its owner's.
            self._defer(partial(ring.owner.stopped, f"a bug stopped it: {error!r}"))
