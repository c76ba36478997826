"""The ring of one durable mirrored queue, by sets, as docs/protocol-rules.md demands."""

from __future__ import annotations

from dataclasses import dataclass, field

Member = tuple[str, str, int]


@dataclass
class RingModel:
    """Follows P1 and P20 to P25 word by word; `oldest` and `when_synced` are the policy."""

    oldest: bool
    when_synced: bool
    boots: dict[str, str] = field(default_factory=dict)
    version: int = 1
    order: list[Member] = field(default_factory=list)
    dead: set[Member] = field(default_factory=set)
    synced: set[Member] = field(default_factory=set)
    joined: set[Member] = field(default_factory=set)
    master: Member | None = None
    successor: Member | None = None
    last: Member | None = None
    copies: set[Member] = field(default_factory=set)
    epoch: int = 1
    stopped: bool = False
    lossy: int = 0

    def found(self, nodes: list[str]) -> None:
        self.order = [(node, self.boots[node], 1) for node in nodes]
        self.synced, self.joined = set(self.order), set(self.order)
        self.master = self.last = self.order[0]
        self.copies = {self.order[0]}

    def alive(self) -> list[Member]:
        return [member for member in self.order if member not in self.dead]

    def boot(self, node: str, boot: str) -> None:
        if self.boots.get(node) != boot:
            self.death(node)
            self.boots[node] = boot

    def death(self, node: str) -> None:
        if self.boots.pop(node, None) is not None:
            gone = {member for member in self.alive() if member[0] == node}
            if gone:
                self.end(gone)
                self.pick()

    def end(self, gone: set[Member]) -> None:
        self.version += 1
        self.dead |= gone
        self.synced -= gone
        self.joined -= gone
        self.master = None if self.master in gone else self.master
        self.successor = None if self.successor in gone else self.successor
        if not self.alive():
            self.order = []

    def pick(self) -> None:
        """P23: the oldest synchronised; RabbitMQ's oldest, which when-synced wants some synced."""
        if self.master is None and self.successor is None and not self.stopped:
            fit = self.synced
            if self.oldest and (self.synced or not self.when_synced):
                fit = self.joined
            self.successor = next((each for each in self.alive() if each in fit), None)

    def leads(self, master: Member, epoch: int) -> bool:
        return self.master == master and self.epoch == epoch

    def join(self, master: Member, epoch: int, node: str, boot: str) -> bool:
        if not self.leads(master, epoch) or self.boots.get(node) != boot:
            return False
        if any(member[0] == node for member in self.alive()):
            return False
        self.version += 1
        self.order.append((node, boot, self.version))
        return True

    def note_joined(self, master: Member, epoch: int, member: Member) -> bool:
        if not self.leads(master, epoch) or member not in self.alive() or member in self.joined:
            return False
        self.joined.add(member)
        return True

    def note_synced(self, master: Member, epoch: int, member: Member) -> bool:
        if not self.leads(master, epoch) or member not in self.joined - self.synced:
            return False
        self.synced.add(member)
        return True

    def leave(self, member: Member, peer: Member) -> bool:
        alive = self.alive()
        if self.master is None or member == self.master or not {member, peer} <= set(alive):
            return False
        self.end({member})
        return True

    def drop(self, master: Member, epoch: int, member: Member) -> bool:
        if not self.leads(master, epoch) or member == master or member not in self.alive():
            return False
        self.end({member})
        return True

    def erase(self, member: Member) -> bool:
        if member not in self.order or member not in self.dead:
            return False
        self.order.remove(member)
        self.version += 1
        return True

    def designate(self, member: Member) -> bool:
        waiting = self.master is None and self.successor is None and not self.stopped
        fit = [each for each in self.alive() if each in self.joined]
        if not waiting or self.when_synced or fit[:1] != [member]:
            return False
        self.successor = member
        return True

    def promoted(self, member: Member) -> bool:
        if self.successor != member:
            return False
        if member not in self.synced:
            self.lossy += 1
            self.synced = {member}
        self.master = self.last = member
        self.copies = {member}
        self.successor = None
        self.epoch += 1
        self.version += 1
        return True

    def recover(self, node: str, boot: str, copy: Member) -> bool:
        if self.master is not None or self.successor is not None or self.boots.get(node) != boot:
            return False
        if self.last is None or self.last[0] != node or copy not in self.copies:
            return False
        self.version += 1
        self.epoch += 1
        member = (node, boot, self.version)
        self.dead |= set(self.order)
        self.order = [member]
        self.synced, self.joined, self.copies = {member}, {member}, {copy, member}
        self.master = self.last = member
        self.stopped = False
        return True

    def hand_over(self, master: Member, epoch: int, member: Member) -> bool:
        if not self.leads(master, epoch) or member == master or member not in self.joined:
            return False
        if member not in self.synced and not (self.oldest and self.synced - {master}):
            return False
        self.end({master})
        self.successor = member
        return True

    def stop(self, master: Member, epoch: int) -> bool:
        if not self.leads(master, epoch):
            return False
        self.end(set(self.alive()))
        self.stopped = True
        return True
