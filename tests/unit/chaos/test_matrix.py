"""The cells of the matrix, and the table of passed, failed and missing runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from chaos import matrix, options
from chaos.checkers import verdict
from tests.unit.chaos import forge

RUN = Path("store/run")


def row(events):
    found = msgspec.to_builtins(verdict.judge(events, forge.OPTIONS))
    return matrix.Row("quorum/kill-leader", 1, RUN, found, "its last words")


def spark_says(found):
    return {
        "valid": found["valid"],
        "findings": [finding[:3] for finding in found["findings"]],
        "counts": found["counts"],
        "silences_ms": {one["fault"]: one["silence_ms"] for one in found["recoveries"]},
    }


def test_every_fault_has_a_cell_for_every_type_of_queue():
    found = {(cell.options.queue, cell.options.fault) for cell in matrix.cells()}
    for queue in options.QUEUES:
        for fault in options.FAULTS:
            is_odd = fault in options.UNSYNCHRONISED_FAULTS and queue != "mirrored"
            assert ((queue, fault) in found) is not is_odd
    directions = {
        (c.options.queue, c.options.direction)
        for c in matrix.cells()
        if c.options.fault == "cut-leader-one-way"
    }
    assert len(directions) == 2 * len(options.QUEUES)
    long = {c.options.fault for c in matrix.cells() if c.options.backlog}
    assert long == set(options.FAULTS) - set(options.UNSYNCHRONISED_FAULTS)


def test_cells_have_names_of_their_own_and_the_short_ones_exist():
    names = [cell.name for cell in matrix.cells()]
    assert len(set(names)) == len(names)
    assert set(matrix._SHORT) <= set(names)


def test_a_pass_is_a_line_with_its_numbers():
    good = row(forge.clean())
    assert matrix.shown(good, "yes")[2:] == [
        "pass", "156", "0", "0", "0", "3010", "yes", "none",
    ]  # fmt: skip
    assert matrix.is_passed([good], {RUN: True})
    assert not matrix.is_passed([good], {RUN: False})


def test_an_audit_of_some_runs_alone_is_no_pass_and_none_at_all_no_objection():
    good = row(forge.clean())
    other = good._replace(run=Path("store/other"))
    assert not matrix.is_passed([good, other], {RUN: True})
    assert matrix.is_passed([good, other], {RUN: True, Path("store/other"): True})
    assert matrix.is_passed([good, other], {})


@pytest.mark.parametrize("spoil", [forge.drop_delivered, forge.no_fault])
def test_a_violation_and_a_vacuous_run_fail_the_matrix(spoil):
    bad = row(spoil(forge.clean()))
    assert not matrix.is_passed([bad], {RUN: True})
    assert matrix.shown(bad, "yes")[2] in ("VIOLATED", "cannot judge")


def test_a_run_without_a_verdict_fails_the_matrix():
    none = matrix.Row("quorum/none", 1, None, None, "no free ports")
    assert not matrix.is_passed([none], {})
    assert "cannot judge" in matrix.table([none], {})


@pytest.mark.parametrize(
    ("column", "value"),
    [("valid", "unknown"), ("findings", [["lost", "p1|1", "q"]]), ("silences_ms", {"fault-1": 1})],
)
def test_judges_agree_in_everything_or_not_at_all(column, value):
    ours = row(forge.clean()).verdict
    theirs = spark_says(ours)
    assert matrix.agrees(ours, theirs)
    assert not matrix.agrees(ours, {**theirs, column: value})
    theirs["counts"] = {**theirs["counts"], "confirmed": 1}
    assert not matrix.agrees(ours, theirs)


def test_only_and_short_choose(capsys):
    assert matrix.main(["--list", "--only", "mirrored/kill", "--only", "quorum/none"]) == 0
    assert capsys.readouterr().out.split() == [
        "quorum/none", "mirrored/kill-master", "mirrored/kill-mirror", "mirrored/kill-all",
    ]  # fmt: skip
    assert matrix.main(["--list", "--only", "no such cell"]) == 1
