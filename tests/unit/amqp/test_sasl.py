"""Login responses.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest

from broker.amqp import fields, sasl
from broker.errors import AmqpError, ReplyCode


def entries(table: dict[str, object]) -> bytes:
    return fields.encode_table(table)[4:]


@pytest.mark.parametrize(
    ("mechanism", "response", "expected"),
    [
        ("PLAIN", b"\0guest\0secret", ("guest", "secret")),
        ("PLAIN", b"admin\0guest\0secret", ("guest", "secret")),
        ("PLAIN", b"\0guest\0", ("guest", "")),
        ("PLAIN", "\0jürgen\0ß".encode(), ("jürgen", "ß")),
        ("AMQPLAIN", entries({"LOGIN": "guest", "PASSWORD": "secret"}), ("guest", "secret")),
    ],
)
def test_logins(mechanism: str, response: bytes, expected: tuple[str, str]) -> None:
    """Rows: 1.1 SASL PLAIN / AMQPLAIN / EXTERNAL / RABBIT-CR-DEMO"""
    assert sasl.credentials_of(mechanism, response) == expected


@pytest.mark.parametrize(
    ("mechanism", "response", "code"),
    [
        ("EXTERNAL", b"", ReplyCode.COMMAND_INVALID),
        ("plain", b"\0a\0b", ReplyCode.COMMAND_INVALID),
        ("PLAIN", b"guest", ReplyCode.SYNTAX_ERROR),
        ("PLAIN", b"\0guest", ReplyCode.SYNTAX_ERROR),
        ("PLAIN", b"\0a\0b\0c", ReplyCode.SYNTAX_ERROR),
        ("PLAIN", b"\0\xff\0b", ReplyCode.SYNTAX_ERROR),
        ("AMQPLAIN", b"\x05LOG", ReplyCode.SYNTAX_ERROR),
        ("AMQPLAIN", entries({"LOGIN": "guest"}), ReplyCode.SYNTAX_ERROR),
        ("AMQPLAIN", entries({"LOGIN": "guest", "PASSWORD": 5}), ReplyCode.SYNTAX_ERROR),
        ("AMQPLAIN", entries({"LOGIN": b"\xff", "PASSWORD": "x"}), ReplyCode.SYNTAX_ERROR),
    ],
)
def test_malformed_logins(mechanism: str, response: bytes, code: ReplyCode) -> None:
    """Cases 41 and 42."""
    with pytest.raises(AmqpError) as caught:
        sasl.credentials_of(mechanism, response)
    assert caught.value.code is code
    assert (caught.value.class_id, caught.value.method_id) == (10, 11)


@pytest.mark.parametrize(
    ("mechanism", "text"),
    [
        ("AMQPLAIN", "invalid authentication mechanism 'AMQPLAIN'"),
        ("RABBIT-CR-DEMO", "invalid authentication mechanism 'RABBIT-CR-DEMO'"),
        ("EXTERNAL", "unknown authentication mechanism 'EXTERNAL'"),
        ("plain", "unknown authentication mechanism 'plain'"),
    ],
)
def test_a_mechanism_that_is_not_offered(mechanism: str, text: str) -> None:
    """Rows: 1.1 SASL PLAIN / AMQPLAIN / EXTERNAL / RABBIT-CR-DEMO"""
    with pytest.raises(AmqpError) as caught:
        sasl.credentials_of(mechanism, b"\0a\0b", ("PLAIN",))
    assert (caught.value.code, caught.value.text) == (503, text)


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "ANONYMOUS"])
def test_no_mechanism_takes_the_password_of_plain_even_if_it_were_offered(mechanism: str) -> None:
    offered = ("PLAIN", mechanism)
    if mechanism == "EXTERNAL":  # the certificate says who it is, whatever stands here
        assert sasl.credentials_of(mechanism, b"\0guest\0guest", offered) == ("", "")
        return
    with pytest.raises(AmqpError) as caught:
        sasl.credentials_of(mechanism, b"\0guest\0guest", offered)
    assert caught.value.code == 503
