"""docs/compatibility.md, made from `rows` and from the docstrings of all tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.compatibility.rows import DEVIATIONS, REFUSED, ROWS, SECTIONS, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
_PARAGRAPH = re.compile(r"\bRows:\s*(.+?)\s*(?:\n\s*\n|\Z)", re.DOTALL)

_HEAD = """# Compatibility with RabbitMQ 3.13

Made by `python -m tests.compatibility`; do not edit. Each row is a behaviour of RabbitMQ 3.13.7
and the tests that fail if this broker behaves otherwise. `make check` fails when a row has no test,
or when this page is not what the tests say.
"""


def rows_in(text: str) -> list[str]:
    """The rows a docstring names, as written."""
    found = _PARAGRAPH.search(text)
    if found is None:
        return []
    named = found.group(1).replace("`", "").split(";")
    return [" ".join(row.split()).rstrip(".") for row in named if row.strip()]


@cache
def named_rows() -> tuple[tuple[str, str], ...]:
    """Return (row as a test names it, that test) of all tests, in the order of their files."""
    return tuple(_named_rows())


def _named_rows() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        where = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                name = getattr(node, "name", "")
                for row in rows_in(ast.get_docstring(node) or ""):
                    yield row, f"{where}::{name}" if name else where


def all_tests() -> set[str]:
    """Every test, as `DEVIATIONS` names it."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        where = path.relative_to(ROOT / "tests").as_posix()
        names = re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
        found.update(f"{where}::{name}" for name in names)
    return found


def who_proves() -> dict[str, list[str]]:
    """The tests of each row that any test names."""
    found: dict[str, list[str]] = {}
    for row, test in named_rows():
        found.setdefault(row, []).append(test)
    return found


def write_page() -> str:
    """The page as it should be."""
    tests = who_proves()
    parts = [_HEAD]
    for section, title in SECTIONS.items():
        parts.append(f"\n## {section} {title}\n\n| behaviour | tests |\n|---|---|\n")
        parts += [_line(row, tests.get(row.key, [])) for row in ROWS if row.section == section]
    parts.append("\n## Deviations\n\n| RabbitMQ | here | test |\n|---|---|---|\n")
    parts += [f"| {each.rabbitmq} | {each.here} | `{each.test}` |\n" for each in DEVIATIONS]
    parts.append("\n## Refused\n\n| what | why |\n|---|---|\n")
    parts += [f"| {what} | {why} |\n" for what, why in REFUSED]
    return "".join(parts)


def _line(row: Row, tests: list[str]) -> str:
    shown = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in sorted(set(tests)))
    if row.later:
        shown = f"later: {row.later}" + (f"<br>{shown}" if shown else "")
    return f"| {row.name} | {shown} |\n"
