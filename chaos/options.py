"""Options of a run; stored beside its history, and all that judges know of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

FILE = "options.json"

Queue = Literal["quorum", "classic", "mirrored", "stream"]
Fault = Literal[
    "none",
    "kill-leader",
    "kill-mirror",
    "kill-all",
    "pause-leader",
    "stop-leader",
    "restart",
    "cut-leader-from-one",
    "cut-leader-from-all",
    "cut-leader-one-way",
    "delay-links",
    "stall-links",
    "kill-leader-unsynchronised",
    "stop-leader-unsynchronised",
]
Promote = Literal["always", "when-synced"]
Direction = Literal["out", "in"]

QUEUES: tuple[Queue, ...] = get_args(Queue)
FAULTS: tuple[Fault, ...] = get_args(Fault)
PROMOTES: tuple[Promote, ...] = get_args(Promote)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

LINK_FAULTS = (
    "cut-leader-from-one",
    "cut-leader-from-all",
    "cut-leader-one-way",
    "delay-links",
    "stall-links",
)
SHUTDOWN_FAULTS = ("stop-leader", "restart", "stop-leader-unsynchronised")
UNSYNCHRONISED_FAULTS: tuple[Fault, ...] = (
    "kill-leader-unsynchronised",
    "stop-leader-unsynchronised",
)
_NOBODY_SERVES = ("none", "kill-all", "stall-links")
_AWAY_FROM_HOME = ("kill-mirror", "cut-leader-from-one", "delay-links")
_OTHER_WORDS = (("master", "leader"), ("follower", "mirror"))


class _Length(NamedTuple):
    """The default length of a run: seconds before, after, and for each fault."""

    seconds: int
    each_s: int
    cycles: int


_LENGTHS: dict[str, _Length] = {
    "none": _Length(15, 0, 0),
    "kill-leader": _Length(6, 12, 2),
    "kill-mirror": _Length(6, 12, 2),
    "kill-all": _Length(8, 16, 2),
    "pause-leader": _Length(10, 30, 1),
    "stop-leader": _Length(6, 20, 1),
    "restart": _Length(6, 12, 2),
    "cut-leader-from-one": _Length(10, 25, 1),
    "cut-leader-from-all": _Length(10, 25, 1),
    "cut-leader-one-way": _Length(10, 25, 1),
    "delay-links": _Length(6, 20, 1),
    "stall-links": _Length(6, 12, 2),
    "kill-leader-unsynchronised": _Length(10, 30, 1),
    "stop-leader-unsynchronised": _Length(10, 30, 1),
}


class Options(msgspec.Struct, frozen=True):
    """A run.

    Attributes:
        queue: The type of the queue under test; "mirrored" is a classic one under an ha policy.
        fault: What happens to the nodes or to the links between them.
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
        delivered_after_min: With fewer deliveries after the last heal nobody has starved.
        when_synchronised: Each fault waits until every mirror is synchronised, or every replica
            online.
        direction: What a one-way cut holds back: "out", what the leader says; "in", what it is
            told.
        ha_mode: Of the policy of a mirrored queue, as are the next ones.
        ha_params: A number for "exactly", names joined by commas for "nodes", else "".
        ha_sync_mode: "automatic" or "manual".
        promote_on_failure: `ha-promote-on-failure`.
        promote_on_shutdown: `ha-promote-on-shutdown`.
        backlog: How many messages are confirmed before the load begins. Consumers then take few at
            a time until the faults are over, so that the queue is long while they last.
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
    delivered_after_min: int = 200
    when_synchronised: bool = False
    direction: Direction = "out"
    ha_mode: str = "all"
    ha_params: str = ""
    ha_sync_mode: str = "automatic"
    promote_on_failure: Promote = "always"
    promote_on_shutdown: Promote = "when-synced"
    backlog: int = 0

    @property
    def is_available(self) -> bool:
        """True if the queue is promised to serve while a fault lasts."""
        if self.fault in _NOBODY_SERVES:
            return False
        if self.queue == "classic":
            return self.fault in _AWAY_FROM_HOME
        if self.fault in UNSYNCHRONISED_FAULTS:
            return self.queue in ("quorum", "stream") or self.promotes_unsynchronised
        return True

    @property
    def promotes_unsynchronised(self) -> bool:
        """True if a mirror that lacks messages may become master under this fault."""
        if self.queue != "mirrored":
            return False
        is_shutdown = self.fault in SHUTDOWN_FAULTS
        return (self.promote_on_shutdown if is_shutdown else self.promote_on_failure) == "always"

    @property
    def has_late_consumers(self) -> bool:
        """True if consumers begin after the faults: a mirror that rejoins then lacks messages."""
        return self.fault in UNSYNCHRONISED_FAULTS

    @property
    def needs_links(self) -> bool:
        """True if the fault is one of the links, so that nodes must meet through proxies."""
        return self.fault in LINK_FAULTS


def fault_named(text: str) -> Fault:
    """A fault by any of its names: a mirrored queue has a master, a quorum queue followers.

    Raises:
        ValueError: There is no such fault.
    """
    name = text
    for other, ours in _OTHER_WORDS:
        name = name.replace(other, ours)
    if name not in FAULTS:
        raise ValueError(f"no fault {text!r}; there are {', '.join(FAULTS)}")
    return name


def with_defaults(
    queue: Queue,
    fault: Fault,
    seed: int,
    *,
    seconds: int | None = None,
    cycles: int | None = None,
    when_synchronised: bool | None = None,
    **others: str | int,
) -> Options:
    """Options of a run, with a length that fits the fault where none is given.

    Args:
        queue: As in `Options`, like the others.
        fault: What happens.
        seed: Draws.
        seconds: None: enough for the cycles.
        cycles: None: what is usual for the fault.
        when_synchronised: None: for a mirrored queue, unless the fault wants it otherwise.
        **others: Further attributes of `Options`.

    Raises:
        msgspec.ValidationError: An attribute has a value that does not exist.
    """
    length = _LENGTHS[fault]
    times = 0 if fault == "none" else length.cycles if cycles is None else cycles
    waits = queue == "mirrored" if when_synchronised is None else when_synchronised
    return msgspec.convert(
        {
            "queue": queue,
            "fault": fault,
            "seed": seed,
            "seconds": length.seconds + times * length.each_s if seconds is None else seconds,
            "cycles": times,
            "when_synchronised": waits and fault not in UNSYNCHRONISED_FAULTS,
            **({"ha_sync_mode": "manual"} if fault in UNSYNCHRONISED_FAULTS else {}),
            **others,
        },
        Options,
    )


def with_seed(options: Options, seed: int, rate: int) -> Options:
    """The same run with another seed and another rate."""
    return msgspec.structs.replace(options, seed=seed, rate=rate)


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
    words = [
        f"python -m chaos.run --queue {options.queue} --fault {options.fault}",
        f"--seed {options.seed} --seconds {options.seconds} --rate {options.rate}",
        f"--times {options.cycles}",
    ]
    if options.when_synchronised != (options.queue == "mirrored"):
        words.append("--when-synchronised" if options.when_synchronised else "--at-once")
    if options.backlog:
        words.append(f"--backlog {options.backlog}")
    if options.fault == "cut-leader-one-way":
        words.append(f"--direction {options.direction}")
    if options.queue == "mirrored":
        words.append(f"--ha-mode {options.ha_mode}")
        words += [f"--ha-params {options.ha_params}"] if options.ha_params else []
        words.append(f"--ha-sync-mode {options.ha_sync_mode}")
        words.append(f"--promote-on-failure {options.promote_on_failure}")
        words.append(f"--promote-on-shutdown {options.promote_on_shutdown}")
    return " ".join(words)
