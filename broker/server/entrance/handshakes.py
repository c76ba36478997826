"""TLS handshakes as the event loop makes them, watched: what came, and what the client is told.

The loop's own TLS drops the socket of a handshake that fails without the alert that OpenSSL wrote
for the client, and does not say whether the client sent anything at all. Both are known where
OpenSSL takes its steps: a `WatchedContext` makes objects that tell a `Watch`. The loop makes them
in the order of its calls of `start_tls`, each in a callback that nothing cancels before.
"""

from __future__ import annotations

import os
import ssl
from collections import deque
from contextlib import suppress
from typing import Any

from typing_extensions import override


class Watch:
    """One handshake.

    Args:
        descriptor: The socket's.
        early: What the client has sent before the loop's TLS reads the socket.

    Attributes:
        has_input: The client has sent something.
        early: As given.
    """

    def __init__(self, descriptor: int, early: bytes) -> None:
        self.has_input = bool(early)
        self.early = early
        self._descriptor = descriptor

    def failed(self, alert: bytes) -> None:
        """Send the client what is wrong; the loop drops the socket next."""
        if alert:
            with suppress(OSError):
                os.write(self._descriptor, alert)


class WatchedObject(ssl.SSLObject):
    """The server's side of one connection."""

    _watch: Watch | None = None
    _bios: tuple[ssl.MemoryBIO, ssl.MemoryBIO] | None = None

    def watch(self, watch: Watch, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        """Tell a watch until the handshake has ended."""
        self._watch, self._bios = watch, (incoming, outgoing)

    @override
    def do_handshake(self) -> None:
        watch, bios = self._watch, self._bios
        if watch is None or bios is None:
            super().do_handshake()
            return
        incoming, outgoing = bios
        watch.has_input = watch.has_input or incoming.pending > 0
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            watch.failed(outgoing.read())
            self._watch = self._bios = None
            raise
        self._watch = self._bios = None


class WatchedContext(ssl.SSLContext):
    """A server's TLS context."""

    sslobject_class = WatchedObject
    _expected: deque[Watch] | None = None

    def expect(self, watch: Watch) -> None:
        """Give the next object but those expected before a watch; `start_tls` is called next."""
        if self._expected is None:
            self._expected = deque()
        self._expected.append(watch)

    def forget(self, watch: Watch) -> None:
        """No object was made for a watch, or its handshake has ended."""
        if self._expected and watch in self._expected:
            self._expected.remove(watch)

    @override
    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **more: Any
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **more)
        if self._expected and isinstance(made, WatchedObject):
            watch = self._expected.popleft()
            incoming.write(watch.early)  # before anything that is read from now on
            made.watch(watch, incoming, outgoing)
        return made
