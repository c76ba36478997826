"""The audit command without Spark; and both checkers have the same claims."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from chaos.checkers import verdict as chaos_verdict
from pipeline import audit, verdict


def test_without_pyspark_the_pip_line_is_printed(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert audit.main([str(tmp_path)]) == 2
    assert "pip install 'warrenmq[pipeline]'" in capsys.readouterr().err


def test_without_java_it_says_so_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert audit.main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "Java" in said
    assert said.count("\n") == 1


def test_java_that_does_not_start_is_no_broken_promise(tmp_path):
    pytest.importorskip("pyspark")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    ended = subprocess.run(
        [sys.executable, "-m", "pipeline.audit", str(tmp_path)],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == audit.CANNOT_JUDGE
    assert "Spark does not start" in ended.stderr


def test_both_judges_weigh_findings_alike():
    severities = dict.fromkeys(verdict.BROKEN_PROMISES, False)
    severities |= dict.fromkeys(verdict.PROVES_NOTHING, "unknown")
    assert severities == {k: v for k, v in chaos_verdict.SEVERITIES.items() if k != "crash"}


@pytest.mark.parametrize(
    ("kinds", "valid"),
    [([], True), (["vacuous"], "unknown"), (["vacuous", "lost"], False), (["order"], False)],
)
def test_findings_make_the_verdict(kinds, valid):
    assert verdict.valid_of(kinds) == valid


def test_table_names_every_claim_and_the_findings():
    found = [verdict.Finding("lost", "p1|5", "q")]
    text = "\n".join(verdict.Report("run", found, {"events": 3}, {"fault-1": 12}).table())
    assert text.startswith("run: VIOLATED")
    assert all(kind in text for kind in verdict.BROKEN_PROMISES)
    assert "lost q p1|5" in text
