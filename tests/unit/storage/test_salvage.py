"""broker.storage.salvage on really damaged RocksDB stores (P30)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.message import Message
from broker.storage import message_keys as keys
from broker.storage import salvage
from broker.storage.group_commit import GroupCommit
from broker.storage.message_store import MessageStore
from broker.storage.store import (
    FORMAT,
    FORMAT_KEY,
    StoreDamaged,
    StoreUnusable,
    open_store,
)
from raft.core.messages import Entry
from raft.log_keys import Base
from raft.segments import records


def message(number: int, size: int = 1000) -> Message:
    content = number.to_bytes(4, "big") + bytes(size - 4)
    return Message("", "q", content, 1, 14, size, True)


def write(path: Path, count: int = 300) -> None:
    """Fill a store: one queue of small messages, one of big ones, one Raft group."""

    async def main() -> None:
        live = path.with_name("live")
        journal = GroupCommit(open_store(live), pytest.fail)
        store = MessageStore(journal)
        for number in range(1, count + 1):
            store.put(5, number, message(number))
            if number % 10 == 0:
                store.put(6, number, message(number, 6000))
            journal.put("raft_state", (9).to_bytes(8, "big") + b"G", b"state")
            done = asyncio.get_running_loop().create_future()
            journal.when_synced(lambda done=done: done.set_result(None))
            await done
        shutil.copytree(live, path)  # as kill -9 leaves it: all in the log, nothing flushed
        journal.close()

    asyncio.run(main())


def recovered(path: Path) -> tuple[list[tuple[int, Message]], list[tuple[int, Message]], int]:
    async def main() -> tuple[list[tuple[int, Message]], list[tuple[int, Message]], int]:
        journal = GroupCommit(open_store(path), pytest.fail)
        store = MessageStore(journal)
        found = store.recover(5), store.recover(6), store.next_number(5)
        assert store.take_lost() == []
        journal.close()
        return found

    return asyncio.run(main())


def flip_a_bit(path: Path) -> None:
    log = max(path.glob("*.log"), key=lambda file: file.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)


def test_a_healthy_store_is_just_opened(tmp_path: Path) -> None:
    write(tmp_path / "store", 20)
    store, report = salvage.open_or_salvage(tmp_path / "store")
    store.close()
    assert report is None
    assert len(recovered(tmp_path / "store")[0]) == 20


def test_a_flipped_bit_costs_a_few_messages_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path)
    flip_a_bit(path)

    store, report = salvage.open_or_salvage(path)
    store.close()

    assert report is not None
    assert "hecksum" in report.reason
    assert report.groups == [9]
    assert Path(report.aside).name == "store.damaged-1"
    small, big, next_number = recovered(path)
    assert len(small) + len(big) == report.kept_count
    assert 100 < len(small) < 300
    assert all(found == message(number) for number, found in small)
    assert all(found == message(number, 6000) for number, found in big)
    assert next_number > salvage.NUMBERS_SKIPPED
    again = open_store(path)
    assert list(again.scan("raft_state", b"", b"\xff" * 9)) == []
    again.close()


def test_the_damaged_store_is_kept_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, 50)
    flip_a_bit(path)
    shutil.copytree(path, tmp_path / "copy")

    store, report = salvage.open_or_salvage(path)
    store.close()

    assert report is not None
    before = {f.name: f.read_bytes() for f in (tmp_path / "copy").glob("*.log")}
    after = {f.name: f.read_bytes() for f in Path(report.aside).glob("*.log")}
    assert {name: data for name, data in after.items() if name in before} == before


def test_a_damaged_body_is_reported_by_queue_and_number(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, 30)
    store = open_store(path)
    first = next(k for k, _ in store.scan("bodies", b"", keys.KEYS_END))
    store.families["bodies"][first] = b"something else"
    store.mark.write(10**6)  # as if later batches were lost
    store.close()

    store, report = salvage.open_or_salvage(path)
    store.close()

    assert report is not None
    assert [(lost.uid, lost.number) for lost in report.lost] == [(6, 10)]
    assert report.kept_count == 30 + 2


def test_a_salvage_cut_short_by_a_crash_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, 50)
    flip_a_bit(path)
    (tmp_path / "store.salvaging").mkdir()
    (tmp_path / "store.salvaging" / "CURRENT").write_text("half")

    store, report = salvage.open_or_salvage(path)
    store.close()

    assert report is not None
    assert not (tmp_path / "store.salvaging").exists()


def test_a_salvage_cut_short_between_its_renames_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, 50)
    flip_a_bit(path)
    store, report = salvage.open_or_salvage(path)
    store.close()
    path.rename(tmp_path / "store.salvaging")

    store, again = salvage.open_or_salvage(path)
    store.close()

    assert again is None
    assert report is not None
    small, big, _ = recovered(path)
    assert len(small) + len(big) == report.kept_count


def test_a_store_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    """Without a manifest and without a table nothing tells which family a record is of."""
    path = tmp_path / "store"
    write(path, 10)
    next(path.glob("MANIFEST-*")).unlink()
    before = {file.name: file.stat().st_size for file in path.iterdir() if file.name != "LOG"}
    with pytest.raises(StoreDamaged, match=r"MANIFEST.*nothing can be read.*start again"):
        salvage.open_or_salvage(path)
    after = {file.name: file.stat().st_size for file in path.iterdir() if file.name in before}
    assert after == before
    assert [file.name for file in tmp_path.iterdir() if file.name != "live"] == ["store"]


def write_tables(path: Path) -> None:
    """Fill a store whose messages 1-200 lie in two tables and 201-300 in the log alone."""

    async def main() -> None:
        live = path.with_name("live")
        opened = open_store(live)
        journal = GroupCommit(opened, pytest.fail)
        store = MessageStore(journal)
        for number in range(1, 301):
            store.put(5, number, message(number))
            if number % 10 == 0:
                store.put(6, number, message(number, 6000))
            if number % 100 == 0:
                done = asyncio.get_running_loop().create_future()
                journal.when_synced(lambda done=done: done.set_result(None))
                await done
                if number < 300:
                    opened.families["queue_index"].flush()
                    opened.families["bodies"].flush()
        shutil.copytree(live, path)
        journal.close()

    asyncio.run(main())


def chosen(path: Path, pattern: str, which: int) -> Path:
    """One of some files, ordered as they were made; tiny ones do not count."""
    large = [file for file in path.glob(pattern) if file.stat().st_size > 5000]
    return sorted(large or path.glob(pattern))[which]


def missing(pattern: str, which: int = 0) -> Callable[[Path], str]:
    def damage(path: Path) -> str:
        file = chosen(path, pattern, which)
        file.unlink()
        return file.name

    return damage


def flipped(pattern: str, which: int = 0) -> Callable[[Path], str]:
    def damage(path: Path) -> str:
        file = chosen(path, pattern, which)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        return file.name

    return damage


@pytest.mark.parametrize(
    ("damage", "least"),
    [
        (missing("CURRENT"), 330),
        (flipped("CURRENT"), 330),
        (missing("MANIFEST-*"), 330),
        (flipped("MANIFEST-*"), 300),
        (missing("*.sst", -1), 220),
        (missing("*.log", -1), 220),
    ],
    ids=["no CURRENT", "bad CURRENT", "no MANIFEST", "bad MANIFEST", "no table", "no log"],
)
def test_a_missing_file_costs_only_what_was_in_it(
    tmp_path: Path, damage: Callable[[Path], str], least: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    write_tables(path)
    name = damage(path)

    store, report = salvage.open_or_salvage(path)
    store.close()

    assert report is not None
    if not name.endswith(".log"):  # RocksDB does not know which logs there were
        assert name in report.reason
    assert least <= report.kept_count <= 330
    small, big, next_number = recovered(path)
    assert len(small) + len(big) == report.kept_count
    assert all(found == message(number) for number, found in small)
    assert all(found == message(number, 6000) for number, found in big)
    assert next_number > salvage.NUMBERS_SKIPPED
    assert (Path(report.aside) / "synced.mark").exists()
    assert not (tmp_path / "store.reading").exists()


@pytest.mark.parametrize(
    "damage",
    [missing("*.blob"), flipped("*.blob"), flipped("*.sst", -1)],
    ids=["no blob file", "bad blob file", "bad table"],
)
def test_damage_that_lets_a_store_open_costs_its_own_messages(
    tmp_path: Path, damage: Callable[[Path], str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    write_tables(path)
    name = damage(path)

    async def main() -> None:
        opened, report = salvage.open_or_salvage(path)
        assert report is None
        journal = GroupCommit(opened, pytest.fail)
        store = MessageStore(journal)
        found = {uid: store.recover(uid) for uid in (5, 6)}
        lost = {(lost.uid, lost.number) for lost in store.take_lost()}
        assert 1 <= len(lost) <= 50
        kept = {(uid, number) for uid in found for number, _ in found[uid]}
        everything = {(5, n) for n in range(1, 301)} | {(6, n) for n in range(10, 301, 10)}
        assert kept == everything - lost
        assert all(found == message(number) for number, found in found[5])
        assert all(found == message(number, 6000) for number, found in found[6])
        journal.close()

    asyncio.run(main())
    reasons = [str(record.__dict__.get("reason")) for record in caplog.records]
    assert any(name in reason or "blob record" in reason for reason in reasons), reasons


def test_a_damaged_store_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, 10)
    store = open_store(path)
    store.families["meta"][FORMAT_KEY] = (FORMAT + 1).to_bytes(4, "big")
    store.mark.write(10**6)
    store.close()
    with pytest.raises(StoreUnusable, match="newer version"):
        salvage.open_or_salvage(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["live", "store"]


def log_files(data: Path) -> dict[str, str]:
    """The log files of a group, a tail, and what is none of ours."""
    for name in ("log/tail", "log/9/0000000000.segment", "log/syslog", "log/12x/y"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(name)
    return {"tail": "log/tail", "9/0000000000.segment": "log/9/0000000000.segment"}


def below(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_log_files_are_set_aside_with_the_store_that_knew_them(tmp_path: Path) -> None:
    """P30: without its records nobody can tell what of them counts."""
    path = tmp_path / "store"
    write(path, 50)
    flip_a_bit(path)
    own = log_files(tmp_path)
    store, report = salvage.open_or_salvage(path)
    store.close()
    assert report is not None
    assert Path(report.log_files) == tmp_path / "log.damaged-1"
    assert report.logs == {9: []}
    assert "log/tail" in report.tail
    assert below(tmp_path / "log.damaged-1") == own
    assert below(tmp_path / "log") == {"syslog": "log/syslog", "12x/y": "log/12x/y"}
    (path / "CURRENT").unlink()
    log_files(tmp_path)
    store, report = salvage.open_or_salvage(path)
    store.close()
    assert report is not None
    assert Path(report.log_files) == tmp_path / "log.damaged-2"
    assert below(tmp_path / "log.damaged-1") == own


def test_the_report_says_what_the_log_files_hold(tmp_path: Path) -> None:
    """What only the tail has is in the files first; a damaged entry is left out."""
    path, live = tmp_path / "store", tmp_path / "busy"
    write(path, 50)
    flip_a_bit(path)
    head = records.segment_head(9, records.SegmentHead(Base(), begins=True))
    entries = [records.record(records.seed_of(9), Entry(n, 1, 0, b"x" * 50)) for n in range(1, 7)]
    entries[3] = entries[3][:-1] + b"y"
    names = [f"log/{group}/0000000000.segment" for group in range(9, 20)]
    folder = salvage.log_files.LogFolder(live)
    folder.commit([salvage.log_files.Append(name, head) for name in names])
    folder.commit([salvage.log_files.Append(names[0], b"".join(entries))])
    shutil.copytree(live / "log", tmp_path / "log")  # as kill -9 leaves it
    folder.close()
    store, report = salvage.open_or_salvage(path)
    store.close()
    assert report is not None
    assert report.tail == ""
    assert report.logs[9] == [(1, 3), (5, 6)]
    assert sorted(report.logs) == list(range(9, 20))
    kept = Path(report.log_files, "9", "0000000000.segment").read_bytes()
    assert kept == head + b"".join(entries)


def test_log_files_of_a_salvage_cut_short_are_set_aside_by_the_next_start(tmp_path: Path) -> None:
    """Whatever rename was the last: never is the new store in place beside the old log files."""
    real = Path.rename
    for last in range(5):
        data = tmp_path / str(last)
        data.mkdir()
        path = data / "store"
        write(path, 20)
        flip_a_bit(path)
        own = log_files(data)
        done = 0

        def rename(self: Path, target: Path, last: int = last) -> Path:
            nonlocal done
            if done == last:
                raise SystemExit
            done += 1
            return real(self, target)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            if last < 4:
                with pytest.raises(SystemExit):
                    salvage.open_or_salvage(path)
            else:
                salvage.open_or_salvage(path)[0].close()
        if path.exists() and last:
            assert not salvage.log_files.own_entries(data)
        store, _ = salvage.open_or_salvage(path)
        store.close()
        assert below(data / "log.damaged-1") == own
        assert (data / "store.damaged-1").is_dir()
        assert not (data / "store.salvaging").exists()
