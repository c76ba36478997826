"""docs/compatibility.md: every row has a test, and tests name only rows that exist."""

from __future__ import annotations

from tests.compatibility.page import PAGE, all_tests, named_rows, who_proves, write_page
from tests.compatibility.rows import DEVIATIONS, ROWS


def test_every_row_is_named_by_a_test():
    known = who_proves()
    assert [row.key for row in ROWS if not row.later and row.key not in known] == []


def test_tests_name_only_rows_that_are_there():
    keys = {row.key for row in ROWS}
    assert [(row, test) for row, test in named_rows() if row not in keys] == []


def test_every_deviation_is_held_by_a_test_that_is_there():
    assert {each.test for each in DEVIATIONS} - all_tests() == set()


def test_the_page_says_what_the_tests_say():
    assert PAGE.read_text() == write_page(), "run python -m tests.compatibility"
