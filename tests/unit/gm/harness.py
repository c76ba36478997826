"""Members of one ring on wires in memory, moved message by message."""

from __future__ import annotations

from collections import deque

from gm.core.effects import MemberEffects
from gm.core.limits import MemberLimits
from gm.core.member import Member
from gm.core.messages import Message
from gm.core.view import MemberId, Slot, View


def view_of(version: int, *slots: MemberId | Slot) -> View:
    """A view; members stand for living slots."""
    return View(version, tuple(s if isinstance(s, Slot) else Slot(s, True) for s in slots))


def dead(member: MemberId) -> Slot:
    return Slot(member, False)


class Peer:
    """A member and what it told its owner."""

    def __init__(self, net: Net, me: MemberId, view: View, *, founder: bool) -> None:
        self.net = net
        self.me = me
        self.member = Member(me, view, founder=founder, limits=net.limits)
        self.delivered: list[tuple[str, bytes]] = []
        self.numbers: list[int] = []
        self.returned: list[int] = []
        self.births: list[MemberId] = []
        self.deaths: list[MemberId] = []
        self.erase_due: list[MemberId] = []
        self.stopped = False
        self.holds_sync = False
        self.ticket = 0
        self.collect()

    def collect(self) -> None:
        effects = self.member.take_effects()
        while self._note(effects):
            self.member.synced(self.ticket)
            effects = self.member.take_effects()

    def _note(self, effects: MemberEffects) -> bool:
        for to, version, message in effects.sends:
            self.net.wire(self.me.node, to.node).append((self.me, to, version, message))
        self.births += effects.births
        for delivery in effects.deliveries:
            self.delivered.append((delivery.publisher.node, delivery.payload))
            self.numbers.append(delivery.number)
            self.ticket = delivery.ticket
        self.returned += effects.returned
        self.deaths += effects.deaths
        self.erase_due += effects.erase_due
        self.stopped = self.stopped or effects.stopped
        return bool(effects.deliveries) and not self.holds_sync

    def sync(self, ticket: int | None = None) -> None:
        self.member.synced(self.ticket if ticket is None else ticket)
        self.collect()

    def broadcast(self, *payloads: bytes) -> int:
        number = 0
        for payload in payloads:
            number = self.member.broadcast(payload)
        self.collect()
        return number

    def learns(self, view: View) -> None:
        self.member.view_changed(view)
        self.collect()

    def link_up(self, node: str) -> None:
        self.member.link_up(node)
        self.collect()

    def got(self, publisher: str) -> list[bytes]:
        return [payload for node, payload in self.delivered if node == publisher]


class Net:
    """A ring whose first view has all the given nodes."""

    def __init__(self, *names: str, limits: MemberLimits | None = None) -> None:
        self.limits = limits or MemberLimits()
        self.peers: dict[str, Peer] = {}
        self._wires: dict[tuple[str, str], deque[tuple[MemberId, MemberId, int, Message]]] = {}
        self.cut: set[tuple[str, str]] = set()
        ids = [MemberId(name, "boot", 1) for name in names]
        self.view = view_of(1, *ids)
        for me in ids:
            self.peers[me.node] = Peer(self, me, self.view, founder=True)
        self.pump()

    def __getitem__(self, name: str) -> Peer:
        return self.peers[name]

    def id(self, name: str) -> MemberId:
        return self.peers[name].me

    def wire(self, sender: str, to: str) -> deque[tuple[MemberId, MemberId, int, Message]]:
        return self._wires.setdefault((sender, to), deque())

    def step(self, sender: str, to: str) -> Message | None:
        """Move one message."""
        wire = self.wire(sender, to)
        if not wire:
            return None
        source, target, version, message = wire.popleft()
        peer = self.peers.get(target.node)
        if peer is not None and peer.me == target:
            peer.member.receive(source, version, message)
            peer.collect()
        return message

    def pump(self) -> None:
        """Move everything on wires that are not cut, until nothing moves."""
        while True:
            loaded = [pair for pair, wire in self._wires.items() if wire and pair not in self.cut]
            if not loaded:
                return
            for pair in loaded:
                self.step(*pair)

    def lose(self, sender: str, to: str) -> list[Message]:
        """Break a stream: what was on it is lost, and both ends hear of the new one."""
        lost = [message for *_, message in self.wire(sender, to)]
        self.wire(sender, to).clear()
        self.cut.discard((sender, to))
        self.peers[to].link_up(sender)
        self.peers[sender].link_up(to)
        return lost

    def change(self, *slots: MemberId | Slot, only: str | None = None) -> View:
        """The next view; all peers, or those named by the letters of `only`, learn it."""
        self.view = view_of(self.view.version + 1, *slots)
        self.tell(only)
        return self.view

    def tell(self, only: str | None = None) -> None:
        for name, peer in list(self.peers.items()):
            if only is None or name in only:
                peer.learns(self.view)

    def dies(self, name: str, only: str | None = None) -> MemberId:
        """A peer is gone, and the view says so."""
        gone = self.peers.pop(name).me
        self.change(*(dead(m) if m == gone else Slot(m, a) for m, a in self.view.ring), only=only)
        return gone

    def joins(self, name: str, only: str | None = None) -> Peer:
        """A node comes in at the end of the list."""
        version = self.view.version + 1
        me = MemberId(name, "boot", version)
        self.change(*self.view.ring, me, only=only)
        peer = self.peers[name] = Peer(self, me, self.view, founder=False)
        return peer

    def erased(self, *members: MemberId, only: str | None = None) -> None:
        self.change(*(s for s in self.view.ring if s.member not in members), only=only)
