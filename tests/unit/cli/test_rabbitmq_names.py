"""RabbitMQ's names for `ctl`: a distribution of its own, built and run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.ctl.help.tools import COMMANDS
from tests.unit.cli.fake_api import FakeApi

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "rabbitmq-names"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its programs, installed from its wheel; nothing is fetched."""
    directory = tmp_path_factory.mktemp("names")
    shutil.copytree(FOLDER, directory / "source")
    target = directory / "installed"
    for words in (
        ("wheel", *OFFLINE, "-w", str(directory), str(directory / "source")),
        ("install", "--no-index", "--no-deps", "--target", str(target)),
    ):
        wheels = [] if words[0] == "wheel" else [str(next(directory.glob("*.whl")))]
        subprocess.run([*PIP, *words, *wheels], check=True)
    return target / "bin"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    fake.answers["GET", "/api/overview"] = (200, {"rabbitmq_version": "3.13.7"})
    yield fake
    fake.close()


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [program, *words], capture_output=True, check=False, text=True, env=environ
    )


def test_its_programs_are_rabbitmqs_tools(programs: Path):
    assert {each.name for each in programs.iterdir()} == {*COMMANDS}


def test_its_version_is_the_brokers():
    versions = [
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
        for folder in (FOLDER, ROOT)
    ]
    assert versions[0] == versions[1]


@pytest.mark.parametrize("tool", sorted(COMMANDS))
def test_each_runs_and_lists_its_own_commands(programs: Path, tool: str):
    done = run(programs / tool, "help")
    assert done.returncode == 0
    assert f"{tool} [OPTIONS] COMMAND" in done.stdout
    assert COMMANDS[tool][0] in done.stdout


def test_each_answers_as_ctl_does(programs: Path, api: FakeApi):
    done = run(programs / "rabbitmqctl", "--url", api.url, "version", "--formatter", "json")
    assert (done.returncode, json.loads(done.stdout)["value"]) == (0, {"version": "3.13.7"})
    done = run(programs / "rabbitmqctl", "--url", api.url, "add_user")
    assert done.returncode == 64
    assert "\nrabbitmqctl add_user <username>" in done.stderr
    done = run(programs / "rabbitmq-streams", "--url", api.url, "coordinator_status")
    assert done.returncode == 64
    assert "coordinator_status is not supported: streams have no coordinator" in done.stderr
