"""Four nodes, three of them with a replica of one stream; group 0, which is never wrong here."""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import TYPE_CHECKING, Any, Final

from broker.feature_flags import STREAM_QUEUE
from broker.metadata import commands
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import Queue
from broker.metadata.results import Declared
from tests.sim.streams.links import Links
from tests.sim.streams.options import Options
from tests.sim.streams.process import Process
from tests.sim.streams.record import Record
from tests.torn_journal import TornDisk

if TYPE_CHECKING:
    from tests.sim.streams.clients import Consumer

NAMES: Final = ("rabbit@a", "rabbit@b", "rabbit@c", "rabbit@d")
SUSPECT_S: Final = 0.9
DEAD_S: Final = 1.4
SKEWS_MS: Final = (0, 0, 700, -60_000, 5_000)


class World:
    """Everything there is.

    Args:
        options: Of the run.

    Attributes:
        nodes: The living processes, by node.
        disks: What dead ones have left.
        is_healed_s: When all faults had ended.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.rng = random.Random(options.seed)
        self.record = Record()
        self.links = Links(self.loop, random.Random(self.rng.random()), options.latency_s)
        self.names = list(NAMES)
        self.nodes: dict[str, Process] = {}
        self.disks: dict[str, TornDisk] = {}
        self.skew_ms = {name: self.rng.choice(SKEWS_MS) for name in NAMES}
        self._boots = 0
        self._index = 0
        self._machine = MetadataMachine()
        self.catalogue = self._machine.catalogue
        self.uid = 0
        self.is_healed_s: float | None = None
        members = tuple((name, name) for name in NAMES)
        self.apply(commands.Bootstrap("c", "c", members, features=(STREAM_QUEUE,)))
        for name in NAMES:
            self.disks[name] = TornDisk()
            self.start(name)
        self.uid = self._declare().uid

    @property
    def queue(self) -> Queue:
        """The stream's present record."""
        found = self.catalogue.queue_by_uid(self.uid)
        assert found is not None
        return found

    def _declare(self) -> Queue:
        options = self.options
        arguments: dict[str, object] = {
            "x-queue-type": "stream",
            "x-stream-max-segment-size-bytes": options.segment_bytes,
        }
        if options.max_bytes:
            arguments["x-max-length-bytes"] = options.max_bytes
        if options.max_age_s:
            arguments["x-max-age"] = f"{options.max_age_s}s"
        declared = self.apply(
            commands.DeclareQueue(
                vhost="/",
                name="s",
                durable=True,
                auto_delete=False,
                exclusive_owner=None,
                arguments=arguments,
                home=NAMES[0],
                members=NAMES[:3],
            )
        )
        assert isinstance(declared, Declared), declared
        return declared.queue

    def apply(self, command: commands.AnyCommand) -> Any:
        """Commit a command; all nodes apply it at once."""
        self._index += 1
        asker = next((node.boot for node in self.nodes.values()), "")
        request = commands.encode_request(asker, self._index, self._index, command)
        result = self._machine.apply(self._index, request)
        changes = self._machine.take_changes()
        for node in list(self.nodes.values()):
            node.registry.reconcile(changes)
        return result

    def note(self, text: str) -> None:
        self.record.note(f"{self.loop.time():8.3f}  {text}")

    def crashed(self, name: str, error: BaseException) -> None:
        """Something of a node ended with an error that nobody expects."""
        self.note(f"{name}: {error!r}")
        if self.record.failure is None:
            found = error if isinstance(error, Exception) else RuntimeError(repr(error))
            self.record.failure = found

    def digest(self) -> int:
        """Says whether two runs were the same."""
        said = [(each.key, each.timestamp_ms) for each in self.record.messages]
        return zlib.crc32(repr((said, sorted(self.record.counts.items()))).encode())

    # Lives.

    def start(self, name: str, *, blank: bool = False) -> None:
        """Start a node that is dead."""
        if name in self.nodes:
            return
        self._boots += 1
        boot = f"{self._boots:016x}"
        self.note(f"{name} starts{' blank' if blank else ''}")
        self.apply(commands.BootNode(name, boot, name))
        disk = TornDisk() if blank else self.disks[name]
        started = self.nodes[name] = Process(self, name, boot, disk)
        for other in self.names:
            if self.is_linked(name, other):
                self._link(started, self.nodes[other], is_restart=True)

    def kill(self, name: str) -> None:
        """Kill a node; group 0 ends its boot a little later."""
        process = self.nodes.pop(name, None)
        if process is None:
            return
        self.note(f"{name} is killed{', the leader' if self.leader_name() == name else ''}")
        self.record.counts["kills"] += 1
        self.disks[name] = process.kill(self.rng)
        self.loop.call_later(DEAD_S, self._bury, name, process.boot)
        for other in self.nodes.values():
            self.loop.call_later(SUSPECT_S, self._suspect, other, name)

    def _bury(self, name: str, boot: str) -> None:
        if name not in self.nodes:
            self.apply(commands.EndBoot(name, boot))

    def is_linked(self, name: str, other: str) -> bool:
        """Whether two nodes live and reach each other."""
        if name == other or name not in self.nodes or other not in self.nodes:
            return False
        return not {(name, other), (other, name)} & self.links.cut.keys()

    def cut(self, name: str, other: str, *, holds: bool) -> None:
        """Cut the link between two nodes."""
        for way in ((name, other), (other, name)):
            self.links.cut.setdefault(way, holds)
        for one, two in ((name, other), (other, name)):
            if one in self.nodes:
                self.loop.call_later(SUSPECT_S, self._suspect, self.nodes[one], two)

    def heal(self, name: str, other: str) -> None:
        """Mend the link between two nodes."""
        is_cut = (name, other) in self.links.cut
        self.links.heal((name, other))
        self.links.heal((other, name))
        if is_cut and self.is_linked(name, other):
            self._link(self.nodes[name], self.nodes[other], is_restart=False)

    def _suspect(self, process: Process, other: str) -> None:
        if not process.is_dead and not self.is_linked(process.name, other):
            process.host.peer_suspected(other)

    def _link(self, one: Process, two: Process, *, is_restart: bool) -> None:
        for process, other in ((one, two), (two, one)):
            if is_restart:
                process.host.peer_restarted(other.name)
            else:
                process.host.peer_up(other.name)
            process.registry.link_up(other.name)

    # Who leads.

    def leader(self) -> Process | None:
        """The process that leads in the highest term."""
        leading = [p for p in self.nodes.values() if p.group is not None and p.group.is_leader]
        return max(leading, key=lambda p: p.group.term) if leading else None  # type: ignore[union-attr]

    def leader_name(self) -> str:
        """The leader's name, or nothing."""
        found = self.leader()
        return "" if found is None else found.name

    def may_lose(self, consumer: Consumer) -> bool:
        """Whether the broker may cancel a consumer: nobody within its reach can be read."""
        return not consumer.process.is_readable and self.is_healed_s is None

    def is_whole(self) -> bool:
        """All members run and vote, and nothing is cut: one of them may lose its disk."""
        leader = self.leader()
        if leader is None or leader.group is None or self.links.cut:
            return False
        status = leader.group.status()
        members = sorted(self.queue.members)
        if sorted(status.voters) != members or status.learners:
            return False
        return all(
            name in self.nodes and self.nodes[name].groups.may_vote(self.uid) for name in members
        )
