"""What nodes tell each other of redrives, and what is shown of them. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from broker.amqp.fields import valid_text
from broker.management.operations.redriving.planning import TEXTS, Job

RUNNING = "running"


class Redrive(msgspec.Struct, frozen=True):
    """A redrive and how far it is.

    Attributes:
        id: Names it.
        job: As it was asked for.
        node: The node that runs it.
        state: "running", "done", "stopped" by somebody, or "failed".
        text: Why it ended, or what is left to do.
        started_ms: When it was asked for, milliseconds since the epoch.
        ended_ms: When it ended.
        total: Messages it will have looked at in the end, as many as were ready when it began.
        sent: Messages that have arrived.
        kept: Messages that stay, by `planning.TEXTS`.
        doubted: Messages that have arrived and may come again: the queue did not say that it has
            let them go.
        takeovers: How often another node has gone on with it, or ended it in its stead.
        held: Messages that its node holds: those that stay, those that wait and those under way.
        version: Grows with each report of the node that runs it.
    """

    id: str
    job: Job
    node: str
    state: str = RUNNING
    text: str = ""
    started_ms: int = 0
    ended_ms: int | None = None
    total: int = 0
    sent: int = 0
    kept: dict[str, int] = {}
    doubted: int = 0
    takeovers: int = 0
    version: int = 0
    held: int = 0

    @property
    def is_running(self) -> bool:
        """True until it ends."""
        return self.state == RUNNING

    def is_newer(self, other: Redrive) -> bool:
        """True if this is what is known, and not the other."""
        return (self.takeovers, self.version) > (other.takeovers, other.version)


def taken_over(known: Redrive, node: str) -> Redrive:
    """Return a redrive as a node goes on with it: what has arrived does not count again."""
    return msgspec.structs.replace(
        known, node=node, kept={}, held=0, takeovers=known.takeovers + 1, version=0
    )


def ended(known: Redrive, state: str, why: str, now_ms: int) -> Redrive:
    """Return a redrive whose node is gone, and with which no node shall go on."""
    return msgspec.structs.replace(
        known,
        state=state,
        text=why,
        ended_ms=now_ms,
        held=0,
        takeovers=known.takeovers + 1,
        version=0,
    )


def shown(found: Redrive) -> dict[str, Any]:
    """Return what the API shows of a redrive."""
    job = found.job
    return {
        "id": found.id,
        "vhost": valid_text(job.vhost),
        "queue": valid_text(job.queue),
        "node": found.node,
        "state": found.state,
        "text": found.text,
        "user": job.by.user,
        "selection": msgspec.to_builtins(job.selection),
        "target": msgspec.to_builtins(job.target),
        "rate": job.rate,
        "started": found.started_ms,
        "ended": found.ended_ms,
        "total": found.total,
        "sent": found.sent,
        "kept": kept(found.kept),
        "held": found.held,
        "doubted": found.doubted,
        "takeovers": found.takeovers,
    }


def kept(counts: dict[str, int]) -> list[dict[str, Any]]:
    """Return why messages stay, the most frequent reason first."""
    rows = [
        {"why": why, "text": TEXTS.get(why, why), "messages": count}
        for why, count in counts.items()
        if count
    ]
    return sorted(rows, key=lambda row: -int(str(row["messages"])))
