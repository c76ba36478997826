"""broker.storage.message_store on a journal in memory (P29)."""

from __future__ import annotations

import pytest

from broker.message import Message
from broker.storage import message_keys as keys
from broker.storage.message_store import NUMBERS_RESERVED, MessageStore
from tests.memory_journal import MemoryJournal

BIG = bytes(5000)


def message(content: bytes = b"x") -> Message:
    return Message("", "q", content, 1, 14, len(content), True)


def bodies(journal: MemoryJournal) -> int:
    return len(journal.disk.families.get("bodies", {}))


def restart(journal: MemoryJournal) -> MessageStore:
    return MessageStore(MemoryJournal(disk=journal.crash()))


def test_recovers_in_order_what_was_not_settled() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.put_many(7, [(number, message(b"%d" % number)) for number in range(1, 300)])
    store.put(8, 1, message(b"other"))
    store.settle(7, [2, 299])
    journal.sync()

    again = restart(journal)

    assert [n for n, _ in again.recover(7)] == [1, *range(3, 299)]
    assert dict(again.recover(7))[3] == message(b"3")
    assert again.queues() == [7, 8]


def test_a_small_content_is_embedded_and_a_big_one_is_not() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.put(1, 1, message(bytes(keys.EMBEDDED_BYTES_MAX)))
    journal.sync()
    assert bodies(journal) == 0
    store.put(1, 2, message(bytes(keys.EMBEDDED_BYTES_MAX + 1)))
    journal.sync()
    assert bodies(journal) == 1
    assert [len(m.content) for _, m in restart(journal).recover(1)] == [4096, 4097]


def test_a_content_is_shared_by_the_queues_of_a_publish() -> None:
    """P29."""
    journal = MemoryJournal()
    store = MessageStore(journal)
    published = message(bytes(3 * keys.PART_BYTES_MAX))
    for uid in (1, 2, 3):
        store.put(uid, 1, published)
    journal.sync()
    assert bodies(journal) == 3, "three parts, once"

    store.settle(1, [1])
    store.delete_queue(2)
    journal.sync()
    assert bodies(journal) == 3
    assert store.recover(3) == [(1, published)]
    store.settle(3, [1])
    journal.sync()
    assert bodies(journal) == 0


def test_equal_contents_of_two_publishes_are_two_bodies() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.put(1, 1, message(bytes(bytearray(5000))))
    store.put(1, 2, message(bytes(bytearray(5000))))
    journal.sync()
    assert bodies(journal) == 2


def test_reference_counts_are_rebuilt_at_start() -> None:
    """P29."""
    journal = MemoryJournal()
    store = MessageStore(journal)
    published = message(BIG)
    store.put(1, 1, published)
    store.put(2, 1, published)
    journal.sync()

    again_journal = MemoryJournal(disk=journal.crash())
    again = MessageStore(again_journal)
    again.settle(1, [1])
    again_journal.sync()
    assert bodies(again_journal) == 1
    again.settle(2, [1])
    again_journal.sync()
    assert bodies(again_journal) == 0


def test_settling_twice_counts_once() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    published = message(BIG)
    store.put(1, 1, published)
    store.put(2, 1, published)
    store.settle(1, [1])
    store.settle(1, [1, 5])
    journal.sync()
    assert store.recover(2) == [(1, published)]


def test_a_body_released_and_stored_again_at_once_gets_a_new_id() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    published = message(BIG)
    store.put(1, 1, published)
    store.settle(1, [1])
    store.put(1, 2, published)
    journal.sync()
    assert restart(journal).recover(1) == [(2, published)]


def test_numbers_and_body_ids_are_never_used_again_after_a_restart() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    assert store.next_number(5) == 1
    store.put(5, 1, message(BIG))
    store.put(5, 2, message(BIG))
    store.settle(5, [1, 2])
    journal.sync()

    again_journal = MemoryJournal(disk=journal.crash())
    again = MessageStore(again_journal)

    assert 2 < again.next_number(5) <= 2 + NUMBERS_RESERVED
    again.put(5, again.next_number(5), message(BIG))
    again_journal.sync()
    ((key, _),) = again_journal.scan("bodies", b"", keys.KEYS_END)
    assert keys.parse_body_key(key)[0] > 2


def test_one_number_mark_serves_many_messages() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    for number in range(1, 1000):
        store.put(5, number, message())
    journal.sync()
    assert journal.writes == 1000


def test_a_deleted_queue_leaves_nothing() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.put(5, 1, message(BIG))
    store.put(5, 2, message())
    journal.sync()
    store.delete_queue(5)
    journal.sync()
    assert store.queues() == []
    assert journal.disk.families["queue_index"] == {}
    assert bodies(journal) == 0


def test_a_damaged_record_is_reported_by_queue_and_number_and_not_handed_out() -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.put_many(5, [(1, message(b"a")), (2, message(BIG)), (3, message(b"c"))])
    journal.sync()
    index = journal.disk.families["queue_index"]
    index[keys.index_key(5, 1)] = index[keys.index_key(5, 1)][:-1] + b"\xff"
    journal.disk.families["bodies"].clear()

    again = restart(journal)

    assert again.recover(5) == [(3, message(b"c"))]
    assert [(lost.uid, lost.number) for lost in again.take_lost()] == [(5, 1), (5, 2)]
    assert again.take_lost() == []


def test_read_finds_a_pending_message() -> None:
    store = MessageStore(MemoryJournal())
    store.put(5, 1, message(BIG))
    assert store.read(5, 1) == message(BIG)
    assert store.read(5, 2) is None


def test_whose_copy_this_is_lies_beside_the_messages_and_goes_with_them() -> None:
    """P23."""
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.put(7, 1, message())
    store.note_copy(7, b"first")
    store.note_copy(8, b"of a queue that stores nothing")
    assert store.copy_of(7) == b"first"
    journal.sync()
    store.note_copy(7, b"second")
    again = restart(journal)
    assert again.copy_of(7) == b"first", "a note that was not synced is not there"
    assert again.copy_of(9) is None
    assert again.queues() == [7, 8], "both are found when their queue is gone"

    again.delete_queue(7)
    again.delete_queue(8)
    assert again.copy_of(7) is None
    again._journal.sync()
    assert restart(again._journal).queues() == []


def test_a_damaged_note_is_none() -> None:
    """P23: such a copy counts for nothing."""
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.note_copy(7, b"member")
    journal.sync()
    (note,) = [key for key, _ in journal.scan("meta", *keys.copy_range())]
    journal.put("meta", note, b"\0" + keys.copy_note(b"member")[1:])
    journal.sync()
    assert restart(journal).copy_of(7) is None


def test_an_emptied_queue_keeps_its_mark_and_note_and_takes_its_numbers_again() -> None:
    """A mirror that begins again stores the numbers its master gave them."""
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.note_copy(7, b"member")
    store.put_many(7, [(number, message(BIG)) for number in (1, 2, 3)])
    journal.sync()
    before = restart(journal).next_number(7)

    store.empty_queue(7)
    store.put(7, 2, message(b"again"))
    journal.sync()

    again = restart(journal)
    assert again.recover(7) == [(2, message(b"again"))]
    assert (again.next_number(7), again.copy_of(7)) == (before, b"member")
    assert bodies(journal) == 0


def test_a_large_page_that_was_read_and_put_back_is_read_again_at_once() -> None:
    """Until its removal is on disk a scan shows the old page, whose body is gone."""
    journal = MemoryJournal()
    store = MessageStore(journal)
    pages = [(number, message(bytes([number]) * 5000)) for number in range(1, 9)]
    store.page_out(7, pages)
    journal.sync()
    numbers = [number for number, _ in pages]
    for _ in range(3):
        assert store.read_many(7, numbers) == pages
        store.page_out(7, pages)
    assert store.read_many(7, numbers, keep=True) == pages
    journal.sync()
    assert store.read_many(7, numbers) == pages
    assert store.take_lost() == []
    journal.sync()
    assert journal.disk.families["pages"] == journal.disk.families["page_bodies"] == {}


def test_a_queue_that_begins_anew_takes_no_number_of_its_pages() -> None:
    """After `start_app` a scan would show what an older message has left under the number."""
    store = MessageStore(MemoryJournal())
    store.put(7, 1, message())
    before = store.next_number(7)
    store.page_out(7, [(before + 5, message(b"of the old life"))])
    assert store.next_number(7) == before + 6
    store.page_out(8, [(1, message(b"of a transient queue"))])
    assert store.queues() == [7, 8], "both are found when their queue is gone"
    store.delete_queue(7)
    store.delete_queue(8)
    assert store.next_number(7) == 1
    assert store.queues() == []


@pytest.mark.parametrize("size", [5000, 3 * keys.PART_BYTES_MAX])
@pytest.mark.parametrize("count", [5, 600])
def test_many_bodies_go_at_once_but_for_those_that_are_shared(size: int, count: int) -> None:
    if size > 5000:
        count = min(count, 100)
    journal = MemoryJournal()
    store = MessageStore(journal)
    messages = [(number, message(bytes(bytearray(size)))) for number in range(1, count + 1)]
    store.put_many(7, messages)
    shared = [messages[count // 2], messages[-1]]
    store.put_many(8, shared)
    journal.sync()
    store.clear(7, 2, count)
    journal.sync()
    assert store.read_many(7, [1]) == messages[:1]
    assert store.read_many(8, [number for number, _ in shared]) == shared
    store.empty_queue(7)
    store.settle(8, [number for number, _ in shared])
    journal.sync()
    assert bodies(journal) == 0
    assert journal.disk.families["queue_index"] == {}


@pytest.mark.parametrize("size", [10, 5000])
def test_a_queue_erased_and_filled_again_is_read_as_it_is_now(size: int) -> None:
    """While its removal is on the way to the disk a scan shows what was there before."""
    journal = MemoryJournal()
    store = MessageStore(journal)
    numbers = list(range(1, 9))
    store.put_many(7, [(number, message(b"old" + bytes(size))) for number in numbers])
    journal.sync()
    again = [(number, message(b"new" + bytes(size))) for number in numbers]
    store.delete_queue(7)
    store.put_many(7, again)
    assert store.read_many(7, numbers) == again
    journal.sync()
    assert store.read_many(7, numbers) == again
    assert not store._renumbered, "it is scanned again"
