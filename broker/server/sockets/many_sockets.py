"""Small output for many sockets in one system call.

A turn may bring one message for each of a hundred clients. Written one by one, each write wakes its
client, and a client on this machine takes the processor from the node, reads one message and waits
again: a hundred times. Linux's `io_submit` takes writes to many sockets together. Clients are woken
by it, too, but run when it has returned, and find all that is there.

For sockets it is synchronous (fs/aio.c, sock_write_iter of net/socket.c): one that does not block
takes what it has room for, and all results are there when the call returns. The event loop gets
what a socket did not take, and waits for room or finds the error. So no socket has two writes in
one call: the second might find room that the first did not.

Which writes go together is decided by `Outbox`. See docs/decisions/0080.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import platform
import struct
import sys
from typing import Final, NamedTuple

_log = logging.getLogger(__name__)

WRITES_MAX: Final = 64
"""Writes of one call; more need several."""

BYTES_MAX: Final = 16 * 1024
"""Of one write. What is larger is worth a call of its own, and a copy costs more than that."""

_PWRITE: Final = 1

_control_block: Final = struct.Struct("<QIIHhIQQqQII")
"""struct iocb of linux/aio_abi.h: data, key, flags, operation, priority, descriptor, address, size,
offset, reserved, flags, descriptor to notify."""

_target: Final = struct.Struct("<IQQ")
"""What differs from write to write: descriptor, address, size."""

_TARGET_AT: Final = struct.calcsize("<QIIHh")
"""Where they stand in it."""

_event: Final = struct.Struct("<QQqq")
"""struct io_event: data, control block, result, second result."""


class _Calls(NamedTuple):
    """Numbers of system calls: the C library has no functions for them."""

    setup: int
    submit: int
    get_events: int


_CALLS: Final = {"x86_64": _Calls(206, 209, 208), "aarch64": _Calls(0, 2, 4)}


class ManySockets:
    """Writes that wait for one system call. The kernel's part ends with the process.

    Only for the event loop's thread. Whoever adds writes calls `submit` before the loop goes on, so
    that a descriptor can't be closed in between.

    Raises:
        OSError: The system has no `io_submit`, or does not allow it (as some containers).
    """

    def __init__(self) -> None:
        is_known = sys.platform == "linux" and sys.maxsize > 1 << 32
        if not is_known or platform.machine() not in _CALLS:
            raise OSError(errno.ENOSYS, "no io_submit on this platform")
        self._calls = _CALLS[platform.machine()]
        # PyDLL: other threads are not let in between, the call takes microseconds.
        self._system_call = ctypes.PyDLL(None, use_errno=True).syscall
        self._system_call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        if self._system_call(self._calls.setup, WRITES_MAX, ctypes.byref(self._context)) < 0:
            raise OSError(ctypes.get_errno(), "io_setup")
        self._bytes = bytearray(WRITES_MAX * BYTES_MAX)
        self._blocks = bytearray(WRITES_MAX * _control_block.size)
        self._events = bytearray(WRITES_MAX * _event.size)
        self._bytes_at, self._events_at = _address(self._bytes), _address(self._events)
        for number in range(WRITES_MAX):
            block = (number, 0, 0, _PWRITE, 0, 0, 0, 0, 0, 0, 0, 0)
            _control_block.pack_into(self._blocks, number * _control_block.size, *block)
        blocks_at = _address(self._blocks)
        starts = range(blocks_at, blocks_at + len(self._blocks), _control_block.size)
        self._block_list = (ctypes.c_void_p * WRITES_MAX)(*starts)
        self._waiting: dict[int, tuple[asyncio.WriteTransport, bytes]] = {}  # by descriptor
        self._used = 0

    def add(self, transport: asyncio.WriteTransport, descriptor: int, data: bytes) -> bool:
        """Have something written by the next `submit`.

        Args:
            transport: Whose socket it is.
            descriptor: The socket's.
            data: What to write.

        Returns:
            False if nothing was done: it is too large, or waits behind what the socket has no room
            for.
        """
        size = len(data)
        if descriptor in self._waiting or len(self._waiting) == WRITES_MAX:
            self.submit()
        if size > BYTES_MAX or transport.get_write_buffer_size():
            return False
        number, used = len(self._waiting), self._used
        self._bytes[used : used + size] = data
        at = number * _control_block.size + _TARGET_AT
        _target.pack_into(self._blocks, at, descriptor, self._bytes_at + used, size)
        self._used = used + size
        self._waiting[descriptor] = transport, data
        return True

    def submit(self) -> None:
        """Write everything that waits."""
        if not self._waiting:
            return
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self._used = 0
        taken = self._submit(len(waiting)) if len(waiting) > 1 else 0
        for i in range(taken):
            number, _, size, _ = _event.unpack_from(self._events, i * _event.size)
            transport, data = waiting[number]
            if size != len(data):
                _hand_on(transport, data[max(size, 0) :])  # below 0: an error, which it finds, too
        for transport, data in waiting[taken:]:
            _hand_on(transport, data)

    def _submit(self, count: int) -> int:
        """Return how many of the first control blocks were carried out; their events are there."""
        calls, call, context = self._calls, self._system_call, self._context
        taken: int = max(call(calls.submit, context, ctypes.c_long(count), self._block_list), 0)
        found = 0
        while found < taken:  # once, unless a signal comes
            missing = ctypes.c_long(taken - found)
            at = ctypes.c_void_p(self._events_at + found * _event.size)
            got = call(calls.get_events, context, missing, missing, at, None)
            if got < 0 and ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), "io_getevents")
            found += max(got, 0)
        return taken


def opened() -> ManySockets | None:
    """Return one; None where the system has no `io_submit`: each write is a call of its own."""
    try:
        return ManySockets()
    except OSError:
        return None


def _hand_on(transport: asyncio.WriteTransport, data: bytes) -> None:
    """Have the event loop write; a connection that can't be written to silences no other one."""
    try:
        transport.write(data)
    except Exception:  # noqa: BLE001 - its client must not wait for what never comes
        _log.exception("connection.write_failed")
        transport.abort()


def _address(memory: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
