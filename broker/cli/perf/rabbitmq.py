"""Three nodes of Debian's RabbitMQ beside ours, where it is installed: for comparisons.

They listen on loopback alone, keep everything in one folder, are found through an epmd of their
own, and know a cookie of their own: a RabbitMQ that runs on the machine is left alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_BIN = Path("/usr/lib/rabbitmq/bin")
_NODES = 3
PORTS = 2 * _NODES + 1
"""How many a cluster needs."""

_START_S = 120.0
_STOP_S = 20.0
_POLL_S = 0.2
_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
_STARTED = "completed with"


class RabbitError(Exception):
    """RabbitMQ did not start; the text says why."""


def is_installed() -> bool:
    """True where Debian's package is."""
    return (_BIN / "rabbitmq-server").exists()


class RabbitTrio:
    """A cluster of three, from `with` to its end.

    Args:
        folder: Where they keep everything; must exist.
        ports: `PORTS` free ones on loopback: for AMQP, for the nodes among themselves, for epmd.

    Attributes:
        uris: AMQP URIs, of each node.
    """

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._folder = folder
        self._amqp, self._dist = ports[:_NODES], ports[_NODES : 2 * _NODES]
        self._epmd_port = ports[2 * _NODES]
        self._processes: list[subprocess.Popen[bytes]] = []
        self.uris = [f"amqp://127.0.0.1:{port}" for port in self._amqp]

    def __enter__(self) -> Self:
        cookie = self._folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        (self._folder / "plugins").write_text("[].")
        try:
            for number in range(_NODES):
                self._start(number)
            for number in range(_NODES):
                self._wait(number)
            for number in range(1, _NODES):
                self._ctl(number, "stop_app")
                self._ctl(number, "join_cluster", self._name(0))
                self._ctl(number, "start_app")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def mirror(self, pattern: str) -> None:
        """Have queues mirrored on all nodes.

        Args:
            pattern: Of their names.
        """
        definition = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
        self._ctl(0, "set_policy", "bench", pattern, definition, "--apply-to", "queues")

    def _name(self, number: int) -> str:
        return f"bench{os.getpid()}-{number}@localhost"

    def _environment(self, number: int) -> dict[str, str]:
        folder = str(self._folder / str(number))
        return os.environ | {
            "HOME": str(self._folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": self._name(number),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._amqp[number]),
            "RABBITMQ_DIST_PORT": str(self._dist[number]),
            "RABBITMQ_MNESIA_BASE": folder,
            "RABBITMQ_LOG_BASE": folder,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _LOOPBACK,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_PID_FILE": f"{folder}/pid",
        }

    def _start(self, number: int) -> None:
        folder = self._folder / str(number)
        folder.mkdir()
        with (folder / "out").open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [str(_BIN / "rabbitmq-server")],
                    env=self._environment(number),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _wait(self, number: int) -> None:
        out = self._folder / str(number) / "out"
        deadline_s = time.monotonic() + _START_S
        while _STARTED not in out.read_text(errors="replace"):
            if self._processes[number].poll() is not None or time.monotonic() > deadline_s:
                raise RabbitError(f"RabbitMQ did not start: {out.read_text()[-400:]}")
            time.sleep(_POLL_S)

    def _ctl(self, number: int, *words: str) -> None:
        command = [str(_BIN / "rabbitmqctl"), "-n", self._name(number), *words]
        environment = self._environment(number)
        try:
            subprocess.run(command, env=environment, capture_output=True, check=True)
        except subprocess.CalledProcessError as error:
            text = error.stderr.decode(errors="replace")[-400:]
            raise RabbitError(f"rabbitmqctl {words[0]}: {text}") from error

    def _stop(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()
        command = ["epmd", "-port", str(self._epmd_port), "-kill"]
        with contextlib.suppress(OSError):
            subprocess.run(command, capture_output=True, check=False)
