"""connection.open: what a session is told of its connection and of the node."""

from __future__ import annotations

from broker.amqp.connection import ConnectionMachine
from broker.metadata.records import User
from broker.server.connection_facts import ConnectionInfo
from broker.server.context import ServerContext
from broker.session.facts import ConnectionFacts
from broker.session.session import Session


def facts_of(
    context: ServerContext,
    info: ConnectionInfo,
    machine: ConnectionMachine,
    user: User,
    vhost: str,
) -> ConnectionFacts:
    """Return the outcome of a handshake.

    Args:
        context: The node.
        info: The connection.
        machine: Its machine; frame and channel limits are negotiated.
        user: Who has logged in.
        vhost: The virtual host to open.
    """
    return ConnectionFacts(
        node=context.node,
        boot=context.boot,
        connection_id=info.connection_id,
        vhost=vhost,
        user=user.name,
        frame_max=machine.frame_max,
        channel_max=machine.channel_max,
        consumer_cancel_notify=bool(machine.capabilities.get("consumer_cancel_notify")),
        is_impersonator="impersonator" in user.tags,
        reply_secret=context.reply_secret,
        name=info.name,
    )


def session_of(context: ServerContext, facts: ConnectionFacts) -> Session:
    """Return a session for an open connection.

    Args:
        context: The node.
        facts: The outcome of the connection's handshake.
    """
    return Session(
        facts,
        context.catalogue,
        context.access,
        context.new_name,
        context.place,
        context.limits,
        quota=context.access.usage,
        consumer_count=context.queues.consumer_count,
        counts=context.counts,
        traced=context.traced,
        are_events_read=lambda: context.events.stream.is_read,
    )
