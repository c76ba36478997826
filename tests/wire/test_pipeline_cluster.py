"""The connector on a standalone Spark cluster, whose workers have nothing of ours on their path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import py4j
import pyarrow.parquet
import pyspark

from pipeline import audit
from tests.nodes import Node
from tests.spark_cluster import SparkCluster, environment

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).parents[2]
JOB = """
import sys
from pipeline import session
master, url, http, stream, folder = sys.argv[1:]
settings = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
spark = session.open(master, name="copy", settings=settings)
source = spark.readStream.format("amqp-stream").options(url=url, httpUrl=http, stream=stream)
rows = source.option("minPartitions", "2").option("columns", "offset,body").load()
lake = rows.writeStream.format("parquet").option("path", folder + "/lake")
query = lake.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has PySpark and PyArrow, and no other package."""
    site = tmp_path / "site"
    site.mkdir()
    for package in (pyspark, pyarrow, py4j):
        folder = Path(package.__file__).parent
        (site / folder.name).symlink_to(folder)
    made = tmp_path / "python"
    made.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec {sys.executable} -S -s "$@"\n'
    )
    made.chmod(0o755)
    return made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    lacking = audit.why_not()
    if lacking:
        pytest.skip(lacking)
    one = SparkCluster(tmp_path)
    try:
        one.wait_ready()
        yield one
    finally:
        one.end()


def test_the_same_job_runs_on_this_machine_and_on_workers_without_our_package(
    node: Node, name: str, cluster: SparkCluster, bare_python: Path, tmp_path: Path
):
    lacks = [bare_python, "-c", "import pyspark, pyarrow, pipeline"]
    refused = subprocess.run(
        lacks, env=environment(), capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "No module named 'pipeline'" in refused.stderr
    urls = f"amqp://127.0.0.1:{node.amqp_port}", f"http://127.0.0.1:{node.management_port}"
    for first, where, python in (
        (0, "local[2]", sys.executable),
        (300, cluster.url, str(bare_python)),
    ):
        with node.connect() as connection:  # Spark takes longer than a connection lives unattended
            channel = connection.channel()
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
            for number in range(first, first + 300):
                channel.basic_publish("", name, b"%d" % number)
        ended = subprocess.run(
            [sys.executable, "-c", JOB, where, *urls, name, str(tmp_path)],
            env=environment(PYSPARK_PYTHON=python, PYTHONPATH=str(ROOT)),
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr[-4000:]
        rows = pyarrow.parquet.read_table(tmp_path / "lake", columns=["offset", "body"])
        found = sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        assert found == [(n, b"%d" % n) for n in range(first + 300)]
    for number in (0, 1):
        assert list(cluster.work(number).glob("app-*/*/warrenmq_pipeline.zip"))
