"""AMQP's reply codes and the two exceptions that carry them.

Soft or hard is decided by the code alone, as in RabbitMQ (amqp-rabbitmq-0.9.1.json): soft errors
close the channel, hard ones the connection.
"""

from __future__ import annotations

from enum import IntEnum


class ReplyCode(IntEnum):
    """Reply codes of AMQP 0-9-1 as RabbitMQ has them. The name starts the reply text."""

    REPLY_SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


SOFT_CODES = frozenset(
    {
        ReplyCode.CONTENT_TOO_LARGE,
        ReplyCode.NO_ROUTE,
        ReplyCode.NO_CONSUMERS,
        ReplyCode.ACCESS_REFUSED,
        ReplyCode.NOT_FOUND,
        ReplyCode.RESOURCE_LOCKED,
        ReplyCode.PRECONDITION_FAILED,
    }
)


class AmqpError(Exception):
    """A peer's fault (or a refusal) that closes a channel or a connection.

    Args:
        code: Reply code; decides whether the channel or the connection closes.
        text: What follows `CODE_NAME - ` in the reply text, in RabbitMQ's words.
        class_id: Class of the method that failed, 0 where none did.
        method_id: Method that failed, 0 where none did.
    """

    def __init__(self, code: ReplyCode, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id

    def named(self, class_id: int, method_id: int) -> AmqpError:
        """Name the method at fault, if none is named yet; return this error.

        Args:
            class_id: Its class.
            method_id: Its number in the class.
        """
        if not self.class_id:
            self.class_id, self.method_id = class_id, method_id
        return self

    @property
    def is_soft(self) -> bool:
        """True when only the channel closes."""
        return self.code in SOFT_CODES

    @property
    def reply_text(self) -> str:
        """The text for channel.close or connection.close, at most 255 bytes of UTF-8."""
        whole = f"{self.code.name} - {self.text}".encode()
        return whole[:255].decode(errors="ignore")


def quoted(kind: str, name: str, vhost: str) -> str:
    """Name a resource as RabbitMQ's errors do: `queue 'q' in vhost '/'`.

    Args:
        kind: "queue" or "exchange".
        name: The resource's name.
        vhost: Its virtual host.
    """
    return f"{kind} '{name}' in vhost '{vhost}'"


class Refusal(Exception):
    """Why something asked of a queue or of group 0 was not done; becomes an AmqpError at a channel.

    Args:
        code: The reply code a channel closes with.
        text: RabbitMQ's text without the code's name.
    """

    def __init__(self, code: ReplyCode, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
