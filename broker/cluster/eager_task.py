"""A coroutine that starts where it is made, not in a task's next step.

What a client waits for leaves its node with a gRPC write, and that is a coroutine. A task would
start it one turn of the event loop later, behind everything else that is due by then. Python 3.12
has `asyncio.eager_task_factory` for this; `EagerTask` is as much of it as Python 3.11 allows.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class EagerTask:
    """Runs a coroutine up to its first wait now; awaiting this runs the rest.

    An exception that the coroutine raises before its first wait is raised in who awaits.

    Args:
        work: Not started yet. The owner awaits this task once, or closes it.
    """

    def __init__(self, work: Coroutine[Any, None, None]) -> None:
        self._work = work
        self._is_over = False
        self._error: Exception | None = None
        self._waits_for: object = None
        try:
            self._waits_for = work.send(None)
        except StopIteration:
            self._is_over = True
        except Exception as error:  # noqa: BLE001 - raised in who awaits
            self._is_over, self._error = True, error

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for the rest."""
        if self._error is not None:
            raise self._error
        if self._is_over:
            return
        self._is_over = True
        try:
            yield self._waits_for
        except BaseException as thrown:  # noqa: BLE001 - a cancellation is told where it waits
            yield self._work.throw(thrown)
        yield from self._work.__await__()

    def close(self) -> None:
        """Close the coroutine; a no-op when it has ended."""
        if not self._is_over:
            self._is_over = True
            self._work.close()
