"""Forcing a stopped node's data folder: the store and identity that a node would find."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cluster.identity import Identity, IdentityDamaged, IdentityFile
from broker.cluster.recovery.forcing import ForcingRefused
from broker.force_boot import ForcedStart, force
from broker.metadata import commands
from broker.storage.offline import OfflineStore, StoreMissing
from broker.storage.store import StoreLocked, open_store
from raft import parts
from raft.checkpoints import CheckpointStore
from raft.core.messages import Configuration, Entry, HardState, SnapshotMeta
from raft.core.ready import Ready
from raft.log_store import LogStore
from tests.unit.cluster.test_forcing import THREE, asker
from tests.unit.metadata.cluster import ONE, TWO

ALL = Configuration((ONE, TWO, THREE))


def written(entries: list[Entry]) -> Ready:
    return Ready(1, HardState(2, TWO, len(entries)), entries, None, [], [], [], None, [], None)


def folder(tmp_path: Path, *, replicas: bool = True) -> Path:
    """What node1 leaves behind: group 0, and the groups of "all" and "mine"."""
    found = asker()
    path = tmp_path / "store"
    open_store(path).close()
    journal = OfflineStore(path)
    store = LogStore(journal)
    entries = [
        Entry(index, 1, 0, parts.cut(data)[0]) for index, data in enumerate(found.log, start=1)
    ]
    store.open(0, ALL).save(written(entries))
    if replicas:
        for queue in found.machine.catalogue.queues():
            if queue.name in ("all", "mine"):
                log = store.open(queue.uid, Configuration(queue.members))
                log.save(written([Entry(1, 1, 0, b"x")]))
    journal.flush()
    journal.close()
    file = IdentityFile(tmp_path, ONE)
    members = {TWO: "127.0.0.1:2", THREE: "127.0.0.1:3"}
    file.save(Identity(node=ONE, cluster_id="old", boot="1" * 16, members=members))
    return tmp_path


def configurations(data: Path) -> dict[int, tuple[str, ...]]:
    journal = OfflineStore(data / "store")
    store = LogStore(journal)
    found = {g: store.open(g, Configuration()).saved.configuration.voters for g in store.groups()}
    journal.close()
    return found


def identity(data: Path) -> Identity:
    return IdentityFile(data, ONE).identity


def names(forced: ForcedStart, what: str) -> list[str]:
    return [queue.name for queue in getattr(forced, what)]


def test_force_boot(tmp_path: Path) -> None:
    data = folder(tmp_path)
    forced = force(data, None)
    assert forced.conclusion.lost == (TWO, THREE)
    assert set(configurations(data).values()) == {(ONE,)}
    assert len(configurations(data)) == 3
    found = identity(data)
    assert found.cluster_id == forced.cluster_id != "old"
    assert found.lost == {TWO: "2" * 16, THREE: "3" * 16}
    assert found.forced_from == "old"
    assert found.members == {}
    assert found.boot == "1" * 16
    assert names(forced, "emptied") == names(forced, "behind") == []


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    data = folder(tmp_path)
    before, groups = identity(data), configurations(data)
    forced = force(data, None, dry_run=True)
    assert forced.cluster_id == ""
    assert forced.conclusion.survivors == (ONE,)
    assert identity(data) == before
    assert configurations(data) == groups


def test_said_twice_it_is_completed(tmp_path: Path) -> None:
    data = folder(tmp_path)
    force(data, None)
    found = identity(data)
    force(data, None)
    again = identity(data)
    assert (again.lost, again.forced_from) == (found.lost, "old")
    assert set(configurations(data).values()) == {(ONE,)}


def test_forgetting_one_after_the_other(tmp_path: Path) -> None:
    data = folder(tmp_path)
    two_left = force(data, (THREE,))
    assert two_left.conclusion.survivors == (ONE, TWO)
    assert sorted(configurations(data).values()) == [(ONE,), (ONE, TWO), (ONE, TWO)]
    assert list(identity(data).members) == [TWO]
    one_left = force(data, (TWO,))
    assert one_left.conclusion.lost == (TWO, THREE)
    assert set(configurations(data).values()) == {(ONE,)}


def test_replicas_without_data(tmp_path: Path) -> None:
    data = folder(tmp_path, replicas=False)
    several = force(data, (THREE,), dry_run=True)
    assert names(several, "missing") == ["all"], "the other survivor may have it"
    alone = force(data, None)
    assert sorted(names(alone, "emptied")) == ["all", "mine"]
    assert set(configurations(data).values()) == {(ONE,)}


def test_a_running_node_is_left_alone(tmp_path: Path) -> None:
    data = folder(tmp_path)
    before = identity(data)
    holder = OfflineStore(data / "store")
    with pytest.raises(StoreLocked):
        force(data, None)
    holder.close()
    assert identity(data) == before


def test_no_metadata_no_force(tmp_path: Path) -> None:
    data = folder(tmp_path)
    journal = OfflineStore(data / "store")
    LogStore(journal).erase(0)
    journal.close()
    with pytest.raises(ForcingRefused, match="no copy of the cluster's metadata"):
        force(data, None)
    assert identity(data).cluster_id == "old"


def test_no_folder_of_a_node(tmp_path: Path) -> None:
    with pytest.raises(IdentityDamaged, match="no node's data folder"):
        force(tmp_path, None)
    IdentityFile(tmp_path, ONE).save(Identity(node=ONE))
    with pytest.raises(StoreMissing):
        force(tmp_path, None)
    assert not (tmp_path / "store").exists(), "nothing is made where nothing was"


def test_metadata_behind_a_snapshot(tmp_path: Path) -> None:
    data = folder(tmp_path)
    found = asker()
    journal = OfflineStore(data / "store")
    log = LogStore(journal).open(0, ALL)
    log.snapshots.write(
        SnapshotMeta(found.index, 1, ALL), found.machine.snapshot(), lambda: log.compact(5)
    )
    journal.flush()
    journal.close()
    forced = force(data, None)
    assert forced.conclusion.lost == (TWO, THREE)
    assert configurations(data)[0] == (ONE,)


STREAM = {"x-queue-type": "stream"}


def test_a_streams_log_in_files_is_found_and_forced(tmp_path: Path) -> None:
    data = folder(tmp_path)
    found = asker()
    found.ask(commands.EnableFeatures(("stream_queue",)))
    found.queue("kept", arguments=STREAM, members=(ONE, TWO, THREE))
    found.queue("empty", arguments=STREAM, members=(ONE, TWO))
    uids = {queue.name: queue.uid for queue in found.machine.catalogue.all_queues()}
    kept, empty = uids["kept"], uids["empty"]
    journal = OfflineStore(data / "store")
    store = LogStore(journal, journal)
    store.erase(0)
    entries = [
        Entry(index, 1, 0, parts.cut(command)[0]) for index, command in enumerate(found.log, 1)
    ]
    store.open(0, ALL).save(written(entries))
    log = store.open(kept, ALL, segment_bytes=1 << 20, keeps_log=True)
    log.save(written([Entry(1, 1, 0, b"x"), Entry(2, 1, 0, b"y")]))
    journal.flush()
    journal.close()

    forced = force(data, None)

    assert names(forced, "emptied") == ["empty"]
    journal = OfflineStore(data / "store")
    store = LogStore(journal, journal)
    for uid, last in ((kept, 2), (empty, 0)):
        log = store.open(uid, Configuration())
        assert log.last_index() == last
        assert log.saved.configuration.voters == (ONE,)
        assert isinstance(log.snapshots, CheckpointStore)
        assert len(log.entry_log.segments()) == 1
    journal.close()


def test_a_streams_damaged_log_goes_on_alone_and_nothing_of_it_goes(tmp_path: Path) -> None:
    data = folder(tmp_path)
    found = asker()
    found.ask(commands.EnableFeatures(("stream_queue",)))
    found.queue("kept", arguments=STREAM, members=(ONE, TWO, THREE))
    [uid] = [each.uid for each in found.machine.catalogue.all_queues() if each.name == "kept"]
    journal = OfflineStore(data / "store")
    store = LogStore(journal, journal)
    store.erase(0)
    entries = [
        Entry(index, 1, 0, parts.cut(command)[0]) for index, command in enumerate(found.log, 1)
    ]
    store.open(0, ALL).save(written(entries))
    log = store.open(uid, ALL, segment_bytes=1 << 20, keeps_log=True)
    log.save(written([Entry(1, 1, 0, b"first"), Entry(2, 1, 0, b"middle"), Entry(3, 1, 0, b"x")]))
    journal.flush()
    journal.close()
    [file] = data.glob("log/*/*.segment")
    file.write_bytes(damaged := file.read_bytes().replace(b"middle", b"MIDDLE"))

    forced = force(data, None)

    assert names(forced, "damaged") == []
    assert file.read_bytes() == damaged
    journal = OfflineStore(data / "store")
    log = LogStore(journal, journal).open(uid, Configuration(), is_alone=True)
    assert log.saved.configuration.voters == (ONE,)
    assert [each.data for each in log.entries(1, 4, 1 << 20)] == [b"first", parts.LOST, b"x"]
    journal.close()
