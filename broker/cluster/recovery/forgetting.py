"""A forced node's first act: it forgets and reports what is lost (docs/protocol-rules.md P8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from broker.audit.actor import Actor
from broker.cluster.identity import IdentityFile
from broker.cluster.metadata_group import MetadataGroup
from broker.cluster.recovery import forcing
from broker.errors import Refusal, quoted
from broker.metadata import commands
from broker.metadata.records import Queue

log = logging.getLogger(__name__)

RETRY_S = 1.0
NAMED_MAX = 20


class LostNodes:
    """Members that an operator gave up while this node was stopped.

    Args:
        file: Where they stand until group 0 has forgotten them.
        metadata: Group 0.
    """

    def __init__(self, file: IdentityFile, metadata: MetadataGroup) -> None:
        self._file = file
        self._metadata = metadata

    @property
    def names(self) -> tuple[str, ...]:
        """Names of nodes that group 0 still has to forget."""
        lost, node_of = self._file.identity.lost, self._metadata.catalogue.node
        return tuple(name for name in lost if forcing.is_marked(node_of(name), lost[name]))

    async def forget(self, may_go_on: Callable[[], bool]) -> None:
        """End their boots and remove them, with what only they had; returns when it is done.

        Args:
            may_go_on: False when this boot has ended: then the next one does it.
        """
        if not self._file.identity.lost:
            return
        if self.names:  # else another survivor was first
            self._say_what_goes()
        while may_go_on():
            refused = await self._forget_all()
            if refused is None:
                identity = self._file.identity
                self._file.save(msgspec.structs.replace(identity, lost={}, forced_from=""))
                log.warning("membership.force_boot_done")
                return
            log.warning("membership.not_forgotten_yet: %s", refused.text)
            await asyncio.sleep(RETRY_S)

    async def _forget_all(self) -> Refusal | None:
        for node in self.names:
            record = self._metadata.catalogue.node(node)
            if record is not None and record.boot is not None:
                ended = await self._metadata.propose(commands.EndBoot(node, record.boot))
                if isinstance(ended, Refusal):
                    return ended
            forgotten = await self._metadata.propose(
                commands.ForgetNode(node), by=Actor(address="force_boot")
            )
            if isinstance(forgotten, Refusal):
                return forgotten
            log.warning("membership.lost_node_forgotten", extra={"node": node})
        return None

    def _say_what_goes(self) -> None:
        went = forcing.losses(self._metadata.catalogue, self.names)
        log.error(
            "membership.force_boot: an operator gave up %s; new cluster id %s; "
            "messages that only they had are lost, nodes with the old cluster id are refused",
            ", ".join(self.names),
            self._file.identity.cluster_id,
        )
        for queue in went.deleted:
            log.error("queue.lost: %s had its only copies there and is deleted", _shown(queue))
        if went.shrunk:
            log.error(
                "queue.may_lack_messages: %d queues go on with what this side of the "
                "cluster has; confirmed messages are missing if only lost nodes had them: %s%s",
                len(went.shrunk),
                ", ".join(_shown(queue) for queue in went.shrunk[:NAMED_MAX]),
                " ..." if len(went.shrunk) > NAMED_MAX else "",
            )


def _shown(queue: Queue) -> str:
    return quoted("queue", queue.name, queue.vhost)
