"""What this node's process and machine have and use: memory, disk, files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from broker.config import Settings

_CGROUP_MEMORY: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class Footprint(NamedTuple):
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

    @property
    def memory_alarm(self) -> bool:
        """True above the watermark."""
        return self.memory_bytes > self.memory_limit_bytes

    @property
    def disk_alarm(self) -> bool:
        """True below the limit."""
        return self.disk_free_bytes < self.disk_free_limit_bytes


def measure(settings: Settings) -> Footprint:
    """Look now. A few system calls; no file of any size is read."""
    process = psutil.Process()
    total = settings.total_memory_available_bytes or machine_memory()
    limit = settings.vm_memory_high_watermark_bytes
    if limit is None:
        limit = int(total * settings.vm_memory_high_watermark)
    disk_limit = settings.disk_free_limit_bytes
    if settings.disk_free_limit_relative is not None:
        disk_limit = int(total * settings.disk_free_limit_relative)
    return Footprint(
        memory_bytes=process.memory_info().rss,
        memory_limit_bytes=limit,
        disk_free_bytes=_disk_free(Path(settings.data_dir)),
        disk_free_limit_bytes=disk_limit,
        files=process.num_fds(),
        files_max=_files_max(process),
        processors=os.cpu_count() or 1,
    )


def machine_memory() -> int:
    """Memory this process may use, bytes: the machine's, or what its container is given."""
    total = psutil.virtual_memory().total
    for path in _CGROUP_MEMORY:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return min(total, int(text))
    return total


def _disk_free(folder: Path) -> int:
    """Free bytes at a folder, or at what of its path exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return psutil.disk_usage(str(folder)).free


def _files_max(process: psutil.Process) -> int:
    return int(process.rlimit(psutil.RLIMIT_NOFILE)[0])
