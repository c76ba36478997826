"""`python -m chaos.judge RUN`: judge a stored history again, with the checkers of today."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chaos import history, options, report
from chaos.checkers import verdict as judging
from chaos.checkers.verdict import Verdict
from chaos.history import Event
from chaos.options import Options

VERDICT = "verdict.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge one run and write its verdict and report anew.

    Returns:
        The exit code: 0 pass, 1 violation, 2 cannot judge.
    """
    parser = argparse.ArgumentParser(
        prog="python -m chaos.judge", description="Judge the stored history of a run again."
    )
    parser.add_argument("run", metavar="RUN", help="the run's directory, store/NAME")
    directory = Path(parser.parse_args(arguments).run)
    try:
        asked = options.load(directory)
        events = history.load(directory / history.FILE)
    except (OSError, msgspec.MsgspecError, history.HistoryError) as error:
        print(f"cannot judge {directory}: {error}", file=sys.stderr)
        return judging.EXIT_CODES["unknown"]
    found = judging.judge(events, asked)
    write(directory, asked, found, events, {})
    print("\n".join(report.summary(found)))
    return exit_code(found)


def write(
    directory: Path,
    asked: Options,
    found: Verdict,
    events: Sequence[Event],
    logs: dict[str, str],
) -> None:
    """Put verdict.json and report.md beside a history."""
    text = msgspec.json.format(msgspec.json.encode(found), indent=1)
    (directory / VERDICT).write_bytes(text + b"\n")
    (directory / "report.md").write_text(report.page(asked, found, events, logs))


def exit_code(found: Verdict) -> int:
    """0 if every promise held, 1 if one did not, 2 if nobody can say."""
    return judging.EXIT_CODES[found.valid if isinstance(found.valid, bool) else "unknown"]


if __name__ == "__main__":
    sys.exit(main())
