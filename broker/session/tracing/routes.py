"""Where copies go, and what all of them say of the channel they are about. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.metadata.records import Queue
from broker.session.channel import Channel
from broker.session.context import Context

TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"
_KEY_BYTES_MAX: Final = 255


def route(context: Context, key: str) -> tuple[str, Sequence[Queue]]:
    """Route a copy.

    Args:
        context: Of the session that publishes it.
        key: Its routing key, of any length.

    Returns:
        The key, cut to what a routing key may have, and the queues that want such copies.
    """
    key = key.encode("utf-8", "surrogateescape")[:_KEY_BYTES_MAX].decode("utf-8", "surrogateescape")
    routed = context.catalogue.route(context.facts.vhost, TRACE_EXCHANGE, key)
    return key, (() if routed is None else routed.queues)


def where(channel: Channel) -> dict[str, object]:
    """Headers that say on which channel something happened.

    Args:
        channel: The channel.
    """
    facts = channel.context.facts
    return {
        "node": facts.node,
        "vhost": facts.vhost,
        "connection": facts.name,
        "channel": channel.number,
        "user": facts.user,
    }
