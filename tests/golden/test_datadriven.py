"""The runner of golden transcripts fails on every kind of difference."""

from __future__ import annotations

import pytest

from tests.golden import datadriven

TEXT = """# Shows how a transcript looks.
say one two loud=yes
more
----
SAY one two more

# Another comment.
nothing
----
ok
"""


def _handle(case: datadriven.Case) -> str:
    if case.command == "nothing":
        return ""
    command = case.command.upper() if case.options.get("loud") == "yes" else case.command
    return " ".join([command, *case.words, case.body])


def test_a_right_transcript_passes(tmp_path, monkeypatch):
    monkeypatch.delenv("REWRITE", raising=False)
    path = tmp_path / "right.txt"
    path.write_text(TEXT)
    datadriven.run(path, _handle)


def test_a_wrong_line_fails_and_names_its_place(tmp_path, monkeypatch):
    monkeypatch.delenv("REWRITE", raising=False)
    path = tmp_path / "wrong.txt"
    path.write_text(TEXT.replace("SAY one", "SAY 1"))
    with pytest.raises(AssertionError, match=r"wrong\.txt:2: say one two loud=yes"):
        datadriven.run(path, _handle)


def test_rewrite_makes_the_transcript_what_was_printed(tmp_path, monkeypatch):
    monkeypatch.setenv("REWRITE", "1")
    path = tmp_path / "stale.txt"
    path.write_text(TEXT.replace("SAY one two more", "old\nlines"))
    datadriven.run(path, _handle)
    assert path.read_text() == TEXT


def test_a_transcript_says_first_what_it_shows(tmp_path):
    path = tmp_path / "mute.txt"
    path.write_text("nothing\n----\nok\n")
    with pytest.raises(AssertionError, match="must begin with a comment"):
        datadriven.run(path, _handle)


def test_a_case_without_a_separator_is_an_error():
    with pytest.raises(ValueError, match="line 2"):
        datadriven.parse("# x\nsay\n")
