"""Requests and answers between nodes, on top of the data streams.

A request leaves on the stream this node dialled, its answer comes on the one the peer dialled. A
call fails when either breaks, when the peer has no such method or is overloaded, or after its
time limit. A call that failed may have been served: callers retry only what is idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count

import msgspec

log = logging.getLogger(__name__)

Handler = Callable[[str, str, bytes], Awaitable[bytes]]
"""Serves a request: (node, boot, payload) -> the answer."""

Send = Callable[[str, bytes], bool]


class CallFailed(Exception):
    """A call without an answer: the link broke, it timed out, or the peer could not serve it."""


class CallRequest(msgspec.Struct, array_like=True, gc=False):
    """A request on the wire."""

    number: int
    boot: str
    method: str
    payload: bytes


class CallReply(msgspec.Struct, array_like=True, gc=False):
    """An answer on the wire; `boot` is the caller's, so that an old boot's answer is ignored."""

    number: int
    boot: str
    is_ok: bool
    payload: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_call = msgspec.msgpack.Decoder(CallRequest).decode
_decode_reply = msgspec.msgpack.Decoder(CallReply).decode


class Calls:
    """Both sides of the requests of one node.

    Args:
        calls_max: Most requests served for one peer at a time; most unanswered ones of ours.
        send_call: Sends a request to a node; False when the link is down.
        send_reply: Sends an answer to a node.
    """

    def __init__(self, calls_max: int, send_call: Send, send_reply: Send) -> None:
        self._calls_max = calls_max
        self._send_call = send_call
        self._send_reply = send_reply
        self._numbers = count(1)
        self._pending: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._handlers: dict[str, Handler] = {}
        self._serving: dict[str, set[asyncio.Task[None]]] = {}

    def serve(self, method: str, handler: Handler) -> None:
        """Answer requests for `method`."""
        self._handlers[method] = handler

    async def call(
        self, node: str, boot: str, method: str, payload: bytes, timeout_s: float
    ) -> bytes:
        """Ask `node` and wait.

        Args:
            node: Whom to ask.
            boot: This node's boot id.
            method: What to ask.
            payload: The question.
            timeout_s: Longest wait, seconds.

        Raises:
            CallFailed: There is no answer.
        """
        if len(self._pending) >= self._calls_max:
            raise CallFailed(f"{len(self._pending)} calls are unanswered")
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[number] = (node, answer)
        try:
            if not self._send_call(node, _encode(CallRequest(number, boot, method, payload))):
                raise CallFailed(f"no link to {node}")
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise CallFailed(f"{node} did not answer {method} in {timeout_s} s") from None
        finally:
            del self._pending[number]

    def received_reply(self, node: str, boot: str, payload: bytes | memoryview) -> None:
        """An answer came; `boot` is this node's boot id now."""
        reply = _decode_reply(payload)
        whom, answer = self._pending.get(reply.number, ("", None))
        if answer is None or answer.done() or whom != node or reply.boot != boot:
            return
        if reply.is_ok:
            answer.set_result(reply.payload)
        else:
            answer.set_exception(CallFailed(reply.payload.decode(errors="replace")))

    def received_call(
        self, node: str, boot: str, payload: bytes | memoryview, tasks: asyncio.TaskGroup
    ) -> None:
        """A request came from `boot` of `node`: serve it in a task of its own."""
        call = _decode_call(payload)
        handler = self._handlers.get(call.method)
        serving = self._serving.setdefault(node, set())
        if handler is None or len(serving) >= self._calls_max:
            why = b"no such method" if handler is None else b"too many calls"
            self._send_reply(
                node, _encode(CallReply(call.number, call.boot, is_ok=False, payload=why))
            )
            return
        task = tasks.create_task(self._answer(node, boot, call, handler))
        serving.add(task)
        task.add_done_callback(serving.discard)

    async def _answer(self, node: str, boot: str, call: CallRequest, handler: Handler) -> None:
        try:
            reply = CallReply(call.number, call.boot, True, await handler(node, boot, call.payload))
        except CallFailed as failed:
            reply = CallReply(call.number, call.boot, False, str(failed).encode())
        except Exception as why:  # outermost frame of this task
            log.exception("call.failed", extra={"node": node, "method": call.method})
            reply = CallReply(call.number, call.boot, False, type(why).__name__.encode())
        self._send_reply(node, _encode(reply))

    def link_down(self, node: str) -> None:
        """A data stream from or to `node` broke: its answers will not come."""
        for whom, answer in list(self._pending.values()):
            if whom == node and not answer.done():
                answer.set_exception(CallFailed(f"the link to {node} broke"))

    def stop(self) -> None:
        """Cancel what is being served."""
        for serving in self._serving.values():
            for task in serving:
                task.cancel()
