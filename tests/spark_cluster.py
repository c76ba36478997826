"""A standalone Spark cluster for tests: a master and two workers of one core each, on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pyspark

from tests.nodes import free_ports, wait_until

SPARK = Path(pyspark.__file__).parent
EXECUTOR = "CoarseGrainedExecutorBackend"
_DEPLOY = "org.apache.spark.deploy"


def environment(**more: str) -> dict[str, str]:
    """Of Spark's processes: nothing of ours is on their path."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", **more}


class SparkCluster:
    """It runs until `end`.

    Args:
        folder: For its log and what executors leave.

    Attributes:
        url: Of the master.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "spark.log"
        port, self._page, *self._others = free_ports(6)
        self.url = f"spark://127.0.0.1:{port}"
        self._started: list[subprocess.Popen[bytes]] = []
        self._start(f"{_DEPLOY}.master.Master", port, self._page)
        for number in (0, 1):
            self._start(
                f"{_DEPLOY}.worker.Worker", self._others[number], self._others[number + 2],
                "--cores", "1", "--memory", "600m",
                "--work-dir", str(self.work(number)), self.url,
            )  # fmt: skip

    def work(self, number: int) -> Path:
        """The folder where a worker keeps what its executors use."""
        return self._folder / f"worker{number}"

    def _start(self, what: str, port: int, page: int, *words: str) -> None:
        command = [SPARK / "bin" / "spark-class", what, "--host", "127.0.0.1"]
        ports = ["--port", str(port), "--webui-port", str(page)]
        with self._log.open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    [*command, *ports, *words],
                    env=environment(SPARK_DAEMON_MEMORY="256m"), stdout=log, stderr=log,
                )
            )  # fmt: skip

    def wait_ready(self) -> None:
        """Wait until the master knows both workers."""
        wait_until(lambda: self._alive() == 2, "both workers are registered")

    def _alive(self) -> int:
        assert all(one.poll() is None for one in self._started), self._log.read_text()
        try:
            url = f"http://127.0.0.1:{self._page}/json/"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (urllib.error.URLError, OSError, json.JSONDecodeError):
            return 0  # a master that starts may answer with its page, in HTML

    def executors(self) -> list[int]:
        """Process ids of the executors, which are the workers' children."""
        return [pid for each in self._started for pid in _children(each.pid) if _is_executor(pid)]

    def kill_executor(self) -> None:
        """Kill one, with SIGKILL, as soon as there is one."""
        wait_until(lambda: bool(self.executors()), "there is an executor")
        os.kill(self.executors()[0], signal.SIGKILL)

    def end(self) -> None:
        """End all of it, executors included."""
        left = self.executors()
        for one in self._started:
            one.kill()
            one.wait()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has noticed that its worker is gone


def _children(pid: int) -> list[int]:
    # Java starts children from threads of its own.
    tasks = Path(f"/proc/{pid}/task")
    try:
        text = " ".join((task / "children").read_text() for task in tasks.iterdir())
    except OSError:
        return []
    return [int(each) for each in text.split()]


def _is_executor(pid: int) -> bool:
    try:
        return EXECUTOR.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
