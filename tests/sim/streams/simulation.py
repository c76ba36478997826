"""One run: a phase of faults under load, then healing, and what must be true then."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

from broker.fifo import command_sizes
from broker.queues.client import pending_commands
from broker.queues.streams import log, neighbour, reader, replica, service
from broker.streams import intake, machine
from raft import parts
from raft.core.messages import Entry
from tests.sim.streams.clients import Clients, Consumer
from tests.sim.streams.faults import Nemesis
from tests.sim.streams.options import Options
from tests.sim.streams.process import Process
from tests.sim.streams.record import LivenessViolation
from tests.sim.streams.world import World
from tests.virtual_loop import run

CONVERGE_S: Final = 90.0
STEP_S: Final = 0.25
MESSAGES_MAX: Final = 5_000
"""Between nodes within `STEP_S`: more is a circle of answers in which the clock hardly moves. Seeds
1 to 29 had at most 467."""

SMALL: Final = (
    (command_sizes, "BATCH_BYTES_MAX", 2_048),
    (pending_commands, "BATCH_BYTES_MAX", 2_048),
    (parts, "ENTRY_BYTES_MAX", 2_048),
    (parts, "_DATA_BYTES_MAX", 2_046),
    (intake, "ENTRY_BYTES_MAX", 1_800),
    (intake, "ENTRY_MESSAGES_MAX", 20),
    (replica, "ENTRY_BYTES_MAX", 1_800),
    (replica, "RETENTION_MS", 2_000),
    (log, "KEPT_BYTES_MAX", 6_000),
    (log, "READ_BYTES", 3_000),
    (neighbour, "READ_BYTES", 3_000),
    (service, "ANSWER_BYTES_MAX", 3_000),
    (reader, "TURN_BYTES_MAX", 2_000),
    (machine, "INTERVAL_BYTES", 3_000),
)
"""Limits as small as the messages here."""


@contextmanager
def small_limits() -> Iterator[None]:
    """Have small limits for a while."""
    with ExitStack() as stack:
        for owner, name, value in SMALL:
            stack.enter_context(patch.object(owner, name, value))
        yield


@dataclasses.dataclass
class Result:
    """What a run that found nothing did."""

    digest: int
    counts: dict[str, int]


class Simulation:
    """Holds the world, so that a failed run can be looked at.

    Args:
        options: Of the run.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.world: World | None = None

    def run(self) -> Result:
        """Run all phases.

        Raises:
            SafetyViolation: Something forbidden happened.
            LivenessViolation: The healed cluster did not converge.
        """
        with small_limits():
            return run(self._run())

    async def _run(self) -> Result:
        loop = asyncio.get_running_loop()
        self.world = world = World(self.options)
        loop.set_exception_handler(self._loop_failed)
        clients, nemesis = Clients(world), Nemesis(world)
        tasks = [loop.create_task(clients.publish(each)) for each in clients.publishers]
        tasks += [loop.create_task(clients.consume(n)) for n in range(len(clients.consumers))]
        breaking = loop.create_task(nemesis.run())
        for task in (*tasks, breaking):
            task.add_done_callback(self._task_ended)
        try:
            await self._pass(self.options.fault_s)
            breaking.cancel()
            nemesis.heal()
            world.is_healed_s = loop.time()
            clients.is_stopping = True
            await self._until("agreement", lambda: self._difference(clients))
            await self._read_all(clients)
            self._compare_logs()
        finally:
            for task in (*tasks, breaking):
                task.cancel()
            for process in world.nodes.values():
                process.kill(world.rng)
        return Result(world.digest(), dict(world.record.counts))

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        assert self.world is not None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.crashed("a client", error)

    def _loop_failed(self, _loop: object, context: dict[str, object]) -> None:
        assert self.world is not None
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.world.crashed("loop", error)

    async def _pass(self, seconds: float) -> None:
        assert self.world is not None
        loop = self.world.loop
        end = loop.time() + seconds
        links = self.world.links
        while loop.time() < end:
            before = links.sent
            await asyncio.sleep(STEP_S)
            if self.world.record.failure is not None:
                raise self.world.record.failure
            if links.sent - before > MESSAGES_MAX:
                text = f"{links.sent - before} messages between nodes within {STEP_S} s"
                raise LivenessViolation(text)

    async def _until(self, what: str, difference: object) -> None:
        assert self.world is not None
        end = self.world.loop.time() + CONVERGE_S
        why = difference()  # type: ignore[operator]
        while why is not None:
            if self.world.loop.time() > end:
                raise LivenessViolation(f"no {what} {CONVERGE_S:.0f} s after healing: {why}")
            await self._pass(STEP_S)
            why = difference()  # type: ignore[operator]

    def _members(self) -> list[Process]:
        assert self.world is not None
        return [self.world.nodes[name] for name in self.world.queue.members]

    def _difference(self, clients: Clients) -> str | None:
        """What is still missing; None when everyone agrees and everything is confirmed."""
        assert self.world is not None
        if not self.world.is_whole():
            return "not all members vote"
        for publisher in clients.publishers:
            if not publisher.is_done:
                return f"{publisher.name} waits for {len(publisher.waiting)}"
        states = {}
        for process in self._members():
            if process.replica is None or process.group is None:
                return f"{process.name} has no replica"
            states[process.name] = process.group.applied_index
        return None if len(set(states.values())) == 1 else f"applied: {states}"

    async def _read_all(self, clients: Clients) -> None:
        """Readers at every node get all that is there."""
        assert self.world is not None
        record = self.world.record
        readers = [clients.reader(process) for process in self.world.nodes.values()]

        def missing() -> str | None:
            for each in readers:
                if each.is_lost:
                    return f"{each.tag} at {each.process.name} was cancelled"
                if self._is_behind(each):
                    return f"{each.tag} at {each.process.name} is at {each.offset}"
            return None

        await self._until("reader at the end", missing)
        for each in readers:
            each.cancel()
        for process in self._members():
            assert process.replica is not None
            assert process.group is not None
            index = process.group.applied_index
            record.has_state(process.name, -index, process.replica.machine)

    def _is_behind(self, consumer: Consumer) -> bool:
        assert self.world is not None
        record = self.world.record
        end = len(record.messages)
        return end > record.first_offset and consumer.offset != end

    def _compare_logs(self) -> None:
        """Whatever two members have of the log is the same, and reaches from the cut to the end."""
        assert self.world is not None
        seen: dict[int, Entry] = {}
        for process in self._members():
            group, found = process.group, process.replica
            assert group is not None
            assert found is not None
            low = group.status().first_index
            if found.machine.first_index and low > found.machine.first_index:
                text = f"{process.name} begins at {low}, not {found.machine.first_index}"
                self.world.record.fail("the log has all that is kept", text)
            while low <= group.applied_index:
                for entry in group.read(low, 1 << 20):
                    if seen.setdefault(entry.index, entry) != entry:
                        text = f"{process.name} has another entry {entry.index}"
                        self.world.record.fail("replicas agree", text)
                    low = entry.index + 1
