"""A process on the virtual clock, which can be paused and killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.clock import Clock


class Program:
    """What an event loop is to a process.

    Attributes:
        clock: Virtual time.
        is_paused: It stands still.
        is_dead: It was killed.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_paused = False
        self.is_dead = False
        self._stopped: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """`loop.call_soon`: nothing once the process is gone, later while it stands still."""
        self.clock.after(0, self._run, call, arguments)

    def after(self, delay_ms: int, call: Callable[..., None], *arguments: Any) -> None:
        """`loop.call_later`, milliseconds."""
        self.clock.after(delay_ms, self._run, call, arguments)

    def _run(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.is_dead:
            return
        if self.is_paused:
            self._stopped.append((call, arguments))
        else:
            call(*arguments)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Go on: what became due meanwhile runs, timers and messages in any order."""
        self.is_paused = False
        stopped, self._stopped = self._stopped, []
        for call, arguments in stopped:
            self.soon(call, *arguments)
