"""Setting a damaged log aside: the store that a node would find then, and what is kept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from broker.cli.ctl.commands import run
from broker.log_aside import AsideRefused, set_aside
from broker.storage.offline import OfflineStore
from raft import log_keys
from raft.core.messages import Configuration, Entry
from raft.errors import LogCorrupt
from raft.log_store import LogStore
from tests.unit.cluster.test_forcing import THREE, asker
from tests.unit.metadata.cluster import ONE, TWO
from tests.unit.test_force_boot import folder, written

ENTRIES = [Entry(index, 1, 0, b"%d" % index) for index in range(1, 7)]


def damaged(
    data: Path, name: str = "mine", lost: int = 4, voters: tuple[str, ...] | None = None
) -> int:
    """A node's data in which a queue's log lacks an entry; the queue's uid."""
    folder(data, replicas=False)
    queue = asker().machine.catalogue.queue("/", name)
    assert queue is not None
    journal = OfflineStore(data / "store")
    store = LogStore(journal, journal)
    store.open(queue.uid, Configuration(voters or queue.members)).save(written(ENTRIES))
    journal.flush()
    journal.delete("raft_log", log_keys.entry_key(queue.uid, lost))
    journal.flush()
    journal.close()
    return queue.uid


def entries(data: Path, group: int) -> list[Entry]:
    journal = OfflineStore(data / "store")
    log = LogStore(journal, journal).open(group, Configuration())
    assert log.saved.configuration.voters == (ONE,)
    assert not log.saved.is_blank
    last = log.last_index()
    found = log.entries(1, last + 1, 1 << 20) if last else []
    journal.close()
    return found


def test_what_stands_before_the_damage_is_kept_and_all_is_beside_it(tmp_path: Path) -> None:
    uid = damaged(tmp_path)
    assert set_aside(tmp_path, "/", "mine", dry_run=True).kept == 3
    assert not (tmp_path / "log.damaged-1").exists()
    aside = set_aside(tmp_path, "/", "mine")
    assert (aside.kept, aside.path) == (3, str(tmp_path / "log.damaged-1"))
    assert entries(tmp_path, uid) == ENTRIES[:3]
    kept = Path(aside.path, str(uid), "records.msgpack").read_bytes()
    rows = msgspec.msgpack.decode(kept, type=list[tuple[str, bytes, bytes]])
    found = [
        log_keys.parse_entry(key, value) for family, key, value in rows if family == "raft_log"
    ]
    assert found == [each for each in ENTRIES if each.index != 4]
    with pytest.raises(AsideRefused, match="nothing is wrong"):
        set_aside(tmp_path, "/", "mine")


def test_what_is_kept_is_led_without_members_that_were_given_up(tmp_path: Path) -> None:
    """As after `force_boot`, which leaves a damaged log as it is."""
    uid = damaged(tmp_path, voters=(ONE, TWO, THREE))
    assert set_aside(tmp_path, "/", "mine").kept == 3
    assert entries(tmp_path, uid) == ENTRIES[:3]


def test_force_boot_leaves_the_damaged_log_of_an_only_survivor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was erased, and the queue began empty, without a word."""
    uid = damaged(tmp_path, "all")
    for words in ("--dry-run",), ():
        assert run(["force_boot", "--data-dir", str(tmp_path), *words], {}) == 0
        told = capsys.readouterr().out
        assert "queues that have a damaged log here, their only copy left" in told
        assert told.index("damaged log") < told.index("'all' in vhost '/'")
    journal = OfflineStore(tmp_path / "store")
    with pytest.raises(LogCorrupt):
        LogStore(journal, journal).open(uid, Configuration())
    found = [key for key, _ in journal.scan("raft_log", *log_keys.log_range(uid, 1))]
    assert found == [log_keys.entry_key(uid, each.index) for each in ENTRIES if each.index != 4]
    journal.close()


def test_a_log_whose_beginning_is_lost_begins_empty(tmp_path: Path) -> None:
    uid = damaged(tmp_path, lost=1)
    assert set_aside(tmp_path, "/", "mine").kept == 0
    assert entries(tmp_path, uid) == []


def test_what_others_have_is_left_to_them(tmp_path: Path) -> None:
    damaged(tmp_path, "all")
    with pytest.raises(AsideRefused, match="replicas of it: rabbit@node2, rabbit@node3"):
        set_aside(tmp_path, "/", "all")
    with pytest.raises(AsideRefused, match="no quorum queue 'x'"):
        set_aside(tmp_path, "/", "x")


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged(tmp_path)
    words = ["set_log_aside", "mine", "--data-dir", str(tmp_path)]
    assert run([*words, "--dry-run"], {}) == 0
    assert "the queue would go on with the first 3 entries" in capsys.readouterr().out
    assert run(words, {}) == 0
    assert f"all of it is kept in {tmp_path / 'log.damaged-1'}" in capsys.readouterr().out
    assert run(words, {}) == 65
    assert run(["set_log_aside", "--data-dir", str(tmp_path)], {}) == 64
