"""The event exchange: `amq.rabbitmq.event`. Nothing is built while nobody is bound to it.

Source: rabbit_exchange_type_event.erl (the exchange, properties, types of header values).
"""

from __future__ import annotations

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
from broker.server.events.stream import EventStream
from broker.server.events.system_exchange import Metadata, ServingLease, SystemExchange


class EventExchange:
    """Publishes what happens at this node.

    Args:
        vhost: Where the exchange is.
        catalogue: Who is bound to it.
        metadata: Group 0.
        queues: All queues.
        lease: Of this node.
        clock: For the times of events.

    Attributes:
        stream: The latest events, for who asks for them over HTTP.
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
        self._exchange = SystemExchange(
            EVENT_EXCHANGE, DeclareEventExchange(vhost), catalogue, metadata, queues, lease
        )
        self._catalogue = catalogue
        self._metadata = metadata
        self._clock = clock
        self.stream = EventStream(clock)

    @property
    def is_watched(self) -> bool:
        """True if anything is bound to the exchange, or somebody reads `stream`."""
        return self.stream.is_read or self._exchange.is_watched

    async def declare(self) -> None:
        """Declare the exchange if it is not there."""
        await self._exchange.declare()

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
        is_read, is_bound = self.stream.is_read, self._exchange.is_watched
        if not (is_read or is_bound):
            return
        now_ms = self._clock.now_ms()
        by = {"user_who_performed_action": user} if user else {}
        if is_read:
            self.stream.add(key, {"timestamp_in_ms": now_ms, **headers, **by})
        if not is_bound:
            return
        told = {name: _typed(value) for name, value in headers.items()}
        told |= by
        told["timestamp_in_ms"] = fields.Long(now_ms)
        properties = Properties(headers=told, delivery_mode=PERSISTENT, timestamp=now_ms // 1000)
        self._exchange.publish(key, build_message(EVENT_EXCHANGE, key, properties, b""))


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
