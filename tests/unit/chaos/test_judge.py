from __future__ import annotations

import json

import pytest

from chaos import history, judge, options
from tests.unit.chaos import forge


@pytest.mark.parametrize(
    ("spoil", "code", "valid"),
    [
        (lambda events: events, 0, True),
        (forge.drop_delivered, 1, False),
        (forge.no_fault, 2, "unknown"),
    ],
)
def test_stored_run_is_judged_again(tmp_path, capsys, spoil, code, valid):
    history.save(tmp_path / history.FILE, spoil(forge.clean()))
    options.save(tmp_path, forge.OPTIONS)
    assert judge.main([str(tmp_path)]) == code
    assert json.loads((tmp_path / judge.VERDICT).read_text())["valid"] == valid
    assert (tmp_path / "report.md").is_file()
    assert capsys.readouterr().out


def test_run_that_is_not_there_cannot_be_judged(tmp_path, capsys):
    assert judge.main([str(tmp_path / "none")]) == 2
    assert "cannot judge" in capsys.readouterr().err
