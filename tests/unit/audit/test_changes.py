from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest

from broker.audit import trail
from broker.audit.actor import Actor
from broker.audit.changes import UNAUDITED, Password, subject, without_secrets
from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import User


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "s3cret", "a": 1}, {"password": "***", "a": 1}),
        ({"x": [{"src-uri": "amqp://u:s3cret@h/v"}]}, {"x": [{"src-uri": "amqp://***@h/v"}]}),
        (["amqp://u:s3cret/s3cret@h"], ["amqp://***@h"]),
        ("amqps://h?cacertfile=/a&password=s3cret&x=1", "amqps://h?cacertfile=/a&password=***&x=1"),
        ({"auth": {"api_token": "s3cret", "tokenised": None}}, {"auth": {"api_token": "***"}}),
        (b"\xffs", "\\xffs"),
        (float("nan"), "nan"),
        (Password("s3cret"), "set"),
        ({"password": Password("s3cret").changed()}, {"password": "changed"}),
        ({"password": Password("")}, {"password": "none"}),
    ],
)
def test_no_secret_is_written(value: object, shown: object) -> None:
    found = without_secrets(value)
    assert "s3cret" not in json.dumps(found, allow_nan=False)
    if isinstance(found, dict) and "auth" in found:
        assert found["auth"].pop("tokenised") == "***"
    assert found == shown


def test_what_is_nested_too_deep_is_cut() -> None:
    value: object = "end"
    for _ in range(10_000):
        value = [value]
    assert "end" not in json.dumps(without_secrets(value))


VALUES: dict[str, object] = {
    "str": "x\n\u2028",
    "int": 1,
    "bool": True,
    "object": {"password": "s3cret"},
    "DestinationKind": "queue",
    "tuple[tuple[str, str], ...]": (("n", "h:1"),),
    "tuple[str, ...]": ("a",),
    "tuple[str, str, str]": ("", "", ""),
    "dict[str, object]": {"uri": "amqp://u:s3cret@h"},
    "dict[str, int]": {"max-channels": 1},
}


def _one_of(kind: type[commands.Command]) -> commands.AnyCommand:
    """A command with some value for each field that has no default."""
    fields = msgspec.structs.fields(kind)
    hints = inspect.get_annotations(kind)
    needed = {each.name: hints.get(each.name, "str") for each in fields if each.required}
    return kind(**{name: VALUES.get(hint, "x") for name, hint in needed.items()})  # type: ignore[return-value]


@pytest.fixture
def lines() -> Iterator[list[str]]:
    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    found: list[str] = []
    logger = logging.getLogger(trail.LOGGER)
    handler, level = Kept(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("kind", get_args(commands.AnyCommand))
def test_every_command_has_a_line_or_is_said_to_have_none(
    kind: type[commands.Command], lines: list[str]
) -> None:
    command, catalogue = _one_of(kind), Catalogue()
    about = subject(command, catalogue)
    by_uid = hasattr(command, "uid") or isinstance(command, commands.MoveBindings)
    if kind in UNAUDITED:
        assert about is None
        return
    assert about is not None or by_uid  # of a queue that is gone nothing is told
    pending = trail.begin("n", Actor("u\r\n", "amqp", "1\x1b"), command, catalogue)
    if pending is not None:
        pending.end(Refusal(ReplyCode.ACCESS_REFUSED, "no\nway amqp://a:s3cret@h"))
        pending.end(Refusal(ReplyCode.INTERNAL_ERROR, "no majority"))
        refused, unknown = map(json.loads, lines)
        assert (refused["outcome"], unknown["outcome"]) == ("refused", "unknown")
        assert all(line.isascii() and line.isprintable() for line in lines)
        assert "s3cret" not in "".join(lines)


def test_a_line_is_never_longer_than_its_bound_and_has_no_hash(lines: list[str]) -> None:
    catalogue = Catalogue()
    catalogue.put_user(User("u", "HASH-1", tags=tuple("x" * 200 for _ in range(1_000))))
    pending = trail.begin("n", Actor(), commands.ChangePassword("u", "HASH-2"), catalogue)
    assert pending is not None
    catalogue.put_user(User("u", "HASH-2"))
    pending.end(None)
    (line,) = lines
    assert len(line) <= trail.LINE_CHARACTERS_MAX
    assert "HASH" not in line
    assert set(json.loads(line)["before"]) == {"left_out_characters"}
