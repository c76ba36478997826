"""Real nodes for tests: `warrenmq server` as subprocesses on free loopback ports."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pika

from tests import reference
from tests.machine import lateness
from tests.reference import OnlyOurs

READY_TIMEOUT_S = 40.0


_PORTS = range(13_000, 29_750)
_BLOCK = 250


def _candidates() -> Iterator[int]:
    """The ports of a block that is this process's alone, again and again.

    They lie below the range from which the kernel gives clients theirs: a port of that range could
    be a client's by the time a node, or a restarted one, listens on it. They lie between the ports
    that `warrenmq.Broker` and chaos runs draw for clusters of their own (10,000 to 12,900, and
    20,000 above), which may run at the same time: while a node of theirs is killed, its port looks
    free. Test sessions that run at once each hold the lock of another block.
    """
    folder = Path(tempfile.gettempdir()) / f"warrenmq-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in _PORTS[::_BLOCK]:
        lock = (folder / str(first)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        _locks.append(lock)  # held until the process ends
        return itertools.cycle(range(first, first + _BLOCK))
    raise AssertionError("every block of test ports is in use")


_locks: list[IO[str]] = []
_ports: Iterator[int] = iter(())


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now, and that were not drawn lately."""
    global _ports  # noqa: PLW0603 - drawn at first use: not every session starts nodes
    if not _locks:
        _ports = _candidates()
    found: list[int] = []
    while len(found) < count:
        port = next(_ports)
        with socket.socket() as item:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                item.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def wait_until(claim: Callable[[], bool], what: str, timeout_s: float = 60.0) -> float:
    """Wait for a claim to become true; returns the seconds it took, fails after the timeout.

    The timeout is for a machine that has nothing else to do; see `tests.machine.lateness`.
    """
    start = time.monotonic()
    limit_s = timeout_s
    while not claim():
        if time.monotonic() - start > limit_s:
            if limit_s >= timeout_s * lateness():
                raise AssertionError(f"not within {limit_s:.1f} s: {what}")
            limit_s += timeout_s
        time.sleep(0.02)  # polling a process that cannot call us back
    return time.monotonic() - start


class Node:
    """One `warrenmq server` process.

    Attributes:
        module: What is run; `broker`, or one that makes its surroundings worse.
        source: The tree of another version to run; None for this one.
    """

    module = "broker"
    source: Path | None = None

    def __init__(self, name: str, directory: Path, settings: Iterable[str] = ()) -> None:
        if reference.IS_SET:
            reference.refuse(f"the node '{name}'")
        self.name = name
        self.directory = directory
        self.amqp_port, self.management_port, self.cluster_port = free_ports(3)
        self.settings = list(settings)
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = directory / "log.txt"
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def user_name(self) -> str:
        return f"rabbit@{self.name}"

    def start(self, *, wait: bool = True) -> None:
        settings = [
            f"node.name={self.user_name}",
            f"data_dir={self.directory / 'data'}",
            f"listeners.tcp.1=127.0.0.1:{self.amqp_port}",
            f"management.tcp.port={self.management_port}",
            "management.tcp.ip=127.0.0.1",
            f"cluster.listen=127.0.0.1:{self.cluster_port}",
            "prometheus.tcp.port=none",
            *self.settings,
        ]
        command = [sys.executable, "-m", self.module, "server"]
        for setting in settings:
            command += ["--set", setting]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self.source, env=self._env()
            )
        if wait:
            self.wait_ready()

    def _env(self) -> dict[str, str] | None:
        if self.source is None:
            return None
        return {**os.environ, "PYTHONPATH": str(self.source)}

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended:\n{self.log()}")
            return self.is_ready()

        wait_until(ready, f"{self.name} serves; its log:\n{self.log()}", READY_TIMEOUT_S)

    def is_ready(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.management_port}/readyz"
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def log(self) -> str:
        return self.full_log()[-4000:]

    def full_log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = 15.0) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not stop:\n{self.log()}") from None

    def end(self) -> None:
        """For clean-up: whatever state it is in, it is gone."""
        if self.process is not None and self.process.poll() is None:
            self.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def parameters(self, **more: Any) -> pika.ConnectionParameters:
        more.setdefault("heartbeat", 30)
        more.setdefault("blocked_connection_timeout", 30)
        more.setdefault("virtual_host", reference.VHOST)
        return pika.ConnectionParameters(reference.HOST, self.amqp_port, **more)

    def connect(self, **more: Any) -> pika.BlockingConnection:
        return pika.BlockingConnection(self.parameters(**more))

    def api(self, method: str, path: str, body: object = None) -> Any:
        """Ask the management API as guest; returns the decoded answer, None without one."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.management_port}/api{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=15) as answer:
            text = answer.read()
        return json.loads(text) if text else None


class Reference(Node):
    """The broker that `tests.reference` names: it is reached, and is not ours to start or stop."""

    name, directory, settings = OnlyOurs(), OnlyOurs(), OnlyOurs()
    process, log_path = OnlyOurs(), OnlyOurs()
    management_port, cluster_port = OnlyOurs(), OnlyOurs()

    def __init__(self) -> None:
        self.amqp_port = reference.PORT


class Trio:
    """Several nodes of one cluster."""

    def __init__(self, directory: Path, count: int = 3, settings: Iterable[str] = ()) -> None:
        self.nodes = [Node(f"node{i}", directory / f"node{i}") for i in range(1, count + 1)]
        peers = [
            f"cluster.peers.{node.user_name}=127.0.0.1:{node.cluster_port}" for node in self.nodes
        ]
        for node in self.nodes:
            node.settings = ["cluster.secret=test-secret", *peers, *settings]

    def start(self) -> None:
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_ready()

    def end(self) -> None:
        for node in self.nodes:
            node.end()

    def named(self, user_name: str) -> Node:
        return next(node for node in self.nodes if node.user_name == user_name)

    def leader(self, queue: str, ask: Node | None = None) -> Node | None:
        """The node that serves a queue, as `ask` (default: any that answers) sees it."""
        for node in [ask] if ask is not None else self.nodes:
            try:
                found = node.api("GET", f"/queues/%2F/{queue}")
            except (urllib.error.URLError, OSError):
                continue
            leader = found.get("leader")
            if leader:
                return self.named(leader)
        return None
