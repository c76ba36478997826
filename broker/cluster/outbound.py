"""One stream that this node dialled to another node: it dials, proves itself, and sends.

A stream is either up, and then everything `send` took leaves in order, or it is down, and then
`send` drops. It goes down when the peer does, when its queue is full, or when the peer takes
nothing of what was written for `stall_ms`; whatever waited then is dropped and counted, and the
stream is dialled again with back-off. Both ends see the break (P14).

A refused connection proves that the peer's process is gone (P7).
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple, Protocol

from broker.cluster.authentication.dialling import (
    BREAKS,
    LinkRefused,
    Unproven,
    dialled,
    greeting,
    prove_each_other,
)
from broker.cluster.authentication.handshake import Claim, Reason
from broker.cluster.authentication.link_certificates import LinkCertificates
from broker.cluster.batching import PAYLOAD_BYTES_MAX, SendQueue, encode_batch
from broker.cluster.grpc_socket import GrpcCall

log = logging.getLogger(__name__)

CONTROL, DATA = 0, 1
ENQUIRY = 2
"""A stream that ends with its handshake: `broker.cluster.admission.enquiry`."""

STREAM_NAMES = ("control", "data")

CLOGGED_BYTES = 8 << 20
DRAINED_BYTES = 2 << 20
"""Above the first a stream counts as clogged, until no more than the second waits: what can be
put off is kept where it comes from meanwhile (P14: limits sit at the origin)."""


class LinkLimits(NamedTuple):
    """Limits of one link, in bytes and seconds.

    Attributes:
        control_bytes: Most bytes that wait on a control stream.
        data_bytes: Most bytes that wait on a data stream: one message of whatever size, in one
            payload or in a ring's many, and 64 MiB of what cannot wait elsewhere meanwhile.
        stall_ms: A peer that takes nothing of what was written for so long breaks the stream.
        handshake_ms: A dial has so long to be welcomed.
        backoff_min_ms: First wait after a failed dial; doubles.
        backoff_max_ms: Longest wait.
        calls_max: Most requests of one peer served at a time, and most of ours unanswered.
        strangers: Most accepted connections at a time that have not proven the secret.
    """

    control_bytes: int = 16 << 20
    data_bytes: int = PAYLOAD_BYTES_MAX + (64 << 20)
    stall_ms: int = 10_000
    handshake_ms: int = 3_000
    backoff_min_ms: int = 50
    backoff_max_ms: int = 1_000
    calls_max: int = 4096
    strangers: int = 32


class Door(Protocol):
    """The node, as one of its outbound streams sees it."""

    boot: str
    link_key: bytes
    limits: LinkLimits
    tls: LinkCertificates | None

    def claim(self) -> Claim:
        """Return this node's claim, with a fresh nonce."""
        ...

    def advertised(self) -> str:
        """The address at which others reach this node, "host:port"."""
        ...

    def outbound_up(self, stream: Outbound, boot: str) -> None:
        """The stream carries from now on; the peer's process is `boot`."""
        ...

    def outbound_down(self, stream: Outbound, boot: str) -> None:
        """The stream that was up is broken."""
        ...

    def outbound_drained(self, stream: Outbound) -> None:
        """A stream that was clogged has room again."""
        ...

    def connection_refused(self, node: str) -> None:
        """The peer's address refused a connection."""
        ...

    def link_refused(self, node: str, reason: Reason, *, by_peer: bool) -> None:
        """The handshake failed, by the peer's proven verdict or by ours."""
        ...

    def unproven_refusal(self, node: str, hint: str) -> None:
        """A refusal came from the peer's address without a proof of the secret: a hint only."""
        ...


class Outbound:
    """A stream towards one node.

    Args:
        node: The peer.
        stream: CONTROL or DATA.
        address: Where to dial, "host:port".
        door: The node this stream belongs to.
    """

    def __init__(self, node: str, stream: int, address: str, door: Door) -> None:
        self.node = node
        self.stream = stream
        self.address = address
        self.dropped = 0
        self.sent_payloads = 0
        self.sent_batches = 0
        self.is_up = False
        self.is_clogged = False
        self._door = door
        limits = door.limits
        self._queue = SendQueue(limits.data_bytes if stream == DATA else limits.control_bytes)
        self._loop = asyncio.get_running_loop()
        self._life: asyncio.Timeout | None = None
        self._claimed = ""
        self._call: GrpcCall | None = None  # while it is up
        self._is_due = False  # the end of this turn of the loop writes
        self._has_written = False  # in this turn
        self._taken = (0, 0.0)  # bytes of the call that were taken, and the loop time of the last
        self._watchdog: asyncio.TimerHandle | None = None

    def send(self, payload_type: int, *payload: bytes) -> bool:
        """Queue a payload, in pieces; it leaves at the end of this turn, or with `flush`.

        Returns:
            False when it was dropped: the stream is down, or full and therefore broken now, or
            the payload is longer than any stream carries.
        """
        if not self.is_up:
            self.dropped += 1
            return False
        if not self._queue.put(payload_type, *payload):
            self.dropped += 1
            self._refused(payload_type, sum(map(len, payload)))
            return False
        if self._queue.size_bytes > CLOGGED_BYTES:
            self.is_clogged = True
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._end_turn)
        return True

    def _refused(self, payload_type: int, size: int) -> None:
        where = {"node": self.node, "stream": self.stream}
        if self._queue.could_take(size):
            log.warning("link.full", extra={**where, "bytes": self._queue.size_bytes})
            self.reset()
        else:
            log.error("link.payload_too_long", extra={**where, "kind": payload_type, "bytes": size})

    def flush(self) -> None:
        """Write what waits now, ahead of what else is due in this turn of the loop.

        Once in a turn: what comes after that leaves together at its end.
        """
        if self._is_due and not self._has_written:
            self._has_written = True
            self._write()

    def _end_turn(self) -> None:
        self._is_due = self._has_written = False
        self._write()

    def _write(self) -> None:
        call, queue = self._call, self._queue
        while queue and call is not None and not call.is_full:
            batch = queue.take()
            call.write(*encode_batch(batch))
            self.sent_batches += 1
            self.sent_payloads += len(batch.types)
        if self.is_clogged and queue.size_bytes <= DRAINED_BYTES:
            self.is_clogged = False
            self._door.outbound_drained(self)

    def reset(self) -> None:
        """Break the stream and dial again."""
        self.is_up = False
        if self._life is not None and not self._life.expired():
            self._life.reschedule(self._loop.time())

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be written."""
        return self._queue.size_bytes

    async def run(self) -> None:
        """Keep the stream up until cancelled."""
        limits = self._door.limits
        backoff_ms = limits.backoff_min_ms
        while True:
            was_welcome = await self._dial_and_send()
            backoff_ms = limits.backoff_min_ms if was_welcome else backoff_ms
            await asyncio.sleep(backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, limits.backoff_max_ms)

    async def _dial_and_send(self) -> bool:
        """One life of the stream. Returns whether it was up."""
        was_up = False
        patience_s = self._door.limits.handshake_ms / 1000
        try:
            async with asyncio.timeout(None) as life:
                self._life = life
                try:
                    async with dialled(self.node, self.address, patience_s, self._door.tls) as call:
                        async with asyncio.timeout(patience_s):
                            boot = await self._shake_hands(call)
                        was_up = True
                        await self._be_up(call, boot)
                finally:
                    self._life = None  # whoever resets us from here on finds nothing to break
        except LinkRefused as refused:
            is_late = refused.reason is Reason.STALE_BOOT and self._claimed != self._door.boot
            if not is_late:
                self._door.link_refused(self.node, refused.reason, by_peer=refused.by_peer)
        except Unproven as hint:
            self._door.unproven_refusal(self.node, str(hint))
        except ConnectionRefusedError:
            self._door.connection_refused(self.node)
        except BREAKS as why:
            log.debug("link.broken", extra={"node": self.node, "why": repr(why)[:200]})
        return was_up

    async def _be_up(self, call: GrpcCall, boot: str) -> None:
        self._call = call
        call.hand_to(self)
        self.is_up = True
        try:
            self._door.outbound_up(self, boot)
            self._taken = (0, self._loop.time())
            self._watch()
            await call.ended.wait()
        finally:
            self.is_up = False
            self._call = None
            if self._watchdog is not None:
                self._watchdog.cancel()
            self.is_clogged = False
            self.dropped += self._queue.clear()
            self._door.outbound_down(self, boot)

    def _watch(self) -> None:
        """Break the stream when the peer takes nothing: one timer for all writes, not one each."""
        if self._call is None:
            return
        taken, unsent = self._call.connection.progress()
        stall_s = self._door.limits.stall_ms / 1000
        now = self._loop.time()
        if not unsent or taken != self._taken[0]:
            self._taken = (taken, now)
        elif now - self._taken[1] >= stall_s:
            self.reset()
            return
        self._watchdog = self._loop.call_later(stall_s / 4, self._watch)

    async def _shake_hands(self, call: GrpcCall) -> str:
        mine = self._door.claim()
        self._claimed = mine.boot
        hello = greeting(mine, self.node, self.stream, self._door.advertised())
        return (await prove_each_other(call, hello, self._door.link_key)).boot

    # What the call tells

    def call_received(self, message: bytes | memoryview) -> None:
        """The peer speaks after its verdict, which no node does: break the stream."""
        log.warning("link.malformed", extra={"node": self.node, "bytes": len(message)})
        self.reset()

    def call_drained(self) -> None:
        """The peer has taken what it was sent: go on."""
        self._write()
