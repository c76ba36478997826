"""Maintenance mode of this node: no clients and no leaders, until `revive` or the next boot.

Group 0 notes it first: nobody gives this node a leader, and masters of mirrored queues move by
themselves. Then clients are closed, and leaders of quorum queues and of group 0 handed over.
Replicas and mirrors here go on: stopping them, as RabbitMQ stops its followers, would take a copy
away before the node stops (decision 0060). Classic queues that are not mirrored stay.

Source: rabbit_maintenance.erl (3.13), drain/0, revive/0.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from broker import feature_flags
from broker.audit.actor import Actor
from broker.cluster.membership import ClusterMembership
from broker.errors import Refusal, ReplyCode, quoted
from broker.management.control import NodeControl
from broker.metadata.commands import SetMaintenance
from broker.metadata.records import REPLICATED
from broker.queues.mirrored.reconcile import heir_of_drained
from broker.server.serving import Serving

_log = logging.getLogger(__name__)

MASTERS_S: Final = 30.0
"""How long masters of mirrored queues may take to move; each pauses for some milliseconds."""

LOOK_S: Final = 0.1


class Maintenance:
    """Puts this node into maintenance mode, and back.

    Args:
        control: The node.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control

    async def drain(self, by: Actor) -> dict[str, Any] | Refusal:
        """Put the node into maintenance mode; doing so again hands over what has come back.

        Args:
            by: Who asks for it.

        Returns:
            `connections` closed, and `kept`: queues that this node still serves, with the reason;
            or why it can't be done. A cluster with nodes that do not know maintenance mode can't.
        """
        serving, cluster = self._parts()
        command = SetMaintenance(self._control.name, being_drained=True)
        refusal = feature_flags.refusal(command.flag, cluster.metadata.catalogue.features)
        if refusal is not None:
            return refusal
        _log.warning("maintenance.begins")
        result = await cluster.propose(command, by=by)
        if isinstance(result, Refusal):
            return result
        closed = await serving.suspend_clients()
        await serving.hand_over_quorum_queues()
        await self._masters_moved(serving)
        await cluster.hand_over()
        kept = _kept(serving, cluster)
        _log.warning("maintenance.drained", extra={"connections": closed, "kept": len(kept)})
        return {"connections": closed, "kept": kept}

    async def revive(self, by: Actor) -> Refusal | None:
        """End the maintenance mode; clients are let in when this returns.

        Args:
            by: Who asks for it.

        Returns:
            None, or why clients are not let in.
        """
        serving, cluster = self._parts()
        if not serving.is_drained:
            return None
        command = SetMaintenance(self._control.name, being_drained=False)
        result = await cluster.propose(command, by=by)
        if isinstance(result, Refusal):
            return result
        _log.warning("maintenance.ended")
        if await serving.resumed_clients():
            return None
        text = "the maintenance has ended, but the AMQP ports are not open yet: see the node's log"
        return Refusal(ReplyCode.INTERNAL_ERROR, text)

    def _parts(self) -> tuple[Serving, ClusterMembership]:
        serving, cluster = self._control.serving, self._control.cluster
        assert serving is not None, "the caller has looked"
        assert cluster is not None, "what serves belongs to a cluster"
        return serving, cluster

    async def _masters_moved(self, serving: Serving) -> None:
        """Wait until masters that can have moved: they go by themselves (`heir_of_drained`)."""
        for _ in range(int(MASTERS_S / LOOK_S)):
            drained = serving.catalogue.drained()
            masters = serving.queues.mirrored.masters()
            if all(heir_of_drained(each.ring, drained) is None for each in masters):
                return
            await asyncio.sleep(LOOK_S)


def _kept(serving: Serving, cluster: ClusterMembership) -> list[dict[str, str]]:
    """What this node still serves, and why."""
    kept = []
    for queue in serving.queues.served_here():
        if queue.type in REPLICATED:
            group = cluster.host.group(queue.uid)
            if group is None or not group.is_leader:
                continue
            why = "no other member of the queue could take over"
        elif queue.ring is not None:
            why = "it has no synchronised mirror on a node that is not in maintenance"
        else:
            why = "a classic queue that is not mirrored stays with its node"
        kept.append({"queue": quoted("queue", queue.name, queue.vhost), "why": why})
    return kept
