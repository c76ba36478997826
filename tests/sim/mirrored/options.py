"""The options that a run draws from its seed before it begins, so that they can be printed."""

from __future__ import annotations

import dataclasses
import random
from typing import Final

STEP_MS: Final = 100
"""One step of the fault generator. Lengths of faults count in it."""

LENGTHS: Final = (6, 16, 28, 50, 90, 160)
"""Lengths of a fault in steps: within every time limit of the protocol, and beyond each."""

PLAIN_EPOCHS: Final = 1_000_000
"""One epoch of a ring counts so many here, each life of a plain queue's home one."""

RULED: Final = 0.25
"""Share of runs in which the queue has rules: TTL, a limit of length."""

FAULTS: Final = (
    *("kill", "kill", "fast"),
    *("pause", "pause"),
    *("cut", "cut", "one_way", "isolate"),
    *("reset", "reset"),
    *("slow", "slow_disk", "all", "depose"),
)
"""Drawn from with equal chance: what stands twice comes twice as often."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Times in milliseconds, rates as probabilities per step or per event.

    Attributes:
        seed: What everything is drawn from.
        kind: "mirrored", or "plain": a classic queue without mirrors, which proves the world.
        nodes: Size of the cluster.
        ha_mode: The policy's "all", "exactly" or "nodes".
        replicas: Of mode "exactly" and "nodes".
        sync: "automatic" or "manual".
        promote_on_failure: "always" or "when-synced".
        promote_on_shutdown: "always" or "when-synced".
        durable: Of the queue.
        transient: Share of messages that are not persistent.
        fault_p: Chance of a fault in each step.
        fault_ms: Length of the phase of faults.
        flap_p: Chance of another policy in each step.
        stop_p: Chance that a fault is an orderly stop.
        silent_ms: A silent node is declared dead after this.
        waiting_max: Publishers pause while so many of their messages are not acknowledged.
        publish_ms: Mean time between two publishes of a client.
        latency_ms: Most of a link's delay.
        sync_ms: Most of a disk sync.
        prefetch: Of each consumer.
        settle_ms: Mean time from a delivery to its settle: slow consumers leave much in the queue.
        burst_p: Chance that a fault brings the next one soon, to another node.
        requeue_p: Share of settles that requeue.
        churn_p: Chance, each second and client, to cancel or to open another channel.
        late_policy: The queue is declared without mirrors, the policy comes later.
        lost_answer: Share of group 0's answers that get lost.
        ttl_ms: The queue's x-message-ttl; 0 is none. With rules, messages may go unread.
        max_length: The queue's x-max-length, dropping from the head; 0 is none.
        sync_style: "blocking" or "online".
        sync_batch: Most messages of a batch.
        page_bytes: Memory that members may use, now and then; -1 is as much as they like.
        disk_p: Chance in each step that a disk fills up or fails a sync. Above 0 a kill is a power
            cut as often as not: what no sync has covered is lost from some point on.
        script: Faults given beforehand instead of drawn ones: (step, kind, node, other, length).
    """

    seed: int
    kind: str = "mirrored"
    nodes: int = 3
    ha_mode: str = "all"
    replicas: int = 3
    sync: str = "automatic"
    promote_on_failure: str = "always"
    promote_on_shutdown: str = "when-synced"
    durable: bool = True
    transient: float = 0.0
    fault_p: float = 0.05
    fault_ms: int = 30_000
    flap_p: float = 0.0
    stop_p: float = 0.0
    silent_ms: int = 60_000
    waiting_max: int = 8
    publish_ms: int = 300
    latency_ms: int = 5
    sync_ms: int = 4
    prefetch: int = 2
    settle_ms: int = 200
    burst_p: float = 0.0
    requeue_p: float = 0.1
    churn_p: float = 0.02
    late_policy: bool = False
    lost_answer: float = 0.02
    ttl_ms: int = 0
    max_length: int = 0
    sync_style: str = "blocking"
    sync_batch: int = 4_096
    page_bytes: int = -1
    disk_p: float = 0.0
    script: tuple[tuple[int, str, int, int, int], ...] | None = None


def draw(seed: int, **given: object) -> Options:
    """The options of a seed; what is `given` stands instead of what was drawn."""
    rng = random.Random(seed * 7 + 1)
    promote = rng.choice(("always", "when-synced"))
    sync = rng.choice(("automatic", "automatic", "manual"))
    fault_p = rng.choice((0.01, 0.03, 0.06))
    waiting_max = rng.choice((4, 8, 30, 60))
    is_wide = rng.random() < 0.2
    ha_mode = rng.choice(("exactly", "nodes")) if is_wide else "all"
    drawn: dict[str, object] = {
        "nodes": 5 if is_wide else 3,
        "ha_mode": ha_mode,
        "sync": sync,
        "promote_on_failure": promote,
        "promote_on_shutdown": rng.choice(("when-synced", "when-synced", "always")),
        "durable": rng.random() < 0.9,
        "transient": rng.choice((0.0, 0.0, 0.3)),
        "fault_p": fault_p,
        "fault_ms": rng.choice((15_000, 25_000, 40_000)),
        "flap_p": rng.choice((0.0, 0.0, 0.01)),
        "stop_p": rng.choice((0.0, 0.0, 0.15)),
        "silent_ms": rng.choice((60_000, 60_000, 2_500, 6_000)),
        "waiting_max": waiting_max,
        "publish_ms": rng.choice((100, 300, 800)),
        "latency_ms": rng.choice((2, 10, 60)),
        "sync_ms": rng.choice((1, 5, 60)),
        "prefetch": rng.choice((1, 2, 10)),
        "settle_ms": rng.choice((150, 150, 800, 3_000)),
        "burst_p": rng.choice((0.0, 0.3, 0.6)),
        "requeue_p": rng.choice((0.0, 0.1, 0.3)),
        "churn_p": rng.choice((0.0, 0.02, 0.1)),
        "late_policy": rng.random() < 0.2,
        "lost_answer": rng.choice((0.0, 0.02, 0.1)),
    }
    rules = random.Random(seed * 7 + 2)  # of its own: seeds from before rules draw the same
    if rules.random() < RULED:
        drawn["ttl_ms"] = rules.choice((0, 300, 3_000))
        drawn["max_length"] = rules.choice((0, 3, 20))
    deep = random.Random(seed * 7 + 3)  # of its own, as rules
    drawn["page_bytes"] = deep.choice((-1, 0, 0, 1_500, 6_000))
    drawn["sync_style"] = deep.choice(("blocking", "online", "online"))
    drawn["sync_batch"] = deep.choice((1, 3, 4_096))
    return Options(**{"seed": seed, **drawn, **given})  # type: ignore[arg-type]


def describe(options: Options) -> str:
    """One line per option."""
    return "\n".join(f"  {key} = {value}" for key, value in dataclasses.asdict(options).items())
