"""TOML files that declare jobs, and where passwords are read from."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipeline.command.configuration import Config, ConfigRefused, Job, meant, read
from pipeline.command.declared import BROKER

_PARTS: Final = ("broker", "jobs")


def read_file(path: Path, jobs: Mapping[str, Job]) -> list[Config]:
    """All runs that a file declares, in its order.

    Args:
        path: Of the file.
        jobs: By name.

    Raises:
        ConfigRefused: It is not there, no TOML, or does not fit; it tells of all problems.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigRefused([f"{path}: {reason}"]) from None
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigRefused([f"{path}: {error}"]) from None
    configs, problems = read_runs(found, jobs)
    if problems:
        raise ConfigRefused([f"{path}: {each}" for each in problems])
    return configs


def read_runs(
    found: Mapping[str, object], jobs: Mapping[str, Job]
) -> tuple[list[Config], list[str]]:
    """All runs of a document, and what is wrong with it.

    Args:
        found: What the TOML says.
        jobs: By name.
    """
    problems = [
        f"there is no part [{key}]{meant(key, _PARTS)}" for key in found if key not in _PARTS
    ]
    broker = _part(found, "broker", problems)
    names = [setting.name for setting in BROKER]
    problems += [
        f"[broker]: there is no setting '{key}'{meant(key, names)}"
        for key in broker
        if key not in names
    ]
    runs = _part(found, "jobs", problems)
    if not runs and not problems:
        problems.append("it declares no job: [jobs.NAME] with job = 'ingest' or another")
    configs: list[Config] = []
    for name, given in runs.items():
        if not isinstance(given, Mapping) or not isinstance(given.get("job"), str):
            problems.append(f"[jobs.{name}]: job is missing: one of {', '.join(jobs)}")
            continue
        job = jobs.get(given["job"])
        if job is None:
            problems.append(
                f"[jobs.{name}]: there is no job '{given['job']}'{meant(given['job'], jobs)}"
            )
            continue
        own = {setting.name for setting in job.settings}
        shared = {key: value for key, value in broker.items() if key in own and key in names}
        values = {key: value for key, value in given.items() if key != "job"}
        try:
            configs.append(read(job, name, {**shared, **values}))
        except ConfigRefused as refused:
            problems += [f"[jobs.{name}]: {each}" for each in refused.problems]
    problems += _order(configs)
    return configs, problems


def with_password(config: Config, environment: Mapping[str, str]) -> Config:
    """The configuration with the broker's password, read now.

    Args:
        config: As it was checked.
        environment: Of the process.

    Raises:
        ConfigRefused: There is no such variable or file.
    """
    variable, path = config.text("password_env"), config.text("password_file")
    if variable:
        if variable not in environment:
            raise ConfigRefused([f"password_env: there is no environment variable '{variable}'"])
        return replace(config, password=environment[variable])
    if path:
        try:
            return replace(config, password=Path(path).read_text("utf-8").rstrip("\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigRefused([f"password_file: '{path}' can't be read: {error}"]) from None
    return config


def _part(found: Mapping[str, object], name: str, problems: list[str]) -> Mapping[str, object]:
    part = found.get(name, {})
    if isinstance(part, Mapping):
        return part
    problems.append(f"{name}: it is no table, [{name}]")
    return {}


def _order(configs: Sequence[Config]) -> list[str]:
    return [
        f"[jobs.{config.name}] never ends, so what follows would never run: give it once = true, "
        "or make it the last"
        for config in configs[:-1]
        if config.never_ends
    ]
