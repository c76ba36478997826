"""py-amqp's own integration tests, from its source distribution, against our nodes.

`t/integration/test_rmq.py` is what its authors run against RabbitMQ. The certificates that it names
are not in the distribution, so ours are there. Left out: the two tests that connect to a host of
the internet, and `test_integration.py`, which talks to mocks only.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.clients.place import Place
from tests.nodes import wait_until
from tests.tls_place import TlsPlace

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


def passed(source: Path, folder: Path, chosen: str, environment: dict[str, str]) -> int:
    """How many of its tests have passed, and none has failed; they run in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    command += ["-k", chosen, str(source / "t" / "integration" / "test_rmq.py")]
    inherited = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    return int(found[1])


def test_its_tests_against_rabbitmq_pass(place: Place, source: Path, tmp_path: Path) -> None:
    """Each of them declares the same exclusive queue on a connection of its own."""
    environment = {"RABBITMQ_HOST": "127.0.0.1", "RABBITMQ_5672_TCP": str(place.here.amqp_port)}
    assert passed(source, tmp_path, "not tls", environment) >= TESTS_MIN


def test_its_tests_against_rabbitmq_pass_over_tls(
    tls_place: TlsPlace, source: Path, tmp_path: Path
) -> None:
    """With a certificate, and refused with one that another authority has signed.

    Rows: 1.1 TLS
    """
    refused = "TLS handshake failed: .*unable to get local issuer certificate"
    told = len(tls_place.lines(refused))
    folder = tmp_path / "t" / "certs"  # as its tests name it
    folder.mkdir(parents=True)
    shutil.copy(tls_place.authority.certfile, folder / "ca_certificate.pem")
    for kind, authority in (("", tls_place.authority), ("_broken", Authority(tmp_path, "foreign"))):
        pair = authority.pair("guest")  # it takes EXTERNAL where that is offered
        shutil.copy(pair.certfile, folder / f"client_certificate{kind}.pem")
        shutil.copy(pair.keyfile, folder / f"client_key{kind}.pem")
    environment = {
        "RABBITMQ_HOST": "127.0.0.1",
        "RABBITMQ_5671_TCP": str(tls_place.port),
        # the client that must fail trusts the node: it is the node that refuses
        "SSL_CERT_FILE": str(tls_place.authority.certfile),
    }
    assert passed(source, tmp_path, "tls and not default_certs", environment) >= TESTS_MIN
    wait_until(lambda: len(tls_place.lines(refused)) > told, "the node says why it has refused", 15)
