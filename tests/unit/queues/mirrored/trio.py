"""Three nodes under a policy `ha-mode: all`, in the rig: everything runs until nothing is left."""

from __future__ import annotations

from broker.fifo.message_state import digest_of
from broker.message import Message
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.metadata.rings import Ring
from broker.queues.mirrored.ring_membership import RingMembership
from tests.memory_journal import MemoryDisk
from tests.unit.queues.rig import A, B, C, Channel, World, message


class Trio(World):
    """A queue "q", mastered by A, mirrored by B and C."""

    def __init__(
        self,
        *,
        is_declared: bool = True,
        durable: bool = True,
        timers: bool = False,
        **policy: object,
    ) -> None:
        super().__init__(A, B, C, timers=timers)
        self.policy(**policy)
        if is_declared:
            self.uid = self.declare("q", durable=durable).uid
            self.settle()

    def policy(self, **more: object) -> None:
        definition: dict[str, object] = {"ha-mode": "all"}
        definition |= {key.replace("_", "-"): value for key, value in more.items()}
        self.apply(commands.SetPolicy("/", "p", ".*", definition))
        self.settle()

    @property
    def queue(self) -> Queue:
        found = self.catalogue.queue_by_uid(self.uid)
        assert found is not None, "the queue is gone"
        return found

    @property
    def ring(self) -> Ring:
        ring = self.queue.ring
        assert ring is not None, "the queue has no ring"
        return ring

    @property
    def master(self) -> str | None:
        return None if self.ring.master is None else self.ring.master.node

    def membership(self, node: str) -> RingMembership:
        membership = self.nodes[node].registry.mirrored.membership(self.uid)
        assert membership is not None, f"{node} has no membership"
        return membership

    def depth(self, node: str) -> int:
        """Messages at a member."""
        membership = self.membership(node)
        if membership.mirror is not None:
            return membership.mirror.replica.depth
        assert membership.master is not None
        stat = membership.master.queue.machine.stat()
        return stat.ready + stat.unacked

    def contents(self, node: str) -> list[tuple[int, Message]]:
        """What a member holds, in memory or on disk."""
        membership = self.membership(node)
        if membership.mirror is not None:
            replica = membership.mirror.replica
            paged = membership.mirror.disk.read(replica.paged_numbers(), keep=True)
            return sorted(replica.messages() + paged)
        assert membership.master is not None
        queue = membership.master.queue
        items = queue.machine.messages.from_number(0, 1 << 60)
        found = {number: each for number, _, each in items if each is not None and each.content}
        absent = [number for number, _, _ in items if number not in found]
        return sorted([*found.items(), *queue.disk.read(absent, keep=True)])

    def digests(self) -> set[str]:
        """What all members hold; one digest when they hold the same."""
        return {digest_of(self.contents(member.node)) for member in self.ring.alive()}

    def publish(self, node: str, *seqnos: int, persistent: bool = True) -> Channel:
        """Publish from a node; nothing is settled yet."""
        channel = Channel()
        messages = [message(b"%d" % seqno, persistent=persistent) for seqno in seqnos]
        self.nodes[node].registry.open(self.queue).publish(messages, list(seqnos), channel)
        return channel

    def confirmed(self, node: str, *seqnos: int) -> Channel:
        """Publish from a node and see it confirmed."""
        channel = self.publish(node, *seqnos)
        self.settle()
        assert channel.verdicts == [(seqno, True) for seqno in seqnos]
        return channel

    def consume(self, node: str, *, prefetch: int = 0, no_ack: bool = False) -> Channel:
        """Attach a consumer "t" at a node."""
        channel, answers = Channel(), []
        spec = self.nodes[node].spec(prefetch=prefetch, no_ack=no_ack)
        self.nodes[node].registry.open(self.queue).attach(spec, channel, answers.append)
        self.settle()
        assert answers == [None]
        return channel

    def stop(self, name: str) -> MemoryDisk:
        """Stop a node in good order."""
        mirrored = self.nodes[name].registry.mirrored
        drained: list[bool] = []
        mirrored.pause(lambda: drained.append(True))
        self.settle()
        assert drained == [True]
        self.apply(commands.ChangeRings(tuple(mirrored.shutdown_handovers())))
        disk = self.kill(name)
        self.settle()
        return disk

    def bodies(self, channel: Channel) -> list[bytes]:
        """What was delivered, in order."""
        return [
            bytes(each.message.content[-1 - each.message.body_size : -1])
            for each in channel.delivered
        ]
