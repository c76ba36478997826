"""A node's session over a bad network, with a mirrored queue whose masters die one after another.

The ring is a list of payloads; a mirror has read some of it. When the master dies the mirror gets
all up to some point behind what was confirmed, and serves. What is on its way to or from a dead
master is lost, as its link is.
"""

from __future__ import annotations

import pytest

from broker.fifo.commands import Enqueue, Get, Settle
from broker.fifo.config import mirrored_config
from broker.fifo.ledger import cut_records, decode_records, encode_records
from broker.fifo.machine import QueueMachine
from broker.fifo.replica import LedgerReplica
from tests.model.sync_batches import Disk, batches_of
from tests.model.test_fifo_sessions import Network

SEEDS = 80


class Mirrored(Network):
    """Invents deaths. With `forgets` a master is sometimes back from disk, and knows no session."""

    def __init__(self, seed: int, *, forgets: bool = False) -> None:
        super().__init__(seed, "all", can_expire=True)
        self.forgets = forgets
        self.config = mirrored_config("q", "/")
        self.machine = QueueMachine(self.config)
        self.ring: list[bytes] = []
        self.marks: list[tuple[int, int]] = []  # payloads in the ring, ledger position then
        self.safe = 0
        self.mirror = LedgerReplica()
        self.deaths = 0
        self.resent: set[int] = set()

    def collect(self) -> None:
        effects = self.machine.take_effects()
        for group in cut_records(effects.ledger):
            self.ring.append(encode_records(group))
        self.marks.append((len(self.ring), self.machine.position))
        for kind in ("verdicts", "replies", "session_lost", "out_of_sequence"):
            self.to_node += [(kind, answer) for answer in getattr(effects, kind)]

    def come_round(self) -> None:
        self.safe = self.rng.randint(self.safe, len(self.ring))
        due = [position for count, position in self.marks if count <= self.safe]
        if due:
            self.machine.mark_durable(due[-1])
            self.collect()

    def die(self) -> None:
        self.deaths += 1
        self.to_queue.clear()
        self.to_node.clear()
        for payload in self.ring[: self.rng.randint(self.safe, len(self.ring))]:
            self.mirror.apply(decode_records(payload))
        self.resent |= {
            body
            for item in self.batches._pending
            if item.is_sent and isinstance(item.command, Enqueue)
            for body in item.token[item.offset : item.offset + len(item.command.messages)]
        }
        if self.forgets and self.rng.random() < 0.5:
            self.machine = QueueMachine(self.config)
            self.machine.restore_messages(self.mirror.messages(), self.mirror.next_number)
        else:
            self.machine = self.mirror.promote(self.config)
        self.mirror = LedgerReplica()
        self.mirror.adopt(self.machine.join_state())
        self.mirror.begin_sync()
        self.fill()
        self.ring, self.marks, self.safe = [], [], 0
        self.ask_again(self.batches.fail_over())

    def fill(self) -> None:
        for each in batches_of(self.machine, Disk(), []):
            self.mirror.apply_sync_batch(each)
        self.mirror.end_sync()

    def ask_again(self, reissuable) -> None:
        for command, token, since_ms in reissuable:
            if isinstance(command, Get):
                self.batches.add(command, since_ms, token)
            else:
                assert isinstance(command, Settle)

    def step(self, *, loss: float) -> None:
        rng = self.rng
        self.now_ms += 1
        if rng.random() < 0.3:
            self.batches.retarget()
        if rng.random() < 0.2:
            self.batches.add(Settle("a/1/1/1", "", [rng.randint(1, 50)]), self.now_ms, None)
        for batch in self.batches.to_send():
            self.to_queue += [batch] * rng.choice([1, 1, 2])
        if rng.random() < loss:
            rng.shuffle(self.to_queue)
            rng.shuffle(self.to_node)
        for batch in self._some_of(self.to_queue, loss):
            self.machine.apply_batch(batch, 0)
            self.collect()
        self.come_round()
        for kind, answer in self._some_of(self.to_node, loss):
            self._hear(kind, answer)
        if loss and rng.random() < 0.1:
            self.die()

    def _hear(self, kind: str, answer) -> None:
        if kind != "session_lost":
            super()._hear(kind, answer)
            return
        outcomes, reissuable = self.batches.renew(answer)
        self.note(outcomes)
        self.ask_again(reissuable)


def check(net: Mirrored) -> None:
    assert len(net.ended) == net.asked
    assert all(len(oks) == 1 for oks in net.ended.values()), "one verdict each"
    assert all(len(values) == 1 for values in net.values.values()), "every question one answer"
    here = net.bodies_in_queue()
    assert len(here) == len(set(here)), "twice in the queue"
    assert here == sorted(here), "out of order"


@pytest.mark.parametrize("forgets", [False, True])
def test_every_publish_is_answered_once_and_kept_once_whoever_dies(forgets: bool) -> None:
    """P10, P11: bodies are published in ascending order, and a settle may take any of them."""
    deaths = nacked = 0
    for seed in range(SEEDS):
        net = Mirrored(seed, forgets=forgets)
        net.run()
        deaths += net.deaths
        check(net)
        refused = {body for body, oks in net.ended.items() if oks == [False]}
        nacked += len(refused)
        assert refused <= net.resent, "only what an earlier master was sent may be nacked"
        if not forgets:
            assert not refused
        flags = {
            delivery.message.body_size: delivery.delivery_count
            for delivery in net.machine.messages.contents()
        }
        for body, count in flags.items():
            assert count or body not in net.resent, "sent to two masters, and not redelivered"
    assert deaths > SEEDS
    assert bool(nacked) is forgets
