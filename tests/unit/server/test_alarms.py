"""Alarms: limits, when to look, what is on in the cluster, what the log says."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from broker.config import Settings
from broker.server import resource_usage
from broker.server.alarms import (
    DISK,
    LIMIT_MAX_BYTES,
    MEMORY,
    Board,
    disk_interval_ms,
    disk_limit_text,
    disk_text,
    limits_of,
    memory_limit_text,
    memory_text,
)

BANNER = [
    "**********************************************************",
    "*** Publishers will be blocked until this alarm clears ***",
    "**********************************************************",
]


def test_a_share_is_of_the_memory_and_bytes_win() -> None:
    limits = limits_of(Settings())
    assert limits.memory_limit(1_000) == 400
    assert limits.disk_limit(1_000) == 50_000_000
    limits = limits_of(Settings(vm_memory_high_watermark_bytes=0, disk_free_limit_relative=1.5))
    assert limits.memory_limit(1_000) == 0
    assert limits.disk_limit(1_000) == 1_500
    limits = limits_of(Settings(vm_memory_high_watermark=1e300, disk_free_limit_relative=1e308))
    assert limits.memory_limit(10**12) == limits.disk_limit(10**12) == LIMIT_MAX_BYTES


@pytest.mark.parametrize(
    ("free_mb", "limit_mb", "interval_ms"),
    [
        (100_000, 50, 10_000),
        (1_300, 50, 10_000),
        (1_050, 50, 8_000),
        (75, 50, 200),
        (60, 50, 100),
        (50, 50, 100),
        (0, 50, 100),
    ],
)
def test_the_disk_is_read_more_often_near_the_limit(
    free_mb: int, limit_mb: int, interval_ms: int
) -> None:
    assert disk_interval_ms(free_mb * 10**6, limit_mb * 10**6) == interval_ms


def test_an_alarm_anywhere_is_a_reason_until_the_last_is_over() -> None:
    board = Board("rabbit@n1")
    assert board.put("rabbit@n1", ()) == []
    assert board.put("rabbit@n3", {MEMORY}) == [
        "memory resource limit alarm set on node rabbit@n3.",
        *BANNER,
    ]
    assert (board.reason, board.here) == ("low on memory", frozenset())
    assert board.put("rabbit@n3", [MEMORY]) == []
    board.put("rabbit@n1", {DISK, "hope"})
    assert (board.reason, board.here) == ("low on memory & disk", {DISK})
    assert board.put("rabbit@n2", {MEMORY, "hope"})[0].endswith("on node rabbit@n2.")
    assert sorted(board.others()) == ["rabbit@n2", "rabbit@n3"]
    assert board.put("rabbit@n3", ()) == ["memory resource limit alarm cleared on node rabbit@n3"]
    assert board.put("rabbit@n2", ()) == [
        "memory resource limit alarm cleared on node rabbit@n2",
        "memory resource limit alarm cleared across the cluster",
    ]
    assert board.reason == "low on disk"
    board.put("rabbit@n1", ())
    assert board.reason == ""


def test_the_log_says_it_as_rabbitmq_does() -> None:
    assert memory_text(5, 4) == "vm_memory_high_watermark set. Memory used:5 allowed:4"
    assert memory_text(4, 4) == "vm_memory_high_watermark clear. Memory used:4 allowed:4"
    assert disk_text(3, 4) == "Free disk space is insufficient. Free bytes: 3. Limit: 4"
    assert disk_text(4, 4) == "Free disk space is sufficient. Free bytes: 4. Limit: 4"
    assert disk_limit_text(50_000_000) == "Disk free limit set to 50MB"
    assert memory_limit_text(3 << 20, 5 << 20) == (
        "Memory high watermark set to 3 MiB (3145728 bytes) of 5 MiB (5242880 bytes) total"
    )


# The machine


def machine(root: Path, groups: str, **limits: str) -> int:
    """The memory of a machine with these control groups, and these files with limits."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/")
        path = path.with_name("memory.max" if text.endswith("2") else "memory.limit_in_bytes")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text[:-1].strip() + "\n")
    return resource_usage.machine_memory(root)


WHOLE = psutil.virtual_memory().total


def test_without_control_groups_the_memory_is_the_machines(tmp_path: Path) -> None:
    assert resource_usage.machine_memory(tmp_path) == WHOLE


def test_a_container_sees_its_limit_at_the_top(tmp_path: Path) -> None:
    assert machine(tmp_path / "two", "0::/\n", x="1000000 2") == 1_000_000
    assert machine(tmp_path / "one", "3:memory:/docker/ab\n", memory__x="2000000 1") == 2_000_000


def test_a_service_has_the_least_limit_of_its_groups(tmp_path: Path) -> None:
    found = machine(
        tmp_path / "two",
        "0::/system.slice/warren.service\n",
        system__x="1 2",  # another one's
        **{"system.slice__x": "5000000 2", "system.slice__warren.service__x": "max 2"},
    )
    assert found == 5_000_000
    found = machine(
        tmp_path / "one",
        "4:cpu,memory:/a/b\n1:name=systemd:/c\n",
        memory__x="9223372036854771712 1",
        memory__a__b__x="7000000 1",
        memory__c__x="1 1",
    )
    assert found == 7_000_000


def test_the_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert resource_usage.disk_free(tmp_path / "a" / "b") > 0


def test_descriptors_are_counted_with_and_without_the_kernels_help(tmp_path: Path) -> None:
    listed = psutil.Process().num_fds()  # lists them, through one more
    with (tmp_path / "one").open("w"), (tmp_path / "two").open("w"):
        for folder in (Path("/proc/self/fd"), tmp_path / "nowhere"):
            assert listed <= resource_usage.open_files(folder) <= listed + 2
