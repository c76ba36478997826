"""Routing of messages whose delay is over, by the leader of their store. Pure.

The store of an x-delayed-message exchange holds due messages (reason "delayed") until they have
reached all their targets, as at-least-once dead-lettering does; `dead_letters` publishes and drops
them. This module has what is special to delays: a message's new form, and its route by the bindings
of the exchange that kept it, which need not be the one it was published to.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from broker.amqp.content import decode_properties
from broker.fifo.dead_letter import undelayed
from broker.message import Message
from broker.metadata.records import Queue
from broker.routing.delays import delay_ms
from broker.session.publishing.publish_batch import drop_doubles, keyed_copies

FindQueues = Callable[[str, str, Message, list[str]], list[Queue]]
"""Vhost, exchange, message and further routing keys -> the queues it goes to."""


def due(store: Queue, message: Message, find: FindQueues) -> tuple[Message, list[Queue]]:
    """Return a due message as it is published, and its queues.

    Args:
        store: The store that kept it.
        message: As it was kept: BCC is beside it, CC in its headers.
        find: Finds its queues.

    Returns:
        The message with its x-delay negated, and its queues; without any it is dropped.
    """
    exchange = store.delays_for
    assert exchange is not None, "only stores delay"
    message = undelayed(message)
    return message, find(store.vhost, exchange, message, _further_keys(message))


def as_taken_by(queue: Queue, message: Message) -> Message:
    """Return the copy of a message that this queue is to get.

    The copy for a store carries the delay (a dead letter that goes to an x-delayed-message
    exchange), that for a queue that drops duplicates carries the key.
    """
    if queue.delays_for is not None:
        delay = delay_ms(decode_properties(message).headers)
        return msgspec.structs.replace(message, ttl_ms=delay)
    if drop_doubles((queue,)):
        return keyed_copies(message, (queue,))[0][0]
    return message


def _further_keys(message: Message) -> list[str]:
    found = (decode_properties(message).headers or {}).get("CC")
    copied = [key for key in found if isinstance(key, str)] if isinstance(found, list) else []
    return [*copied, *message.bcc]
