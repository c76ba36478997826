"""What each member of a quorum queue says of its Raft group."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from broker.management.control import NodeControl
from broker.management.operations.remote import (
    OperationResult,
    RemoteOperation,
    RemoteOperations,
)
from broker.metadata.records import Queue

_ASK: Final = "quorum_status"


class QuorumStatus:
    """Asks the members of quorum queues.

    Args:
        control: The node.
        remote: The way to the others.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        remote.on(_ASK, self._run)

    async def of(self, queue: Queue) -> list[dict[str, Any]]:
        """Ask all members of a queue, one after another.

        Returns:
            A row for each with RabbitMQ's keys (rabbit_quorum_queue.erl, status/2); a member that
            does not answer has the state "noproc" and numbers that are null.
        """
        rows = []
        for member in queue.members:
            answer = await self._remote.ask(member, RemoteOperation(_ASK, queue.uid))
            found = msgspec.json.decode(answer.text) if answer.is_done else _row("noproc")
            rows.append({"Node Name": member, **found})
        return rows

    async def _run(self, operation: RemoteOperation) -> OperationResult:
        cluster = self._control.cluster
        group = None if cluster is None else cluster.host.group(operation.uid)
        if group is None:
            return OperationResult(is_done=False, text="no replica runs here")
        status = group.status()
        is_learner = self._control.name in status.learners
        row = _row(
            status.role,
            "promotable" if is_learner else "voter",
            status.last_index,
            status.applied_index,
            status.commit_index,
            status.snapshot_index,
            status.term,
        )
        return OperationResult(is_done=True, text=msgspec.json.encode(row).decode())


def _row(state: str, membership: str = "unknown", *numbers: int) -> dict[str, Any]:
    last, applied, commit, snapshot, term = numbers or (None,) * 5
    return {
        "Raft State": state,
        "Membership": membership,
        "Last Log Index": last,
        "Last Applied": applied,
        "Commit Index": commit,
        "Snapshot Index": snapshot,
        "Term": term,
    }
