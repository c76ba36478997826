"""The redrives of a cluster: begun, looked at, stopped, and taken over from a node that is gone.

The node that is asked runs a redrive, and tells the others once a second how far it is. All
remember that. If it falls silent, another goes on: the first by name of those that live, after
`SILENT_MS`; the next one some seconds later, and so on. What the dead node held is ready again by
then, or soon (docs/protocol-rules.md P1). Two nodes that both go on for a moment, in a partition,
are consumers of one queue: each message goes to one of them.

Nothing is stored: if all nodes stop at once, the redrive ends, and every message is in its queue or
has arrived.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import Final

import msgspec

from broker.audit import trail
from broker.audit.actor import Actor
from broker.management.control import NodeControl
from broker.management.operations.redriving.planning import Job
from broker.management.operations.redriving.records import Redrive, ended, taken_over
from broker.management.operations.redriving.running import Run
from broker.management.operations.redriving.scanning import Scans
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.server.serving import Serving

_log = logging.getLogger(__name__)

TELL: Final = "redrive.tell"
STOP: Final = "redrive.stop"
RUNS: Final = "redrive.runs"

TELL_S: Final = 1.0
SILENT_MS: Final = 5_000
"""So long without a word, and a redrive is looked after."""
RANK_MS: Final = 3_000
"""Each further node waits so much longer."""
RUNNING_MAX: Final = 20
"""Redrives that run in a cluster at a time."""
TAKEOVERS_MAX: Final = 5
REMEMBERED: Final = 100

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Redrive).decode


class Redrives:
    """The redrives that this node runs or has heard of.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
        scans: Looks at queues.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations, scans: Scans) -> None:
        self._control = control
        self._remote = remote
        self._scans = scans
        self._known: dict[str, Redrive] = {}
        self._heard_ms: dict[str, int] = {}
        self._runs: dict[str, Run] = {}
        self._watched: Serving | None = None
        remote.on(TELL, self._tell)
        remote.on(STOP, self._stop)
        remote.on(RUNS, self._is_run)

    def all(self) -> list[Redrive]:
        """All that are known, the latest first."""
        return sorted(self._known.values(), key=lambda each: (-each.started_ms, each.id))

    def find(self, id_: str) -> Redrive | None:
        """One of them."""
        return self._known.get(id_)

    async def begin(self, serving: Serving, job: Job) -> Redrive | str:
        """Begin a redrive on this node; the other nodes know of it then.

        Args:
            serving: The part of the node that serves clients.
            job: What to do; the rights that it needs at once have been checked.

        Returns:
            The redrive, or why there can be none now.
        """
        running = [each for each in self._known.values() if each.is_running]
        same = [
            each for each in running if (each.job.vhost, each.job.queue) == (job.vhost, job.queue)
        ]
        why = ""
        if same:
            why = (
                f"queue '{job.queue}' is being redriven already: wait for {same[0].id}, or stop it"
            )
        elif len(running) >= RUNNING_MAX:
            why = f"{RUNNING_MAX} redrives run already: wait for one, or stop it"
        asked = {"vhost": job.vhost, "name": job.queue} | _asked(job)
        trail.note(
            self._control.name, job.by, "queue.redrive", asked, "refused" if why else "done", why
        )
        if why:
            return why
        redrive = Redrive(
            f"{secrets.randbits(48):012x}",
            job,
            self._control.name,
            started_ms=self._control.clock.now_ms(),
        )
        self._remember(redrive)
        with suppress(TimeoutError):  # they hear of it again
            async with asyncio.timeout(TELL_S):
                await self._tell_others(redrive)
        self._run(serving, redrive)
        return redrive

    async def stop(self, known: Redrive, by: Actor) -> None:
        """End a redrive, wherever it runs."""
        if not known.is_running:
            return
        named: dict[str, object] = {
            "vhost": known.job.vhost,
            "name": known.job.queue,
            "id": known.id,
        }
        trail.note(self._control.name, by, "queue.redrive.stop", named)
        operation = RemoteOperation(STOP, argument=known.id, by=by)
        result = await self._remote.ask(known.node, operation)
        if not result.is_done:
            why = f"stopped by {by.user} while {known.node} did not answer; nothing is lost"
            end = ended(known, "stopped", why, self._control.clock.now_ms())
            self._remember(end)
            await self._tell_others(end)

    # What is asked of this node.

    async def _tell(self, operation: RemoteOperation) -> OperationResult:
        told = _decode(operation.argument)
        known = self._known.get(told.id)
        if known is None or told.is_newer(known):
            self._remember(told)
            run = self._runs.get(told.id)
            if run is not None and told.node != self._control.name:
                run.give_up()
        serving = self._control.serving
        if serving is not None:
            self._watch(serving)
        return OperationResult(is_done=True)

    async def _stop(self, operation: RemoteOperation) -> OperationResult:
        run = self._runs.get(operation.argument)
        if run is None:
            return OperationResult(is_done=False, text="it does not run here")
        run.stop(operation.by.user)
        return OperationResult(is_done=True)

    async def _is_run(self, operation: RemoteOperation) -> OperationResult:
        return OperationResult(is_done=operation.argument in self._runs)

    # Parts.

    def _remember(self, redrive: Redrive) -> None:
        known = self._known
        known[redrive.id] = redrive
        self._heard_ms[redrive.id] = self._control.clock.monotonic_ms()
        over = [each for each in known.values() if not each.is_running]
        over.sort(key=lambda each: each.started_ms)
        for each in over[: max(0, len(over) - REMEMBERED)]:
            del known[each.id], self._heard_ms[each.id]

    def _run(self, serving: Serving, redrive: Redrive) -> None:
        run = self._runs[redrive.id] = Run(self._control, serving, self._scans, redrive)
        serving.spawn(self._run_and_tell(serving, run))
        self._watch(serving)

    async def _run_and_tell(self, serving: Serving, run: Run) -> None:
        id_ = run.redrive.id
        try:
            async with asyncio.TaskGroup() as tasks:
                work = tasks.create_task(run.run())
                while not work.done():
                    await self._report(run)
                    await asyncio.wait([work], timeout=TELL_S)
        finally:
            del self._runs[id_]
        if run.is_ours:
            await self._report(run)
            self._note_end(run.redrive)

    async def _report(self, run: Run) -> None:
        if run.is_ours:
            self._remember(run.redrive)
            await self._tell_others(run.redrive)

    def _note_end(self, redrive: Redrive) -> None:
        job = redrive.job
        facts = {"id": redrive.id, "sent": redrive.sent, "state": redrive.state}
        _log.info("queue.redriven", extra={"queue": job.queue, "vhost": job.vhost, **facts})
        counts = {**facts, "kept": redrive.kept, "doubted": redrive.doubted}
        trail.note(
            self._control.name,
            job.by,
            "queue.redrive.end",
            {"vhost": job.vhost, "name": job.queue, **counts},
            reason=redrive.text,
        )

    async def _tell_others(self, redrive: Redrive) -> None:
        cluster = self._control.cluster
        if cluster is None:
            return
        operation = RemoteOperation(TELL, argument=_encode(redrive).decode())
        await asyncio.gather(*(self._remote.ask(node, operation) for node in cluster.peers.up()))

    # Taking over.

    def _watch(self, serving: Serving) -> None:
        if self._watched is not serving:
            self._watched = serving
            serving.spawn(self._watching(serving))

    async def _watching(self, serving: Serving) -> None:
        """Look after redrives until none is known to run."""
        while any(each.is_running for each in self._known.values()):
            await asyncio.sleep(TELL_S)
            if self._control.serving is not serving:
                break
            for each in list(self._known.values()):
                if each.is_running and each.id not in self._runs and self._is_mine(each):
                    await self._take_over(serving, each)
        if self._watched is serving:
            self._watched = None

    def _is_mine(self, redrive: Redrive) -> bool:
        """True if a redrive has been silent for so long that this node goes on with it."""
        cluster = self._control.cluster
        if cluster is None:
            return False
        up = sorted({self._control.name, *cluster.peers.up()} - {redrive.node})
        here = self._control.name
        rank = up.index(here) if here in up else 0
        silent_ms = self._control.clock.monotonic_ms() - self._heard_ms[redrive.id]
        return silent_ms > SILENT_MS + rank * RANK_MS

    async def _take_over(self, serving: Serving, known: Redrive) -> None:
        cluster = self._control.cluster
        if cluster is not None and known.node in cluster.peers.up():
            operation = RemoteOperation(RUNS, argument=known.id)
            if (await self._remote.ask(known.node, operation)).is_done:
                self._heard_ms[known.id] = self._control.clock.monotonic_ms()
                return
        if self._known.get(known.id) is not known or known.id in self._runs:
            return  # somebody else was faster
        if known.takeovers >= TAKEOVERS_MAX:
            why = f"{known.takeovers} nodes went on with it in turn, and none has ended it"
            self._remember(ended(known, "failed", why, self._control.clock.now_ms()))
            return
        redrive = taken_over(known, self._control.name)
        _log.warning(
            "queue.redrive_taken_over",
            extra={"id": known.id, "queue": known.job.queue, "after": known.node},
        )
        self._remember(redrive)
        self._run(serving, redrive)


def _asked(job: Job) -> dict[str, object]:
    """What was asked for, for the audit log."""
    found: dict[str, object] = {
        "selection": msgspec.to_builtins(job.selection),
        "target": msgspec.to_builtins(job.target),
    }
    return found if job.rate is None else found | {"rate": job.rate}
