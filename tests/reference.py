"""Runs wire tests against another broker, to see that they ask for what RabbitMQ does.

    WARRENMQ_REFERENCE=127.0.0.1:5672 pytest tests/wire/test_closing.py

The variable is `host:port` or `host:port/vhost`, of a broker that knows guest with password guest.
The shared fixture `node` is that broker then. Nothing is skipped for it: a test that asks for what
only our own nodes have (their log, their process, settings of its own) fails and says so.
"""

from __future__ import annotations

import os
from typing import Any, Final, NoReturn

import pytest

VARIABLE: Final = "WARRENMQ_REFERENCE"

_ADDRESS, _, _VHOST = os.environ.get(VARIABLE, "").partition("/")
_HOST, _, _PORT = _ADDRESS.rpartition(":")

IS_SET: Final = bool(_ADDRESS)
HOST: Final = _HOST or "127.0.0.1"
VHOST: Final = _VHOST or "/"
PORT: Final = int(_PORT) if IS_SET else 0

RUN: Final = f"-{os.getpid()}" if IS_SET else ""
"""Part of names in a broker that outlives the run."""


def refuse(what: str) -> NoReturn:
    """Fail a test that cannot run against the reference.

    Args:
        what: What it asks for.
    """
    pytest.fail(f"{VARIABLE} is set, and {what} is of our own nodes only", pytrace=False)


class OnlyOurs:
    """Stands for an attribute of our nodes that a reference does not have."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        refuse(f"`node.{self._name}`")
