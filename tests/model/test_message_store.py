"""Model of the message store: queues as dicts, a disk that forgets what was not synced.

A crash keeps some prefix of the unsynced turns. What was synced and not settled must be there;
what comes back beyond that must be something that was put and not durably settled. Pages are there
until they are read or dropped, and gone after a crash.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.message import Message
from broker.storage import message_keys as keys
from broker.storage.message_store import MessageStore
from broker.storage.store import FORGOTTEN
from tests.memory_journal import MemoryDisk, MemoryJournal, Write

UIDS = st.integers(1, 3)
SIZES = st.sampled_from([10, 5000, 1 << 20])
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
        self.pages: Contents = {}
        self.next: dict[int, int] = {}
        self.used: frozenset[tuple[int, int]] = frozenset()
        self.count = 0

    def picture(self) -> Contents:
        return {uid: dict(messages) for uid, messages in self.pictures[-1].items()}

    def end_turn(self, contents: Contents) -> None:
        self.journal.end_turn()
        self.pictures.append({uid: messages for uid, messages in contents.items() if messages})
        self.numbers.append(self.used)

    def new_message(self, size: int) -> Message:
        self.count += 1
        content = self.count.to_bytes(4, "big") + bytes(size)
        return Message("x", "k", content, 1, 14, size, True, expires_ms=self.count % 2)

    def take_number(self, uid: int) -> int:
        number = self.next.setdefault(uid, self.store.next_number(uid))
        self.next[uid] = number + 1
        return number

    @rule(uids=st.sets(UIDS, min_size=1), size=SIZES)
    def publish(self, uids: set[int], size: int) -> None:
        message = self.new_message(size)
        contents = self.picture()
        for uid in sorted(uids):
            number = self.take_number(uid)
            assert (uid, number) not in self.used, "a durable number was used again"
            self.used |= {(uid, number)}
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

    @rule(uid=UIDS, data=st.data())
    def clear(self, uid: int, data: st.DataObject) -> None:
        contents = self.picture()
        first, last = self.draw_range(contents.get(uid, {}), data)
        self.store.clear(uid, first, last)
        left = {n: m for n, m in contents.get(uid, {}).items() if not first <= n <= last}
        contents[uid] = left
        self.end_turn(contents)

    def draw_range(self, known: dict[int, Message], data: st.DataObject) -> tuple[int, int]:
        ends = st.sampled_from(sorted({0, *known, *(number + 1 for number in known)}))
        first, last = sorted((data.draw(ends), data.draw(ends)))
        return first, last

    @rule(uids=st.sets(UIDS, min_size=1), sizes=st.lists(SIZES, min_size=1, max_size=12))
    def page_out(self, uids: set[int], sizes: list[int]) -> None:
        messages = [self.new_message(size) for size in sizes]
        for uid in sorted(uids):
            items = [(self.take_number(uid), message) for message in messages]
            self.store.page_out(uid, items)
            self.pages.setdefault(uid, {}).update(items)
        self.end_turn(self.picture())

    @rule(uid=UIDS, keep=st.booleans(), is_paged_again=st.booleans(), data=st.data())
    def read_many(self, uid: int, keep: bool, is_paged_again: bool, data: st.DataObject) -> None:
        pages = self.pages.setdefault(uid, {})
        known = {**self.pictures[-1].get(uid, {}), **pages}
        low, high = self.draw_range(known, data)
        numbers = [number for number in sorted(known) if low <= number <= high]
        missing = data.draw(st.sampled_from([[], [1 << 40]]))
        expected = [(number, known[number]) for number in numbers]

        assert self.store.read_many(uid, numbers + missing, keep=keep) == expected

        assert [(lost.uid, lost.number) for lost in self.store.take_lost()] == [
            (uid, number) for number in missing
        ]
        read = [(number, pages[number]) for number in numbers if number in pages]
        if not keep:
            for number, _ in read:
                del pages[number]
            if is_paged_again:
                self.store.page_out(uid, read)
                pages.update(read)
                again = self.store.read_many(uid, [number for number, _ in read], keep=True)
                assert again == read, "before the old page has left the disk"
        self.end_turn(self.picture())

    @rule(uid=UIDS, data=st.data())
    def drop_pages(self, uid: int, data: st.DataObject) -> None:
        pages = self.pages.get(uid, {})
        first, last = self.draw_range(pages, data)
        self.store.drop_pages(uid, first, last)
        self.pages[uid] = {n: m for n, m in pages.items() if not first <= n <= last}
        self.end_turn(self.picture())

    @rule(uid=UIDS)
    def begin_again(self, uid: int) -> None:
        """As a mirror does: its numbers come again."""
        contents = self.picture()
        contents.pop(uid, None)
        self.pages.pop(uid, None)
        self.store.empty_queue(uid)
        self.used = frozenset((other, number) for other, number in self.used if other != uid)
        self.next[uid] = 1
        self.end_turn(contents)

    @rule(uid=UIDS)
    def delete_queue(self, uid: int) -> None:
        contents = self.picture()
        contents.pop(uid, None)
        self.pages.pop(uid, None)
        self.store.delete_queue(uid)
        # A uid is never declared again; in the model it comes back, with new numbers.
        self.used = frozenset((other, number) for other, number in self.used if other != uid)
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
        self.start_again(left, None)
        self.pictures, self.numbers = [left], [self.used]

    @rule()
    def stop_cleanly(self) -> None:
        """The next start counts nothing."""
        self.sync()
        frames = list(self.store.dump())
        counted = self.store
        self.start_again(self.pictures[-1], frames)
        assert list(self.store.dump()) == list(counted.dump()) == frames

    def start_again(self, left: Contents, summary: list[bytes] | None) -> None:
        for family in FORGOTTEN:  # as opening the store does
            self.journal.disk.families.pop(family, None)
        self.journal = TurnJournal(self.journal.disk)
        self.store = MessageStore(self.journal, summary=summary)
        self.next = {}
        self.pages = {}
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
    def what_is_stored_is_known_without_reading(self) -> None:
        for uid in (1, 2, 3):
            messages = self.pictures[-1].get(uid, {})
            paged, is_timed = self.store.stored(uid)
            sizes = [(number, paged.size_of(number)) for number in paged]
            assert sizes == [(number, messages[number].body_size) for number in sorted(messages)]
            assert is_timed or not any(message.expires_ms for message in messages.values())

    @invariant()
    def bodies_are_there_exactly_as_long_as_a_record_names_them(self) -> None:
        if self.journal.turns:
            return
        for index, bodies in (("queue_index", "bodies"), ("pages", "page_bodies")):
            named = {
                (body.body_id, part)
                for _, value in self.journal.scan(index, b"", keys.KEYS_END)
                if (body := keys.peek(value).body) is not None
                for part in range(body.parts)
            }
            stored = {
                keys.parse_body_key(key) for key, _ in self.journal.scan(bodies, b"", keys.KEYS_END)
            }
            assert named == stored

    @invariant()
    def pages_are_there_until_they_are_read_or_dropped(self) -> None:
        if self.journal.turns:
            return
        stored = {
            keys.parse_index_key(k) for k, _ in self.journal.scan("pages", b"", keys.KEYS_END)
        }
        assert stored == {(uid, number) for uid, pages in self.pages.items() for number in pages}


TestMessageStore = MessageStoreMachine.TestCase
TestMessageStore.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
