"""Quorum queues whose bodies are in their logs, on hosts whose disks tear what was not synced.

Every replica is compared, entry by entry, with a machine that has all in memory: what it hands out,
answers and keeps must be the same in whatever life it is. The leader fills what it hands out from
its log, byte for byte; logs are cut, messages moved, replicas sent checkpoints.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from msgspec.structs import replace

from broker.fifo.checkpoints import checkpoint
from broker.fifo.commands import (
    Cancel,
    Checkout,
    CommandBatch,
    Discard,
    DropDeadLettered,
    Enqueue,
    Get,
    Moved,
    Purge,
    QueueCommand,
    Release,
    Requeue,
    SessionCommand,
    SetRules,
    Settle,
    decode_entry,
    encode_entry,
    width,
)
from broker.fifo.config import quorum_config
from broker.fifo.consumers import Consumers
from broker.fifo.effects import Dead, Effects
from broker.fifo.limits import Rules
from broker.fifo.logged import held
from broker.fifo.logged.blocks import Blocks
from broker.fifo.logged.positions import Positions, Span
from broker.fifo.machine import QueueMachine
from broker.fifo.message_state import MessageState
from broker.fifo.sessions import SessionTable
from broker.message import Delivery, Message
from broker.ports import GetResult
from broker.queues.paging import kept_log
from broker.queues.paging.kept_log import KeptLog
from broker.queues.paging.log_bodies import BodyMissing
from broker.queues.paging.outgoing import Outgoing
from raft import Group, LogCorrupt, RaftError, RaftHost, RaftHostConfig, parts
from raft.core.messages import Entry
from tests.raft_cluster import NAMES, Cluster, Member, _Port
from tests.torn_journal import TimedTornJournal, TornDisk
from tests.unit.queues.rig import message
from tests.virtual_loop import VirtualClock, run

GROUP = 7
SEGMENT_BYTES = 4_000
CHECKPOINT_BYTES = 6_000
WINDOW_BYTES = 3_000
NEWCOMER = "n4"
READ_S = 0.02
KEPT_S = 1.0
CONFIG = quorum_config("q", "/", None)
SESSION = "n1/b/7/0"
CHANNELS = ("n1/b/1/1", "n2/b/1/1")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is large is small, so that a short life has much of it."""
    monkeypatch.setattr(parts, "ENTRY_BYTES_MAX", 900)
    monkeypatch.setattr(parts, "_DATA_BYTES_MAX", 898)
    monkeypatch.setattr(kept_log, "LOOK_BYTES", 500)
    monkeypatch.setattr(kept_log, "MOVE_LOG_BYTES", 12_000)
    monkeypatch.setattr(kept_log, "MOVE_BYTES", 1_500)
    monkeypatch.setattr(kept_log, "MESSAGE_LOG_BYTES", 50)
    monkeypatch.setattr(held, "HELD_WHOLE_BYTES", 2_000)
    monkeypatch.setattr(checkpoint, "PART_COST", 2)
    monkeypatch.setattr(checkpoint, "RUNS", 4)


class Truth:
    """What the queue does, by a machine that has all in memory; whoever applies first asks."""

    def __init__(self) -> None:
        self.machine = QueueMachine(CONFIG)
        self.data: dict[int, bytes] = {}
        self.effects: dict[int, Effects] = {}
        self.states: dict[int, list[bytes]] = {}

    def applied(self, index: int, data: bytes) -> Effects:
        if index not in self.data:
            assert index > max(self.data, default=0)
            self.data[index] = data
            self.machine.apply_entry(decode_entry(data))
            self.effects[index] = self.machine.take_effects()
            self.states[index] = self.machine.snapshot()
        assert self.data[index] == data
        return self.effects[index]

    def at(self, index: int) -> QueueMachine:
        machine = QueueMachine(CONFIG)
        before = max([each for each in self.states if each <= index], default=None)
        if before is not None:
            machine.restore(self.states[before])
        return machine


def facts(items: Sequence[Delivery]) -> list[tuple[int, int, int, int]]:
    return [
        (each.number, each.delivery_count, each.message.body_size, each.message.expires_ms)
        for each in items
    ]


def told(effects: Effects) -> list[object]:
    """All effects without bodies."""
    replies: list[object] = []
    for reply in effects.replies:
        value = reply.value
        if isinstance(value, GetResult) and value.delivery is not None:
            value = value._replace(delivery=facts([value.delivery]))  # type: ignore[arg-type]
        replies.append((reply.session, reply.number, value))
    return [
        {key: facts(items) for key, items in effects.deliveries.items()},
        [(each.reason, fact, each.is_held) for each in effects.dead for fact in facts(each.items)],
        effects.died,
        replies,
        effects.verdicts,
        effects.session_lost,
        effects.out_of_sequence,
    ]


def bodies(effects: Effects) -> Iterator[Delivery]:
    yield from leaving(effects)
    for dead in effects.dead:
        yield from dead.items


def leaving(effects: Effects) -> Iterator[Delivery]:
    """What consumers get."""
    for items in effects.deliveries.values():
        yield from items
    for reply in effects.replies:
        if isinstance(reply.value, GetResult) and reply.value.delivery is not None:
            yield reply.value.delivery


def state_of(machine: QueueMachine) -> list[object]:
    """All messages without bodies, by their places."""
    messages = machine.messages
    return [
        facts(messages.ready.in_order()),
        [(*place, facts(list(each.values()))) for *place, each in messages.checked_out],
        [(each.reason, facts(each.items)) for each in messages.dead_letters.records()],
        machine.stat(),
        messages.now_ms,
    ]


class Replica:
    """A queue's replica: what `QuorumQueue` does with its machine and its log."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.machine = QueueMachine(CONFIG, WINDOW_BYTES)
        self.log: KeptLog | None = None
        self.is_leading = False
        self.last_index = 0
        self.restored = 0
        self.filled = 0
        self.led = 0
        self.expected: deque[tuple[int, Effects]] = deque()  # of what waits, numbered
        self.calls = 0
        self.waited = 0
        self.read_late = 0
        self.errors: list[BaseException] = []

    def apply(self, index: int, data: bytes) -> object:
        self.last_index = index
        self.machine.apply_entry(decode_entry(data), index - parts.extra(len(data)))
        effects, expected = self.machine.take_effects(), self.truth.applied(index, data)
        assert told(effects) == told(expected)
        if self.is_leading:
            self._fill(effects, expected)
        assert self.log is not None
        self.log.applied(index, len(data))
        return True

    def _fill(self, effects: Effects, expected: Effects) -> None:
        """Fill effects, perhaps later, and behind all others; then they are what they must be."""
        log, self.calls = self.log, self.calls + 1
        assert log is not None
        self.filled += sum(item.message.is_stub for item in bodies(effects))
        self.expected.append((self.calls, expected))
        log.fill(effects)

    def hand_out(self, effects: Effects) -> None:
        log = self.log
        assert log is not None
        assert self.is_leading
        number, expected = self.expected.popleft()
        for dead, wanted in zip(effects.dead, expected.dead, strict=True):
            self._read_dead(dead, wanted.items)
        assert [*leaving(effects)] == [*leaving(expected)]
        self.waited += number < self.calls

    def _read_dead(self, dead: Dead, wanted: Sequence[Delivery]) -> None:
        """Read dead letters as `DeadLetters` does: those that are held, and others, some later."""
        log = self.log
        assert log is not None
        if dead.is_held:
            self._expect(dead.items, wanted)
            return
        unread, left = Blocks(), deque[Delivery]()
        for item, whole in zip(dead.items, wanted, strict=True):
            if item.message.is_stub:
                unread.append([item], item.message.body_size)
                left.append(whole)
            else:
                assert item == whole
        log.keep(unread)

        def read_on() -> None:
            items = unread.take(2)[0]
            if items:
                self._expect(items, [left.popleft() for _ in items])
                loop.call_later(KEPT_S, read_on)

        loop = asyncio.get_running_loop()
        loop.call_later(KEPT_S, read_on)

    def _expect(self, items: list[Delivery], wanted: Sequence[Delivery]) -> None:
        def arrived(found: list[Delivery] | None) -> None:
            if found is not None and found != wanted:
                self.errors.append(AssertionError("other bodies were read"))
            self.read_late += sum(item.message.is_stub for item in items)

        assert self.log is not None
        self.log.fill_later(items, arrived)

    def snapshot(self) -> Iterable[bytes]:
        return self.machine.snapshot() if self.log is None else self.log.checkpoint()

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        self.restored += 1
        self.last_index = index
        self.machine.restore(list(parts))
        assert state_of(self.machine) == state_of(self.truth.at(index))

    def role_changed(self, *, leader: bool, term: int) -> None:
        """As a new leader, everything that is here can be handed out once more."""
        self.is_leading = leader
        self.led += leader
        if self.log is not None:
            self.log.drop()
            self.expected.clear()
        if leader and self.last_index:
            assert self.log is not None
            truth = self.truth.at(self.last_index)
            for machine in (self.machine, truth):
                machine.redeliver_checked_out()
                machine.messages.redeliver_dead()
            effects, expected = self.machine.take_effects(), truth.take_effects()
            self._fill(effects, expected)
            ready = self.machine.messages.ready.in_order()
            self._expect(ready, truth.messages.ready.in_order())


class SlowReads:
    """A group whose later reads all take some time: what is in its memory, too."""

    def __init__(self, group: Group) -> None:
        self.fail = group.fail
        self.release, self.log_segments = group.release, group.log_segments
        self.hold_checkpoint, self.put_held = group.hold_checkpoint, group.put_held
        self._group = group

    def read_later(
        self, low: int, size_bytes_max: int, done: Callable[[list[Entry] | Exception], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(READ_S, self._group.read_later, low, size_bytes_max, done)


class QueueMember(Member):
    def __init__(self, cluster: QueueCluster, name: str, disk: TornDisk) -> None:
        loop = asyncio.get_running_loop()
        self.torn = TimedTornJournal(loop, disk, cluster.sync_s)
        self._is_slow = cluster.is_slow
        self.errors: list[BaseException] = []
        self.host = RaftHost(
            name,
            self.torn,
            _Port(cluster, name),
            VirtualClock(),
            cluster.rng,
            config=cluster.config,
            on_group_failed=lambda _, error: self.errors.append(error),
            files=self.torn,
        )
        self.replica = Replica(cluster.truth)

    def open_kept(self, voters: Sequence[str] | None) -> None:
        group = self.host.open_group(
            GROUP,
            voters,
            self.replica,
            segment_bytes=SEGMENT_BYTES,
            keeps_log=True,
            is_read=False,
        )
        readable = SlowReads(group) if self._is_slow else group
        self.replica.log = KeptLog(self.replica.machine, readable, self.replica)

    @property
    def group(self) -> Group:
        group = self.host.group(GROUP)
        assert group is not None
        return group


class QueueCluster(Cluster):
    def __init__(self, seed: int, config: RaftHostConfig | None = None) -> None:
        config = config or RaftHostConfig(checkpoint_log_bytes=CHECKPOINT_BYTES)
        super().__init__((), config, seed)
        self.truth = Truth()
        self.is_slow = bool(seed % 2)
        self.kept: dict[str, QueueMember] = {}
        self.replicas: list[Replica] = []
        for name in NAMES:
            self.begin(name, TornDisk(), NAMES)

    def begin(self, name: str, disk: TornDisk, voters: Sequence[str] | None) -> None:
        member = QueueMember(self, name, disk)
        self.members[name] = self.kept[name] = member
        self.replicas.append(member.replica)
        member.open_kept(voters)

    def tear(self, name: str, draw: random.Random) -> TornDisk:
        member = self.kept.pop(name)
        del self.members[name]
        member.host.close()
        return member.torn.crash(draw)

    def check(self) -> None:
        for member in self.kept.values():
            replica = member.replica
            for error in (*member.errors, *replica.errors):
                raise error
            if replica.last_index:
                assert state_of(replica.machine) == state_of(self.truth.at(replica.last_index))

    def leading(self) -> QueueMember | None:
        leader = self.leader(GROUP)
        if leader is None:
            return None
        member = self.kept[leader.node.state.name]
        return member if member.replica.is_leading else None


class Load:
    """Publishes, deliveries, settles and all else, as the leader's queue allows."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.number = 1
        self.bodies = 0
        self.now_ms = 1_000
        self.done = 0
        self.moves = 0
        self.is_moving = False
        self.before: CommandBatch | None = None
        self.lowest = 1  # number without an answer, as the publisher says
        self.got: CommandBatch | None = None

    def propose(self, cluster: QueueCluster, count: int) -> None:
        for _ in range(count):
            member = cluster.leading()
            if member is None:
                return
            self.now_ms += self.draw.choice((0, 1, 7))
            data = encode_entry(self._commands(member.replica), self.now_ms)
            member.group.propose_nowait(data, self._done)
            self.move(member)

    def move(self, member: QueueMember) -> None:
        """Move messages as `QuorumQueue` does, one reading at a time."""
        replica = member.replica

        def read(moved: Moved | None) -> None:
            self.is_moving = False
            group = member.host.group(GROUP)
            if moved is not None and replica.is_leading and group is not None:
                self.moves += 1
                group.propose_nowait(encode_entry([moved], self.now_ms), self._done)

        if not self.is_moving and replica.log is not None:
            self.is_moving = True
            replica.log.next_move(read)

    def _done(self, result: object) -> None:
        self.done += result is True

    def _commands(self, replica: Replica) -> list[QueueCommand]:
        draw, machine = self.draw, replica.machine
        if draw.random() < 0.05:
            dead = machine.messages.dead_letters.numbers()
            return [DropDeadLettered(draw.sample(dead, min(len(dead), 5)))]
        if draw.random() < 0.03:
            is_dead_lettered, is_held = draw.random() < 0.7, draw.random() < 0.7
            delivery_limit = draw.choice((None, None, 3))
            return [
                SetRules(
                    Rules(
                        delivery_limit=delivery_limit,
                        is_dead_lettered=is_dead_lettered,
                        is_held=is_held,
                    )
                )
            ]
        if self.got is not None and draw.random() < 0.05:
            return [replace(self.got, lowest=self.lowest)]  # its answers were lost
        if draw.random() < 0.03:
            self.lowest, self.before, self.got = self.number, None, None
        commands = [self._command(machine) for _ in range(draw.randint(1, 3))]
        batch = CommandBatch(SESSION, self.lowest, self.number, commands)
        self.number += sum(width(each) for each in commands)
        if self.got is None and any(isinstance(each, Get) for each in commands):
            self.got = batch
        if self.before is not None and draw.random() < 0.2:  # with a part that was sent before
            both = [*self.before.commands, *commands]
            batch = replace(batch, first=self.before.first, commands=both)
        self.before = batch if len(batch.commands) < 6 else None
        return [batch]

    def _command(self, machine: QueueMachine) -> SessionCommand:
        draw, channel = self.draw, self.draw.choice(CHANNELS)
        chance = draw.random()
        if chance < 0.5:
            return Enqueue([self._message() for _ in range(draw.randint(1, 4))])
        if chance < 0.58:
            return Checkout(channel, draw.choice("st"), draw.random() < 0.2, False, 4)
        if chance < 0.62:
            return Cancel(channel, draw.choice("st"))
        if chance < 0.66:
            return Get(channel, draw.random() < 0.5)
        if chance < 0.67:
            return Release(channel)
        if chance < 0.675:
            return Purge()
        places = [place for place in machine.messages.checked_out if place[2]]
        if not places:
            return Settle(channel, "s", [1])
        channel, tag, here = draw.choice(places)
        numbers = [number for number in here if draw.random() < 0.8]
        if draw.random() < 0.2:
            numbers = numbers[1:]  # the first is kept, perhaps for ever
        kinds: list[type] = [Settle] * 8 + [Requeue, Discard]
        found: SessionCommand = draw.choice(kinds)(channel, tag, numbers)
        return found

    def _message(self) -> Message:
        self.bodies += 1
        size = self.draw.choice((5, 60, 60, 400, 1_500))
        body = b"%06d" % self.bodies + self.draw.randbytes(size)
        ttl_ms = self.draw.choice((-1, -1, -1, -1, 50))
        return replace(message(body), ttl_ms=ttl_ms)


async def disturb(cluster: QueueCluster, draw: random.Random) -> None:
    """Sometimes a crash and a restart, a cut link, the end of those, or a new replica."""
    chance = draw.random()
    if chance < 0.2:
        name = draw.choice(NAMES)
        disk = cluster.tear(name, draw)
        await asyncio.sleep(draw.choice((0, 0.5, 3)))
        cluster.begin(name, disk, None)
    elif chance < 0.28:
        cluster.cut_off(draw.choice(NAMES))
    elif chance < 0.6:
        cluster.heal()
    elif chance < 0.68:
        await replace_newcomer(cluster)
    elif chance < 0.8:
        await hand_over(cluster, draw)


async def hand_over(cluster: QueueCluster, draw: random.Random) -> None:
    leader = cluster.leader(GROUP)
    if leader is not None:
        try:
            async with asyncio.timeout(3):
                await leader.transfer(draw.choice(leader.voters))
        except (RaftError, TimeoutError):
            pass  # it leads no more, or the other is behind


async def replace_newcomer(cluster: QueueCluster) -> None:
    """A node without data becomes a member and perhaps the leader; before, it was another."""
    leader = cluster.leader(GROUP)
    if leader is None:
        return
    try:
        async with asyncio.timeout(5):
            if NEWCOMER in (*leader.learners, *leader.voters):
                await leader.remove(NEWCOMER)
            if NEWCOMER in cluster.kept:
                cluster.tear(NEWCOMER, cluster.rng)
            cluster.begin(NEWCOMER, TornDisk(), None)
            await leader.add_learner(NEWCOMER)
            while leader.status().matches.get(NEWCOMER, 0) < leader.node.commit_index:
                await asyncio.sleep(0.01)
            await leader.promote(NEWCOMER)
            await leader.transfer(NEWCOMER)
    except (RaftError, TimeoutError):
        pass  # the leader lost its majority


async def life(seed: int, turns: int = 60) -> tuple[QueueCluster, Load]:
    draw = random.Random(seed)
    cluster, load = QueueCluster(seed), Load(draw)
    for _ in range(turns):
        load.propose(cluster, draw.randint(0, 12))
        await asyncio.sleep(draw.choice((0.0005, 0.002, 0.02, 0.3)))
        for member in cluster.kept.values():
            assert member.replica.log is not None
            member.replica.log.tick()
        await disturb(cluster, draw)
        cluster.check()
    cluster.heal()
    await cluster.until(cluster.leading, 60)
    await replace_newcomer(cluster)
    for _ in range(5):
        load.propose(cluster, 5)
        await asyncio.sleep(0.3)
    await cluster.until(cluster.leading, 60)
    done = load.done

    def is_going_on() -> bool:
        load.propose(cluster, 1)
        return load.done > done

    await cluster.until(is_going_on, 60)

    def is_same() -> bool:
        return len({cluster.kept[name].group.status().applied_index for name in NAMES}) == 1

    await cluster.until(is_same, 60)
    cluster.check()
    return cluster, load


@pytest.mark.parametrize("seed", range(1, 21))
def test_replicas_with_bodies_in_their_logs_are_as_those_with_all_in_memory(seed: int) -> None:
    async def scenario() -> None:
        cluster, _ = await life(seed)
        cluster.close()

    run(scenario())


def test_lives_have_what_they_are_about() -> None:
    """Logs that were cut, stubs that were filled, moved messages, new replicas that led."""

    async def scenario() -> None:
        firsts, restored, newcomers, filled, moves, led, waited = 0, 0, 0, 0, 0, 0, 0
        late = 0
        for seed in range(1, 8):
            cluster, load = await life(seed)
            firsts += max(member.group.node.first_index for member in cluster.kept.values())
            restored += sum(replica.restored for replica in cluster.replicas)
            newcomer = cluster.kept.get(NEWCOMER)
            newcomers += newcomer is not None and bool(newcomer.replica.restored)
            led += newcomer is not None and bool(newcomer.replica.led and newcomer.replica.restored)
            filled += sum(replica.filled for replica in cluster.replicas)
            waited += sum(replica.waited for replica in cluster.replicas)
            moves += load.moves
            cluster.close()
            late += sum(replica.read_late for replica in cluster.replicas)
        print(firsts, restored, newcomers, filled, moves, led, waited, late)
        assert firsts > 300
        assert restored > 20
        assert newcomers > 1
        assert filled > 300
        assert moves > 20
        assert led > 0
        assert waited > 100
        assert late > 100

    run(scenario())


def released_one_too_far(positions: Positions, live: Sequence[Span]) -> int | None:
    lowest = LOWEST_INDEX(positions, live)
    return None if lowest is None else lowest + 1


def live_without_held(messages: MessageState) -> list[Span]:
    everything = LIVE(messages)
    gone = {number for _, _, items in messages.checked_out for number in items}
    return [(n, n) for first, last in everything for n in range(first, last + 1) if n not in gone]


def live_without_dead(messages: MessageState) -> list[Span]:
    everything = LIVE(messages)
    gone = {*messages.dead_letters.numbers()}
    return [(n, n) for first, last in everything for n in range(first, last + 1) if n not in gone]


def runs_of_ready_only(
    messages: MessageState, consumers: object, sessions: SessionTable
) -> Iterator[bytes]:
    assert messages.positions is not None
    messages.positions.compact(live_without_dead(messages))
    return ENCODE(messages, consumers, sessions)  # type: ignore[arg-type]


def encoded_when_taken(
    messages: MessageState, consumers: Consumers, sessions: SessionTable
) -> Iterator[bytes]:
    yield from (b"", b"")
    yield from list(ENCODE(messages, consumers, sessions))


def moved_by_count(positions: Positions, numbers: Sequence[int], index: int, ordinal: int) -> None:
    MOVE(positions, numbers, index, ordinal + 1)


def none_got(sessions: SessionTable) -> list[int]:
    del sessions
    return []


def overtaking(outgoing: Outgoing, effects: Effects, positions: Positions) -> None:
    if all(not item.message.is_stub for item in bodies(effects)):
        outgoing._leader.hand_out(effects)
    else:
        FILL(outgoing, effects, positions)


def is_reading(log: KeptLog) -> bool:
    return log.is_reading


FILL = Outgoing.fill
LOWEST_INDEX, MOVE, LIVE = Positions.lowest_index, Positions.move, MessageState.live
ENCODE = checkpoint.encode

BUGS: dict[str, tuple[object, str, object]] = {
    "the log is released one entry too far": (Positions, "lowest_index", released_one_too_far),
    "what is checked out is not looked at": (MessageState, "live", live_without_held),
    "dead letters are not looked at": (MessageState, "live", live_without_dead),
    "a checkpoint lacks the positions of dead letters": (kept_log, "encode", runs_of_ready_only),
    "a checkpoint has what came while it was written": (kept_log, "encode", encoded_when_taken),
    "a moved message's place is the one behind": (Positions, "move", moved_by_count),
    "the log is released while effects wait": (KeptLog, "is_reading", False),
    "the log is released while something is read": (KeptLog, "_is_held", property(is_reading)),
    "what is in memory overtakes what is read": (Outgoing, "fill", overtaking),
    "what basic.get was answered with goes": (SessionTable, "got", none_got),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])

    async def scenario() -> None:
        for seed in range(1, 21):
            (await life(seed))[0].close()

    with pytest.raises((AssertionError, BodyMissing, LogCorrupt, IndexError)):
        run(scenario())
