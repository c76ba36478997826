"""The cost of a broadcast in the ring: `python -m tests.perf.bench_gm`.

A ring of members with their wire format and nothing else: no sockets, no owner. One publisher
broadcasts batches as a mirrored queue's master does, each mirror is done with its deliveries at
once. Every line is the best of 50 short runs; runs are short so that on a busy machine some of
them are undisturbed. A ring message is one frame on one hop, packed and unpacked.
"""

from __future__ import annotations

import argparse
import time
from collections import deque

from gm.core.member import Member
from gm.core.view import MemberId, Slot, View
from gm.wire import convert

RUNS = 50
ROUNDS = 200


class RingHandle:
    """Members joined by queues of bytes."""

    def __init__(self, count: int) -> None:
        ids = [MemberId(f"rabbit@node{i}", f"{i:016x}", 1) for i in range(count)]
        view = View(1, tuple(Slot(member, alive=True) for member in ids))
        self.members = {me.node: Member(me, view, founder=True) for me in ids}
        self.wire: deque[tuple[str, str, bytes]] = deque()
        self.frames = 0
        self.delivered = 0
        self.returned = 0
        for member in self.members.values():
            self.collect(member)
        self.run()

    def collect(self, member: Member) -> None:
        me = member.me
        while True:
            effects = member.take_effects()
            for to, version, message in effects.sends:
                data = convert.encode(1, to, me, version, message)
                self.wire.append((me.node, to.node, data))
            self.returned += len(effects.returned)
            if not effects.deliveries:
                return
            self.delivered += len(effects.deliveries)
            member.synced(effects.deliveries[-1].ticket)

    def run(self) -> None:
        while self.wire:
            sender, to, data = self.wire.popleft()
            self.frames += 1
            frame = convert.decode(data, sender=sender, to=to)
            member = self.members[to]
            member.receive(frame.sender, frame.view_version, frame.message)
            self.collect(member)


def measure(members: int, batch: int, size_bytes: int, in_flight: int) -> tuple[float, float]:
    """Microseconds a broadcast and a ring message, all members' work added up."""
    payload = b"x" * size_bytes
    best = (1e9, 1e9)
    for _ in range(RUNS):
        ring = RingHandle(members)
        publisher = next(iter(ring.members.values()))
        ring.frames = 0
        began = time.perf_counter()
        for number in range(ROUNDS):
            for _ in range(batch):
                publisher.broadcast(payload)
            ring.collect(publisher)
            if number % in_flight == in_flight - 1:
                ring.run()
        ring.run()
        spent = (time.perf_counter() - began) * 1e6
        assert ring.returned == ROUNDS * batch
        assert ring.delivered == ROUNDS * batch * (members - 1)
        best = min(best, (spent / (ROUNDS * batch), spent / ring.frames))
    return best


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{'ring':<44} {'us/broadcast':>12} {'us/ring message':>16}")
    for members, batch, size_bytes, in_flight in (
        (3, 1, 200, 1),
        (3, 1, 1_500, 8),
        (3, 15, 200, 1),
        (3, 15, 200, 8),
        (3, 100, 200, 1),
        (5, 15, 200, 1),
        (3, 1, 1 << 20, 1),
    ):
        each, message = measure(members, batch, size_bytes, in_flight)
        text = f"{members} members, {batch} x {size_bytes} B a turn, {in_flight} turns in flight"
        print(f"{text:<44} {each:12.2f} {message:16.2f}")


if __name__ == "__main__":
    main()
