"""What a run is asked to do; stored beside its history, and all the judges know of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

FILE = "options.json"
QUEUES = ("quorum", "classic")
FAULTS = ("none", "kill-leader", "pause-leader", "kill-all", "restart")

Queue = Literal["quorum", "classic"]
Fault = Literal["none", "kill-leader", "pause-leader", "kill-all", "restart"]

_SECONDS = {"none": 15, "kill-leader": 30, "pause-leader": 40, "kill-all": 40, "restart": 30}
_CYCLES = {"none": 0, "kill-leader": 2, "pause-leader": 1, "kill-all": 2, "restart": 2}


class Options(msgspec.Struct, frozen=True):
    """A run.

    Attributes:
        queue: The type of the queue under test.
        fault: What happens to the nodes.
        seed: Draws everything that is drawn.
        seconds: How long the load lasts; longer if the faults need it.
        rate: Messages per second, all publishers together.
        cycles: How often the fault happens.
        publishers: How many, each first on another node.
        consumers: How many.
        name: The queue's name.
        confirmed_min: Fewer confirmed messages prove nothing.
        confirmed_in_faults_min: Fewer within fault windows prove nothing, where the queue is
            promised to serve during the fault.
    """

    queue: Queue
    fault: Fault
    seed: int
    seconds: int
    rate: int = 200
    cycles: int = 1
    publishers: int = 3
    consumers: int = 3
    name: str = "chaos"
    confirmed_min: int = 200
    confirmed_in_faults_min: int = 10

    @property
    def is_available(self) -> bool:
        """Whether the queue is promised to serve while a fault lasts."""
        return self.queue == "quorum" and self.fault in ("kill-leader", "pause-leader", "restart")


def with_defaults(
    queue: Queue,
    fault: Fault,
    seed: int,
    *,
    seconds: int | None = None,
    rate: int = 200,
    cycles: int | None = None,
) -> Options:
    """Options of a run, with a length that fits the fault where none is given."""
    return Options(
        queue=queue,
        fault=fault,
        seed=seed,
        seconds=_SECONDS[fault] if seconds is None else seconds,
        rate=rate,
        cycles=0 if fault == "none" else _CYCLES[fault] if cycles is None else cycles,
    )


def save(directory: Path, options: Options) -> None:
    """Write a run's options."""
    text = msgspec.json.format(msgspec.json.encode(options), indent=2)
    (directory / FILE).write_bytes(text + b"\n")


def load(directory: Path) -> Options:
    """Read a run's options.

    Raises:
        OSError: They are not there.
        msgspec.MsgspecError: They are damaged.
    """
    return msgspec.json.decode((directory / FILE).read_bytes(), type=Options)


def command(options: Options) -> str:
    """The command that repeats a run."""
    return (
        f"python -m chaos.run --queue {options.queue} --fault {options.fault}"
        f" --seed {options.seed} --seconds {options.seconds} --rate {options.rate}"
        f" --cycles {options.cycles}"
    )
