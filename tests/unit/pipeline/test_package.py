"""The zip file for Spark's workers: all of `pipeline`, and nothing that they must install."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline import package
from pipeline.command.main import FAILED, FINE, main

ROOT = Path(__file__).parents[3]
IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import pipeline.wire.connection, pipeline.command.configuration, pipeline.package
import pyspark_amqp_stream, typing_extensions
for module in (pipeline, pyspark_amqp_stream, typing_extensions):
    assert module.__file__.startswith(sys.argv[1]), module.__file__
print(pipeline.package.build(__import__("pathlib").Path(sys.argv[2])))
"""


def test_the_command_makes_a_package_that_a_python_without_others_imports(tmp_path, capsys):
    assert main(["package", str(tmp_path)]) == FINE
    made = tmp_path / package.NAME
    assert capsys.readouterr().out.strip() == str(made)
    again = subprocess.run(
        [sys.executable, "-S", "-E", "-c", IMPORTS, str(made), str(tmp_path / "copy")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert Path(again.stdout.strip()).read_bytes() == made.read_bytes()


def test_the_package_has_each_source_of_ours_once_and_the_same_bytes_each_time(tmp_path):
    made = package.build(tmp_path / "one")
    assert made.read_bytes() == package.build(tmp_path / "two").read_bytes()
    names = sorted(zipfile.ZipFile(made).namelist())
    sources = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "pipeline").rglob("*.py"))
    assert names == [*sources, "pyspark_amqp_stream.py", "typing_extensions.py"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["package", str(tmp_path / "file")]) == FAILED
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_jobs_of_one_file_have_one_master(tmp_path, capsys):
    pytest.importorskip("pyspark")
    job = '[jobs.{0}]\njob = "compact"\nlake = "{1}"\nmaster = "spark://{0}:7077"\n'
    file = tmp_path / "jobs.toml"
    file.write_text("".join(job.format(name, tmp_path / name) for name in ("a", "b")))
    assert main(["run", str(file)]) != FINE
    assert "one master, these have spark://a:7077, spark://b:7077" in capsys.readouterr().err
