"""The ear a channel lends to queues: verdicts and deliveries go to session and socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.message import Delivery
from broker.session.effects import Effect
from broker.session.session import Session


class ChannelPort:
    """`PublisherPort` and `ConsumerPort` of one channel.

    It outlives the channel: what comes late finds the session, which drops it.

    Args:
        session: The connection's session.
        number: The channel's number.
        wrote: Called with effects after the session may have output, to have the socket written.
    """

    __slots__ = ("_number", "_session", "_wrote")

    def __init__(
        self, session: Session, number: int, wrote: Callable[[list[Effect]], None]
    ) -> None:
        self._session = session
        self._number = number
        self._wrote = wrote

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """Pass verdicts on (`PublisherPort`)."""
        self._wrote(self._session.confirmed(self._number, seqnos))

    def rejected(self, seqnos: Sequence[int]) -> None:
        """Pass verdicts on (`PublisherPort`)."""
        self._wrote(self._session.rejected(self._number, seqnos))

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        """Pass deliveries on (`ConsumerPort`)."""
        self._session.deliver(self._number, consumer_tag, deliveries)
        self._wrote([])

    def consumer_lost(self, consumer_tag: str) -> None:
        """Pass the loss of a consumer on (`ConsumerPort`)."""
        self._wrote(self._session.consumer_lost(self._number, consumer_tag))
