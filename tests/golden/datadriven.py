"""Golden transcripts: commands and what they print, kept in files that people can read.

    # What this transcript shows (every file begins with a comment).
    command word key=value
    more input, any number of lines
    ----
    the expected output, up to an empty line

`run` gives each case to a handler and compares. `REWRITE=1 pytest tests/golden` writes what was
printed instead; read the difference before you commit it. The form is cockroachdb/datadriven's.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SEPARATOR = "----"


class Case(NamedTuple):
    """One command of a transcript.

    Attributes:
        line: Where it stands in the file, from 1.
        command: Its first word.
        words: The words without `=`.
        options: The words with `=`.
        body: The lines before the separator.
        expected: The lines after it.
    """

    line: int
    command: str
    words: list[str]
    options: dict[str, str]
    body: str
    expected: str


def parse(text: str) -> list[Case | str]:
    """Cut a transcript into its cases and the lines between them (comments and empty lines).

    Raises:
        ValueError: A case has no separator.
    """
    pieces: list[Case | str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        head = lines[at]
        if not head.strip() or head.startswith("#"):
            pieces.append(head)
            at += 1
            continue
        try:
            separator = lines.index(SEPARATOR, at)
        except ValueError:
            raise ValueError(f"line {at + 1}: expected {SEPARATOR} after {head!r}") from None
        end = separator + 1
        while end < len(lines) and lines[end].strip():
            end += 1
        words = shlex.split(head)
        pieces.append(
            Case(
                at + 1,
                words[0],
                [word for word in words[1:] if "=" not in word],
                dict(word.split("=", 1) for word in words[1:] if "=" in word),
                "\n".join(lines[at + 1 : separator]),
                "\n".join(lines[separator + 1 : end]),
            )
        )
        at = end
    return pieces


def run(path: Path, handle: Callable[[Case], str]) -> None:
    """Run a transcript; compare, or rewrite it where REWRITE is set.

    Args:
        path: The transcript.
        handle: Runs one case and returns what it prints; nothing prints as `ok`.

    Raises:
        AssertionError: Something else was printed; names all such cases.
    """
    text = path.read_text()
    assert text.startswith("#"), f"{path} must begin with a comment that says what it shows"
    failures: list[str] = []
    written: list[str] = []
    heads = text.splitlines()
    for piece in parse(text):
        if isinstance(piece, str):
            written.append(piece)
            continue
        printed = handle(piece).strip("\n") or "ok"
        body = [piece.body] if piece.body else []
        written += [heads[piece.line - 1], *body, SEPARATOR, printed]
        if printed != piece.expected:
            failures.append(
                f"{path.name}:{piece.line}: {heads[piece.line - 1]}\n"
                f"expected:\n{piece.expected}\nprinted:\n{printed}"
            )
    if os.environ.get("REWRITE"):
        path.write_text("\n".join(written) + "\n")
    else:
        assert not failures, "\n\n".join(failures)
