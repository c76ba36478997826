"""Differences of answers: whoever applies them has the new answer, in Python and in the page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given, settings

from broker.management.live.deltas import difference, parsed

STATIC = Path(__file__).parents[4] / "broker" / "management" / "page" / "static"
encode = msgspec.json.encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False, width=16)
    | st.text("ab", max_size=2)
)
names = st.sampled_from(["name", "vhost", "a", "b", "items", "__proto__", ""])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
row = st.fixed_dictionaries(
    {"name": st.sampled_from("abcde"), "n": st.integers(0, 2)},
    optional={"vhost": st.sampled_from("/v"), "extra": values},
)
rows = st.lists(row, max_size=6)
answers = values | rows | st.fixed_dictionaries({"items": rows}, optional={"page": scalars})


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386 2."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value)
    return made


def changed_rows(old: list[Any], change: dict[str, Any]) -> list[Any]:
    made = list(old)
    if "rows" in change:
        made = []
        for each in change["rows"]:
            made += old[each[0] : each[0] + each[1]] if isinstance(each, list) else [each]
    for place, patch in change.get("in_rows", {}).items():
        made[int(place)] = merge(made[int(place)], patch)
    return made


def applied(value: Any, change: dict[str, Any]) -> Any:
    """What docs/management-api.md tells viewers to do."""
    if isinstance(value, list):
        return changed_rows(value, change)
    made = merge(value, change.get("patch", {}))
    if "rows" in change or "in_rows" in change:
        made["items"] = changed_rows(value["items"], change)
    return made


def between(old: Any, new: Any) -> dict[str, Any] | None:
    found = difference(parsed(encode(old)), parsed(encode(new)))
    return None if found is None else msgspec.json.decode(found)


def exactly(value: Any) -> str:
    """JSON, in which true is not 1; the order of members does not count."""
    return json.dumps(value, sort_keys=True)


@given(answers, answers)
@example([{"name": "b", "extra": {"a": 0.0}}], [{"name": "b", "extra": {"a": -0.0}}])
@settings(max_examples=500)
def test_who_applies_the_difference_has_the_new_answer(old, new):
    change = between(old, new)
    if change is not None:
        assert exactly(applied(old, change)) == exactly(new)
        assert len(encode(change)) < len(encode(new))


@given(rows, st.randoms(use_true_random=False))
def test_rows_that_only_change_places_are_not_sent_again(old, random):
    wide = [{**each, "name": str(number), "text": "x" * 200} for number, each in enumerate(old)]
    new = random.sample(wide, len(wide))
    change = between(wide, new)
    if wide != new:
        assert change is not None
        assert all(isinstance(each, list) for each in change["rows"])
        assert "in_rows" not in change


QUEUES = [{"name": f"q{n}", "vhost": "/", "messages": n, "policy": None} for n in range(100)]


@pytest.mark.parametrize("paged", [False, True])
def test_one_number_of_one_row_costs_a_few_bytes(paged):
    def answer(items):
        return {"items": items, "page": 1} if paged else items

    new = [dict(each) for each in QUEUES]
    new[40]["messages"] = 7
    assert between(answer(QUEUES), answer(new)) == {"in_rows": {"40": {"messages": 7}}}


def test_a_row_that_came_and_one_that_went_are_told_by_place():
    new = [*QUEUES[:10], {"name": "new", "vhost": "/"}, *QUEUES[11:]]
    change = between(QUEUES, new)
    assert change == {"rows": [[0, 10], {"name": "new", "vhost": "/"}, [11, 89]]}


def test_rows_of_one_name_are_told_apart_by_their_order():
    old = [{"name": "same", "n": n} for n in range(5)]
    assert between(old, old[:4]) == {"rows": [[0, 4]]}


def test_what_becomes_null_is_sent_whole_for_a_patch_would_delete_it():
    assert between({"a": 1, "text": "x" * 99}, {"a": None, "text": "x" * 99}) is None
    new = [{**QUEUES[0], "messages": None}, *QUEUES[1:]]
    assert between(QUEUES, new) == {"rows": [new[0], [1, 99]]}


def test_a_truth_value_is_no_number():
    change = between({"a": 1, "text": "x" * 99}, {"a": True, "text": "x" * 99})
    assert change == {"patch": {"a": True}}


@pytest.mark.parametrize("new", [[], {}, 1, "text", None, [1, 2]])
def test_another_kind_of_answer_is_sent_whole(new):
    assert between(QUEUES, new) in (None, {"rows": []})


PROGRAM = """
import { readFileSync } from "node:fs";
const { apply } = await import(process.argv[1]);
for (const [old, change, next] of JSON.parse(readFileSync(0, "utf8"))) {
  const before = JSON.stringify(old);
  console.log(JSON.stringify([apply(old, change), JSON.stringify(old) === before]));
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_page_applies_them_alike(tmp_path):
    cases: list[tuple[Any, Any, Any]] = []

    @given(answers, answers)
    @settings(max_examples=1_000, database=None)  # one in seven has a delta
    def collect(old, new):
        change = between(old, new)
        if change is not None:
            cases.append((old, change, new))

    collect()
    assert len(cases) > 30
    module = tmp_path / "deltas.mjs"
    shutil.copy(STATIC / "deltas.js", module)
    done = subprocess.run(
        ["node", "--input-type=module", "-e", PROGRAM, str(module)],
        input=json.dumps(cases), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(cases)
    for line, (_, _, new) in zip(lines, cases, strict=True):
        found, is_untouched = json.loads(line)
        assert json.loads(exactly(found)) == json.loads(exactly(new))
        assert is_untouched
