"""Runs one redrive: takes dead letters from their queue, publishes them, and lets them go.

A message is acknowledged only after all queues that it was routed to have confirmed it
(`operations.mover`). Whatever ends the run, a message is in its queue or has arrived. What was
under way when a node died may be in both: `WINDOW` messages at most.

Messages that stay are held to the end, and are back at their places then, each delivered once more
than before. So a queue whose messages may come back only so often is looked at first: none may die.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import Final

import msgspec

from broker.errors import Refusal
from broker.fifo.ready.places import BEGINNING
from broker.management.control import NodeControl
from broker.management.operations.browsing.masking import Masks
from broker.management.operations.migration import answer
from broker.management.operations.mover import NO_LIMIT, Mover, Parcels
from broker.management.operations.redriving.planning import Planner
from broker.management.operations.redriving.records import Redrive
from broker.management.operations.redriving.scanning import LOOK_MAX, ScanFailed, Scans
from broker.message import Delivery
from broker.metadata.queue_settings import settings_of
from broker.metadata.records import Queue
from broker.ports import QueueStat
from broker.queues.handle import QueueDirectory
from broker.server.serving import Serving

_log = logging.getLogger(__name__)

WINDOW: Final = 50
"""Most messages under way at a time."""
TURN_MAX: Final = 10
"""Most messages looked at in one turn of the loop: about 2 ms."""
WINDOW_BYTES: Final = 1 << 20
HELD_MAX: Final = 10_000
HELD_BYTES_MAX: Final = 1 << 26
"""Most messages, and most of their bytes, that are held because they stay."""
REFUSALS_MAX: Final = 100
"""A run ends when targets have refused so many."""
TICK_S: Final = 0.05
LOOK_EVERY: Final = 10
"""Ticks between two looks at the queue while nothing happens."""
IDLE_MAX: Final = 100
"""Ticks after which a queue that hands out nothing is left."""
DRAIN_S: Final = 10.0
"""How long messages under way are waited for at the end."""
BURST_S: Final = 0.2
"""Of the rate, what may be made up for at once."""


class _Ended(Exception):
    """The run can't go on; the text says why and what to do."""


class _Ways:
    """Plans each message, and counts those that stay."""

    def __init__(self, planner: Planner, queues: QueueDirectory) -> None:
        self.kept: dict[str, int] = {}
        self.kept_bytes = 0
        self._planner = planner
        self._queues = queues

    def way(self, delivery: Delivery) -> Parcels:
        plan = self._planner.plan(delivery.message, secrets.randbits(64))
        if plan.verdict != "sent":
            self.kept[plan.verdict] = self.kept.get(plan.verdict, 0) + 1
            self.kept_bytes += delivery.message.body_size
        opened = self._queues.open
        return [(message, opened(queue)) for message, some in plan.copies for queue in some]

    def forget(self) -> None:
        self.kept.clear()
        self.kept_bytes = 0


class Run:
    """One redrive on this node.

    Args:
        control: The node.
        serving: The part of it that serves clients.
        scans: Looks at queues.
        redrive: What to do; if another node began it, what has arrived.

    Attributes:
        redrive: The same, and how far it is.
    """

    def __init__(
        self, control: NodeControl, serving: Serving, scans: Scans, redrive: Redrive
    ) -> None:
        self.redrive = redrive
        self._control = control
        self._serving = serving
        self._scans = scans
        self._sent_before = redrive.sent
        self._stopped_by = ""
        self._is_given_up = False

    def stop(self, by: str) -> None:
        """End it soon: what is under way still arrives.

        Args:
            by: The user who stops it.
        """
        self._stopped_by = self._stopped_by or by or "an operator"

    def give_up(self) -> None:
        """Leave it to another node, which has taken over."""
        self._is_given_up = True

    async def run(self) -> None:
        """Run to the end; `redrive` says how it ended. Left "running" where this node stops."""
        try:
            state, why = await self._redriven()
        except _Ended as end:
            state, why = "failed", str(end)
        except ScanFailed as end:
            state, why = "failed", f"the queue can't be looked at: {end}; run it again"
        except TimeoutError:
            state, why = "failed", "a queue did not answer in time; nothing is lost: run it again"
        except Exception:  # noqa: BLE001 - no other node shall go on with what fails everywhere
            _log.exception("queue.redrive_failed")
            state, why = "failed", "a bug: see the node's log; nothing is lost"
        if self.is_ours:
            self._note(state=state, text=why, held=0, ended_ms=self._control.clock.now_ms())

    @property
    def is_ours(self) -> bool:
        """True unless another node has taken over, or shall."""
        return not self._is_given_up and self._control.serving is self._serving

    async def _redriven(self) -> tuple[str, str]:
        """Carry the messages; returns the state and its text."""
        job = self.redrive.job
        queue = self._serving.catalogue.queue(job.vhost, job.queue)
        if queue is None:
            raise _Ended("the queue is gone")
        await self._check_limit(queue)
        queues = self._serving.queues
        stat = _stat(await answer(queues.open(queue).stat))
        if stat.consumers and queue.arguments.get("x-single-active-consumer") is True:
            raise _Ended(
                "the queue has x-single-active-consumer: stop its consumers first, or nothing else"
                " gets a message"
            )
        self._note(total=self._sent_before + stat.ready)
        masks = Masks(self._control.settings.management_browse_masked)
        planner = Planner(job, self._serving.catalogue, self._serving.access, masks)
        ways = _Ways(planner, queues)
        count = job.selection.count
        mover = Mover(
            queues.open(queue),
            ways,
            f"{self._serving.context.node}/{self._serving.context.boot}/0/{secrets.randbits(48)}",
            defer=asyncio.get_running_loop().call_soon,
            look_max=stat.ready + (stat.unacked if self.redrive.takeovers else 0),
            send_max=NO_LIMIT if count is None else count - self._sent_before,
            refusals_max=REFUSALS_MAX,
            turn_max=TURN_MAX,
        )
        try:
            if mover.is_over:
                return "done", ""
            mover.allowed = None if job.rate is None else 0
            _check(await answer(lambda done: mover.begin(window(stat), done)))
            end = await self._carried(queue, mover, ways)
        finally:
            mover.end()
        with suppress(TimeoutError):  # once this is answered, what stays is back at its place
            await answer(mover.leave)
        return end

    async def _check_limit(self, queue: Queue) -> None:
        """See that no message dies for coming back once more.

        Raises:
            _Ended: One would, or nobody knows.
        """
        policy = self._serving.catalogue.effective_policy(queue)
        limit = settings_of(queue, policy).delivery_limit
        if limit is None or queue.type != "quorum":
            return
        scan = await self._scans.look(
            queue, self.redrive.job, after=BEGINNING, count=LOOK_MAX, is_planned=False
        )
        advice = "raise it with a policy or without the argument, then run this again"
        if scan.tally.at_limit:
            raise _Ended(
                f"{scan.tally.at_limit} messages have come back as often as the queue's"
                f" delivery limit of {limit} allows, and would be dropped: {advice}"
            )
        if scan.next is not None:
            raise _Ended(
                f"the queue has a delivery limit of {limit} and more than {LOOK_MAX} messages:"
                f" whether one would be dropped is not known; {advice}"
            )

    async def _carried(self, queue: Queue, mover: Mover, ways: _Ways) -> tuple[str, str]:
        rate = _Rate(self.redrive.job.rate)
        idle = 0
        while True:
            alarm = self._serving.context.alarms.reason
            rate.allow(mover, is_paused=bool(alarm))
            self._note(text=f"waits for the end of an alarm: {alarm}" if alarm else "")
            await asyncio.sleep(TICK_S)
            self._count(mover, ways)
            end = self._end(mover, ways)
            if end is not None:
                return await self._drained(mover, ways, end)
            idle = idle + 1 if mover.is_idle else 0
            if mover.is_idle and mover.is_over:
                return "done", ""
            if idle and not idle % LOOK_EVERY:
                now = _stat(await answer(self._serving.queues.open(queue).stat))
                is_all = not self.redrive.takeovers or now.unacked <= mover.held
                if not now.ready and (is_all or idle >= IDLE_MAX):  # others have taken some
                    return "done", ""
                if idle >= IDLE_MAX:
                    return "stopped", f"the queue does not hand out {now.ready} messages"

    def _end(self, mover: Mover, ways: _Ways) -> tuple[str, str] | None:
        """State and text, if it must not go on."""
        self._check_ours()
        if self._stopped_by:
            return "stopped", f"stopped by {self._stopped_by}; nothing is lost"
        if mover.failure:
            return "failed", f"{mover.failure}; nothing is lost: run it again"
        if mover.kept > HELD_MAX or ways.kept_bytes > HELD_BYTES_MAX:
            return "stopped", (
                f"{mover.kept} messages that stay stand before the others, and no more can be held"
                " back: send these somewhere else first, or take them away"
            )
        return None

    async def _drained(self, mover: Mover, ways: _Ways, end: tuple[str, str]) -> tuple[str, str]:
        """Wait for what is under way, so that it comes once."""
        mover.allow(0)
        for _ in range(int(DRAIN_S / TICK_S)):
            if not mover.under_way:
                break
            await asyncio.sleep(TICK_S)
            self._check_ours()
        self._count(mover, ways)
        self._note(doubted=mover.doubted + mover.under_way)
        return end

    def _count(self, mover: Mover, ways: _Ways) -> None:
        kept = dict(ways.kept)
        if mover.refused:
            kept["refused"] = mover.refused
        held = mover.held + mover.under_way
        sent = self._sent_before + mover.moved
        self._note(sent=sent, kept=kept, held=held, doubted=mover.doubted)

    def _check_ours(self) -> None:
        if not self.is_ours:
            raise _Ended("another node goes on with it")

    def _note(self, **changes: object) -> None:
        version = self.redrive.version + 1
        self.redrive = msgspec.structs.replace(self.redrive, version=version, **changes)


class _Rate:
    """So many messages a second may be published."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._room = 0.0
        self._given = 0
        self._at_s = asyncio.get_running_loop().time()

    def allow(self, mover: Mover, *, is_paused: bool) -> None:
        """Give the mover what has become free since the last call.

        Args:
            mover: Publishes.
            is_paused: Nothing may be published now.
        """
        if self._rate is None:
            if is_paused or mover.allowed is not None:
                mover.allow(0 if is_paused else None)
            return
        now_s = asyncio.get_running_loop().time()
        used = self._given - (mover.allowed or 0)
        gained = (now_s - self._at_s) * self._rate
        self._at_s = now_s
        self._room = min(max(1.0, self._rate * BURST_S), self._room - used + gained)
        self._given = 0 if is_paused else int(self._room)
        mover.allow(self._given)


def window(stat: QueueStat) -> int:
    """Return the number of messages that may be under way: about 1 MiB at the queue's mean size."""
    if not stat.ready_bytes:
        return WINDOW
    return max(1, min(WINDOW, WINDOW_BYTES * stat.ready // stat.ready_bytes))


def _check(result: object) -> None:
    if isinstance(result, Refusal):
        raise _Ended(result.text)


def _stat(result: object) -> QueueStat:
    _check(result)
    assert isinstance(result, QueueStat), "what a queue says of itself"
    return result
