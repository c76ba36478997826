"""Publishing what an x-delayed-message exchange is to keep for a while.

Routing finds the exchange's store beside the queues (`CachedRoute.stores`); the store gets its own
copy of the message, whose `ttl_ms` is the delay. It confirms as any queue does, so the publisher
hears when the message is safe. When the time has come the store's leader routes the message by the
exchange's bindings of then (`broker.queues.delay_store`).

`mandatory` asks what can be known at once: a message that could be routed nowhere now, had it no
delay, is returned and not kept. The plugin returns every delayed message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from broker.errors import AmqpError, ReplyCode
from broker.message import Message
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.routing.delays import DELAY_MS_MAX, HEADER, asked_ms
from broker.session.publishing.publish_batch import Copies


def with_stores(
    message: Message, headers: Mapping[str, object], copies: Copies, stores: Sequence[Queue]
) -> Copies:
    """Add the copies that stores get to those of the queues.

    Args:
        message: As queues get it: BCC taken out, reply-to filled in.
        headers: As they were sent.
        copies: For the queues, perhaps one for none.
        stores: `CachedRoute.stores`; a history gets the message without its time to live: it is
            remembered until newer ones come.

    Raises:
        AmqpError: 406 for a delay of more than ten years.
    """
    found = [copy for copy in copies if copy[1]]
    late = tuple([store for store in stores if store.delays_for is not None])
    others = tuple([store for store in stores if store.delays_for is None])
    if late:
        found.append((msgspec.structs.replace(message, ttl_ms=checked_delay_ms(headers)), late))
    if others:
        found.append((msgspec.structs.replace(message, ttl_ms=-1), others))
    return found


def checked_delay_ms(headers: Mapping[str, object]) -> int:
    """Read the delay of a message that a store is to keep.

    Returns:
        Milliseconds, 1 to ten years.

    Raises:
        AmqpError: 406 for more; in the words used for an `expiration` of more.
    """
    asked = asked_ms(headers) or 0
    if asked > DELAY_MS_MAX:
        text = f"invalid {HEADER} '{asked}': {{value_too_large,{asked}}}"
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    return asked


def would_route(
    catalogue: Catalogue,
    vhost: str,
    message: Message,
    headers: Mapping[str, object],
    keys: Sequence[str],
) -> bool:
    """True if the message would reach a queue if it were due now (`mandatory`)."""
    due = {**headers, HEADER: 0}
    routed = catalogue.route(vhost, message.exchange, message.routing_key, due, keys)
    return routed is not None and bool(routed.queues)
