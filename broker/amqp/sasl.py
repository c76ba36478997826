"""SASL: what a client says to log in, as user name and password. Checking them is not done here.

With EXTERNAL a client says nothing here: its certificate has said who it is.

Source: RFC 4616 (PLAIN); RFC 4422, appendix A (EXTERNAL);
rabbit_auth_mechanism_plain.erl, rabbit_auth_mechanism_amqplain.erl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.amqp import fields
from broker.errors import AmqpError, ReplyCode

MECHANISMS: Final = ("PLAIN", "AMQPLAIN")
"""Mechanisms offered unless a node is told otherwise, in order of preference."""

EXTERNAL: Final = "EXTERNAL"
"""Offered where there is TLS, if a node is told so."""

_NEVER_OFFERED: Final = "RABBIT-CR-DEMO"
"""RabbitMQ knows it, and offers it to nobody who does not ask for it."""

_PLAIN_PARTS: Final = 3


class Credentials(NamedTuple):
    """A claim, not yet checked."""

    username: str
    password: str


def credentials_of(
    mechanism: str, response: bytes, offered: Sequence[str] = MECHANISMS
) -> Credentials:
    """Read the response to a mechanism.

    Args:
        mechanism: The client's choice.
        response: What start-ok carried.
        offered: What connection.start offered.

    Raises:
        AmqpError: 503 for a mechanism that is not offered, 502 for a response not of its form.

    Source:
        rabbit_reader.erl, auth_mechanism_to_module/2.
    """
    read = _READERS.get(mechanism)
    if read is not None and mechanism in offered:
        return read(response)
    is_known = mechanism in MECHANISMS or mechanism == _NEVER_OFFERED
    fault = "invalid" if is_known else "unknown"
    text = f"{fault} authentication mechanism '{mechanism}'"
    raise AmqpError(ReplyCode.COMMAND_INVALID, text, 10, 11)


def _plain(response: bytes) -> Credentials:
    parts = response.split(b"\0")
    # An authorization identity in front is read over, as RabbitMQ does.
    if len(parts) != _PLAIN_PARTS:
        raise _malformed("PLAIN")
    return _decoded(parts[1], parts[2], "PLAIN")


def _amqplain(response: bytes) -> Credentials:
    try:
        table = fields.decode_entries(response)
    except AmqpError:
        raise _malformed("AMQPLAIN") from None
    login, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(login, str | bytes) or not isinstance(password, str | bytes):
        raise _malformed("AMQPLAIN")
    return _decoded(login, password, "AMQPLAIN")


def _external(_response: bytes) -> Credentials:
    """What the client asks to be is read over, as RabbitMQ does."""
    return Credentials("", "")


def _decoded(username: str | bytes, password: str | bytes, mechanism: str) -> Credentials:
    try:
        return Credentials(
            username if isinstance(username, str) else username.decode(),
            password if isinstance(password, str) else password.decode(),
        )
    except UnicodeDecodeError:
        raise _malformed(mechanism) from None


def _malformed(mechanism: str) -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"invalid {mechanism} response", 10, 11)


_READERS: Final[dict[str, Callable[[bytes], Credentials]]] = {
    "PLAIN": _plain,
    "AMQPLAIN": _amqplain,
    EXTERNAL: _external,
}
"""No mechanism is read as another, whatever was offered."""
