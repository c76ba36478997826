"""A proxy for clients that are synchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.proxy import Proxy

T = TypeVar("T")


class ProxyThread:
    """A proxy on a loop of its own: what reads is synchronous."""

    def __init__(self, target: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._proxy = Proxy(target)
        self.port = self._run(self._proxy.start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def cut_after(self, count: int) -> None:
        self._loop.call_soon_threadsafe(self._proxy.cut_after, count)

    @property
    def is_cut(self) -> bool:
        return self._proxy.is_cut

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._proxy.heal)

    def reset(self) -> None:
        self._loop.call_soon_threadsafe(self._proxy.reset)

    def end(self) -> None:
        self._run(self._proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
