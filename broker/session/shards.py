"""A sharded exchange's name where a queue is expected: consumers get one of its shards.

What would mean all shards at once is refused. A queue that has the name itself comes first.

Source:
    rabbit_sharding_interceptor.erl, intercept/3.
"""

from __future__ import annotations

from broker.errors import AmqpError
from broker.metadata.applying import sharding
from broker.session.channel import Channel


def shard_for(channel: Channel, name: str) -> str:
    """The queue to consume from, get from or declare where a client says `name`.

    Returns:
        `name`, or if that is a sharded exchange the shard with the fewest consumers known here.
    """
    context = channel.context
    vhost = context.facts.vhost
    shards = context.catalogue.shards(vhost, name)
    if not shards or context.catalogue.queue(vhost, name) is not None:
        return name
    return sharding.pick(shards, context.facts.node, context.consumer_count).name


def check_not_sharded(channel: Channel, verb: str, name: str) -> None:
    """Refuse what can't be done to a sharded exchange.

    Args:
        channel: Whose.
        verb: "delete", "bind", "unbind" or "purge".
        name: The queue, as the client says.

    Raises:
        AmqpError: 406.
    """
    if shard_for(channel, name) != name:
        found = sharding.refusal(verb, name)
        raise AmqpError(found.code, found.text)
