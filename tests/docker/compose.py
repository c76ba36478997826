"""docker-compose.yml from outside: up, kill, disconnect, down. Clients use published ports only."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.nodes import free_ports

ROOT = Path(__file__).parents[2]
IMAGE = f"wqtest{uuid.uuid4().hex[:8]}:test"
"""Of this run: built by its first project, removed by `conftest.py` when all tests are done."""
OFFLINE_BASE = "warrenmq/base:bookworm"
PUBLIC_BASE = "python:3.11-slim-bookworm"


def run(
    *words: str, timeout_s: float = 120, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=timeout_s, cwd=ROOT, env=env
    )


def why_not() -> str | None:
    """Why containers can't be run here, None if they can."""
    if shutil.which("docker") is None:
        return "no docker command"
    try:
        answer = run("docker", "version", "--format", "{{.Server.Version}}", timeout_s=20)
    except subprocess.TimeoutExpired:
        return "the Docker engine does not answer"
    if answer.returncode:
        return f"no Docker engine: {answer.stderr.strip()[:200]}"
    if compose_command() is None:
        return "neither `docker compose` nor docker-compose"
    return None


def compose_command() -> tuple[str, ...] | None:
    if shutil.which("docker") and run("docker", "compose", "version").returncode == 0:
        return ("docker", "compose")
    return ("docker-compose",) if shutil.which("docker-compose") else None


def find_base() -> str | None:
    """A base image that is here or can be had; builds the offline one as a last resort."""
    for image in (OFFLINE_BASE, PUBLIC_BASE):
        if run("docker", "image", "inspect", image).returncode == 0:
            return image
    try:
        if run("docker", "pull", "-q", PUBLIC_BASE, timeout_s=180).returncode == 0:
            return PUBLIC_BASE
    except subprocess.TimeoutExpired:
        pass
    if shutil.which("debootstrap") and os.geteuid() == 0:
        built = run("deploy/build-base.sh", OFFLINE_BASE, timeout_s=600)
        if built.returncode == 0:
            return OFFLINE_BASE
    return None


class Compose:
    """One project of docker-compose.yml, with ports and a name of its own."""

    def __init__(self, base: str, user: str, password: str) -> None:
        self.project = f"wqtest{uuid.uuid4().hex[:8]}"
        self.amqp_ports = free_ports(3)
        self.management_ports = free_ports(3)
        self.env = {
            **os.environ,
            "WARRENMQ_BASE": base,
            "WARRENMQ_IMAGE": IMAGE,
            "RABBITMQ_DEFAULT_USER": user,
            "RABBITMQ_DEFAULT_PASS": password,
        }
        for i in range(3):
            self.env[f"WARRENMQ_AMQP_PORT_{i + 1}"] = str(self.amqp_ports[i])
            self.env[f"WARRENMQ_MANAGEMENT_PORT_{i + 1}"] = str(self.management_ports[i])

    def __call__(self, *words: str, timeout_s: float = 900) -> str:
        command = compose_command()
        assert command is not None
        done = run(*command, "-p", self.project, *words, timeout_s=timeout_s, env=self.env)
        assert done.returncode == 0, (
            f"{' '.join(words)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
        return done.stdout

    def container(self, service: str) -> str:
        return self("ps", "-q", service).strip()

    def docker(self, *words: str) -> str:
        done = run("docker", *words)
        assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
        return done.stdout

    def health(self, service: str) -> str:
        return self.docker(
            "inspect", "-f", "{{.State.Health.Status}}", self.container(service)
        ).strip()

    def disconnect(self, service: str) -> None:
        self.docker("network", "disconnect", f"{self.project}_cluster", self.container(service))

    def connect(self, service: str) -> None:
        alias = ("--alias", f"{service}.cluster")
        self.docker(
            "network", "connect", *alias, f"{self.project}_cluster", self.container(service)
        )

    def is_ready(self, node: int) -> bool:
        url = f"http://127.0.0.1:{self.management_ports[node - 1]}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return answer.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def wait_until(self, holds: Callable[[], bool], seconds: float, claim: str) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {seconds} s: {claim}\n{self('logs', '--tail', '20')}")
            time.sleep(0.2)

    def down(self) -> None:
        self("down", "-v", "--remove-orphans", "-t", "3")


def has_image() -> bool:
    return run("docker", "image", "inspect", IMAGE).returncode == 0


def remove_image() -> None:
    run("docker", "image", "rm", "-f", IMAGE, timeout_s=60)


@contextmanager
def running(user: str, password: str, *, wait: bool = True) -> Iterator[Compose]:
    """Three nodes that serve (or start), gone afterwards; skips where there can't be any."""
    reason = why_not()
    if reason:
        pytest.skip(f"needs a Docker engine: {reason}")
    base = find_base()
    if base is None:
        pytest.skip("no base image: no registry answers, and debootstrap can't make one here")
    made = Compose(base, user, password)
    try:
        if not has_image():
            made("build", "node1")
        made("up", "-d")
        for node in (1, 2, 3) if wait else ():
            made.wait_until(lambda n=node: made.is_ready(n), 90, f"node{node} is ready")
        yield made
    finally:
        made.down()
