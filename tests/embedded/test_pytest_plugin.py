"""The pytest plugin, as other people's suites load it: in a pytest of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
INI = """
[pytest]
addopts = -p broker.pytest_plugin -p no:cacheprovider -q
asyncio_default_fixture_loop_scope = function
filterwarnings = error
warrenmq_settings =
    {setting}
"""


def _run(
    tmp_path: Path, suite: str, *words: str, setting: str = "channel_max = 1"
) -> subprocess.CompletedProcess[str]:
    shutil.copy(HERE / suite, tmp_path / f"test_{suite}")
    return _run_folder(tmp_path, *words, setting=setting)


def _run_folder(tmp_path: Path, *words: str, setting: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "pytest.ini").write_text(INI.format(setting=setting))
    (tmp_path / "tmp").mkdir()
    environ = {
        **os.environ,
        "PYTHONPATH": str(HERE.parents[1]),
        "TMPDIR": str(tmp_path / "tmp"),
    }
    environ.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )


def _left_behind(tmp_path: Path) -> list[str]:
    folders = [str(each) for each in (tmp_path / "tmp").glob("warrenmq-*")]
    lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    return folders + [line for line in lines if str(tmp_path) in line]


@pytest.mark.parametrize(
    "words", [(), pytest.param(("-n", "2"), marks=pytest.mark.long)], ids=["one process", "xdist"]
)
def test_a_users_suite_passes_and_leaves_nothing(tmp_path: Path, words: tuple[str, ...]):
    done = _run(tmp_path, "sample_suite.py", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
    assert _left_behind(tmp_path) == []


@pytest.mark.long
def test_a_users_cluster_suite_passes_and_leaves_nothing(tmp_path: Path):
    done = _run(tmp_path, "sample_cluster_suite.py", setting="heartbeat = 30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert _left_behind(tmp_path) == []


def test_the_examples_of_the_documentation_run(tmp_path: Path):
    text = (HERE.parents[1] / "docs" / "testing.md").read_text()
    program, suite = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "b'hello'\n", done.stderr
    (tmp_path / "test_docs.py").write_text(suite)
    done = _run_folder(tmp_path, setting="channel_max = 64")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_setting_that_is_wrong_is_named(tmp_path: Path):
    done = _run(tmp_path, "sample_suite.py", setting="heartbeat")
    assert "warrenmq_settings: expected KEY = VALUE, found 'heartbeat'" in done.stdout


def test_the_plugin_imports_nothing_of_weight():
    program = (
        "import sys, pytest; before = set(sys.modules); import broker.pytest_plugin;"
        " print(sorted(n for n in set(sys.modules) - before if not n.startswith('_')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    heavy = {"aiohttp", "asyncio", "broker.node", "msgspec", "psutil", "rocksdict", "uvloop"}
    assert not heavy & set(eval(done.stdout))
