"""The event exchange: `amq.rabbitmq.event`, a topic exchange of one vhost.

Nothing is built and nothing is published while nobody is bound to it. An event is lost if its node
stops before its message is in a queue, as in RabbitMQ: nobody waits for it.

Source: rabbit_exchange_type_event.erl (the exchange, properties, types of header values).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from broker import feature_flags
from broker.amqp import fields
from broker.amqp.content import PERSISTENT, Properties, build_message
from broker.audit.actor import BROKER, Actor
from broker.errors import Refusal
from broker.metadata.applying.exchanges import EVENT_EXCHANGE
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AnyCommand, DeclareEventExchange
from broker.ports import Clock
from broker.queues.handle import QueueDirectory
from broker.server.events.changes import Headers, doomed, events_of

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


class EventExchange:
    """Publishes what happens at this node.

    Args:
        vhost: Where the exchange is.
        catalogue: Who is bound to it.
        metadata: Group 0.
        queues: All queues.
        lease: Of this node.
        clock: For the times of events.
    """

    def __init__(
        self,
        vhost: str,
        catalogue: Catalogue,
        metadata: Metadata,
        queues: QueueDirectory,
        lease: ServingLease,
        clock: Clock,
    ) -> None:
        self.vhost = vhost
        self._catalogue = catalogue
        self._metadata = metadata
        self._queues = queues
        self._lease = lease
        self._clock = clock
        self._is_declaring = False

    @property
    def is_watched(self) -> bool:
        """True if anything is bound to the exchange."""
        return self._catalogue.has_bindings_from(self.vhost, EVENT_EXCHANGE)

    async def declare(self) -> None:
        """Declare the exchange where its vhost is and it is not, once all nodes know of it."""
        is_there = self._catalogue.exchange(self.vhost, EVENT_EXCHANGE) is not None
        is_known = feature_flags.EVENT_EXCHANGE in self._catalogue.features
        if is_there or not is_known or self._is_declaring:
            return
        if self._catalogue.vhost(self.vhost) is None:
            return
        self._is_declaring = True
        try:
            result = await self._metadata.propose(DeclareEventExchange(self.vhost), by=BROKER)
        finally:
            self._is_declaring = False
        if isinstance(result, Refusal):
            _log.warning("events.not_declared: %s", result.text)

    async def propose(self, command: AnyCommand, by: Actor = BROKER) -> object:
        """Propose a change to group 0, and publish its events when it is applied.

        Args:
            command: The change.
            by: Who asks for it.

        Returns:
            The command's result, or a Refusal.
        """
        if not self.is_watched:
            return await self._metadata.propose(command, by=by)
        gone = doomed(command, self._catalogue)
        result = await self._metadata.propose(command, by=by)
        if not isinstance(result, Refusal):
            for key, headers in events_of(command, result, gone):
                self.publish(key, headers, by.user)
        return result

    def login(self, user: str, client: Headers, refusal: str) -> None:
        """Publish the event of a login.

        Args:
            user: The name that was given.
            client: Where it comes from, under RabbitMQ's names.
            refusal: Why it was refused; "" if it was not.

        Source: rabbit_reader.erl, notify_auth_result.
        """
        if not self.is_watched:
            return
        headers: Headers = {"name": user, **client}
        if refusal:
            headers["error"] = refusal
        self.publish(f"user.authentication.{'failure' if refusal else 'success'}", headers)

    def publish(self, key: str, headers: Headers, user: str = "") -> None:
        """Publish an event, if anybody is bound.

        Args:
            key: Its routing key.
            headers: What it says.
            user: Who did it; "" where nobody did.
        """
        if not self.is_watched:
            return
        routed = self._catalogue.route(self.vhost, EVENT_EXCHANGE, key)
        if routed is None or not routed.queues or not self._lease.is_valid():
            return
        now_ms = self._clock.now_ms()
        told = {name: _typed(value) for name, value in headers.items()}
        if user:
            told["user_who_performed_action"] = user
        told["timestamp_in_ms"] = fields.Long(now_ms)
        properties = Properties(headers=told, delivery_mode=PERSISTENT, timestamp=now_ms // 1000)
        message = build_message(EVENT_EXCHANGE, key, properties, b"")
        for queue in routed.queues:
            handle = self._queues.open(queue)
            if handle.has_room([message]):
                handle.publish([message], None, _NOBODY)


def _typed(value: object) -> object:
    """Write every integer as RabbitMQ does, as a long one."""
    match value:
        case bool():
            return value
        case int():
            return value if type(value) is not int else fields.Long(value)
        case dict():
            return {name: _typed(each) for name, each in value.items()}
        case list() | tuple():
            return [_typed(each) for each in value]
        case None:
            return ""
        case _:
            return value
