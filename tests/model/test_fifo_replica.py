"""A mirrored queue without its network: a master, its ledger as bytes, mirrors that join at any
moment, are filled, emptied and promoted; publishers that send again and count what they are told.

The ring is a list of payloads in one order; each mirror has read some of it. A death of the master
cuts the list anywhere behind what a survivor has read (GM delivers alike, docs/protocol-rules.md
P22).

Messages expire, limits drop or refuse, the dead may be held, and doubles are dropped: by the master
alone, and alike by whoever is promoted. Members page messages out whenever they like, each to a
disk of its own, and a promoted mirror goes on with its disk.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from broker.fifo import commands
from broker.fifo.commands import (
    Checkout,
    CommandBatch,
    Discard,
    Enqueue,
    Get,
    Purge,
    Requeue,
    Settle,
)
from broker.fifo.config import mirrored_config
from broker.fifo.join_state import JoinState, Ranges, decode_join_state, encode_join_state
from broker.fifo.ledger import (
    Enqueued,
    Removed,
    Settled,
    cut_records,
    decode_records,
    encode_records,
)
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.fifo.replica import LedgerReplica
from broker.message import Message
from tests.model.fifo_model import message
from tests.model.sync_batches import Disk, next_batch, page_in, whole

CONFIG = mirrored_config("q", "/")
MARK = "mark"
END = "end"
ABOUT_HELD = [commands.Settle, Requeue, Discard]
WHO = st.integers(0, 1)
DEDUP = (2, 3)  # keys remembered, and how many milliseconds
RULES = st.builds(
    Rules,
    message_ttl_ms=st.sampled_from([None, None, 4]),
    max_length=st.sampled_from([None, 3]),
    overflow=st.sampled_from(["drop-head", "reject-publish"]),
    delivery_limit=st.sampled_from([None, 1]),
    is_dead_lettered=st.booleans(),
    is_held=st.booleans(),
)


class Publisher:
    """A node's session: what it published, what it was told. Bodies are unique sizes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.next = 1
        self.pending: dict[int, tuple[object, list[int]]] = {}  # first number -> command, bodies
        self.unanswered: set[int] = set()

    @property
    def lowest(self) -> int:
        return min(self.unanswered, default=self.next)

    def add(self, command, bodies=()) -> None:
        width = len(bodies) or 1
        self.pending[self.next] = command, list(bodies)
        self.unanswered.update(range(self.next, self.next + width))
        self.next += width

    def bodies_of(self, first: int, last: int) -> list[int]:
        found = []
        for start, (_, bodies) in self.pending.items():
            found += [b for i, b in enumerate(bodies) if first <= start + i <= last]
        return found

    def answered(self, first: int, last: int) -> None:
        self.unanswered.difference_update(range(first, last + 1))

    def batch(self, epoch: int, epochs: dict[tuple[str, int], int]) -> CommandBatch | None:
        """Everything that may still need an answer, from the lowest unanswered on."""
        lowest = self.lowest
        sent, first, expected = [], 0, 0
        for start, (command, bodies) in sorted(self.pending.items()):
            if start + (len(bodies) or 1) <= lowest:
                continue
            assert not first or start == expected
            first = first or start
            expected = start + (len(bodies) or 1)
            if isinstance(command, Enqueue):
                again = epochs.setdefault((self.name, start), epoch) != epoch
                sent.append(Enqueue(command.messages, again))
            else:
                sent.append(command)
        return CommandBatch(self.name, lowest, first, sent) if sent else None


class Filling:
    """A synchronisation, as its master sees it."""

    def __init__(self, last: int, has: Ranges, items_max: int) -> None:
        self.low, self.last = 1, last
        self.has = has
        self.items_max = items_max


class Mirror:
    def __init__(self, place: int, levels: int, *, is_founder: bool) -> None:
        self.replica = LedgerReplica(*DEDUP, levels)
        self.place = place  # how much of the ring it has read
        self.is_live = is_founder  # has its join state
        self.is_synced = is_founder
        self.begins = 1  # messages from here on it has
        self.filling: Filling | None = None  # under way to it
        self.disk = Disk()
        self.is_syncing = False  # one synchronisation at a time
        self.has_all = is_founder  # never emptied: it has seen everything there ever was


class MirroredQueue(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.config = replace(CONFIG, dedup_size=DEDUP[0], dedup_ttl_ms=DEDUP[1])
        self.master = QueueMachine(self.config)
        self.disk = Disk()
        self.rules = Rules()
        self.now_ms = 1
        self.master.set_time(1)
        self.keys: dict[int, str] = {}  # body -> key of its doubles
        self.ring: list[tuple[str, object, object]] = []
        self.positions: list[int] = []  # of the master's ledger, behind each ring entry
        self.mirrors: list[Mirror] = []
        self.publishers = [Publisher("a/1/7/0"), Publisher("b/1/7/0")]
        self.sent: dict[tuple[str, int], int] = {}
        self.epoch = 1
        self.body = 0
        self.told: dict[int, bool] = {}  # body -> verdict
        self.holders: dict[tuple[str, str], list[int]] = {}
        self.delivered: set[int] = set()
        self.lossy = False

    @property
    def levels(self) -> int:
        return self.config.priority_max if self.config.order == "priority" else 0

    # What a turn of the master brings.

    def turn(self) -> None:
        while needed := self.master.paging.needed():
            self.hand_in(self.master.take_effects())
            page_in(self.master, self.disk)
            self.master.pump()
            assert self.master.paging.needed() != needed
        self.hand_in(self.master.take_effects())
        self.safe()

    def hand_in(self, effects) -> None:
        self.disk.write(effects.ledger)
        for group in cut_records(effects.ledger):
            self.ring.append(("ledger", encode_records(group), None))
            self.positions.append(self.master.position)
        for (channel_id, tag), items in effects.deliveries.items():
            self.holders.setdefault((channel_id, tag), []).extend(item.number for item in items)
            self._check_deliveries(items)
        for verdict in effects.verdicts:
            self._hear(verdict)
        for reply in effects.replies:
            self._publisher(reply.session).answered(reply.number, reply.number)
        assert not effects.session_lost

    def history(self) -> tuple[dict[int, int], dict[int, int]]:
        """What the ring says in all: messages present and gone, as number -> body."""
        present: dict[int, int] = {}
        gone: dict[int, int] = {}
        for kind, what, _ in self.ring:
            for record in decode_records(what) if kind == "ledger" else ():
                if isinstance(record, Enqueued):
                    bodies = [each.body_size for each in record.messages]
                    present.update(zip(record.numbers, bodies, strict=True))
                elif isinstance(record, Settled | Removed):
                    gone.update({n: present.pop(n) for n in record.numbers if n in present})
        return present, gone

    def _check_deliveries(self, items) -> None:
        for item in items:
            body = item.message.body_size
            assert not 0 < item.message.expires_ms < self.now_ms, "delivered expired"
            if item.delivery_count == 0:
                assert body not in self.delivered, "delivered twice without the flag"
            self.delivered.add(body)

    def _publisher(self, session: str) -> Publisher:
        return next(p for p in self.publishers if p.name == session)

    def _hear(self, verdict) -> None:
        publisher = self._publisher(verdict.session)
        for number in range(verdict.first, verdict.last + 1):
            if number in publisher.unanswered:
                for body in publisher.bodies_of(number, number):
                    assert body not in self.told
                    self.told[body] = verdict.ok
        publisher.answered(verdict.first, verdict.last)

    def safe(self) -> None:
        """P19: what every member has is safe."""
        place = min([mirror.place for mirror in self.mirrors], default=len(self.ring))
        if place:
            self.master.mark_durable(self.positions[place - 1])
            effects = self.master.take_effects()
            for verdict in effects.verdicts:
                self._hear(verdict)

    # Time, rules and the dead.

    @initialize(
        rules=st.one_of(st.just(Rules()), RULES),
        order=st.sampled_from(["fifo", "fifo", "priority"]),
        is_single_active=st.booleans(),
    )
    def begin(self, rules, order, is_single_active):
        self.config = replace(
            self.config, order=order, priority_max=2, is_single_active=is_single_active
        )
        self.master = QueueMachine(self.config)
        self.master.set_time(self.now_ms)
        self.mirrors = [Mirror(0, self.levels, is_founder=True)]
        self.other_rules(rules)

    @rule(rules=RULES)
    def other_rules(self, rules):
        self.rules = rules
        self.master.set_rules(rules)
        self.master.pump()
        self.turn()

    @rule(later_ms=st.integers(1, 4))
    def time_passes(self, later_ms):
        self.now_ms += later_ms
        self.master.set_time(self.now_ms)
        self.master.pump()
        self.turn()

    @precondition(lambda self: self.master.messages.dead_letters.count)
    @rule(count=st.integers(1, 3))
    def drop_dead_lettered(self, count):
        self.master.drop_dead_lettered(self.master.messages.dead_letters.numbers()[:count])
        self.turn()

    # Publishers and consumers.

    @rule(
        who=WHO,
        count=st.integers(1, 4),
        key=st.sampled_from(["", "", "x", "y", "z"]),
        ttl_ms=st.sampled_from([-1, -1, 0, 2]),
        priority=st.integers(0, 3),
        is_persistent=st.booleans(),
        is_sent=st.booleans(),
    )
    def publish(self, who, count, key, ttl_ms, priority, is_persistent, is_sent):
        bodies = list(range(self.body + 1, self.body + count + 1))
        self.body += count
        facts = {"persistent": is_persistent, "ttl_ms": ttl_ms, "priority": priority, "dedup": key}
        messages = [message(body, **facts) for body in bodies]
        self.keys.update(dict.fromkeys(bodies, key) if key else {})
        self.publishers[who].add(Enqueue(messages), bodies)
        if is_sent:
            self.batch(who, 99)

    @rule(who=WHO, count=st.integers(1, 5))
    def batch(self, who, count):
        whole = self.publishers[who].batch(self.epoch, self.sent)
        if whole is not None:
            some = CommandBatch(whole.session, whole.lowest, whole.first, whole.commands[:count])
            self.master.apply_batch(some, self.now_ms)
            self.turn()

    @rule(who=WHO, no_ack=st.booleans(), prefetch=st.integers(0, 3))
    def consume(self, who, no_ack, prefetch):
        channel_id = self.publishers[who].name[:3] + "/1/1"
        self.publishers[who].add(Checkout(channel_id, "t", no_ack, False, prefetch, 0, {}))

    @rule(
        who=WHO,
        kind=st.sampled_from(ABOUT_HELD),
        data=st.data(),
    )
    def settle(self, who, kind, data):
        channel_id = self.publishers[who].name[:3] + "/1/1"
        held = self.holders.get((channel_id, "t"), [])
        if held:
            numbers = data.draw(st.lists(st.sampled_from(held), unique=True, max_size=3))
            self.publishers[who].add(kind(channel_id, "t", numbers))
            self.batch(who, 99)

    @rule(who=WHO, command=st.sampled_from([Get("c/1/1/1", False), Get("c/1/1/1", True), Purge()]))
    def take(self, who, command):
        self.publishers[who].add(command)
        self.batch(who, 99)

    # Mirrors.

    @precondition(lambda self: len(self.mirrors) < 3)
    @rule()
    def join(self):
        mirror = Mirror(len(self.ring), self.levels, is_founder=False)
        join_state = encode_join_state(self.master.join_state())
        self.ring.append(("join state", join_state, mirror))
        self.positions.append(self.master.position)
        mirror.begins = self.master.next_number
        self.mirrors.append(mirror)

    @rule(which=st.integers(0, 2), count=st.sampled_from([1, 3, 99]))
    def read(self, which, count):
        for mirror in self.mirrors[which : which + 1]:
            self._read(mirror, count)
            self.safe()

    @rule(which=st.integers(0, 2))
    def mirror_dies(self, which):
        del self.mirrors[which : which + 1]
        self.safe()

    def _read(self, mirror: Mirror, count: int) -> None:
        entries = self.ring[mirror.place : mirror.place + count]
        for kind, what, whom in entries:
            if kind == "ledger":
                if mirror.is_live:
                    records = decode_records(what)
                    mirror.replica.apply(records)
                    mirror.disk.write(records)
            elif whom is mirror and kind == "join state":
                self._adopt(mirror, decode_join_state(what))
            elif whom is mirror and kind == MARK:
                self._mark(mirror, *what)
            elif whom is mirror and kind == END:
                mirror.replica.end_sync()
                mirror.is_syncing = False
                mirror.is_synced = True
        mirror.place += len(entries)

    # Synchronisation: a mark in the ring, then batches beside it.

    @precondition(lambda self: any(not (m.is_synced or m.is_syncing) for m in self.mirrors))
    @rule(data=st.data(), is_emptied=st.booleans(), items_max=st.integers(1, 3))
    def begin_sync(self, data, is_emptied, items_max):
        some = [m for m in self.mirrors if not (m.is_synced or m.is_syncing)]
        mirror = data.draw(st.sampled_from(some))
        mirror.is_syncing = True
        what = (self.master.next_number, is_emptied, items_max)
        self.ring.append((MARK, what, mirror))
        self.positions.append(self.master.position)

    def _mark(self, mirror, next_number, is_emptied, items_max):
        if is_emptied:
            self._empty(mirror)
        mirror.has_all = False
        mirror.replica.begin_sync()
        mirror.filling = Filling(next_number - 1, mirror.replica.ranges(), items_max)

    def _empty(self, mirror: Mirror) -> None:
        mirror.replica.empty()
        mirror.disk = Disk()

    def _adopt(self, mirror: Mirror, join_state: JoinState) -> None:
        mirror.replica.adopt(join_state)
        mirror.disk = Disk()
        mirror.is_live = True

    @precondition(lambda self: any(m.filling for m in self.mirrors))
    @rule(data=st.data(), count=st.integers(1, 5))
    def fill(self, data, count):
        """Batches are cut from what the master has now, long after the mark."""
        mirror = data.draw(st.sampled_from([m for m in self.mirrors if m.filling]))
        for _ in range(count):
            if mirror.filling is not None:
                self._fill(mirror, mirror.filling)

    def _fill(self, mirror: Mirror, filling: Filling) -> None:
        batch = next_batch(
            self.master,
            self.disk,
            filling.low,
            filling.last,
            filling.has,
            items_max=filling.items_max,
        )
        filling.low = batch.high + 1
        before = set(mirror.replica.numbers())
        added, dropped = mirror.replica.apply_sync_batch(batch)
        mirror.disk.settle(dropped)
        mirror.disk.put(added)
        after = set(mirror.replica.numbers())
        assert after == before - set(dropped) | {number for number, _ in added}
        if filling.low > filling.last:
            self.ring.append((END, (), mirror))
            self.positions.append(self.master.position)
            mirror.filling = None

    # Memory.

    @rule(which=st.integers(0, 2), limit=st.sampled_from([0, 0, 700, 1_400, 3_000]))
    def mirror_pages_out(self, which, limit):
        for mirror in self.mirrors[which : which + 1]:
            mirror.disk.page_out(mirror.replica.page_out(limit, durable=True).pages)
            in_memory = sum([600 + each.body_size for _, each in mirror.replica.messages()])
            assert in_memory <= limit

    @rule(limit=st.sampled_from([0, 700, 3_000]))
    def master_pages_out(self, limit):
        self.disk.page_out(self.master.paging.page_out(limit, durable=True).pages)
        self.turn()

    @precondition(lambda self: any(not m.is_synced and m.is_live for m in self.mirrors))
    @rule(data=st.data())
    def cancel_sync(self, data):
        mirror = data.draw(
            st.sampled_from([m for m in self.mirrors if not m.is_synced and m.is_live])
        )
        self._read(mirror, len(self.ring) - mirror.place)
        self._empty(mirror)
        mirror.filling = None
        mirror.is_syncing = mirror.is_synced = False
        mirror.begins = self.master.next_number
        mirror.has_all = False
        self.safe()

    @rule()
    def note_drained(self):
        """P20: no message older than the join state is left, and every member knows."""
        lowest = self.master.messages.lowest_number()
        if any(mirror.place < len(self.ring) for mirror in self.mirrors):
            return
        for mirror in self.mirrors:
            if not mirror.is_syncing and (lowest is None or lowest >= mirror.begins):
                mirror.is_synced = True

    # Deaths.

    @precondition(lambda self: any(m.is_live for m in self.mirrors))
    @rule(data=st.data(), is_hasty=st.booleans())
    def master_dies(self, data, is_hasty):
        synced = [m for m in self.mirrors if m.is_synced and not is_hasty]
        heir = data.draw(st.sampled_from(synced or [m for m in self.mirrors if m.is_live]))
        if not heir.is_synced:
            self.lossy = True
        furthest = max(mirror.place for mirror in self.mirrors)
        cut = data.draw(st.integers(furthest, len(self.ring)))
        del self.ring[cut:], self.positions[cut:]
        self.mirrors.remove(heir)
        self._read(heir, cut - heir.place)
        before = heir.replica.numbers()
        self.disk = heir.disk
        self.master = heir.replica.promote(self.config)
        self.master.set_time(self.now_ms)
        self.master.set_rules(self.rules)
        self.positions = [0] * cut
        self.epoch += 1
        self.holders = {}
        assert [number for number, _ in self._contents()] == before
        page_in(self.master, self.disk)
        assert all(item.delivery_count for item in self.master.messages.contents()), "P16"
        self._after_promotion(heir, cut)

    def _after_promotion(self, heir: Mirror, cut: int) -> None:
        contents = {number: message.body_size for number, message in self._contents()}
        present, gone = self.history()
        assert contents.items() <= present.items(), "what was settled came back"
        if not self.lossy:
            assert contents == present
            known = {*present.values(), *gone.values()}
            keys = {self.keys.get(body) for body in known}
            lost = {body for body, ok in self.told.items() if ok and body not in known}
            assert all(self.keys.get(body) in keys for body in lost), "a confirmed message is lost"
        for mirror in self.mirrors:
            self._read(mirror, cut - mirror.place)
            if not heir.is_synced or not mirror.is_live or mirror.is_syncing:
                # Begins again: it may hold what its new master never had, or be half-filled.
                self._adopt(mirror, self._fresh_join_state())
                mirror.filling, mirror.is_synced, mirror.is_syncing = None, False, False
            if not mirror.is_synced:
                mirror.begins = self.master.next_number
        self._send_again(set(contents.values()), set(gone.values()), heir)

    def _fresh_join_state(self) -> JoinState:
        return decode_join_state(encode_join_state(self.master.join_state()))

    def _send_again(self, here: set[int], gone: set[int], heir: Mirror) -> None:
        """P11: every publisher sends again what has no answer."""
        for publisher in self.publishers:
            batch = publisher.batch(self.epoch, self.sent)
            if batch is None:
                continue
            asked = set(publisher.bodies_of(publisher.lowest, publisher.next)) - set(self.told)
            next_before = self.master.next_number
            self.master.apply_batch(batch, self.now_ms)
            self.turn()
            present, past = self.history()
            fresh = {b for n, b in {**present, **past}.items() if n >= next_before}
            assert not fresh & here, "enqueued twice"
            for body in asked - fresh:
                if body in self.keys:
                    continue  # perhaps a double, dropped by this master or by the last
                if body in here:
                    assert self.told[body], "it holds the enqueue"
                elif body not in gone:
                    assert not self.told[body], "nobody here has seen it"
                elif heir.has_all:
                    assert self.told[body], "it saw it enqueued and settled"

    # Always.

    @invariant()
    def a_synchronised_mirror_that_has_read_everything_is_the_master(self):
        for mirror in self.mirrors:
            if mirror.is_synced and mirror.place == len(self.ring):
                assert self._copy(mirror) == self._contents()
                assert mirror.replica.next_number == self.master.next_number
                assert self._keys_of(mirror.replica._dedup) == self._keys_of(
                    self.master.messages.dedup
                )

    def _contents(self) -> list[tuple[int, Message]]:
        return whole(self.master, self.disk)

    def _copy(self, mirror: Mirror) -> list[tuple[int, Message]]:
        """What a mirror holds, wherever it is."""
        replica = mirror.replica
        paged = replica.paged_numbers()
        assert not {*replica._contents} & {*paged}
        return sorted(replica.messages() + mirror.disk.read(paged, keep=True))

    def _keys_of(self, dedup) -> list[tuple[str, int]]:
        records = [] if dedup is None else dedup.records()
        return [(key, ms) for key, ms in records if ms + DEDUP[1] > self.now_ms]

    @invariant()
    def numbers_are_in_publish_order(self):
        for publisher in self.publishers:
            mine = [b for _, bodies in publisher.pending.values() for b in bodies]
            order = {body: place for place, body in enumerate(mine)}
            places = [
                order[each.body_size] for _, each in self._contents() if each.body_size in order
            ]
            assert places == sorted(places)

    def teardown(self):
        """Once every mirror has read everything and the older messages are gone, all are equal."""
        for mirror in self.mirrors:
            self._read(mirror, len(self.ring) - mirror.place)
            while mirror.filling is not None:
                self._fill(mirror, mirror.filling)
            mirror.replica.end_sync()
        old = [number for number, _ in self._contents()]
        self.master.set_rules(Rules())
        self.master.apply_command(Purge())
        for channel_id, tag in {*self.holders, ("c/1/1/1", "")}:
            self.master.apply_command(Settle(channel_id, tag, old))
        self.turn()
        assert self._contents() == []
        self.master.enqueue([message(self.body + 1)])
        self.turn()
        for mirror in self.mirrors:
            self._read(mirror, len(self.ring) - mirror.place)
            if mirror.is_live:
                assert self._copy(mirror) == self._contents()
                assert mirror.replica.next_number == self.master.next_number


TestMirroredQueue = MirroredQueue.TestCase
TestMirroredQueue.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
