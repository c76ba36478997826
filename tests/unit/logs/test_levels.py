from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker.logs import levels


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}:{record.levelname}")


@pytest.fixture
def outputs() -> Iterator[dict[str, Kept]]:
    root = logging.getLogger()
    before = {name: logging.getLogger(name).level for name in levels.CATEGORIES.values()}
    handlers = root.handlers[:]
    found = {"console": Kept(), "file": Kept()}
    root.handlers[:] = list(found.values())
    yield found
    root.handlers[:] = handlers
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def _say() -> None:
    for name in ("broker.queues.classic", "broker.server.connection"):
        logging.getLogger(name).debug("")
        logging.getLogger(name).info("")
        logging.getLogger(name).error("")


QUEUE, CONNECTION = "broker.queues.classic", "broker.server.connection"


@pytest.mark.parametrize(
    ("general", "categories", "own", "console", "file"),
    [
        ("info", {}, {}, ["iq", "eq", "ic", "ec"], ["iq", "eq", "ic", "ec"]),
        ("info", {"queue": "debug"}, {}, ["dq", "iq", "eq", "ic", "ec"], None),
        ("info", {"connection": "none"}, {}, ["iq", "eq"], None),
        ("info", {}, {"file": "error"}, ["iq", "eq", "ic", "ec"], ["eq", "ec"]),
        (
            "error",
            {"queue": "info"},
            {"file": "debug"},
            ["iq", "eq", "ec"],
            ["iq", "eq", "dc", "ic", "ec"],
        ),
    ],
)
def test_an_output_takes_what_its_level_and_the_categories_let_pass(
    outputs: dict[str, Kept],
    general: str,
    categories: dict[str, str],
    own: dict[str, str],
    console: list[str],
    file: list[str] | None,
) -> None:
    levels.install(outputs.items(), general, categories, own)
    _say()
    words = {"d": "DEBUG", "i": "INFO", "e": "ERROR", "q": QUEUE, "c": CONNECTION}
    for name, expected in (("console", console), ("file", file or console)):
        assert outputs[name].lines == [f"{words[each[1]]}:{words[each[0]]}" for each in expected]


def test_a_category_has_a_level_of_its_own_until_all_are_set(outputs: dict[str, Kept]) -> None:
    levels.install(outputs.items(), "error", {}, {"file": "error"})
    levels.set_level("debug", "queue")
    _say()
    assert outputs["console"].lines == [f"{QUEUE}:DEBUG", f"{QUEUE}:INFO", *_errors()]
    levels.set_level("debug")
    outputs["file"].lines.clear()
    _say()
    assert len(outputs["file"].lines) == 6
    levels.set_level("error")
    outputs["file"].lines.clear()
    _say()
    assert outputs["file"].lines == _errors()


def _errors() -> list[str]:
    return [f"{QUEUE}:ERROR", f"{CONNECTION}:ERROR"]
