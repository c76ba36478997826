"""Looks at the messages of a queue without taking them: dead letters by group, and dry runs.

The node that serves the queue looks, since it alone has the messages; nothing of them changes, not
even `redelivered`. It works in short steps, by the pacer of the API's listings, as browsing does.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Generator
from typing import Final

import msgspec

from broker.fifo.ready.places import Place
from broker.management.control import NodeControl
from broker.management.operations.browsing.browser import walked
from broker.management.operations.browsing.masking import Masks
from broker.management.operations.browsing.sources import Gone, QueueSource
from broker.management.operations.leaders import NOT_LED, Leaders
from broker.management.operations.redriving.planning import Job, Planner
from broker.management.operations.redriving.tally import Tally
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.management.pace import WorkPacer
from broker.message import Delivery
from broker.metadata.queue_settings import settings_of
from broker.metadata.records import Queue

SCAN: Final = "redrive.scan"

PART: Final = 2_000
"""Messages looked at for one request to a node: about 0.1 s of its time."""
LOOK_DEFAULT: Final = 10_000
LOOK_MAX: Final = 50_000
"""Most messages that are looked at for one request of an operator."""

_READ_S: Final = 4.0
"""How long a disk may take for one batch."""


class ScanRequest(msgspec.Struct, frozen=True):
    """A part of a queue to look at.

    Attributes:
        after: Behind this place.
        count: Messages to look at, or some more.
        job: A redrive to plan; its `queue` is set even if nothing is planned.
        is_planned: Say what would go where.
        masked: Names of headers whose values nobody sees, at the node that asks; where the
            messages are its own count, too.
    """

    after: Place
    count: int
    job: Job
    is_planned: bool = False
    masked: tuple[str, ...] = ()


class Scan(msgspec.Struct):
    """What was found.

    Attributes:
        tally: Counts.
        messages: Ready messages in the queue.
        next: The last place that was looked at; None at the end of the queue.
        delivery_limit: How often a message may come back; None is without limit.
    """

    tally: Tally
    messages: int
    next: Place | None
    delivery_limit: int | None = None


class ScanFailed(Exception):
    """The queue can't be looked at now; the text says why."""


_encode = msgspec.json.Encoder().encode


class Scans:
    """Looks at queues, wherever they are served.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
        leaders: Finds the node that serves a queue.
        pace: Divides the loop's time.
    """

    def __init__(
        self, control: NodeControl, remote: RemoteOperations, leaders: Leaders, pace: WorkPacer
    ) -> None:
        self._control = control
        self._leaders = leaders
        self._pace = pace
        remote.on(SCAN, self._scan)

    async def look(
        self, queue: Queue, job: Job, *, after: Place, count: int, is_planned: bool
    ) -> Scan:
        """Look at a part of a queue.

        Args:
            queue: A classic or quorum queue.
            job: What to plan.
            after: Behind this place.
            count: Messages to look at, `LOOK_MAX` at most.
            is_planned: Say what would go where, too. Selected are `selection.count` at most.

        Raises:
            ScanFailed: No node can tell.
        """
        whole = Scan(Tally(), 0, after)
        most = job.selection.count
        while whole.next is not None and whole.tally.looked < count:
            if is_planned and most is not None and whole.tally.sent_count >= most:
                break
            part = min(PART, count - whole.tally.looked)
            rest, masked = _rest_of(job, whole.tally), self._masked
            request = ScanRequest(whole.next, part, rest, is_planned, masked)
            operation = RemoteOperation(SCAN, queue.uid, _encode(request).decode())
            result = await self._leaders.ask(queue, operation)
            if not result.is_done:
                raise ScanFailed(result.text)
            found = msgspec.json.decode(result.text, type=Scan)
            whole.tally.add(found.tally)
            whole.messages, whole.next = found.messages, found.next
            whole.delivery_limit = found.delivery_limit
        return whole

    @property
    def _masked(self) -> tuple[str, ...]:
        return self._control.settings.management_browse_masked

    async def _scan(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        request = msgspec.json.decode(operation.argument, type=ScanRequest)
        queue = None if serving is None else serving.catalogue.queue_by_uid(operation.uid)
        if serving is None or queue is None:
            return OperationResult(is_done=False, text="the queue is gone")
        masks = Masks((*request.masked, *self._masked))
        planner = Planner(request.job, serving.catalogue, serving.access, masks)
        found = walked(serving, queue.uid)
        if found is None or not serving.is_valid():
            return OperationResult(is_done=False, text=NOT_LED)
        tally, source = Tally(), QueueSource(found, request.after)
        limit = settings_of(queue, serving.catalogue.effective_policy(queue)).delivery_limit
        most = request.job.selection.count if request.is_planned else None
        passed, is_end = 0, False
        try:
            while passed < request.count and (most is None or tally.sent_count < most):
                async with asyncio.timeout(_READ_S):
                    batch = await source.placed(self._pace)
                if batch is None:
                    is_end = True
                    break
                items = [item for _, item in batch]
                is_planned = request.is_planned
                work = _counted(items, tally, planner, limit, most, is_planned=is_planned)
                await self._pace.run(work)
                passed += len(batch)
        except (Gone, TimeoutError):
            return OperationResult(is_done=False, text=NOT_LED)
        after = source.after
        is_end = is_end or not source.has_more(after)
        stat = serving.queues.count_here(queue.uid)
        ready = 0 if stat is None else stat.ready
        scan = Scan(tally, ready, None if is_end else after, limit)
        return OperationResult(is_done=True, text=_encode(scan).decode())


def _rest_of(job: Job, tally: Tally) -> Job:
    """The job with the count that is left to select."""
    selection = job.selection
    if selection.count is None:
        return job
    left = max(0, selection.count - tally.sent_count)
    return msgspec.structs.replace(job, selection=msgspec.structs.replace(selection, count=left))


def _counted(
    items: list[Delivery],
    tally: Tally,
    planner: Planner,
    limit: int | None,
    most: int | None,
    *,
    is_planned: bool,
) -> Generator[None, None, None]:
    for item in items:
        message = item.message
        tally.at_limit += limit is not None and item.delivery_count >= limit
        if not is_planned:
            tally.note(planner.letter(message), message.body_size)
        elif most is None or tally.sent_count < most:
            plan = planner.plan(message, secrets.randbits(64))
            tally.note(plan.letter, message.body_size)
            tally.note_plan(plan)
        yield
