"""An event loop whose clock jumps: an hour of waiting takes no time, and waiting for ever fails.

Use `run(coroutine)`. Threads and sockets do not work on it: when nothing is ready and no timer is
set, it raises `Deadlock` instead of waiting.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(Exception):
    """Nothing can ever happen again."""


class _JumpingSelector(selectors.BaseSelector):
    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        self.now_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that never sleeps."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now_s


class VirtualClock:
    """raft.ports.Clock and broker.ports.Clock on the running virtual loop.

    Attributes:
        others_ms: How long the machine gave the processor to other processes.
    """

    others_ms = 0

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def now_us(self) -> int:
        return self.now_ms() * 1000

    def busy_ms(self) -> int:
        """All time is the loop's, but for what a test says was others'."""
        return self.monotonic_ms() - self.others_ms


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time; what a callback raised is raised then."""
    loop, raised = VirtualLoop(), list[BaseException]()

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and "handle" in context:
            raised.append(error)

    loop.set_exception_handler(note)
    try:
        found = loop.run_until_complete(main)
    finally:
        loop.close()
    if raised:
        raise raised[0]
    return found
