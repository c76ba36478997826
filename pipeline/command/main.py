"""`python -m pipeline JOB ...`: what `warrenmq pipeline` starts.

Exit codes: 0, the job has done its work; 1, it found something; 2, wrong use: options or a file
that do not fit; 3, it failed, or Spark can't run here.
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

from pipeline import audit, package
from pipeline.command.configuration import Config, ConfigRefused, Job, Setting, read
from pipeline.command.declared import JOBS
from pipeline.command.files import read_file, with_password
from pipeline.command.progress import Stop, shown
from pipeline.report import page
from pipeline.report.document import Report, lines

FINE, FOUND, WRONG_USE, FAILED = 0, 1, 2, 3
_RUN: Final = "run"
_PACKAGE: Final = "package"


def main(arguments: Sequence[str] | None = None, jobs: Mapping[str, Job] = JOBS) -> int:
    """Run what the command line asks for.

    Args:
        arguments: Without the program's name; the process's by default.
        jobs: By name.

    Returns:
        The exit code.
    """
    try:
        parsed = _parsed(jobs, arguments)
    except ConfigRefused as refused:
        print(refused, file=sys.stderr)
        return WRONG_USE
    if parsed["job"] == _PACKAGE:
        return _package(Path(parsed["folder"]))
    is_quiet, is_verbose = bool(parsed.pop("quiet")), bool(parsed.pop("verbose"))
    try:
        configs, report = _asked(parsed, jobs)
        configs = [with_password(config, os.environ) for config in configs]
    except ConfigRefused as refused:
        for problem in refused.problems:
            print(problem, file=sys.stderr)
        return WRONG_USE
    lacking = audit.why_not("the pipeline")
    if lacking:
        print(lacking, file=sys.stderr)
        return FAILED
    return _run(configs, report, is_quiet=is_quiet, is_verbose=is_verbose)


def _package(folder: Path) -> int:
    try:
        print(package.build(folder))
    except OSError as error:
        print(f"failed: {error}", file=sys.stderr)
        return FAILED
    return FINE


def _parsed(jobs: Mapping[str, Job], arguments: Sequence[str] | None) -> dict[str, Any]:
    parsed, unknown = _parser(jobs).parse_known_args(arguments)
    values = vars(parsed)
    if unknown:
        names = {name.replace("_", "-") for name in values} - {"job"}
        option = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(option.lstrip("-"), names, 1)
        hint = f"; did you mean --{near[0]}?" if near else ""
        raise ConfigRefused([f"{parsed.job} has no '{option}'{hint}"])
    return values


def _asked(parsed: dict[str, Any], jobs: Mapping[str, Job]) -> tuple[list[Config], str]:
    """The runs that were asked for, and where the report goes."""
    name = parsed.pop("job")
    given = {key: value for key, value in parsed.items() if value is not None}
    if name != _RUN:
        config = read(jobs[name], name, given)
        return [config], config.text("report")
    configs = read_file(Path(given["file"]), jobs)
    chosen = given["names"]
    known = [config.name for config in configs]
    unknown = [each for each in chosen if each not in known]
    if unknown:
        raise ConfigRefused(
            [f"the file has no job '{each}'; it has {', '.join(known)}" for each in unknown]
        )
    return [c for c in configs if not chosen or c.name in chosen], given.get("report", "")


def _run(configs: Sequence[Config], report: str, *, is_quiet: bool, is_verbose: bool) -> int:
    stop = Stop()
    reports: list[Report] = []
    try:
        with _spark(configs) as spark, _stopping(stop):
            for config in configs:
                with shown(config.name, stop, is_quiet=is_quiet) as progress:
                    progress.show("begins")
                    began_s = time.monotonic()
                    done: Report = import_module(config.job.module).run(spark, config, progress)
                done = replace(done, duration_s=time.monotonic() - began_s)
                print("\n".join(lines(done)), flush=True)
                _write(config.text("report"), [done])
                reports.append(done)
                if stop.is_set:
                    break
    except ConfigRefused as refused:
        for problem in refused.problems:
            print(problem, file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:  # before the session was there
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001  Spark and Java fail in many ways
        print(f"failed: {told(error)}", file=sys.stderr)
        if is_verbose:
            traceback.print_exc()
        return FAILED
    if len(configs) > 1:
        _write(report, reports)
    return FINE if all(each.is_fine for each in reports) else FOUND


def told(error: Exception) -> str:
    """The line of an error that says what happened.

    Spark wraps an error of ours into its own, with the text of ours behind the last Python
    exception's name.
    """
    text = str(error)
    ours = [line for line in text.splitlines() if line.startswith("pipeline.")]
    if ours:
        return ours[-1].partition(": ")[2]
    first = next((line for line in text.splitlines() if line.strip()), "")
    return (
        first
        if type(error).__module__.startswith("pipeline.")
        else f"{type(error).__name__}: {first}"
    )


def _write(path: str, reports: Sequence[Report]) -> None:
    if path and reports:
        page.write(Path(path), reports, datetime.now(UTC))
        print(f"report: {path}", file=sys.stderr)


@contextmanager
def _spark(configs: Sequence[Config]) -> Iterator[Any]:
    from pipeline import session  # noqa: PLC0415  needs pyspark, which was looked for

    settings = _settings(configs)
    spark = session.open(_master(configs), name="warrenmq pipeline", settings=settings)
    try:
        yield spark
    finally:
        with suppress(Exception):  # a JVM that died can't be told to stop
            spark.stop()


def _settings(configs: Sequence[Config]) -> dict[str, str]:
    """What the jobs ask of Spark, if all are of one kind; and what was given, which goes before."""
    jobs = {config.job.name: config.job for config in configs}
    asked = next(iter(jobs.values())).starting if len(jobs) == 1 else {}
    given = dict(each.split("=", 1) for config in configs for each in config.texts("spark"))
    return {**asked, **given}


def _master(configs: Sequence[Config]) -> str | None:
    """The one master of all runs, which have one session; None without one."""
    masters = sorted({config.text("master") for config in configs} - {""})
    if len(masters) > 1:
        raise ConfigRefused([f"jobs of one file have one master, these have {', '.join(masters)}"])
    return masters[0] if masters else None


@contextmanager
def _stopping(stop: Stop) -> Iterator[None]:
    """A first Ctrl-C or SIGTERM lets the batch end; a second one ends the process."""

    def asked(number: int, _: FrameType | None) -> None:
        if stop.is_set:
            sys.exit(128 + number)
        stop.is_set = True
        print("ends after this batch", file=sys.stderr)

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser(jobs: Mapping[str, Job]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="warrenmq pipeline",
        description="Jobs that read streams and taps with Spark.",
        epilog="Exit codes: 0 done, 1 something was found, 2 wrong use, 3 failed.",
    )
    commands = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for job in jobs.values():
        command = commands.add_parser(
            job.name, help=job.help, description=job.help, allow_abbrev=False
        )
        for setting in job.settings:
            _add(command, setting)
        _add_common(command)
    file = commands.add_parser(_RUN, help="jobs that a TOML file declares", allow_abbrev=False)
    file.add_argument("file", metavar="FILE.toml")
    file.add_argument("names", nargs="*", metavar="NAME", help="these alone")
    file.add_argument("--report", help="one report of all of them, an HTML file")
    _add_common(file)
    packing = commands.add_parser(
        _PACKAGE,
        help=f"make {package.NAME} for spark-submit --py-files",
        allow_abbrev=False,
    )
    packing.add_argument("folder", nargs="?", default=".", metavar="FOLDER")
    return parser


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    command.add_argument("-v", "--verbose", action="store_true", help="errors with all lines")


def _add(command: argparse.ArgumentParser, setting: Setting) -> None:
    if setting.kind == "tables":
        return
    text = setting.help.replace("%", "%%")
    if setting.default not in (None, False, ""):
        text += f" (default {setting.default})"
    if setting.is_argument:
        command.add_argument(
            setting.name, nargs="+" if setting.kind == "texts" else None, help=text
        )
    elif setting.kind == "flag":
        command.add_argument(
            setting.option, dest=setting.name, action=argparse.BooleanOptionalAction, help=text
        )
    elif setting.kind == "texts":
        command.add_argument(
            setting.option, dest=setting.name, action="append", metavar="TEXT", help=text
        )
    elif setting.kind == "number":
        command.add_argument(setting.option, dest=setting.name, type=int, metavar="N", help=text)
    else:
        shown_name = "|".join(setting.choices) or setting.name.rpartition("_")[2].upper()
        command.add_argument(setting.option, dest=setting.name, metavar=shown_name, help=text)
