"""Milliseconds of one command on 1,000 mirrored queues: `python -m tests.perf.bench_rings`.

P2 (docs/protocol-rules.md): the death of a node with 1,000 masters, and the promotions after it,
are one command each; everybody waits for both. Prints the best of several rounds, in CPU time of
this thread.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from broker.metadata import ring_commands as steps
from broker.metadata.records import Queue
from broker.metadata.rings import Ring, RingMember
from tests.unit.metadata.ring_cluster import A, B, C, RingAsker, three_nodes

QUEUES = 1000
PLAIN = 10_000
ROUNDS = 5


def clustered() -> RingAsker:
    """Mirrored queues of node A, among many plain ones."""
    asker = three_nodes()
    asker.policy("^q", ha_mode="nodes", ha_params=[A, B, C])
    for number in range(QUEUES):
        asker.queue(f"q{number}", home=A)
    for number in range(PLAIN):
        asker.queue(f"plain{number}", home=B)
    return asker


def led(queue: Queue) -> tuple[Ring, tuple[int, RingMember, int]]:
    ring = queue.ring
    assert ring is not None
    assert ring.master is not None
    return ring, (queue.uid, ring.master, ring.epoch)


def next_heir(queue: Queue) -> RingMember:
    assert queue.ring is not None
    assert queue.ring.successor is not None
    return queue.ring.successor


def life() -> dict[str, float]:
    """One failover of all queues and the return of the dead node."""
    asker = clustered()
    gc.collect()
    found: dict[str, float] = {}

    def timed(name: str, run: Callable[[], object]) -> None:
        start = time.thread_time()
        result = run()
        found[name] = (time.thread_time() - start) * 1000
        assert not isinstance(result, tuple) or all(result), name

    def change(name: str, make: Callable[[Queue], steps.RingStep]) -> None:
        batch = [make(queue) for queue in asker.machine.catalogue.rings()]
        timed(name, lambda: asker.change(*batch))

    def join(queue: Queue) -> steps.RingStep:
        return steps.RingJoin(*led(queue)[1], A, boot)

    def joined(queue: Queue) -> steps.RingStep:
        ring, by = led(queue)
        return steps.RingJoined(*by, ring.alive()[-1])

    def synced(queue: Queue) -> steps.RingStep:
        ring, by = led(queue)
        return steps.RingSynced(*by, ring.alive()[-1])

    timed("EndBoot of all masters", lambda: asker.kill(A))
    change("RingPromoted", lambda queue: steps.RingPromoted(queue.uid, next_heir(queue)))
    change("RingErase", lambda queue: steps.RingErase(queue.uid, led(queue)[0].slots[0][0]))
    boot = asker.start(A)
    change("RingJoin", join)
    change("RingJoined", joined)
    change("RingSynced", synced)
    timed("EndBoot of all mirrors", lambda: asker.kill(C))
    return found


def main() -> None:
    rounds = [life() for _ in range(ROUNDS)]
    for name in rounds[0]:
        print(f"{name:24} {min(each[name] for each in rounds):6.1f} ms")


if __name__ == "__main__":
    main()
