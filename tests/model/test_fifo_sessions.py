"""Numbered commands over a bad network: each is done once, and every snapshot goes on alike."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.fifo.commands import (
    Cancel,
    Checkout,
    CommandBatch,
    Discard,
    Drop,
    DropDeadLettered,
    EndBoot,
    Enqueue,
    Get,
    Purge,
    Release,
    Requeue,
    SetActive,
    SetPrefetch,
    SetRules,
    Settle,
    Skip,
    encode_entry,
    session_name,
    width,
)
from broker.fifo.config import QueueConfig
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.queues.client.pending_commands import PendingCommands
from tests.model.fifo_model import message

CHANNEL = st.sampled_from(["a/1/1/1", "a/2/1/1", "b/1/1/1"])
TAG = st.sampled_from(["s", "t", ""])
NUMBERS = st.lists(st.integers(1, 12), max_size=3)
COMMAND = st.one_of(
    st.builds(
        Enqueue,
        st.lists(
            st.builds(
                message,
                st.integers(0, 3),
                persistent=st.booleans(),
                ttl_ms=st.sampled_from([-1, -1, 0, 3]),
                priority=st.integers(0, 2),
                dedup=st.sampled_from(["", "", "x", "y"]),
            ),
            min_size=1,
            max_size=4,
        ),
    ),
    st.builds(
        Checkout,
        CHANNEL,
        st.sampled_from(["s", "t"]),
        st.booleans(),
        st.booleans(),
        st.integers(0, 3),
        st.integers(0, 1),
        st.just({}),
    ),
    st.builds(Cancel, CHANNEL, TAG),
    st.builds(Settle, CHANNEL, TAG, NUMBERS),
    st.builds(Requeue, CHANNEL, TAG, NUMBERS),
    st.builds(Discard, CHANNEL, TAG, NUMBERS),
    st.builds(Release, CHANNEL),
    st.builds(SetActive, CHANNEL, st.sampled_from(["s", "t"]), st.booleans()),
    st.builds(SetPrefetch, CHANNEL, st.sampled_from(["s", "t"]), st.integers(0, 3)),
    st.builds(Get, CHANNEL, st.booleans()),
    st.just(Purge()),
    st.builds(Drop, NUMBERS),
    st.builds(Skip, st.integers(1, 3)),
)
RULES = st.builds(
    Rules,
    message_ttl_ms=st.sampled_from([None, 2]),
    max_length=st.sampled_from([None, 3]),
    max_length_bytes=st.sampled_from([None, 5]),
    overflow=st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
    delivery_limit=st.sampled_from([None, 1]),
    is_dead_lettered=st.booleans(),
    is_held=st.booleans(),
)
STEP = st.one_of(
    st.tuples(
        st.sampled_from(["a/1/7", "a/2/7", "b/1/7"]),  # whose session
        st.integers(-3, 2),  # how far beside the right number it begins
        st.booleans(),  # says that everything before is answered
        st.lists(COMMAND, min_size=1, max_size=4),
    ),
    st.builds(EndBoot, st.sampled_from(["a", "b"]), st.just("1")),
    st.builds(SetRules, RULES),
    st.builds(DropDeadLettered, NUMBERS),
    st.none(),  # an entry that only tells the time
)
CONFIG = st.builds(
    QueueConfig,
    name=st.just("q"),
    requeue=st.sampled_from(["original", "front", "tail"]),
    ledger=st.sampled_from(["none", "persistent", "all"]),
    rules=RULES,
    order=st.sampled_from(["fifo", "fifo", "priority"]),
    priority_max=st.just(1),
    is_single_active=st.booleans(),
    single_active_by_priority=st.booleans(),
    dedup_size=st.sampled_from([0, 2]),
    dedup_ttl_ms=st.sampled_from([None, 3]),
    credit_max=st.sampled_from([None, 2]),
)


def _log(steps) -> list[bytes]:
    """Entries of a Raft log: each session numbers its commands, now and then wrongly."""
    log, numbers = [], {}
    for index, step in enumerate(steps):
        now_ms = 1_000 + 2 * index - 3 * (index % 2)  # a new leader's clock may be behind
        if not isinstance(step, tuple):
            log.append(encode_entry([] if step is None else [step], now_ms))
            continue
        owner, shift, is_answered, commands = step
        right = numbers.get(owner, 1)
        first = max(1, right + shift)
        lowest = min(first, right) if is_answered else 1
        log.append(encode_entry([CommandBatch(f"{owner}/0", lowest, first, commands)], now_ms))
        numbers[owner] = max(right, first + sum(width(c) for c in commands))
    return log


def _applied(machine: QueueMachine, entry: bytes) -> dict:
    machine.apply_encoded(entry)
    effects = machine.take_effects()
    shown = {name: getattr(effects, name) for name in effects.__slots__}
    shown["replies"] = [
        (r.session, r.number, getattr(r.value, "text", r.value)) for r in effects.replies
    ]
    return shown


@settings(max_examples=80, deadline=None)
@given(CONFIG, st.lists(STEP, max_size=12))
def test_a_log_applied_from_any_snapshot_ends_alike(config, steps):
    log = _log(steps)
    whole = QueueMachine(config)
    effects, snapshots = [], [whole.snapshot()]
    for entry in log:
        effects.append(_applied(whole, entry))
        snapshots.append(whole.snapshot())

    for start, parts in enumerate(snapshots):
        late = QueueMachine(config)
        late.restore(parts)
        assert [_applied(late, entry) for entry in log[start:]] == effects[start:]
        late.mark_durable(1 << 40)
        reference = QueueMachine(config)
        reference.restore(snapshots[-1])
        reference.mark_durable(1 << 40)
        assert late.take_effects().verdicts == reference.take_effects().verdicts
        assert late.snapshot() == reference.snapshot()


class Network:
    """A node, a queue that may be durable, and a network that loses and doubles."""

    def __init__(self, seed: int, ledger: str, *, can_expire: bool = False) -> None:
        self.rng = random.Random(seed)
        self.can_expire = can_expire
        self.config = QueueConfig(name="q", ledger=ledger)
        self.machine = QueueMachine(self.config)
        self.batches = PendingCommands("a", "1", 7, held_ms_max=100 if can_expire else 60_000)
        self.to_queue: list[CommandBatch] = []
        self.to_node: list[tuple] = []
        self.now_ms = 0
        self.asked = 0
        self.ended: dict[int, list[bool]] = {}  # publish -> its outcomes
        self.stored: list[int] = []  # bodies in the order the queue has them
        self.values: dict[object, list[object]] = {}

    def publish(self) -> None:
        bodies = list(range(self.asked, self.asked + self.rng.randint(1, 5)))
        self.asked += len(bodies)
        messages = [message(body, persistent=self.rng.random() < 0.5) for body in bodies]
        assert self.batches.add(Enqueue(messages), self.now_ms, bodies)

    def purge(self) -> None:
        token = ("get", self.asked, self.now_ms)
        self.values[token] = []
        self.batches.add(Get("a/1/1/1", False), self.now_ms, token)

    def note(self, outcomes) -> None:
        for outcome in outcomes:
            if isinstance(outcome.token, list):
                for body in outcome.token[outcome.offset : outcome.offset + outcome.count]:
                    self.ended.setdefault(body, []).append(outcome.ok)
            elif outcome.token is not None:
                self.values[outcome.token].append(outcome.value)

    def collect(self) -> None:
        effects = self.machine.take_effects()
        for kind in ("verdicts", "replies", "session_lost", "out_of_sequence"):
            self.to_node += [(kind, answer) for answer in getattr(effects, kind)]

    def step(self, *, loss: float) -> None:
        rng = self.rng
        self.now_ms += 10
        if rng.random() < 0.3:
            self.batches.retarget()
        for batch in self.batches.to_send():
            self.to_queue += [batch] * rng.choice([1, 1, 2])
        if rng.random() < loss:
            rng.shuffle(self.to_queue)
            rng.shuffle(self.to_node)
        for batch in self._some_of(self.to_queue, loss):
            self.machine.apply_batch(batch, 0)
            self.collect()
        if rng.random() < 0.5:
            self.machine.mark_durable(self.machine.position)
            self.collect()
        if rng.random() < 0.1:
            parts = self.machine.snapshot()
            self.machine = QueueMachine(self.config)
            self.machine.restore(parts)
        for kind, answer in self._some_of(self.to_node, loss):
            self._hear(kind, answer)
        if self.can_expire:
            self.note(self.batches.expire(self.now_ms))

    def _some_of(self, line: list, loss: float) -> list:
        arrived = line[: self.rng.randint(0, len(line))]
        del line[: len(arrived)]
        return [each for each in arrived if self.rng.random() >= loss]

    def _hear(self, kind: str, answer) -> None:
        if kind == "verdicts":
            self.note(self.batches.answered(answer))
        elif kind == "replies":
            outcome = self.batches.replied(answer)
            self.note([] if outcome is None else [outcome])
        elif kind == "session_lost":
            self.note(self.batches.session_lost(answer))
        else:
            self.batches.out_of_sequence(answer.session, answer.expected)

    def bodies_in_queue(self) -> list[int]:
        messages = self.machine.messages
        held = [item for _, _, held in messages.checked_out for item in held.values()]
        everything = sorted(held + messages.ready.in_order(), key=lambda item: item.number)
        return [delivery.message.body_size for delivery in everything]

    def run(self) -> None:
        for _ in range(40):
            if self.rng.random() < 0.6:
                self.publish()
            if self.rng.random() < 0.2:
                self.purge()
            self.step(loss=0.3)
        for _ in range(300):
            self.step(loss=0)
            if not len(self.batches):
                return
        raise AssertionError("a healed network left commands without an answer")


@pytest.mark.parametrize("ledger", ["none", "persistent", "all"])
def test_every_publish_is_stored_once_in_order_and_answered_once(ledger):
    for seed in range(60):
        net = Network(seed, ledger)
        net.run()
        assert all(oks == [True] for oks in net.ended.values()), f"seed {seed}"
        stored = net.bodies_in_queue()
        confirmed = [body for body, oks in net.ended.items() if oks == [True]]
        assert set(confirmed) <= set(stored), f"seed {seed}"
        assert len(stored) == len(set(stored)), f"seed {seed}"
        assert [b for b in stored if b in set(confirmed)] == sorted(confirmed), f"seed {seed}"
        assert len(net.ended) == net.asked, f"seed {seed}"
        assert all(len(values) == 1 for values in net.values.values()), f"seed {seed}"


def test_what_expires_is_nacked_once_and_never_blocks_what_follows():
    expired = 0
    for seed in range(60):
        net = Network(seed, "persistent", can_expire=True)
        net.run()
        assert all(len(oks) == 1 for oks in net.ended.values()), f"seed {seed}"
        assert len(net.ended) == net.asked, f"seed {seed}"
        confirmed = {body for body, oks in net.ended.items() if oks == [True]}
        stored = net.bodies_in_queue()
        assert confirmed <= set(stored), f"seed {seed}"
        assert len(stored) == len(set(stored)), f"seed {seed}"
        expired += net.asked - len(confirmed)
    assert expired > 0


def test_sessions_of_two_nodes_do_not_mix():
    machine = QueueMachine(QueueConfig(name="q"))
    machine.apply_batch(CommandBatch(session_name("a", "1", 7, 0), 1, 1, [Enqueue([message()])]), 0)
    machine.apply_batch(CommandBatch(session_name("b", "1", 7, 0), 1, 1, [Enqueue([message()])]), 0)
    assert machine.stat().ready == 2
