"""docs/stream-cases.md names tests that are there."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT

TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_the_tests_of_each_case_are_there() -> None:
    found = TEST.findall((ROOT / "docs" / "stream-cases.md").read_text())
    assert len(found) > 20
    missing = [
        f"{path}::{name}"
        for path, name in found
        if f"def {name}(" not in (ROOT / "tests" / path).read_text()
    ]
    assert missing == []
