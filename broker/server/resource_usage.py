"""The resources of this node's process and machine: memory, disk, files.

A few system calls each; no file of any size is read.
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from broker.config import Settings
from broker.server.alarms import AlarmLimits

_ROOT: Final = Path("/")
_DESCRIPTORS: Final = Path("/proc/self/fd")


class ResourceUsage(NamedTuple):
    """One look at the process and its machine.

    Attributes:
        memory_bytes: Resident memory of the process.
        memory_limit_bytes: The high watermark.
        disk_free_bytes: Free where the data folder lies.
        disk_free_limit_bytes: Less than this is an alarm.
        files: Open file descriptors.
        files_max: How many may be open.
        processors: CPUs of the machine.
    """

    memory_bytes: int
    memory_limit_bytes: int
    disk_free_bytes: int
    disk_free_limit_bytes: int
    files: int
    files_max: int
    processors: int


def measure(settings: Settings, limits: AlarmLimits) -> ResourceUsage:
    """Look now.

    Args:
        settings: Where the data lies, and a memory that is not the machine's.
        limits: Those in force.
    """
    total = memory_total(settings)
    return ResourceUsage(
        memory_bytes=memory_used(),
        memory_limit_bytes=limits.memory_limit(total),
        disk_free_bytes=disk_free(Path(settings.data_dir)),
        disk_free_limit_bytes=limits.disk_limit(total),
        files=open_files(),
        files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        processors=os.cpu_count() or 1,
    )


def open_files(folder: Path = _DESCRIPTORS) -> int:
    """Open file descriptors of the process.

    Args:
        folder: Where the kernel shows them; tests have their own.

    Source:
        Linux 6.2 on says how many there are; before it, and elsewhere, each is listed.
    """
    try:
        counted = folder.stat().st_size
    except OSError:
        counted = 0
    return counted or int(_process(os.getpid()).num_fds())


def memory_total(settings: Settings) -> int:
    """Bytes that shares are taken of: as the settings say, or what the process may use."""
    return settings.total_memory_available_bytes or machine_memory()


def memory_used() -> int:
    """Resident memory of the process, bytes."""
    return int(_process(os.getpid()).memory_info().rss)


@cache
def _process(pid: int) -> psutil.Process:
    """Making one reads more than it is asked for later."""
    return psutil.Process(pid)


@cache
def _physical_memory() -> int:
    return int(psutil.virtual_memory().total)


def machine_memory(root: Path = _ROOT) -> int:
    """Memory this process may use, bytes: the machine's, or what its control group is given.

    Args:
        root: Where /proc and /sys are; tests have their own.
    """
    total = _physical_memory()
    for path in _limit_files(root):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # cgroup 2 says "max" for none; cgroup 1 a number beyond all memory
            total = min(total, int(text))
    return total


def _limit_files(root: Path) -> list[Path]:
    """The files with the limits of the process's control groups and of those around them.

    A container sees its own group as the top one, a system service lies further down.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    top = root / "sys/fs/cgroup"
    found = [top / "memory.max", top / "memory/memory.limit_in_bytes"]
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            folder, name = top, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = top / "memory", "memory.limit_in_bytes"
        else:
            continue
        for part in group.split("/"):
            if part and part != "..":
                folder /= part
                found.append(folder / name)
    return found


def disk_free(folder: Path) -> int:
    """Free bytes at a folder, or at what of its path exists.

    Raises:
        OSError: The file system does not say.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return int(psutil.disk_usage(str(folder)).free)
