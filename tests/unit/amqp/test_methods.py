"""Methods against two other implementations, and against broken bytes."""

from __future__ import annotations

import pamqp.frame
import pika.spec
import pytest

from broker.amqp import methods, spec
from broker.amqp.frames import method_frame
from broker.errors import AmqpError, ReplyCode

KINDS = sorted(spec.METHODS.values(), key=lambda kind: kind.__name__)
SAMPLES: dict[str, object] = {
    "octet": 9,
    "short": 60_001,
    "long": 4_000_000_001,
    "longlong": (1 << 62) + 5,
    "bit": True,
    "shortstr": "schlüssel",
    "longstr": b"PLAIN AMQPLAIN",
    "table": {"a": 1, "b": "text", "c": {"d": True}, "e": [1 << 40, "x"]},
}
ZEROS = {"short": 0, "long": 0, "shortstr": "", "longstr": "", "bit": False}


def sample(kind: type[spec.Method], *, flip: bool = False) -> spec.Method:
    values = {}
    for index, word in enumerate(kind.wire.split()):
        name, domain = word.split(":")
        if name != "-":
            values[name] = index % 2 == int(flip) if domain == "bit" else SAMPLES[domain]
    return kind(**values)


def pika_bytes(method: spec.Method) -> bytes:
    values = []
    for word in method.wire.split():
        name, domain = word.split(":")
        values.append(ZEROS[domain] if name == "-" else getattr(method, name))
    theirs = pika.spec.methods[method.class_id << 16 | method.method_id](*values)
    ids = method.class_id.to_bytes(2, "big") + method.method_id.to_bytes(2, "big")
    return ids + b"".join(theirs.encode())


def test_method_ids_are_those_of_pika() -> None:
    assert {class_id << 16 | method_id for class_id, method_id in spec.METHODS} == set(
        pika.spec.methods
    )


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_bytes_are_those_of_pika(kind: type[spec.Method], flip: bool) -> None:
    method = sample(kind, flip=flip)
    assert methods.encode(method) == pika_bytes(method)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_methods_round_trip(kind: type[spec.Method]) -> None:
    method = sample(kind)
    assert methods.decode(methods.encode(method)) == method


def test_defaults_encode_for_every_method() -> None:
    for kind in KINDS:
        assert methods.decode(methods.encode(kind())) == kind()


RENAMED = {"no_wait": "nowait", "type": "exchange_type"}


@pytest.mark.parametrize(
    "kind",
    [spec.QueueDeclare, spec.QueueBind, spec.ExchangeDeclare, spec.BasicConsume, spec.BasicDeliver],
    ids=lambda kind: kind.__name__,
)
def test_pamqp_reads_what_we_write(kind: type[spec.Method]) -> None:
    method = sample(kind)
    if isinstance(method, spec.ExchangeDeclare):
        method.type = "topic"
    for name in ("queue", "exchange", "source", "destination"):
        if hasattr(method, name):
            setattr(method, name, "plain.name")
    _, channel, theirs = pamqp.frame.unmarshal(method_frame(7, method))
    assert channel == 7
    for name in method.__struct_fields__:
        assert getattr(theirs, RENAMED.get(name, name)) == getattr(method, name)


@pytest.mark.parametrize(
    ("payload", "code", "text"),
    [
        (b"\x00\x32", ReplyCode.FRAME_ERROR, "cannot decode <<0,50>>"),
        (b"\x00\x32\x00\x63", ReplyCode.COMMAND_INVALID, "unknown method {50,99}"),
        (b"\x00\x32\x00\x0a\x00\x00\x05ab", ReplyCode.FRAME_ERROR, "cannot decode <<0,0,5,97,98>>"),
        (b"\x00\x14\x00\x29\x00", ReplyCode.FRAME_ERROR, "cannot decode <<0>>"),
        (b"\x00\x14\x00\x0a\x01\xff", ReplyCode.FRAME_ERROR, "Malformed UTF-8 in shortstr"),
    ],
    ids=["ids cut", "unknown (19)", "arguments cut (20)", "trailing byte (20)", "not UTF-8 (21)"],
)
def test_broken_methods(payload: bytes, code: ReplyCode, text: str) -> None:
    with pytest.raises(AmqpError) as caught:
        methods.decode(payload)
    assert (caught.value.code, caught.value.text) == (code, text)


def test_errors_name_the_method_at_fault() -> None:
    with pytest.raises(AmqpError) as caught:
        methods.decode(b"\x00\x32\x00\x0a\x00\x00")
    assert (caught.value.class_id, caught.value.method_id) == (50, 10)


def test_erlang_binary_shows_text_as_text() -> None:
    assert methods.erlang_binary(b"abc") == '<<"abc">>'
    assert methods.erlang_binary(b"") == "<<>>"
    assert methods.erlang_binary(b"a" * 65).endswith('"...>>')
