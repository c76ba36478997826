"""Moves a classic queue's messages into a quorum queue, while clients go on.

Runs at the node that serves the source when it is asked for, over the same handles as clients'
channels, so a failover on either side is survived as theirs are. In this order: declare the quorum
queue; carry messages until few are left; lead the bindings over in one step; carry the rest; delete
the source if that was asked for and nothing is in it. Whatever ends it early (a crash of this node,
an operator, a refusal) leaves every message in one of the two queues, and it may be begun again:
what was under way then, `WINDOW` messages at most, may be in both.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec

from broker.audit.actor import BROKER, Actor
from broker.errors import Refusal
from broker.management.control import NodeControl
from broker.management.operations import plan
from broker.management.operations.mover import Mover, OneQueue
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.metadata.commands import DeclareQueue, MoveBindings
from broker.metadata.records import Queue
from broker.metadata.results import Declared
from broker.ports import Done, QueueStat
from broker.server.serving import Serving

_log = logging.getLogger(__name__)

BEGIN: Final = "migrate"
CANCEL: Final = "migrate.cancel"
STATE: Final = "migrate.state"

WINDOW: Final = 100
"""Most messages under way at a time."""
WINDOW_BYTES: Final = 1 << 20
FEW: Final = WINDOW
"""Messages left when the bindings are led over: what comes later overtakes these at most."""
OUTRUN: Final = 10_000
"""So many messages more than there were at first: publishers are faster, the bindings go over."""
LOOK_S: Final = 0.25
HELD_S: Final = 3.0
"""How long messages that other consumers hold are waited for at the end."""
ANSWER_S: Final = 65.0
"""A little more than a queue without a master lets its callers wait."""
REMEMBERED: Final = 100


class MigrationRequest(msgspec.Struct, frozen=True):
    """A request to migrate a queue.

    Attributes:
        target: Name of the quorum queue, in the source's vhost.
        deletes: Whether the source goes at the end.
    """

    target: str
    deletes: bool = False
    by: Actor = BROKER


class MigrationProgress(msgspec.Struct):
    """The progress or outcome of a migration.

    Attributes:
        target: Name of the quorum queue.
        state: "running", "done" or "failed".
        moved: Messages that have arrived.
        left: Messages in the source when it was asked last; None before.
        bindings: How many have been led over.
        text: Why it failed, or what is left to do.
        held: Messages that it holds.
        node: Where it runs.
        user: Who asked for it.
        started_ms: When, milliseconds since the epoch.
    """

    target: str
    state: str = "running"
    moved: int = 0
    left: int | None = None
    bindings: int = 0
    text: str = ""
    held: int = 0
    node: str = ""
    user: str = ""
    started_ms: int = 0


class _Ended(Exception):
    """The migration can't go on; the text says why and what to do."""


class Migrations:
    """The migrations of this node, and access to those of other nodes.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        self._known: dict[tuple[str, str], MigrationProgress] = {}
        remote.on(BEGIN, self._begin)
        remote.on(CANCEL, self._cancel)
        remote.on(STATE, self._state)

    async def ask(self, source: Queue, request: MigrationRequest) -> OperationResult:
        """Have the node that serves the source begin; answered at once."""
        running = await self.progress(source.vhost, source.name)
        if running is not None and running.state == "running":
            return OperationResult(
                is_done=False, text=f"queue '{source.name}' is being migrated already"
            )
        argument = msgspec.json.encode(request).decode()
        return await self._remote.ask(source.home, RemoteOperation(BEGIN, source.uid, argument))

    async def progress(self, vhost: str, name: str) -> MigrationProgress | None:
        """Return the progress of a queue's migration; None if no node knows of one."""
        operation = RemoteOperation(STATE, argument=msgspec.json.encode((vhost, name)).decode())
        result = await self._remote.ask_all(operation)
        found = [
            msgspec.json.decode(each.text, type=MigrationProgress)
            for each in result.values()
            if each.is_done
        ]
        found.sort(key=lambda each: each.state == "running")
        return found[-1] if found else None

    async def cancel(self, vhost: str, name: str) -> None:
        """End a queue's migration, wherever it runs."""
        argument = msgspec.json.encode((vhost, name)).decode()
        await self._remote.ask_all(RemoteOperation(CANCEL, argument=argument))

    # What is asked of this node.

    async def _begin(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        request = msgspec.json.decode(operation.argument, type=MigrationRequest)
        source = None if serving is None else serving.catalogue.queue_by_uid(operation.uid)
        if serving is None or source is None:
            return OperationResult(is_done=False, text="the queue is gone")
        fault = plan.refusal(serving.catalogue, source, request.target)
        if fault is not None:
            return OperationResult(is_done=False, text=fault)
        key = (source.vhost, source.name)
        known = self._known.pop(key, None)
        if known is not None and known.state == "running":
            self._known[key] = known
            return OperationResult(
                is_done=False, text=f"queue '{source.name}' is being migrated already"
            )
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        progress = self._known[key] = MigrationProgress(
            request.target,
            node=self._control.name,
            user=request.by.user,
            started_ms=self._control.clock.now_ms(),
        )
        serving.spawn(self._run(serving, source, request, progress))
        return OperationResult(is_done=True)

    async def _state(self, operation: RemoteOperation) -> OperationResult:
        progress = self._named(operation)
        if progress is None:
            return OperationResult(is_done=False)
        return OperationResult(is_done=True, text=msgspec.json.encode(progress).decode())

    async def _cancel(self, operation: RemoteOperation) -> OperationResult:
        progress = self._named(operation)
        if progress is not None and progress.state == "running":
            progress.state, progress.text = "failed", "cancelled; nothing is lost"
        return OperationResult(is_done=True)

    def _named(self, operation: RemoteOperation) -> MigrationProgress | None:
        return self._known.get(msgspec.json.decode(operation.argument, type=tuple[str, str]))

    # The work.

    async def _run(
        self,
        serving: Serving,
        source: Queue,
        request: MigrationRequest,
        progress: MigrationProgress,
    ) -> None:
        try:
            await self._migrate(serving, source, request, progress)
        except _Ended as why:
            progress.text = progress.text or str(why)
        except TimeoutError:
            progress.text = "a queue did not answer in time; run the command again"
        finally:
            if progress.state == "running":
                progress.state = "failed"
                progress.text = progress.text or "a bug: see the node's log"
            facts = {"queue": source.name, "target": request.target, "moved": progress.moved}
            _log.info("queue.migration_ended", extra={**facts, "state": progress.state})

    async def _migrate(
        self,
        serving: Serving,
        source: Queue,
        request: MigrationRequest,
        progress: MigrationProgress,
    ) -> None:
        target = await self._declared(serving, source, request)
        queues = serving.queues
        stat = _stat(await answer(queues.open(source).stat))
        held = _stat(await answer(queues.open(target).stat))
        fault = plan.obstacle(serving.catalogue, source, target, stat, held)
        if fault is not None:
            raise _Ended(fault)
        context = serving.context
        mover = Mover(
            queues.open(source),
            OneQueue(queues.open(target)),
            f"{context.node}/{context.boot}/0/{secrets.randbits(48)}",
            defer=asyncio.get_running_loop().call_soon,
        )
        carrying = _Carrying(self._control, serving, source, mover, progress)
        try:
            _check(await answer(lambda done: mover.begin(window(stat), done)))
            most = 2 * stat.ready + OUTRUN
            await carrying.until(lambda now: now.ready <= FEW or mover.moved > most)
            progress.bindings = await self._bindings_moved(source, target, request.by)
            unacked = await carrying.until_empty()
            _check(await answer(mover.leave))
        finally:
            progress.moved, progress.held = mover.moved, 0
            mover.end()
        progress.state = "done"
        if unacked:
            progress.text = (
                f"{unacked} messages are held by consumers of '{source.name}': run the command"
                " again once these have acknowledged or returned them"
            )
        elif request.deletes:
            progress.text = await _deleted(serving, source, request.by)

    async def _declared(self, serving: Serving, source: Queue, request: MigrationRequest) -> Queue:
        name = request.target
        cluster = self._control.cluster
        existing = serving.catalogue.queue(source.vhost, name)
        if existing is not None or cluster is None:
            assert existing is not None, "a node that serves belongs to a cluster"
            return existing
        given = plan.with_arguments(source)
        home, members = serving.context.place(source.vhost, name, "quorum", given)
        result = await cluster.propose(
            DeclareQueue(
                vhost=source.vhost,
                name=name,
                durable=True,
                auto_delete=False,
                exclusive_owner=None,
                arguments=given,
                home=home,
                members=members,
                queue_limit=serving.context.limits.cluster_queues,
            ),
            by=request.by,
        )
        _check(result)
        assert isinstance(result, Declared), "what a declare that is not refused answers"
        return result.queue

    async def _bindings_moved(self, source: Queue, target: Queue, by: Actor) -> int:
        cluster = self._control.cluster
        if cluster is None:
            raise _Ended("this node has left its cluster")
        result = await cluster.propose(MoveBindings(source.uid, target.uid), by=by)
        _check(result)
        return result if isinstance(result, int) else 0


class _Carrying:
    """Waits for what a mover does, and notices what ends it."""

    def __init__(
        self,
        control: NodeControl,
        serving: Serving,
        source: Queue,
        mover: Mover,
        progress: MigrationProgress,
    ) -> None:
        self._control = control
        self._serving = serving
        self._source = source
        self._mover = mover
        self._progress = progress

    async def until(self, is_enough: Callable[[QueueStat], bool]) -> None:
        """Wait until the source's counts are as wished."""
        while True:
            if is_enough(await self._look()):
                return
            await asyncio.sleep(LOOK_S)

    async def until_empty(self) -> int:
        """Wait until nothing is left; returns how many messages others hold."""
        looks = 0
        while True:
            stat = await self._look()
            looks = looks + 1 if self._mover.is_idle and not stat.ready else 0
            is_held = stat.unacked and looks * LOOK_S < HELD_S
            if looks and not is_held:
                return stat.unacked
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> QueueStat:
        self._check()
        open_again = self._serving.queues.open(self._source)
        stat = _stat(await answer(open_again.stat))
        self._progress.left = stat.ready + stat.unacked
        return stat

    def _check(self) -> None:
        self._progress.moved = self._mover.moved
        self._progress.held = self._mover.held + self._mover.under_way
        if self._mover.failure:
            raise _Ended(f"{self._mover.failure}; nothing is lost: run the command again")
        if self._progress.state != "running":
            raise _Ended("cancelled")
        if self._control.serving is not self._serving:
            raise _Ended("the broker on this node was stopped; run the command again")


def window(stat: QueueStat) -> int:
    """Return the number of messages that may be under way: about 1 MiB at the queue's mean size."""
    if not stat.ready_bytes:
        return WINDOW
    return max(1, min(WINDOW, WINDOW_BYTES * stat.ready // stat.ready_bytes))


async def _deleted(serving: Serving, source: Queue, by: Actor) -> str:
    """Delete the source if it is empty and unused; returns what to tell, "" if it is gone."""
    result = await answer(
        lambda done: serving.queues.delete(source, done, if_unused=True, if_empty=True, by=by)
    )
    if isinstance(result, Refusal):
        return f"all messages have moved, but '{source.name}' stays: {result.text}"
    return ""


async def answer(begin: Callable[[Done], Any]) -> object:
    """Ask a queue something and wait.

    Raises:
        TimeoutError: No answer.
    """
    found: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def done(result: object) -> None:
        if not found.done():
            found.set_result(result)

    begin(done)
    async with asyncio.timeout(ANSWER_S):
        return await found


def _check(result: object) -> None:
    if isinstance(result, Refusal):
        raise _Ended(result.text)


def _stat(result: object) -> QueueStat:
    _check(result)
    assert isinstance(result, QueueStat), "what a queue says of itself"
    return result
