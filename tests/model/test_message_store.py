"""Model of the message store: queues as dicts, a disk that forgets what was not synced.

A crash keeps some prefix of the unsynced turns. What was synced and not settled must be there;
what comes back beyond that must be something that was put and not durably settled.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.message import Message
from broker.storage import message_keys as keys
from broker.storage.message_store import MessageStore
from tests.memory_journal import MemoryDisk, MemoryJournal, Write

UIDS = st.integers(1, 3)
Contents = dict[int, dict[int, Message]]


class TurnJournal(MemoryJournal):
    """Remembers where the turns end, because a crash keeps whole turns."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk=disk)
        self.turns: list[list[Write]] = []

    def end_turn(self) -> None:
        self.turns.append(self._pending)
        self._pending = []

    def get(self, family: str, key: bytes) -> bytes | None:
        pending, self._pending = self._pending, [w for t in self.turns for w in t] + self._pending
        try:
            return super().get(family, key)
        finally:
            self._pending = pending

    def land(self, turns: int) -> None:
        for writes in self.turns[:turns]:
            for write in writes:
                self.disk.apply(write)
        del self.turns[:turns]


class MessageStoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.journal = TurnJournal()
        self.store = MessageStore(self.journal)
        # One picture for each turn that may be what a crash leaves: contents and used numbers.
        self.pictures: list[Contents] = [{}]
        self.numbers: list[frozenset[tuple[int, int]]] = [frozenset()]
        self.next: dict[int, int] = {}
        self.used: frozenset[tuple[int, int]] = frozenset()
        self.count = 0

    def picture(self) -> Contents:
        return {uid: dict(messages) for uid, messages in self.pictures[-1].items()}

    def end_turn(self, contents: Contents) -> None:
        self.journal.end_turn()
        self.pictures.append({uid: messages for uid, messages in contents.items() if messages})
        self.numbers.append(self.used)

    @rule(uids=st.sets(UIDS, min_size=1), size=st.sampled_from([10, 5000, 1 << 20]))
    def publish(self, uids: set[int], size: int) -> None:
        self.count += 1
        content = self.count.to_bytes(4, "big") + bytes(size)
        message = Message("x", "k", content, 1, 14, size, True)
        contents = self.picture()
        for uid in sorted(uids):
            number = self.next.setdefault(uid, self.store.next_number(uid))
            assert (uid, number) not in self.used, "a durable number was used again"
            self.used |= {(uid, number)}
            self.next[uid] = number + 1
            self.store.put(uid, number, message)
            contents.setdefault(uid, {})[number] = message
        self.end_turn(contents)

    @rule(uid=UIDS, data=st.data())
    def settle(self, uid: int, data: st.DataObject) -> None:
        contents = self.picture()
        known = sorted(contents.get(uid, {}))
        numbers = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else [99]
        self.store.settle(uid, numbers)
        for number in numbers:
            contents.get(uid, {}).pop(number, None)
        self.end_turn(contents)

    @rule(uid=UIDS)
    def delete_queue(self, uid: int) -> None:
        contents = self.picture()
        contents.pop(uid, None)
        self.store.delete_queue(uid)
        # A uid is never declared again; in the model it comes back as a new queue.
        self.used = frozenset((other, number) for other, number in self.used if other != uid)
        self.next.pop(uid, None)
        self.end_turn(contents)

    @rule()
    def sync(self) -> None:
        self.journal.land(len(self.journal.turns))
        self.pictures, self.numbers = self.pictures[-1:], self.numbers[-1:]

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.journal.turns)))
        self.journal.land(kept)
        left, self.used = self.pictures[kept], self.numbers[kept]
        self.journal = TurnJournal(self.journal.disk)
        self.store = MessageStore(self.journal)
        self.pictures, self.numbers = [left], [self.used]
        self.next = {}
        for uid in (1, 2, 3):
            expected = left.get(uid, {})
            assert self.store.recover(uid) == sorted(expected.items())
        assert self.store.take_lost() == []

    @invariant()
    def pending_contents_can_be_read(self) -> None:
        for uid, messages in self.pictures[-1].items():
            for number, message in messages.items():
                assert self.store.read(uid, number) == message

    @invariant()
    def bodies_are_there_exactly_as_long_as_a_record_names_them(self) -> None:
        if self.journal.turns:
            return
        named = {
            address.body_id
            for _, value in self.journal.scan("queue_index", b"", keys.KEYS_END)
            if (address := keys.peek_body(value)) is not None
        }
        stored = {
            keys.parse_body_key(key)[0]
            for key, _ in self.journal.scan("bodies", b"", keys.KEYS_END)
        }
        assert named == stored


TestMessageStore = MessageStoreMachine.TestCase
TestMessageStore.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
