"""The ear a channel lends to queues: verdicts and deliveries go to session and socket."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from broker.message import Delivery
from broker.session.effects import Effect
from broker.session.session import Session
from broker.streams.deliveries import StreamDeliveries

_log = logging.getLogger(__name__)


class ChannelOwner(Protocol):
    """The session that a channel belongs to, with its effects and output."""

    def run_and_write(self, asked: list[Effect]) -> None:
        """Execute effects, and have the session's output written."""
        ...

    def failed(self) -> None:
        """End the connection, because of a bug."""
        ...


class DeliveredTo(Protocol):
    """The connection that a channel belongs to."""

    def delivered(self, size_bytes: int) -> None:
        """About so many bytes were delivered: have them written."""
        ...


class ChannelPort:
    """`PublisherPort` and `ConsumerPort` of one channel.

    It outlives the channel: what comes late finds the session, which drops it. It never raises:
    a queue that serves many must not be stopped halfway by a bug in one connection.

    Args:
        session: The connection's session.
        number: The channel's number.
        runner: Runs the session's effects.
        client: The connection.
    """

    __slots__ = ("_client", "_number", "_runner", "_session")

    def __init__(
        self, session: Session, number: int, runner: ChannelOwner, client: DeliveredTo
    ) -> None:
        self._session = session
        self._number = number
        self._runner = runner
        self._client = client

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """Pass verdicts on (`PublisherPort`)."""
        try:
            self._runner.run_and_write(self._session.confirmed(self._number, seqnos))
        except Exception:  # noqa: BLE001 - see the class
            self._fail()

    def rejected(self, seqnos: Sequence[int]) -> None:
        """Pass verdicts on (`PublisherPort`)."""
        try:
            self._runner.run_and_write(self._session.rejected(self._number, seqnos))
        except Exception:  # noqa: BLE001 - see the class
            self._fail()

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        """Pass deliveries on (`ConsumerPort`)."""
        try:
            effects = self._session.deliver(self._number, consumer_tag, deliveries)
            if effects:
                self._runner.run_and_write(effects)
            if type(deliveries) is StreamDeliveries:
                size_bytes = deliveries.size_bytes
            else:  # the last one's size stands for all: to add them up would cost each of them
                content = deliveries[-1].message.content if deliveries else b""
                size_bytes = len(deliveries) * len(content)
            self._client.delivered(size_bytes)
        except Exception:  # noqa: BLE001 - see the class
            self._fail()

    def consumer_lost(self, consumer_tag: str) -> None:
        """Pass the loss of a consumer on (`ConsumerPort`)."""
        try:
            self._runner.run_and_write(self._session.consumer_lost(self._number, consumer_tag))
        except Exception:  # noqa: BLE001 - see the class
            self._fail()

    def consumer_moved(self, consumer_tag: str) -> None:
        """Pass on that a consumer's queue has another master (`ConsumerPort`)."""
        try:
            self._runner.run_and_write(self._session.consumer_moved(self._number, consumer_tag))
        except Exception:  # noqa: BLE001 - see the class
            self._fail()

    def _fail(self) -> None:
        _log.exception("channel.failed")
        self._runner.failed()
