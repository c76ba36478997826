"""basic.publish: from a command to a batch for each queue.

The fast path works on runs: publishes of one channel that follow each other and go to the same
queues, whatever their properties are as long as these ask for nothing (`PropertyFacts.is_plain`).
The first of a run is checked and routed. Those with its exchange and routing key are appended to a
list by the session's loop (the assembler hands out the same strings for the same names, so "same"
is `is`); those with other names by `Publisher.goes_on`, where their route is known to lead to the
same queues. At the run's end the list goes to each queue's batch, or into the transaction.
Everything unusual (headers that route, direct reply-to, unroutable) goes one by one.

A publisher that sends now and then has each read bring one publish like the one before. What was
found out about that one is kept (`PreparedPublish`) while nothing changes that it depends on.

Source:
    rabbit_channel.erl, handle_method basic.publish (order of the checks, texts).
"""

from __future__ import annotations

import re

import msgspec

from broker.amqp import fields, spec
from broker.amqp.assembler import Publish
from broker.amqp.content import (
    EXPIRATION_MAX_MS,
    Decoded,
    PropertyFacts,
    raw_headers,
    with_raw_values,
)
from broker.amqp.frames import content_frames, method_frame
from broker.amqp.shape import Shape
from broker.counters import ExchangeCounts
from broker.errors import AmqpError, ReplyCode, quoted
from broker.message import Message
from broker.metadata.arguments import type_name
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.session import reply_to
from broker.session.channel import Channel
from broker.session.context import Context
from broker.session.effects import PublishTo, ReplyTo
from broker.session.exchange import check_topic
from broker.session.publishing.delays import with_stores, would_route
from broker.session.publishing.publish_batch import (
    Copies,
    add_copies_to_batches,
    add_to_batches,
    drop_doubles,
    hold_for_commit,
    hold_run_for_commit,
    keyed_copies,
)
from broker.session.tracing.copies import trace_published

_BCC = "BCC"
_ROUTING_HEADERS = ("CC", _BCC)
_INTEGER = re.compile(r"[+-]?[0-9]+")
MANY_QUEUES = 32
"""Messages for more queues than this go one by one, so that what is left of them can be put off."""

WORK_MAX = 500
"""Steps of routing, a few microseconds each, after which a read's further commands are put off.

A plain publish to a few queues whose route is known takes none."""


class Destinations:
    """The queues that one exchange leads some routing keys of a session to.

    Routes of one session from one exchange to the same queues have one object of them.

    Attributes:
        exchange: Name of the exchange.
        counts: The exchange's counters.
        queues: All of them.
        is_plain: They are few, and none of them drops doubles.
        uncounted: Messages that went there and are in no counter yet (`Publisher.count`).
    """

    __slots__ = ("counts", "exchange", "is_plain", "queues", "uncounted")

    def __init__(self, exchange: str, counts: ExchangeCounts, queues: tuple[Queue, ...]) -> None:
        self.exchange = exchange
        self.counts = counts
        self.queues = queues
        self.is_plain = 0 < len(queues) <= MANY_QUEUES and not drop_doubles(queues)
        self.uncounted = 0


class CachedRoute:
    """What is known of an (exchange, routing key) while the catalogue stays as it is.

    Attributes:
        destinations: Where every message goes, if nothing of a message is to be looked at and the
            queues are few; else None.
        targets: Where it goes, whatever has to be looked at before.
        stores: Which queues keep it for an exchange on the way.
        looks_inside: An exchange on the way looks at more than the key: route each message.
        counts: The exchange's counters.
    """

    __slots__ = ("counts", "destinations", "looks_inside", "stores", "targets")

    def __init__(
        self,
        found: Destinations,
        stores: tuple[Queue, ...] = (),
        *,
        looks_inside: bool = False,
    ) -> None:
        self.targets = found.queues
        self.stores = stores
        self.destinations = found if found.is_plain and not stores else None
        self.looks_inside = looks_inside
        self.counts = found.counts


class PreparedPublish:
    """What is known of a publish before it comes: it is like the last one, which went to one queue.

    Does what `Publisher.begin` and `end` do, and what `Context` makes of their batch, for a publish
    that is all that a socket read has brought. Get it from `Publisher.prepare`.

    Attributes:
        shape: Of the publish.
        version: Of the catalogue that it was routed by.
    """

    __slots__ = (
        "_catalogue",
        "_channel",
        "_destinations",
        "_publisher",
        "_queue",
        "_traced",
        "shape",
        "version",
    )

    def __init__(
        self,
        shape: Shape,
        channel: Channel,
        destinations: Destinations,
        publisher: Publisher,
        catalogue: Catalogue,
        traced: set[str],
    ) -> None:
        self.shape = shape
        self._channel = channel
        self._destinations = destinations
        self._queue = destinations.queues[0]
        self._publisher = publisher
        self._catalogue = catalogue
        self._traced = traced
        self.version = catalogue.version

    def publish(self, message: Message) -> PublishTo | None:
        """Publish a message of the shape.

        Returns:
            The effect, to be run at once; None if nothing was done: the session's `handle` does it.
        """
        channel = self._channel
        if (
            not channel.is_plain
            or channel.transaction is not None
            or self._traced
            or self._catalogue.version != self.version
        ):
            return None
        self._publisher.routed(channel, self._destinations, 1)
        confirms = channel.confirms
        seqnos = None if confirms is None else [confirms.issue(1, 1)]
        return PublishTo(channel.key, self._queue, [message], seqnos)


class Publisher:
    """The publishing half of a session. Owner: the session.

    A run is open between `begin`, when that returned its list, and `end`. While it is open the
    session appends to the list.

    What routing costs is added to the context's `work`: keys, bindings that are looked at, queues
    that a message goes to. No run begins while that is used up, so the session can stop there.

    Attributes:
        channel: Of the open run; None while there is none.
    """

    __slots__ = (
        "_checked",
        "_context",
        "_counted",
        "_destinations",
        "_is_mandatory",
        "_known",
        "_last_exchange",
        "_last_key",
        "_last_route",
        "_routes",
        "_run",
        "_uncounted",
        "_version",
        "channel",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self._routes: dict[tuple[str, str], CachedRoute] = {}
        self._last_exchange = self._last_key = ""  # of the last publish that began a run
        self._last_route: CachedRoute | None = None  # of `_routes`
        self._version = -1
        self._known: dict[tuple[str, tuple[int, ...]], Destinations] = {}
        self._checked: PropertyFacts | None = None  # the last that were not plain, and are good
        self._destinations: Destinations | None = None  # of the open run
        self.channel: Channel | None = None  # of the open run
        self._is_mandatory = False  # likewise
        self._counted: Channel | None = None  # published what is in `_uncounted`
        self._uncounted: list[Destinations] = []
        self._run: list[Message] | None = None  # likewise

    def begin(self, channel: Channel, command: Publish) -> list[Message] | None:
        """Publish one message.

        Args:
            channel: An open channel that waits for nothing.
            command: The publish.

        Returns:
            The run that it opened, with the message in it; None if it opened none.

        Raises:
            AmqpError: What basic.publish is refused with.
        """
        message = command.message
        route = self._last_route  # the assembler gives equal names the same str
        if (
            route is None
            or message.routing_key is not self._last_key
            or message.exchange is not self._last_exchange
        ):
            self._last_exchange, self._last_key = message.exchange, message.routing_key
            route = self._last_route = self._routes.get((message.exchange, message.routing_key))
        facts = command.properties
        if (
            route is not None
            and route.destinations is not None
            and (facts.is_plain or facts is self._checked)
            and channel.is_plain
            and self._version == self._context.catalogue.version
            and not command.immediate
        ):
            self.channel = channel
            self._destinations = route.destinations
            self._is_mandatory = command.mandatory
            run = self._run = [message]
            return run
        if command.immediate:
            raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "immediate=true")
        route = self._route(channel, message.exchange, message.routing_key)
        is_plain = self._check_facts(channel, facts)
        is_cheap = self._context.work < WORK_MAX
        if is_plain and is_cheap and route.destinations is not None and channel.is_plain:
            self.channel = channel
            self._destinations = route.destinations
            self._is_mandatory = command.mandatory
            run = self._run = [message]
            return run
        self._publish_one(channel, command, route)
        return None

    def goes_on(self, command: Publish) -> bool:
        """Add a publish to the open run, if it is of its channel and goes to the same queues.

        Args:
            command: Of the run's channel.

        Returns:
            False where it is not known to, or is anything but plain: end the run.
        """
        facts = command.properties
        if (
            command.immediate
            or command.mandatory is not self._is_mandatory
            or not (facts.is_plain or facts is self._checked)
        ):
            return False
        message, run = command.message, self._run
        route = self._routes.get((message.exchange, message.routing_key))
        if run is None or route is None or route.destinations is not self._destinations:
            return False
        run.append(message)
        return True

    def end(self) -> None:
        """Close the run: give its messages to the batch of each queue, or to the transaction.

        Raises:
            AmqpError: 406 when the transaction holds too much.
        """
        channel, destinations, run = self.channel, self._destinations, self._run
        if channel is None or destinations is None or run is None:
            return
        self.channel = self._destinations = self._run = None
        self.routed(channel, destinations, len(run))
        if channel.transaction is None:
            add_to_batches(channel, run, destinations.queues)
        if self._context.traced and self._context.is_traced:
            trace_published(channel, run, destinations.queues)
        if channel.transaction is not None:
            is_mandatory = self._is_mandatory
            hold_run_for_commit(channel, run, destinations.queues, is_mandatory=is_mandatory)

    def prepare(self, channel: Channel, shape: Shape) -> PreparedPublish | None:
        """Keep what is known of the last publish for the next ones of its shape.

        Args:
            channel: The shape's.
            shape: Of the last publish, if that began a run.

        Returns:
            None where it was another publish, or did not simply go to one queue.
        """
        route, facts = self._last_route, shape.facts
        if (
            route is None
            or route.destinations is None
            or len(route.destinations.queues) != 1
            or shape.routing_key is not self._last_key
            or shape.exchange is not self._last_exchange
            or not (facts.is_plain or facts is self._checked)
            or self._version != self._context.catalogue.version
        ):
            return None
        context = self._context
        return PreparedPublish(
            shape, channel, route.destinations, self, context.catalogue, context.traced
        )

    def routed(self, channel: Channel, destinations: Destinations, count: int) -> None:
        """Note messages that are in no counter yet.

        Args:
            channel: Published them.
            destinations: Where they go.
            count: How many.
        """
        if channel is not self._counted:
            if self._counted is not None:
                self.count()
            self._counted = channel
        if not destinations.uncounted:
            self._uncounted.append(destinations)
            self._context.node_counts.uncounted.add(self)
        destinations.uncounted += count

    def count(self) -> None:
        """Count the messages of all runs since the last call: once for all to the same queues.

        Call it before somebody reads the session's counters, and at its end. Others have it called
        by `NodeCounts.settle`.
        """
        self._context.node_counts.uncounted.discard(self)
        channel, self._counted = self._counted, None
        if channel is None:
            return
        by_exchange, whole = channel.by_exchange, 0
        for each in self._uncounted:
            count = each.uncounted
            each.uncounted = 0
            whole += count
            by_exchange[each.exchange] = by_exchange.get(each.exchange, 0) + count
            each.counts.routed(each.queues, count)
        self._uncounted.clear()
        channel.counts.publish += whole
        self._context.counts.publish += whole

    def _check_facts(self, channel: Channel, facts: PropertyFacts) -> bool:
        """Check what the properties promise; True if they ask for nothing special.

        Raises:
            AmqpError: 406.
        """
        own = self._context.facts
        if facts.asks_direct_reply and not channel.reply_key:
            text = "fast reply consumer does not exist"
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
        if facts.user_id not in {None, own.user} and not own.is_impersonator:
            text = (
                f"user_id property set to '{facts.user_id}' but authenticated user was '{own.user}'"
            )
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
        if facts.expiration is not None:
            check_expiration(facts.expiration)
        if facts.has_routing_headers or facts.asks_direct_reply:
            return False
        self._checked = facts
        return True

    def _route(self, channel: Channel, exchange: str, routing_key: str) -> CachedRoute:
        """Route by the cache, else by the catalogue after checking that the user may publish.

        Raises:
            AmqpError: 403, 404.
        """
        context = self._context
        if self._version != context.catalogue.version:
            self._forget_routes()
            self._version = context.catalogue.version
        key = (exchange, routing_key)
        found = self._routes.get(key)
        if found is None:
            found = self._look_up(channel, exchange, routing_key)
            if len(self._routes) >= context.limits.routes:
                self._forget_routes()
            self._routes[key] = found
        return found

    def _forget_routes(self) -> None:
        self._last_route = None
        self._routes.clear()
        self._known.clear()

    def _look_up(self, channel: Channel, exchange: str, routing_key: str) -> CachedRoute:
        context = self._context
        vhost = context.facts.vhost
        channel.permissions.check("write", "exchange", exchange)
        record = context.exchange(exchange)
        if record.internal:
            where = quoted("exchange", exchange, vhost)
            text = f"cannot publish to internal {where}"
            raise AmqpError(ReplyCode.ACCESS_REFUSED, text)
        if record.type == "topic":
            check_topic(channel, "write", exchange, routing_key)
        counts = context.node_counts.of_exchange(vhost, exchange)
        if not exchange and routing_key.startswith(reply_to.PREFIX):
            return CachedRoute(Destinations(exchange, counts, ()))
        if context.catalogue.looks_inside(vhost, exchange):
            return CachedRoute(Destinations(exchange, counts, ()), looks_inside=True)
        routed = context.catalogue.route(vhost, exchange, routing_key)
        if routed is None:
            return CachedRoute(Destinations(exchange, counts, ()))
        context.work += routed.looked
        key = exchange, tuple([queue.uid for queue in routed.queues])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Destinations(exchange, counts, routed.queues)
        return CachedRoute(found, routed.stores)

    def _publish_one(self, channel: Channel, command: Publish, route: CachedRoute) -> None:
        """Publish what the fast path can't: one message, all rules.

        Raises:
            AmqpError: 406; 403 for a key of CC or BCC that topic permissions forbid.
        """
        message = original = command.message
        facts = command.properties
        decoded = Decoded(original)
        keys: list[str] = []
        if facts.has_routing_headers or facts.asks_direct_reply:
            message, keys = self._rewrite(channel, message, facts, decoded)
        if keys:
            self._check_keys(channel, message.exchange, keys)
        copies, is_returned = self._copies(message, decoded, keys, route, command)
        queues = [queue for _, some in copies for queue in some]
        route.counts.routed(queues, 1)
        self._count_one(channel, message, keys, route.counts, queues, is_returned=is_returned)
        if self._context.traced and self._context.is_traced:
            trace_published(channel, [message], queues)
        if channel.transaction is not None:
            hold_for_commit(channel, original, copies, is_mandatory=command.mandatory)
        else:
            if is_returned:
                write_return(channel, original)
            if copies:
                add_copies_to_batches(channel, copies)
            elif channel.confirms is not None:
                seqno = channel.confirms.issue(1)
                channel.confirms.confirm((seqno,))
        if not message.exchange:
            self._reply(message, keys)

    def _count_one(
        self,
        channel: Channel,
        message: Message,
        keys: list[str],
        of_exchange: ExchangeCounts,
        queues: list[Queue],
        *,
        is_returned: bool,
    ) -> None:
        names = [] if message.exchange else [message.routing_key, *keys]
        is_reply = any(name.startswith(reply_to.PREFIX) for name in names)
        by_exchange, exchange = channel.by_exchange, message.exchange
        by_exchange[exchange] = by_exchange.get(exchange, 0) + 1
        for counts in (channel.counts, self._context.counts):
            counts.publish += 1
        if not is_returned and (queues or is_reply):
            return
        for place in (channel.counts, self._context.counts, of_exchange):
            place.return_unroutable += is_returned
            place.drop_unroutable += not is_returned
        returned, dropped = channel.unroutable.get(exchange, (0, 0))
        channel.unroutable[exchange] = returned + is_returned, dropped + (not is_returned)

    def _check_keys(self, channel: Channel, exchange: str, keys: list[str]) -> None:
        """Topic permissions hold for every key, or CC would lead around them."""
        record = self._context.exchange(exchange)
        if record.type == "topic":
            for key in keys:
                check_topic(channel, "write", exchange, key)

    def _copies(
        self,
        message: Message,
        decoded: Decoded,
        keys: list[str],
        route: CachedRoute,
        command: Publish,
    ) -> tuple[Copies, bool]:
        """Route one message by whatever its route asks for.

        Args:
            message: As queues get it.
            decoded: Its properties as they were sent.
            keys: Of CC and BCC.
            route: What is known of its exchange and routing key.
            command: The publish.

        Returns:
            What goes where, and whether the publisher gets the message back.

        Raises:
            AmqpError: 406 for a delay that is too long.
        """
        queues, stores = route.targets, route.stores
        headers: dict[str, object] = {}
        context = self._context
        catalogue, vhost = context.catalogue, context.facts.vhost
        if route.looks_inside or keys:
            properties, draw = None, 0
            if catalogue.looks_inside(vhost, message.exchange):
                properties, draw = decoded.properties, context.draw()
                headers = decoded.headers
            routed = catalogue.route(
                vhost,
                message.exchange,
                message.routing_key,
                headers,
                keys,
                properties=properties,
                draw=draw,
            )
            queues, stores = (routed.queues, routed.stores) if routed is not None else ((), ())
            context.work += 0 if routed is None else routed.looked
        context.work += max(0, len(queues) - 1)
        is_returned = command.mandatory and not queues
        if not stores:
            return (keyed_copies(message, queues, decoded) if queues else []), is_returned
        if is_returned and would_route(catalogue, vhost, message, headers, keys):
            is_returned = False
        elif is_returned:
            stores = tuple([store for store in stores if store.delays_for is None])
        copies = keyed_copies(message, queues, decoded)
        return with_stores(message, headers, copies, stores), is_returned

    def _rewrite(
        self, channel: Channel, message: Message, facts: PropertyFacts, decoded: Decoded
    ) -> tuple[Message, list[str]]:
        """Read CC and BCC, take BCC out, and fill in the direct reply-to address.

        Raises:
            AmqpError: 406 for a CC or BCC that is no list, or too many keys.
        """
        headers = decoded.headers
        keys: list[str] = []
        for name in _ROUTING_HEADERS:
            if name in headers:
                found = _routing_keys(name, headers[name])
                keys += found
                if name == _BCC and found:
                    message = msgspec.structs.replace(message, bcc=tuple(found))
        if len(keys) > self._context.limits.cc_keys:
            text = f"invalid message: more than {self._context.limits.cc_keys} CC and BCC keys"
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
        changed: dict[str, bytes] = {}
        if _BCC in headers:
            table = raw_headers(message)
            kept = [
                table[start:stop]
                for key, start, stop in fields.raw_entries(table)
                if key != _BCC.encode()
            ]
            changed["headers"] = fields.join_entries(kept)
        if facts.asks_direct_reply:
            changed["reply_to"] = fields.encode_shortstr(self._reply_address(channel))
        return (with_raw_values(message, changed) if changed else message), keys

    def _reply_address(self, channel: Channel) -> str:
        facts = self._context.facts
        address = reply_to.ReplyAddress(
            facts.node, facts.boot, facts.connection_id, channel.number, channel.reply_key
        )
        return reply_to.encode_address(address, facts.reply_secret)

    def _reply(self, message: Message, keys: list[str]) -> None:
        """Send direct replies on their way; a forged or stale address is dropped silently."""
        for key in dict.fromkeys([message.routing_key, *keys]):
            if not key.startswith(reply_to.PREFIX):
                continue
            address = reply_to.decode_address(key, self._context.facts.reply_secret)
            if address is not None:
                self._context.emit(ReplyTo(*address, message))


def _routing_keys(name: str, value: object) -> list[str]:
    """The keys in a CC or BCC header.

    Raises:
        AmqpError: 406 when it is no list; items that are no strings are passed over.

    Source:
        rabbit_basic.erl, header_routes.
    """
    if not isinstance(value, list):
        kind = type_name(value)
        text = f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    return [item for item in value if isinstance(item, str)]


def write_return(channel: Channel, message: Message) -> None:
    """basic.return of an unroutable mandatory message, as it came."""
    context = channel.context
    method = spec.BasicReturn(ReplyCode.NO_ROUTE, "NO_ROUTE", message.exchange, message.routing_key)
    context.out.append(method_frame(channel.number, method))
    context.out.append(content_frames(message, channel.number, context.frame_max))


def check_expiration(text: str) -> int:
    """Parse an `expiration` property: milliseconds as a decimal string.

    Raises:
        AmqpError: 406 for anything but a whole number from 0 to ten years.

    Source:
        rabbit_basic.erl, parse_expiration; rabbit_misc.erl, check_expiry.
    """
    found = _INTEGER.match(text)
    if found is None:
        raise _invalid(text, "no_integer")
    rest = text[found.end() :]
    if rest:
        raise _invalid(text, f'{{leftover_string,"{rest}"}}')
    digits = found.group()
    if len(digits) > len(str(EXPIRATION_MAX_MS)) + 1:
        raise _invalid(text, f"{{value_too_large,{digits}}}")
    value = int(digits)
    if value > EXPIRATION_MAX_MS:
        raise _invalid(text, f"{{value_too_large,{value}}}")
    if value < 0:
        raise _invalid(text, f"{{value_negative,{value}}}")
    return value


def _invalid(text: str, why: str) -> AmqpError:
    return AmqpError(ReplyCode.PRECONDITION_FAILED, f"invalid expiration '{text}': {why}")
