"""Settings of a job: declared once, read from options and from TOML, and refused by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from typing_extensions import override

from pipeline.command.tables import TableSpec, read_tables

Kind = Literal["text", "number", "flag", "texts", "tables"]
NUMBER_MAX: Final = (1 << 63) - 1


class ConfigRefused(Exception):
    """Settings that do not fit; `problems` has every one of them.

    Args:
        problems: A line each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True)
class Setting:
    """One setting: `--http-url` on the command line, `http_url` in a file.

    Attributes:
        name: As in a file.
        help: What it means, one line.
        kind: What its value is. `texts` may be given several times, `tables` in a file alone.
        default: Its value when it is not given; None for none.
        choices: The values there are; all if empty.
        low: The least number.
        is_needed: Whether it must be given.
        is_argument: Whether it stands on the command line without its name.
    """

    name: str
    help: str
    kind: Kind = "text"
    default: str | int | bool | None = None
    choices: Sequence[str] = ()
    low: int = 0
    is_needed: bool = False
    is_argument: bool = False

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Job:
    """A job as the command line knows it.

    Attributes:
        name: Its name.
        help: What it does, one line.
        settings: All it has.
        module: Where `run(spark, config, progress)` is; imported when it is run.
        exactly_one: Names of settings of which one must be given; empty without such a rule.
        never_ends: Whether it runs until it is stopped, unless `once` is set.
        starting: What it asks of a session that has no other kind of job: settings of Spark's.
    """

    name: str
    help: str
    settings: Sequence[Setting]
    module: str
    exactly_one: Sequence[str] = ()
    never_ends: bool = False
    starting: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """The checked settings of one run of a job.

    Attributes:
        job: Which.
        name: Of the run: the job's, or the one that a file gives it.
        values: By the name of the setting; those without a value are missing.
        tables: What a data-quality step makes of the messages.
        password: Of the broker; never shown.
    """

    job: Job
    name: str
    values: Mapping[str, str | int | bool | Sequence[str]]
    tables: Sequence[TableSpec] = ()
    password: str = field(default="", repr=False)

    def text(self, name: str) -> str:
        """A text; "" if it is not given."""
        return str(self.values.get(name, ""))

    def number(self, name: str) -> int:
        """A whole number; 0 if it is not given."""
        value = self.values.get(name, 0)
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        """True or false; false if it is not given."""
        return self.values.get(name, False) is True

    def texts(self, name: str) -> Sequence[str]:
        """Several texts; none if it is not given."""
        value = self.values.get(name, ())
        assert not isinstance(value, str | int)
        return value

    @property
    def never_ends(self) -> bool:
        """Whether this run goes on until it is stopped."""
        return self.job.never_ends and not self.flag("once")

    def connector(self) -> dict[str, str]:
        """The options of `format("amqp-stream")` that say where the broker is."""
        names = {
            "url": "url", "http_url": "httpUrl", "user": "user", "timeout_s": "timeout",
            "mechanism": "mechanism", "cacertfile": "tls.cacertfile", "certfile": "tls.certfile",
            "keyfile": "tls.keyfile",
        }  # fmt: skip
        found = {names[n]: str(v) for n, v in self.values.items() if n in names and v != ""}
        return found | ({"password": self.password} if self.password else {})

    @override
    def __str__(self) -> str:
        return f"{self.name} ({self.job.name})"


def read(job: Job, name: str, given: Mapping[str, object]) -> Config:
    """Check the settings of one run, all of them, before anything starts.

    Args:
        job: Which job.
        name: Of the run.
        given: By the name of the setting, as options or TOML have it.

    Raises:
        ConfigRefused: At least one does not fit; it tells of all.
    """
    problems: list[str] = []
    known = {setting.name: setting for setting in job.settings}
    values: dict[str, str | int | bool | Sequence[str]] = {
        s.name: s.default for s in job.settings if s.default is not None
    }
    tables: Sequence[TableSpec] = ()
    for key, value in given.items():
        setting = known.get(key)
        if setting is None:
            problems.append(f"there is no setting '{key}' of {job.name}{meant(key, known)}")
        elif setting.kind == "tables":
            tables, found = read_tables(value)
            problems += found
        else:
            found = _problems(setting, value)
            problems += found
            if not found:
                values[key] = _value(value)
    problems += _missing(job, values)
    problems += _common(values)
    if problems:
        raise ConfigRefused(problems)
    return Config(job, name, values, tables)


def meant(name: str, known: Iterable[str]) -> str:
    """Say which name was meant: "; did you mean X?", or the names there are."""
    names = sorted(known)
    near = difflib.get_close_matches(name.replace("-", "_"), names, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"


def _problems(setting: Setting, value: object) -> list[str]:
    name = setting.name
    if setting.kind == "flag":
        return [] if isinstance(value, bool) else [f"{name}: {value!r} is neither true nor false"]
    if setting.kind == "number":
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and setting.low <= int(str(value)) <= NUMBER_MAX:
            return []
        return [f"{name}: {value!r} is not a whole number from {setting.low}"]
    if setting.kind == "texts":
        if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
            return [] if not isinstance(value, str) else [f"{name}: {value!r} is not a list"]
        return [f"{name}: {value!r} is not a list of texts"]
    if not isinstance(value, str):
        return [f"{name}: {value!r} is not a text"]
    if setting.choices and value not in setting.choices:
        return [f"{name}: '{value}'{meant(value, setting.choices)}"]
    return []


def _value(value: object) -> str | int | bool | Sequence[str]:
    assert isinstance(value, str | int | list | tuple)
    return value


def _missing(job: Job, values: Mapping[str, object]) -> list[str]:
    found = [
        f"{s.name} is missing: {s.help}"
        for s in job.settings
        if s.is_needed and not values.get(s.name)
    ]
    chosen = [name for name in job.exactly_one if values.get(name)]
    if job.exactly_one and len(chosen) != 1:
        names = f"{', '.join(job.exactly_one[:-1])} and {job.exactly_one[-1]}"
        given = f"; given are {', '.join(chosen)}" if chosen else ""
        found.append(f"exactly one of {names} is needed{given}")
    return found


def _texts(value: object) -> Sequence[str]:
    return value if isinstance(value, list | tuple) else ()


def _common(values: Mapping[str, object]) -> list[str]:
    """Passwords of URLs would be seen in the list of processes, and in files that are shared."""
    found: list[str] = []
    for name in ("url", "http_url"):
        for url in str(values.get(name, "")).split(","):
            login, at, _ = url.partition("://")[2].rpartition("@")
            if at and ":" in login:
                found.append(
                    f"{name} has a password, which others would see: give user, and password_env "
                    "or password_file"
                )
                break
    found += [
        f"spark: '{each}' is not KEY=VALUE"
        for each in _texts(values.get("spark", ()))
        if "=" not in each
    ]
    if values.get("password_env") and values.get("password_file"):
        found.append("password_env and password_file: one of them")
    return found
