"""py-amqp's own integration tests, from its source distribution, against our nodes.

`t/integration/test_rmq.py` is what its authors run against RabbitMQ. Left out: the tests that want
TLS and certificates the distribution lacks, and `test_integration.py`, which talks to mocks only.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.clients.place import Place

VERSION = importlib.metadata.version("amqp")
TESTS_MIN = 12
DOWNLOAD_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked distribution, kept in pytest's cache."""
    cache = request.config.cache if hasattr(request.config, "cache") else None
    kept = cache.mkdir("py-amqp") if cache is not None else tmp_path_factory.mktemp("py-amqp")
    folder = kept / f"amqp-{VERSION}"
    if not (folder / "t" / "integration" / "test_rmq.py").exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-binary", ":all:"]
        command += ["--retries", "1", "--timeout", "10", "--dest", str(kept), f"amqp=={VERSION}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"no source distribution of amqp {VERSION} in {DOWNLOAD_TIMEOUT_S} s")
        if done.returncode:
            pytest.skip(f"no source distribution of amqp {VERSION}: {done.stderr.strip()[-200:]}")
        with tarfile.open(kept / f"amqp-{VERSION}.tar.gz") as archive:
            # Python has filters since 3.11.4; Debian 12's has none.
            safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(kept, **safely)
    return folder


def test_its_tests_against_rabbitmq_pass(place: Place, source: Path) -> None:
    """Each of them declares the same exclusive queue on a connection of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    command += ["-k", "not tls", "t/integration/test_rmq.py"]
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    environment["RABBITMQ_HOST"] = "127.0.0.1"
    environment["RABBITMQ_5672_TCP"] = str(place.here.amqp_port)
    done = subprocess.run(
        command,
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= TESTS_MIN
