"""Every citation names something that exists: documents, sections, rules, cases, bugs, recipes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.tree import ROOT, name, nodes_of, sources, text_of, top, tracked, tree_of

DOCUMENT = re.compile(r"(?<![\w/.*<{-])((?:\.\./)*[\w-]+(?:/[\w.-]+)*\.md)\b")
MADE_BY_RUNS = {"report.md", "store/matrix.md", "matrix.md"}
TEXT = {".py", ".md", ".toml", ".yml", ".txt", ".conf", ".sh", ".proto", ""}
NUMBERS = r"(\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*)"
# What is cited in code and tests: how, and how the document begins the line that it leads to.
CITED = {
    "docs/protocol-rules.md": (re.compile(r"\bP(\d+)\b(?!%)"), "### P{}\n"),
    "docs/rabbitmq-behaviour.md": (
        re.compile(r"docs/rabbitmq-behaviour\.md\s+" + NUMBERS),
        "## {} ",
    ),
    "docs/bad-input.md": (re.compile(r"\b[Cc]ases? " + NUMBERS + r"(?!:\n)"), "| {} |"),
    "docs/recipes.md": (re.compile(r"\b[Rr]ecipes? " + NUMBERS), "| {} |"),
    "docs/planted-bugs.md": (
        re.compile(r"(?:\b[Bb]ugs?|docs/planted-bugs\.md) ((?:[RGDT]\d+[a-z]?(?:, | and )?)+)"),
        "| {} |",
    ),
}
MUST_NAME_DOCUMENT = ("docs/bad-input.md", "docs/recipes.md", "docs/planted-bugs.md")


def texts() -> Iterator[Path]:
    for path in tracked():
        if path.suffix in TEXT and "golden" not in path.parts and path != Path(__file__):
            yield path


@cache
def explained(path: Path) -> str:
    """Return what a Python file says in comments and strings; all of it in tests."""
    text = text_of(path)
    if name(path).startswith("tests/"):
        return text
    strings = [
        node.value
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    comments = re.findall(r"(?:^|\s)#.*", text)
    return "\n".join(strings + comments)


def test_every_document_that_is_named_is_there() -> None:
    missing = []
    bare = {path.name for path in tracked() if path.suffix == ".md"}
    for path in texts():
        for found in DOCUMENT.findall(re.sub(r"https?://\S+", "", text_of(path))):
            places = (ROOT / found, path.parent / found, ROOT / "docs" / found)
            is_there = found in MADE_BY_RUNS or found in bare
            if not is_there and not any(place.is_file() for place in places):
                missing.append(f"{name(path)}: {found}")
    assert missing == []


def test_every_number_that_is_cited_is_there() -> None:
    missing = []
    for path in sources():
        if path == Path(__file__):
            continue
        said = explained(path)
        for document, (pattern, line) in CITED.items():
            there = "\n" + text_of(ROOT / document)
            for cited in pattern.findall(said):
                for number in re.findall(r"[RGDT]\d+[a-z]?|\d+(?:\.\d+)?", cited):
                    starred = line.replace("{} ", "{}* ", 1)
                    if not any("\n" + row.format(number) in there for row in (line, starred)):
                        missing.append(f"{name(path)}: {document} {number}")
    assert missing == []


def test_who_cites_numbers_of_a_list_names_the_list() -> None:
    nameless = [
        f"{name(path)}: {document}"
        for path in sources()
        if path != Path(__file__)
        for document in MUST_NAME_DOCUMENT
        if CITED[document][0].search(explained(path)) and document not in text_of(path)
    ]
    assert nameless == []


def test_every_planted_bug_is_in_the_list() -> None:
    there = text_of(ROOT / "docs" / "planted-bugs.md")
    absent = []
    places = [*(ROOT / "tests" / "sim").rglob("planted.py")]
    places.append(ROOT / "tests" / "sim" / "mirrored" / "test_disk_faults.py")
    for path in places:
        for node in tree_of(path).body:
            target = getattr(node, "target", None) or (getattr(node, "targets", None) or [None])[0]
            if isinstance(target, ast.Name) and target.id == "BUGS":
                value = getattr(node, "value", None)
                assert isinstance(value, ast.Dict)
                bugs = [ast.literal_eval(key) for key in value.keys if key is not None]
                absent += [f"{name(path)}: {bug}" for bug in bugs if f"\n| {bug} |" not in there]
    assert absent == []


def is_defined(found: str, text: str) -> bool:
    """True if a module defines this name: a function, class, attribute or constant."""
    last = re.escape(found.rsplit(".", 1)[-1])
    pattern = rf"(?:def|class) {last}\b|^\s*(?:self\.)?{last}\s*[:=]|self\.{last}\b"
    return re.search(pattern, text, re.MULTILINE) is not None


def test_what_the_rules_say_keeps_and_proves_them_is_there() -> None:
    """docs/protocol-rules.md: `path`: `name`, `name`, and tests as `path::name`."""
    rules = " ".join(text_of(ROOT / "docs" / "protocol-rules.md").split())
    kept = re.findall(r"`((?:broker|raft|gm)/[\w/]+\.py)`((?:(?:: |, )`[\w.]+`(?!:))*)", rules)
    missing = [
        f"{path}: {found}"
        for path, names in kept
        for found in re.findall(r"`(\w[\w.]*)`", names)
        if not found.endswith(".py") and not is_defined(found, text_of(ROOT / path))
    ]
    proofs = re.findall(r"`((?:unit|model|cluster|sim|wire)/[\w/]+\.py)::(\w+)`", rules)
    missing += [
        f"{path}::{test}"
        for path, test in proofs
        if f"def {test}(" not in text_of(ROOT / "tests" / path)
    ]
    assert kept
    assert proofs
    assert missing == []


def test_what_the_life_of_a_message_names_is_there() -> None:
    page = text_of(ROOT / "docs" / "the-life-of-a-message.md")
    names = {each.rsplit(".", 1)[-1] for each in re.findall(r"`([A-Za-z_][\w.]*)`", page)}
    code = [p for p in sources() if top(p) in ("broker", "raft", "gm")]
    defined = set(re.findall(r"(?:def|class) (\w+)", "\n".join(text_of(p) for p in code)))
    assert len(names) > 20
    assert names - defined == set()


# Names of ours that gave way to the field's (docs/glossary.md).
GIVEN_UP = (
    "Thrift",
    "favourites",
    "fit_from",
    "behind_bytes",
    "own_first_index",
    "Begun",
    "Cells",
    "Errand",
    "Home",
    "Standstill",
    "Stock",
    "holds_back",
    "Footprint",
    "Onward",
    "Orphans",
    "Wish",
    "knock",
    "Seat",
    "Surroundings",
    "farewell",
    "farewells",
    "tending",
    "stand_still",
    "when_safe",
    "page_to",
    "is_drained_out",
    "is_in_place",
    "with_wish",
    "GmRing",
    "Lifetime",
    "Depths",
    "Roster",
    "Unasked",
    "Dying",
    "keep_to_level",
    "left_late",
    "Carrier",
    "Offers",
    "Safety",
    "Shallow",
    "Way",
    "answers_by_node",
    "apply_offer",
    "cut_fill",
    "send_offer",
    "take_dying",
)


def test_every_word_of_the_glossary_is_in_use() -> None:
    rows = re.findall(r"^\| ([\w -]+) \|", text_of(ROOT / "docs" / "glossary.md"), re.MULTILINE)
    words = [row for row in rows if row != "word"]
    code = "\n".join(
        text_of(path).lower() for path in sources() if top(path) in ("broker", "raft", "gm")
    )
    assert words == sorted(words, key=str.lower)
    assert [word for word in words if not re.search(rf"(?:\b|_){word}", code)] == []


def test_words_that_were_given_up_do_not_come_back() -> None:
    pattern = re.compile(r"\b(" + "|".join(GIVEN_UP) + r")\b")
    back = [
        f"{name(path)}: {word}"
        for path in sources()
        if path != Path(__file__)
        for word in pattern.findall(text_of(path))
    ]
    assert back == []
