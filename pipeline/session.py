"""A Spark session: on this machine, or on a cluster that exists."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline import package

LOCAL = "local[*]"

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
_LOCAL_SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
    # The driver's ports are for this machine alone. Workers of a cluster could not reach them.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def open(  # noqa: A001  always called as session.open
    master: str | None = None,
    *,
    name: str = "warrenmq",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session, with the data source `amqp-stream`; quiet, without a web page.

    Workers of a cluster get our package from the driver. They need PySpark and PyArrow under the
    same path of Python as the driver, which is `PYSPARK_PYTHON`, or the Python that runs this.

    Args:
        master: The URL of Spark's master, as `spark://HOST:7077`. Without it: the one that
            spark-submit was given, or else `local[*]`, all processors of this machine.
        name: The application's.
        settings: Spark's, beside or instead of ours.
    """
    # PySpark starts workers, and looks for data sources, with `python3` of the path without this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not is_submitted:
        master = LOCAL
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    chosen = dict(_SETTINGS)
    is_local = master is not None and master.startswith("local")
    if is_local:
        chosen |= _LOCAL_SETTINGS
    ours = package.FOLDER
    if not is_local and not is_submitted:
        ours = package.build(_kept_to_the_end())
        chosen["spark.submit.pyFiles"] = str(ours)
    _find_data_source(ours)
    for key, value in (chosen | dict(settings or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def changed(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for what is planned meanwhile; then what it had.

    Args:
        spark: The session.
        wanted: Key -> value.
    """
    before = {key: spark.conf.get(key) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is not None:
                spark.conf.set(key, old)


def _kept_to_the_end() -> Path:
    """A folder for what the driver serves to workers that join late; removed at exit."""
    folder = Path(tempfile.mkdtemp(prefix="warrenmq-pipeline-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _find_data_source(ours: Path) -> None:
    """Put our package on the path of the Python processes that the driver's JVM starts.

    An installed package is found without this; a checkout, an editable installation and a package
    that spark-submit was given are not.
    """
    folder = str(ours)
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in (*path, sysconfig.get_path("purelib")):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, *path)))
