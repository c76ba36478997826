"""The beginning of a connection: the login, and what connection.open tells the session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from broker.amqp.connection import Authenticate, ConnectionMachine, State
from broker.amqp.sasl import EXTERNAL
from broker.metadata.records import User
from broker.server.connection_facts import ConnectionInfo
from broker.server.context import ServerContext
from broker.server.entrance.logins import Found, LoginAttempt
from broker.server.entrance.tls import certified_name
from broker.session.facts import ConnectionFacts
from broker.session.session import Session

_log = logging.getLogger(__name__)


class LoginDialogue:
    """From `Authenticate` to the machine's answer.

    Args:
        context: The node.
        info: Of the connection.
        machine: Of the connection.

    Attributes:
        user: Who was let in; None before.
    """

    __slots__ = ("_context", "_info", "_is_asking", "_machine", "user")

    def __init__(
        self, context: ServerContext, info: ConnectionInfo, machine: ConnectionMachine
    ) -> None:
        self._context = context
        self._info = info
        self._machine = machine
        self._is_asking = False
        self.user: User | None = None

    def ask(self, event: Authenticate, read_on: Callable[[], None]) -> None:
        """Have what the client claims checked.

        Args:
            event: What it claims. With EXTERNAL the name in its certificate becomes the user.
            read_on: Called if the answer comes later, after the machine has it.
        """
        info, context = self._info, self._context
        logins, done = context.doors.logins, partial(self._answered, event, read_on)
        refusal = ""
        if event.mechanism == EXTERNAL:
            event.username, refusal = certified_name(info.tls, context.settings)
        attempt = LoginAttempt(
            "amqp091", info.peer_host, event.username, event.password, is_loopback=info.is_loopback
        )
        self._is_asking = True
        if event.mechanism == EXTERNAL:
            done(logins.check_certificate(context.access, attempt, refusal))
        else:
            logins.check(context.access, attempt, done)
        self._is_asking = False

    def _answered(self, event: Authenticate, read_on: Callable[[], None], found: Found) -> None:
        """Let the user in or not; the client may have gone meanwhile."""
        machine, info, context = self._machine, self._info, self._context
        if machine.state is not State.AUTHENTICATING:
            return
        refusal = found if isinstance(found, str) else ""
        context.events.login(event.username, info.login_headers(event.mechanism), refusal)
        if isinstance(found, str):
            if context.doors.logins.is_first_failure(info.peer_host):
                text = "%s login refused: user '%s' - %s"
                _log.error(text, event.mechanism, event.username, found)
            machine.refused(
                f"Login was refused using authentication mechanism {event.mechanism}. "
                "For details see the broker logfile."
            )
        else:
            self.user = found
            machine.authenticated(found.name)
        if not self._is_asking:  # it came late: what lay behind it is carried out now
            read_on()


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
