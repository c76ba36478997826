"""What goes wrong between a client and a broker."""

from __future__ import annotations


class WireError(Exception):
    """Anything; its text names the node, and never a password."""


class ConnectionLost(WireError):
    """The node can't be reached, or is gone: another one may serve."""


class Refused(WireError):
    """The broker refused the login, the vhost or its certificate was refused: no node will do."""


class ChannelClosed(WireError):
    """The broker closed the channel.

    Args:
        code: The reply code.
        text: The reply text.
        where: The node.
    """

    def __init__(self, code: int, text: str, where: str) -> None:
        super().__init__(f"{where} answered {code}: {text}")
        self.code = code
        self.text = text


class ConsumerCancelled(WireError):
    """The broker ended the consumer: its stream was deleted, or has no replica to read."""


class Stalled(WireError):
    """The broker owes an answer, or messages, and sent nothing for a long time."""


class ProtocolBroken(WireError):
    """What came is not AMQP 0-9-1."""


class NotFound(WireError):
    """The HTTP API has no such thing."""
