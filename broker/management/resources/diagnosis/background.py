"""What redrives and migrations hold of a queue: they consume, and are no clients."""

from __future__ import annotations

import asyncio
from typing import Final, Literal, NamedTuple

from broker.management.call import Call
from broker.management.operations.mover import TAG
from broker.metadata.records import Queue

ASK_S: Final = 1.0
"""How long the nodes may take to tell of a migration; without an answer none is shown."""

Kind = Literal["redrive", "migration"]


class BackgroundHolder(NamedTuple):
    """A background operation that takes messages from a queue.

    Attributes:
        kind: What it is.
        id: A redrive's id; the target queue of a migration.
        user: Who asked for it.
        node: Where it runs.
        held: Messages that it holds, at most a second ago.
        running_ms: How long it has run.
        moved: Messages that have arrived.
    """

    kind: Kind
    id: str
    user: str
    node: str
    held: int
    running_ms: int
    moved: int

    @property
    def tag(self) -> str:
        """Its consumer tag at the queue."""
        return TAG


async def background_holders(call: Call, queue: Queue) -> list[BackgroundHolder]:
    """Return the redrives and the migration that consume from a queue now."""
    now_ms = call.control.clock.now_ms()
    found = [
        BackgroundHolder(
            "redrive",
            each.id,
            each.job.by.user,
            each.node,
            each.held,
            max(0, now_ms - each.started_ms),
            each.sent,
        )
        for each in call.operations.redrives.all()
        if each.is_running and (each.job.vhost, each.job.queue) == (queue.vhost, queue.name)
    ]
    try:
        async with asyncio.timeout(ASK_S):
            moving = await call.operations.migrations.progress(queue.vhost, queue.name)
    except TimeoutError:
        moving = None
    if moving is not None and moving.state == "running":
        running_ms = max(0, now_ms - moving.started_ms)
        user, held, moved = moving.user, moving.held, moving.moved
        found.append(
            BackgroundHolder("migration", moving.target, user, moving.node, held, running_ms, moved)
        )
    return found
