"""deploy/build-base.sh says what it lacks, before it does anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "deploy" / "build-base.sh"


def test_without_its_tools_it_names_the_packages_to_install(tmp_path: Path):
    for tool in ("dirname", "id"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    run = subprocess.run(
        ["/bin/bash", str(SCRIPT)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    assert lines[0].endswith("is not installed: run 'apt-get install debootstrap' first")
    assert lines[1].endswith("is not installed: run 'apt-get install docker.io' first")
    assert all(line.startswith("build-base.sh: ") for line in lines)


def test_anybody_but_root_is_told_so(tmp_path: Path):
    for tool, text in (("id", "echo 1000"), ("debootstrap", "exit 9"), ("docker", "exit 9")):
        path = tmp_path / tool
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
    (tmp_path / "dirname").symlink_to(str(shutil.which("dirname")))
    run = subprocess.run(
        ["/bin/bash", str(SCRIPT)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert run.returncode == 1
    assert "debootstrap needs root: run it as root, or 'sudo " in run.stderr
