"""Long histories for measuring the judges: `python -m tests.perf.long_history DIR EVENTS`.

Writes `history.ndjson` and `options.json` of a run that keeps every promise: 3 publishers and 3
consumers at 500 messages/s, the leader killed once a minute. With it what real runs have: publishes
without an answer, acks that the fault swallowed, messages given back. The same arguments give the
same bytes. Nothing of it is kept in memory; ten million events are 3.2 GB and take a minute or two.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from heapq import heappop, heappush
from pathlib import Path
from typing import BinaryIO

from chaos import history, options

CLIENTS = 3
QUEUE = "chaos"
RUN = "long"
STEP_US = 2_000
CONFIRM_US, DELIVER_US, RETURN_US = 10_000, 20_000, 25_000
FIRST_FAULT_US, FAULTS_EVERY_US, OUTAGE_US, CHANGE_US, HEAL_US = (
    10_000_000, 60_000_000, 1_500_000, 1_000_000, 8_000_000,
)  # fmt: skip
BATCH = 5
GIVEN_BACK_EVERY = 100
_HEAD = '{{"run_id":"{}","recorder":"{}","event_no":{},"ts_us":{},"op":"{}","type":"{}"{}}}\n'


class _Writer:
    """One file for each recorder, joined at the end in the order of a history."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.events = 0
        self.epoch = 0
        self._directory = directory
        self._stack = stack
        self._files: dict[str, BinaryIO] = {}
        self._numbers: dict[str, int] = {}

    def add(self, recorder: str, ts_us: int, op: str, type_: str, columns: str = "") -> None:
        file = self._files.get(recorder)
        if file is None:
            path = self._directory / f"{recorder}.part"
            file = self._files[recorder] = self._stack.enter_context(path.open("w+b"))
            self._numbers[recorder] = 0
        number = self._numbers[recorder] = self._numbers[recorder] + 1
        epoch = f',"epoch":{self.epoch}' if self.epoch else ""
        line = _HEAD.format(RUN, recorder, number, ts_us, op, type_, epoch + columns)
        file.write(line.encode())
        self.events += 1

    def join(self) -> None:
        with (self._directory / history.FILE).open("wb") as whole:
            for recorder in sorted(self._files):
                file = self._files[recorder]
                file.seek(0)
                while piece := file.read(1 << 20):
                    whole.write(piece)
                (self._directory / f"{recorder}.part").unlink()


class _Run:
    """The clients and the queue; what happens later waits in a heap."""

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer
        self.term = 1  # the number of each client's connection
        self._seqs = [0] * CLIENTS
        self._later: list[tuple[int, int, str, tuple[str, int, int]]] = []
        self._order = 0
        self._held: list[list[tuple[str, int, int]]] = [[] for _ in range(CLIENTS)]

    def publish(self, number: int, ts_us: int) -> None:
        client = number % CLIENTS
        self._seqs[client] += 1
        sent = f"p{client + 1}.{self.term}", self._seqs[client], number
        size = f',"size":{100 + number % 900},"body_crc":{_crc(sent)}'
        self._of_publisher(ts_us, "publish", "invoke", sent, size)
        self._at(ts_us + CONFIRM_US, "confirm", sent)
        self._at(ts_us + DELIVER_US, "deliver", sent)

    def until(self, ts_us: int) -> None:
        """What is due happens."""
        while self._later and self._later[0][0] <= ts_us:
            at_us, _, op, sent = heappop(self._later)
            if op == "confirm":
                self._of_publisher(at_us, op, "ok", sent, f',"delivery_tag":{sent[1]}')
            elif op == "deliver" and sent[2] % GIVEN_BACK_EVERY == 0:
                consumer = sent[2] // CLIENTS % CLIENTS
                self._deliver(at_us, consumer, sent)
                self._of_consumer(at_us + 1, "requeue", consumer, sent)
                self._at(at_us + RETURN_US - DELIVER_US, "again", sent)
            else:
                is_again = op == "again"
                self._take(at_us, (sent[2] // CLIENTS + is_again) % CLIENTS, sent, again=is_again)

    def attach(self, ts_us: int) -> None:
        self._seqs = [0] * CLIENTS
        for client in range(CLIENTS):
            tag = f"c{client + 1}.{self.term}"
            about = (
                f',"node":"n{client + 1}","queue":"{QUEUE}","connection":"{tag}"'
                f',"consumer_tag":"{tag}"'
            )
            self.writer.add(f"c{client + 1}", ts_us, "consume", "ok", about)

    def fail(self, ts_us: int) -> None:
        """All connections break: what waits for an answer is unknown, what is held comes again."""
        waiting, self._later = sorted(self._later), []
        again = [sent for held in self._held for sent in held]
        self._held = [[] for _ in range(CLIENTS)]
        for _, _, op, sent in waiting:
            if op == "confirm":
                self._of_publisher(ts_us, "unknown", "info", sent, ',"code":"connection lost"')
        for client in range(CLIENTS):
            tag = f"c{client + 1}.{self.term}"
            about = f',"node":"n{client + 1}","connection":"{tag}","code":"reset"'
            self.writer.add(f"c{client + 1}", ts_us, "close", "info", about)
        self.term += 1
        served_us = ts_us + OUTAGE_US
        for sent in sorted(again, key=lambda one: one[2]):
            self._at(served_us, "again", sent)
        for _, _, op, sent in waiting:
            if op != "confirm":
                self._at(served_us + 1, op, sent)

    def finish(self, ts_us: int) -> None:
        self.until(ts_us)
        for consumer in range(CLIENTS):
            self._ack(ts_us, consumer)

    def _at(self, ts_us: int, op: str, sent: tuple[str, int, int]) -> None:
        self._order += 1
        heappush(self._later, (ts_us, self._order, op, sent))

    def _take(self, ts_us: int, consumer: int, sent: tuple[str, int, int], *, again: bool) -> None:
        self._deliver(ts_us, consumer, sent, again=again)
        self._held[consumer].append(sent)
        if len(self._held[consumer]) == BATCH:
            self._ack(ts_us + 1, consumer)

    def _ack(self, ts_us: int, consumer: int) -> None:
        for sent in self._held[consumer]:
            self._of_consumer(ts_us, "ack", consumer, sent)
        self._held[consumer].clear()

    def _deliver(
        self, ts_us: int, consumer: int, sent: tuple[str, int, int], *, again: bool = False
    ) -> None:
        label, seq, number = sent
        flag = ',"redelivered":true' if again else ""
        body = f',"size":{100 + number % 900},"body_crc":{_crc(sent)}'
        what = f',"routing_key":"{QUEUE}","publisher":"{label}","seq":{seq}{flag}{body}'
        self._of_consumer(ts_us, "deliver", consumer, sent, what)

    def _of_consumer(
        self, ts_us: int, op: str, consumer: int, sent: tuple[str, int, int], more: str = ""
    ) -> None:
        name = f"c{consumer + 1}"
        tag = f"{name}.{self.term}"
        about = (
            f',"node":"n{consumer + 1}","vhost":"/","queue":"{QUEUE}","connection":"{tag}"'
            f',"channel":1,"consumer_tag":"{tag}","msg_id":"{sent[0]}|{sent[1]}"'
            f',"delivery_tag":{sent[1]}'
        )
        self.writer.add(name, ts_us, op, "ok", about + more)

    def _of_publisher(
        self, ts_us: int, op: str, type_: str, sent: tuple[str, int, int], more: str
    ) -> None:
        label, seq, _ = sent
        name = label.partition(".")[0]
        about = (
            f',"op_id":"{label}/{seq}","node":"n{name[1:]}","vhost":"/","routing_key":"{QUEUE}"'
            f',"queue":"{QUEUE}","connection":"{label}","channel":1,"publisher":"{label}"'
            f',"seq":{seq},"msg_id":"{label}|{seq}"'
        )
        self.writer.add(name, ts_us, op, type_, about + more)


def _crc(sent: tuple[str, int, int]) -> int:
    return sent[2] * 2_654_435_761 % 2**32


def write(directory: Path, events: int) -> None:
    """Write a run.

    Args:
        directory: Where to; made if it is not there.
        events: How many events it has, about.
    """
    directory.mkdir(parents=True, exist_ok=True)
    options.save(directory, options.with_defaults("quorum", "kill-leader", 1))
    with ExitStack() as stack:
        writer = _Writer(directory, stack)
        run = _Run(writer)
        writer.add("nemesis", 1, "load", "invoke")
        writer.add("watch", 2, "epoch", "info", f',"node":"n1","queue":"{QUEUE}"')
        run.attach(3)
        _end(run, _load(run, events))
        writer.join()


def _load(run: _Run, events: int) -> int:
    """Publish until there are so many events, and kill leaders; returns the time."""
    fault_us, leader = FIRST_FAULT_US, 1
    ts_us = number = 0
    writer = run.writer
    while writer.events < events or ts_us < FIRST_FAULT_US + FAULTS_EVERY_US // 2:
        ts_us += STEP_US
        if ts_us >= fault_us:
            run.until(fault_us)
            leader = _fault(run, fault_us, leader)
            ts_us = fault_us + OUTAGE_US
            fault_us += FAULTS_EVERY_US
            continue
        run.until(ts_us)
        run.publish(number, ts_us)
        number += 1
    return ts_us


def _fault(run: _Run, at_us: int, leader: int) -> int:
    writer, fault = run.writer, f"fault-{run.term}"
    about = f',"op_id":"{fault}","node":"n{leader}","queue":"{QUEUE}"'
    writer.add("nemesis", at_us, "fault_start", "info", f'{about},"code":"kill-leader"')
    writer.add("nemesis", at_us + 1, "effect", "info", f'{about},"code":"gone","size":1')
    run.fail(at_us + 2)
    writer.epoch += 1
    then = leader % CLIENTS + 1
    seen = f',"node":"n{then}","queue":"{QUEUE}"'
    writer.add("watch", at_us + CHANGE_US, "epoch", "info", seen)
    run.attach(at_us + OUTAGE_US - 1)
    writer.add("nemesis", at_us + HEAL_US, "fault_end", "info", f'{about},"code":"kill-leader"')
    return then


def _end(run: _Run, ts_us: int) -> None:
    run.finish(ts_us + 1_000_000)
    writer = run.writer
    writer.add("nemesis", ts_us + 1_000_001, "health", "ok")
    writer.add("nemesis", ts_us + 1_000_002, "load", "ok")
    for node in range(1, CLIENTS + 1):
        about = f',"node":"n{node}","queue":"{QUEUE}"'
        writer.add("drain", ts_us + 3_000_000, "drain", "ok", about)
        writer.add("drain", ts_us + 4_000_000, "depth", "ok", about)


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
