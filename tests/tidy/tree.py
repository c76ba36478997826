"""The files of this repository as rules read them: each is read, parsed and walked once."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")


@cache
def tracked() -> tuple[Path, ...]:
    """All files that git knows; skips the test where it knows none."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout: no list of files")
    return tuple(
        ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()
    )


@cache
def sources() -> tuple[Path, ...]:
    """All Python files that were written by hand."""
    found = [path for path in tracked() if path.suffix == ".py"]
    return tuple(path for path in found if not GENERATED.search(path.name))


def name(path: Path) -> str:
    """A path as people write it, from the root."""
    return str(path.relative_to(ROOT))


def top(path: Path) -> str:
    """The first folder of a path."""
    return path.relative_to(ROOT).parts[0]


@cache
def text_of(path: Path) -> str:
    """What a file says."""
    return path.read_text(encoding="utf-8", errors="replace")


@cache
def lines_of(path: Path) -> list[str]:
    """The lines of a file."""
    return text_of(path).splitlines()


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of that tree."""
    return tuple(ast.walk(tree_of(path)))
