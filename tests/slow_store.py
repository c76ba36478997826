"""A real node on a slow disk: `python -m tests.slow_store server ...`.

All of it is the broker's own; its commit thread takes `SLOW_S` more for each group of batches, as
on a disk that is busy or about to fail. Nothing else waits for it.
"""

from __future__ import annotations

import time
from typing import Any, Final

from broker.cli.main import main
from broker.storage import group_commit
from broker.storage.commit_writer import CommitWriter

SLOW_S: Final = 0.4


class SlowWriter(CommitWriter):
    """Writes like its base, later."""

    def write(self, *batches: Any, **how: Any) -> None:
        time.sleep(SLOW_S)  # a disk's, in the thread that waits for the disk
        super().write(*batches, **how)


if __name__ == "__main__":
    group_commit.CommitWriter = SlowWriter  # type: ignore[misc]
    main()
