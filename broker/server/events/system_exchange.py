"""An exchange to which the broker itself publishes: an internal topic exchange of one vhost.

Nobody waits for its messages: one is lost if its node stops before it is in a queue, as in
RabbitMQ, or if that queue is full (P12).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from broker.audit.actor import BROKER, Actor
from broker.errors import Refusal
from broker.message import Message
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AnyCommand, DeclareEventExchange, DeclareLogExchange
from broker.queues.handle import QueueDirectory

_log = logging.getLogger(__name__)


class Metadata(Protocol):
    """Group 0, as changes are proposed to it."""

    async def propose(self, command: AnyCommand, /, *, by: Actor) -> object:
        """The command's result, or a Refusal."""
        ...


class ServingLease(Protocol):
    """May this node publish (P4)?"""

    def is_valid(self) -> bool:
        """True while its lease lasts."""
        ...


class _Nobody:
    """A `broker.ports.PublisherPort` without confirms."""

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """Never called: nothing was numbered."""

    def rejected(self, seqnos: Sequence[int]) -> None:
        """Never called: nothing was numbered."""


_NOBODY: Final = _Nobody()


class SystemExchange:
    """One such exchange.

    Args:
        name: Its name, "amq.rabbitmq.event".
        declaration: Declares it, and says in which vhost.
        catalogue: Who is bound to it.
        metadata: Group 0.
        queues: All queues.
        lease: Of this node.
    """

    def __init__(
        self,
        name: str,
        declaration: DeclareEventExchange | DeclareLogExchange,
        catalogue: Catalogue,
        metadata: Metadata,
        queues: QueueDirectory,
        lease: ServingLease,
    ) -> None:
        self.name = name
        self._declaration = declaration
        self._vhost = declaration.vhost
        self._catalogue = catalogue
        self._metadata = metadata
        self._queues = queues
        self._lease = lease
        self._is_declaring = False

    @property
    def is_watched(self) -> bool:
        """True if anything is bound to the exchange."""
        return self._catalogue.has_bindings_from(self._vhost, self.name)

    async def declare(self) -> None:
        """Declare the exchange where its vhost is and it is not, once all nodes know of it."""
        is_there = self._catalogue.exchange(self._vhost, self.name) is not None
        is_known = self._declaration.flag in self._catalogue.features
        if is_there or not is_known or self._is_declaring:
            return
        if self._catalogue.vhost(self._vhost) is None:
            return
        self._is_declaring = True
        try:
            result = await self._metadata.propose(self._declaration, by=BROKER)
        finally:
            self._is_declaring = False
        if isinstance(result, Refusal):
            _log.warning("exchange.not_declared: %s: %s", self.name, result.text)

    def publish(self, key: str, message: Message) -> None:
        """Publish a message.

        Args:
            key: Its routing key.
            message: Made for this exchange.
        """
        routed = self._catalogue.route(self._vhost, self.name, key)
        if routed is None or not routed.queues or not self._lease.is_valid():
            return
        for queue in routed.queues:
            handle = self._queues.open(queue)
            if handle.has_room([message]):
                handle.publish([message], None, _NOBODY)
