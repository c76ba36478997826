"""Rules for the code that linters do not check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.tree import (
    GENERATED,
    ROOT,
    lines_of,
    name,
    nodes_of,
    sources,
    text_of,
    top,
    tracked,
    tree_of,
)

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
PACKAGE_FILES_MAX = 20
BANNED_NAMES = {
    "util",
    "utils",
    "common",
    "helpers",
    "helper",
    "manager",
    "managers",
    "misc",
    "base",
}
# Split so that this file does not name what it forbids.
WORKPLACE = re.compile(
    "|".join([r"/wor" + r"k/", r"/far" + r"m/", r"\.lib" + r"rary/", r"/tmp/" + r"wq"])
)
CODE_IN_TEXT = re.compile(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:md|py|toml|yml|sh))`")


def test_files_are_at_most_800_lines():
    long = [
        f"{name(p)}: {len(lines_of(p))}" for p in sources() if len(lines_of(p)) > FILE_LINES_MAX
    ]
    assert long == []


def test_functions_are_at_most_70_lines():
    """Its docstring does not count: it explains, it does not do."""
    long = []
    for path in sources():
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                text = 0
                if ast.get_docstring(node) is not None:
                    text = (first.end_lineno or 0) - first.lineno + 1
                length = (node.end_lineno or 0) - node.lineno + 1 - text
                if length > FUNCTION_LINES_MAX:
                    long.append(f"{name(path)}:{node.lineno} {node.name}: {length}")
    assert long == []


def test_no_module_is_named_after_nothing():
    banned = [name(p) for p in sources() if p.stem in BANNED_NAMES or p.parent.name in BANNED_NAMES]
    assert banned == []


def test_packages_stay_small():
    folders: dict[Path, int] = {}
    for path in sources():
        if path.name != "__init__.py" and top(path) in (
            "broker",
            "raft",
            "gm",
        ):
            folders[path.parent] = folders.get(path.parent, 0) + 1
    assert {name(p): n for p, n in folders.items() if n > PACKAGE_FILES_MAX} == {}


def test_every_todo_names_an_issue():
    marks = re.compile(r"#.*\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\(#\d+\))")
    left = [
        f"{name(path)}:{number}"
        for path in sources()
        for number, line in enumerate(lines_of(path), 1)
        if marks.search(line)
    ]
    assert left == []


def test_every_package_has_a_docstring():
    bare = []
    for path in sources():
        if path.name != "__init__.py" or top(path) == "tests":
            continue
        if GENERATED.search(path.name) or path.parent.name == "wire":
            continue
        if ast.get_docstring(tree_of(path)) is None:
            bare.append(name(path))
    assert bare == []


def test_no_docstring_only_points_elsewhere():
    """An override has `typing_extensions.override` and needs none; a class says what it is."""
    pointing = [
        f"{name(path)}:{node.lineno}"
        for path in sources()
        if top(path) != "tests"
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (ast.get_docstring(node) or "").startswith(("See `", "See the module", "See asyncio"))
    ]
    assert pointing == []


def test_every_package_of_ours_has_an_init():
    roots = ("broker", "raft", "gm", "chaos", "pipeline", "tests")
    folders = {p.parent for p in tracked() if p.suffix == ".py" and top(p) in roots}
    assert [name(p) for p in sorted(folders) if not (p / "__init__.py").is_file()] == []


def test_nothing_names_this_workplace():
    found = []
    for path in tracked():
        if path.suffix in (".png", ".bin", ".gz"):
            continue
        text = text_of(path)
        found += [f"{name(path)}: {m[0]}" for m in WORKPLACE.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    "page", ["ARCHITECTURE.md", "docs/the-life-of-a-message.md", "docs/protocol-rules.md"]
)
def test_every_path_on_the_maps_exists(page: str):
    places = (ROOT, ROOT / "tests", (ROOT / page).parent)
    missing = [
        found
        for found in CODE_IN_TEXT.findall(text_of(ROOT / page))
        if not any((place / found).exists() for place in places)
    ]
    assert missing == []


def test_the_architecture_is_short():
    assert len(lines_of(ROOT / "ARCHITECTURE.md")) <= 300


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs"])
def test_links_between_our_pages_lead_somewhere(page: str):
    top = ROOT / page
    pages = sorted(top.rglob("*.md")) if top.is_dir() else [top]
    broken = [
        f"{name(p)} -> {target}"
        for p in pages
        if p.is_file()
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text_of(p))
        if not (p.parent / target).exists()
    ]
    assert broken == []


def test_every_golden_file_says_what_it_shows():
    golden = [p for p in tracked() if name(p).startswith("tests/golden/") and p.suffix == ".txt"]
    mute = [name(p) for p in golden if not lines_of(p) or not lines_of(p)[0].startswith("#")]
    assert mute == []


def test_decisions_are_numbered_without_gaps():
    numbers = sorted(int(p.name[:4]) for p in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
