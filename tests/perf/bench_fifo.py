"""The cost of one message in the queue machine: `python -m tests.perf.bench_fifo`.

Every line is the best of 300 short runs, in microseconds a message, for batches of 100 messages of
100 bytes that are enqueued, delivered and settled; nothing else in the loop. Runs are short so that
on a busy machine some of them are undisturbed. The target for the first line is 1.0. The mirrored
lines are of 1 KB messages in batches of 20: what the master does from the batch to the payload, and
what a mirror does with the payload; their targets are 6.0 and 4.0.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from broker.fifo.commands import Checkout, CommandBatch, Enqueue, Settle, encode_entry
from broker.fifo.config import QueueConfig, mirrored_config
from broker.fifo.ledger import cut_records, decode_records, encode_records
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.fifo.replica import LedgerReplica
from broker.message import Message

BATCH = 100
MIRRORED_BATCH = 20
RUNS = 300
CHANNEL = "rabbit@node1/0011223344556677/1/1"
SESSION = "rabbit@node1/0011223344556677/7/0"


def _messages(*, persistent: bool = False, size: int = 100, count: int = BATCH) -> list[Message]:
    content = b"h" * 22 + b"b" * (size + 8)
    return [
        Message("", "queue", content, 1, 14, size, persistent, priority=index % 10)
        for index in range(count)
    ]


def direct(
    *,
    ledger: str = "none",
    no_ack: bool = False,
    consumers: int = 1,
    backlog: int = 0,
    **settings: object,
) -> Callable[[], None]:
    """Return one turn of a local channel: the calls of a classic queue's handle."""
    machine = QueueMachine(QueueConfig(name="q", ledger=ledger, burst_max=2_000, **settings))
    machine.set_time(1)
    messages = _messages(persistent=ledger != "none")
    for _ in range(backlog // BATCH):
        machine.enqueue(messages)
    for index in range(consumers):
        machine.apply_command(
            Checkout(CHANNEL, f"c{index}", no_ack=no_ack, prefetch=BATCH if backlog else 0)
        )

    def turn() -> None:
        machine.enqueue(messages)
        machine.pump()
        effects = machine.take_effects()
        if not no_ack:
            for (channel_id, tag), items in effects.deliveries.items():
                machine.apply_command(Settle(channel_id, tag, [item.number for item in items]))

    return turn


def sent(*, ledger: str = "none", encoded: bool = False) -> Callable[[], None]:
    """Return one turn of a session: two batches, as a remote or quorum queue gets them."""
    machine = QueueMachine(QueueConfig(name="q", ledger=ledger))
    messages = _messages(persistent=ledger != "none")
    number = 1

    def apply(*commands: object) -> None:
        nonlocal number
        batch = CommandBatch(SESSION, number, number, list(commands))
        if encoded:
            machine.apply_encoded(encode_entry([batch], 0))
        else:
            machine.apply_batch(batch, 0)

    apply(Checkout(CHANNEL, "c", False, False, 0, 0, {}))
    number += 1

    def turn() -> None:
        nonlocal number
        apply(Enqueue(messages))
        number += BATCH
        machine.mark_durable(machine.position)
        numbers = [item.number for item in machine.take_effects().deliveries[CHANNEL, "c"]]
        apply(Settle(CHANNEL, "c", numbers))
        number += 1
        machine.take_effects()

    return turn


class Mirrored:
    """A master and the payloads of its turns: five batches enqueued, delivered and settled."""

    def __init__(self) -> None:
        self.machine = QueueMachine(mirrored_config("q", "/"))
        self.messages = _messages(persistent=True, size=1024, count=MIRRORED_BATCH)
        self.number = 1
        self.machine.apply_batch(
            CommandBatch(SESSION, 1, 1, [Checkout(CHANNEL, "c", False, False, 0, 0, {})]), 0
        )
        self.number += 1
        self.machine.take_effects()

    def payloads(self) -> list[bytes]:
        machine, number = self.machine, self.number
        payloads = []
        for _ in range(BATCH // MIRRORED_BATCH):
            machine.apply_batch(CommandBatch(SESSION, number, number, [Enqueue(self.messages)]), 0)
            number += MIRRORED_BATCH
            machine.mark_durable(machine.position)
            effects = machine.take_effects()
            numbers = [item.number for item in effects.deliveries[CHANNEL, "c"]]
            settle = Settle(CHANNEL, "c", numbers)
            machine.apply_batch(CommandBatch(SESSION, number, number, [settle]), 0)
            number += 1
            machine.mark_durable(machine.position)
            records = effects.ledger + machine.take_effects().ledger
            payloads += [encode_records(group) for group in cut_records(records)]
        self.number = number
        return payloads


def replayed() -> Callable[[], None]:
    """Return one turn of a mirror: its master's payloads, of messages and of their ends."""
    payloads = Mirrored().payloads()
    replica = LedgerReplica()

    def turn() -> None:
        for payload in payloads:
            replica.apply(decode_records(payload))

    return turn


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    "transient, one consumer": direct,
    "transient, no_ack": lambda: direct(no_ack=True),
    "transient, 10 consumers": lambda: direct(consumers=10),
    "transient, backlog of 100,000": lambda: direct(backlog=100_000),
    "transient, message TTL": lambda: direct(rules=Rules(message_ttl_ms=60_000)),
    "transient, drops its head": lambda: direct(consumers=0, rules=Rules(max_length=1_000)),
    "transient, may refuse": lambda: direct(
        rules=Rules(max_length=1_000, overflow="reject-publish")
    ),
    "transient, 10 priorities": lambda: direct(order="priority", priority_max=10),
    "ledger=persistent": lambda: direct(ledger="persistent"),
    "ledger=all": lambda: direct(ledger="all"),
    "apply_batch": sent,
    "apply_batch, ledger=persistent": lambda: sent(ledger="persistent"),
    "apply_encoded, bytes and back": lambda: sent(encoded=True),
    "mirrored, master: to payload": lambda: Mirrored().payloads,
    "mirrored, mirror: from payload": replayed,
}


def measure(turn: Callable[[], object], turns: int) -> float:
    """Return the best of `RUNS`: microseconds a message."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(turns):
            turn()
        best = min(best, time.perf_counter() - start)
    return best / turns / BATCH * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help="batches a run")
    turns = parser.parse_args().turns
    for name, build in CASES.items():
        print(f"{name:32} {measure(build(), turns):6.2f} us/message")


if __name__ == "__main__":
    main()
