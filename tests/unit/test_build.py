"""Wheels, sdists and checkouts: each has the management page, with the notices of its libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from broker.management.page import vendor

ROOT = Path(__file__).parents[2]
TREES = ("broker", "raft", "gm", "pipeline", "chaos")
FILES = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
    *("warrenmq.py", "pyspark_amqp_stream.py"),
)
PAGE = "broker/management/page/static/"
WANTED = {
    f"{PAGE}index.html",
    *(f"{PAGE}vendor/{name}" for name in (*(each.name for each in vendor.ASSETS), "NOTICE")),
}


def checkout(place: Path) -> Path:
    """A copy of what is built, without the libraries of the page."""
    place.mkdir()
    for name in TREES:
        ignored = shutil.ignore_patterns("__pycache__", "vendor")
        shutil.copytree(ROOT / name, place / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, place)
    return place


def built(tree: Path, what: str, to: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build as pip's front end does, without an environment of its own."""
    command = f"import setuptools.build_meta as b, sys; print(b.build_{what}(sys.argv[1]))"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environment
    return subprocess.run(
        [sys.executable, "-c", command, str(to)],
        cwd=tree, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


NO_NETWORK = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1"}


@pytest.mark.long
def test_an_sdist_has_the_page_and_what_is_built_from_it_needs_no_network(tmp_path):
    try:
        vendor.fill()
    except vendor.VendorError as error:
        pytest.skip(str(error))
    tree = checkout(tmp_path / "tree")
    shutil.copytree(vendor.FOLDER, tree / PAGE / "vendor")
    made = built(tree, "sdist", tmp_path)
    assert made.returncode == 0, made.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= WANTED | {"setup.py"}
    (tmp_path / "sdist").mkdir()
    archive = str(next(tmp_path.glob("*.tar.gz")))
    subprocess.run(["tar", "-xzf", archive, "-C", str(tmp_path / "sdist")], check=True)

    made = built(next((tmp_path / "sdist").iterdir()), "wheel", tmp_path, **NO_NETWORK)
    assert made.returncode == 0, made.stderr
    wheel = zipfile.ZipFile(next(tmp_path.glob("*.whl")))
    assert set(wheel.namelist()) >= WANTED
    assert wheel.read(f"{PAGE}vendor/preact.js") == (vendor.FOLDER / "preact.js").read_bytes()
    notice = wheel.read(f"{PAGE}vendor/NOTICE").decode()
    assert all(name in notice for name in ("Preact", "htm", "uPlot", "MIT License"))


@pytest.mark.long
def test_a_wheel_without_its_page_is_not_made_and_one_line_says_why(tmp_path):
    tree = checkout(tmp_path / "tree")
    made = built(tree, "wheel", tmp_path, **NO_NETWORK)
    assert made.returncode != 0
    last = made.stderr.strip().splitlines()[-1]
    assert "datasette-preact and youplot" in last
    assert "make setup" in last
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.long
def test_a_checkout_installs_without_the_libraries(tmp_path):
    tree = checkout(tmp_path / "tree")
    made = built(tree, "editable", tmp_path, **NO_NETWORK)
    assert made.returncode == 0, made.stderr
    assert "make setup" in made.stderr
