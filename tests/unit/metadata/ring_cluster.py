"""Three living nodes and policies for mirrored queues, and shorthands for ring steps."""

from __future__ import annotations

from broker.metadata import commands
from broker.metadata import ring_commands as steps
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import Queue
from broker.metadata.rings import Ring, RingMember
from tests.unit.metadata.cluster import Asker

A, B, C, D = (f"rabbit@node{number}" for number in range(1, 5))


class RingAsker(Asker):
    """Asks as a fourth node, "rabbit@asker", whose boot never ends."""

    def boot_of(self, node: str) -> str:
        record = self.machine.catalogue.node(node)
        assert record is not None
        assert record.boot is not None
        return record.boot

    def start(self, node: str) -> str:
        boot = f"{node[-1]}-{self.index}"
        self.ask(commands.BootNode(node, boot, f"{node}:1"))
        return boot

    def kill(self, node: str) -> object:
        return self.ask(commands.EndBoot(node, self.boot_of(node)))

    def policy(self, pattern: str = ".*", **definition: object) -> None:
        named = {key.replace("_", "-"): value for key, value in definition.items()}
        self.ask(commands.SetPolicy("/", "p", pattern, named))

    def record(self, name: str = "q") -> Queue:
        queue = self.machine.catalogue.queue("/", name)
        assert queue is not None
        return queue

    def ring(self, name: str = "q") -> Ring:
        ring = self.record(name).ring
        assert ring is not None
        return ring

    def on(self, node: str, name: str = "q") -> RingMember:
        member = self.ring(name).member_on(node)
        assert member is not None, f"no member on {node}"
        return member

    def change(self, *each: steps.RingStep) -> tuple[bool, ...]:
        result = self.ask(commands.ChangeRings(each))
        assert isinstance(result, tuple)
        return result

    def do(self, step: steps.RingStep) -> bool:
        (is_done,) = self.change(step)
        return is_done

    def lead(self, kind: type, *rest: object, name: str = "q") -> bool:
        """A step by the master of this epoch."""
        ring = self.ring(name)
        assert ring.master is not None, "nobody leads"
        return self.do(kind(self.record(name).uid, ring.master, ring.epoch, *rest))

    def join(self, node: str, name: str = "q") -> RingMember:
        assert self.lead(steps.RingJoin, node, self.boot_of(node), name=name)
        return self.on(node, name)

    def join_fully(self, node: str, name: str = "q") -> RingMember:
        member = self.join(node, name)
        assert self.lead(steps.RingJoined, member, name=name)
        assert self.lead(steps.RingSynced, member, name=name)
        return member

    def promote(self, name: str = "q") -> RingMember:
        successor = self.ring(name).successor
        assert successor is not None
        assert self.do(steps.RingPromoted(self.record(name).uid, successor))
        return successor


def three_nodes(*, living: str = "123") -> RingAsker:
    """Nodes A, B and C, of which the numbered ones live, and who asks."""
    asker = RingAsker(MetadataMachine(), "asking")
    names = ("rabbit@asker", A, B, C)
    asker.ask(commands.Bootstrap("c", "warren", tuple((each, f"{each}:1") for each in names)))
    asker.ask(commands.BootNode("rabbit@asker", "asking", "h:0"))
    for number in living:
        asker.start(f"rabbit@node{number}")
    asker.machine.take_changes()
    return asker


def mirrored(name: str = "q", *, durable: bool = True, **definition: object) -> RingAsker:
    """Queue `name`, its master on A, mirrors on B and C, all synchronised."""
    asker = three_nodes()
    asker.policy(**{"ha_mode": "nodes", "ha_params": [A, B, C], **definition})
    asker.queue(name, home=A, durable=durable)
    asker.machine.take_changes()
    return asker
