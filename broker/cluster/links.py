"""The links of one node: two streams to, and two from, every other node.

Each node dials every other one twice, for control and for data, each on a channel (and so a TCP
connection) of its own. It sends on what it dialled and receives on what it accepted, so that a cut
of one direction stops one direction. All floors above share them: payloads of all Raft groups,
forwarded queue operations and requests, each with a type that says who handles it.

What it promises: payloads of one stream arrive in order, none missing while the stream lives.
What it does not: that they arrive. A break loses what was on its way; `on_event` tells both ends.

Handlers run on the event loop, in the order of arrival. They must not block.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from broker.cluster import payload_types
from broker.cluster.authentication import handshake, keys
from broker.cluster.authentication.cluster_port import ClusterPort, StrangerLimits
from broker.cluster.authentication.handshake import Claim, Reason
from broker.cluster.authentication.link_certificates import LinkCertificates
from broker.cluster.calls import CallFailed, Calls, Handler
from broker.cluster.inbound import Acceptor, Inbound
from broker.cluster.outbound import (
    CONTROL,
    DATA,
    LinkLimits,
    Outbound,
)

log = logging.getLogger(__name__)

ENDED_BOOTS_MAX = 64
"""Ended boots remembered a node: each is a start of that node that the others saw end."""

GRACE_MS = 500
"""The handler of a stream that does not prove itself in time answers before it is cut."""

HINT_S = 1.0
"""Between two lines of the log about what nobody has proven."""

REFUSALS_MAX = 1024
"""Refusals remembered so as to be logged once."""

PayloadHandler = Callable[[str, str, bytes | memoryview], None]
"""Takes (node, boot, payload), and copies what it keeps of the payload."""

EnquiryHandler = Callable[[str, str, list[str]], Awaitable[Reason | None]]
"""Takes (node, address); what keeps that node from joining here."""


class LinkEvent(NamedTuple):
    """A stream came up or broke.

    Attributes:
        node: The node at the other end.
        boot: Its boot id.
        stream: CONTROL or DATA.
        outgoing: True for a stream this node sends on.
        is_up: False when it broke; then what was on its way may be lost.
    """

    node: str
    boot: str
    stream: int
    outgoing: bool
    is_up: bool


class LinkStatus(NamedTuple):
    """Counters of one outgoing stream."""

    node: str
    stream: int
    is_up: bool
    waiting_bytes: int
    sent_payloads: int
    sent_batches: int
    dropped_payloads: int


class Links:
    """All links of this node.

    Args:
        node: This node's name.
        boot: Its boot id.
        cluster_id: The cluster it belongs to; empty while it belongs to none.
        secret: The cluster's shared secret.
        addresses: Where to dial each other node, "host:port". One link at a time may be pointed
            at a proxy.
        limits: Times and sizes.
        tls: Certificates; None: links have no TLS.
    """

    def __init__(
        self,
        node: str,
        boot: str,
        cluster_id: str,
        secret: bytes,
        addresses: dict[str, str],
        limits: LinkLimits | None = None,
        tls: LinkCertificates | None = None,
    ) -> None:
        self.node = node
        self.boot = boot
        self.cluster_id = cluster_id
        self.link_key = keys.derive(secret, keys.Purpose.LINKS)
        self.limits = limits or LinkLimits()
        self.tls = tls
        self.address = ""
        self._addresses = {peer: at for peer, at in addresses.items() if peer != node}
        self._handlers: dict[int, PayloadHandler] = {}
        self._outbound: dict[tuple[str, int], Outbound] = {}
        self._unflushed: dict[Outbound, None] = {}
        self._dialling: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._inbound: dict[tuple[str, int], Inbound] = {}
        self._ended: dict[str, list[str]] = {}
        self._refusals: set[tuple[str, Reason, bool]] = set()
        self._event_listeners: list[Callable[[LinkEvent], None]] = []
        self._drained_listeners: list[Callable[[str], None]] = []
        self._refused_listeners: list[Callable[[str], None]] = []
        self._refusal_listeners: list[Callable[[str, Reason, bool], None]] = []
        self._enquiry_handler: EnquiryHandler | None = None
        self._calls = Calls(self.limits.calls_max, self._send_call, self._send_reply)
        self._port: ClusterPort | None = None
        self._hinted_at = 0.0
        self._hints_left_out = 0
        self._tasks: asyncio.TaskGroup | None = None

    # Starting and stopping

    async def start(self, tasks: asyncio.TaskGroup, listen: str, advertised: str = "") -> int:
        """Listen, and dial every known node.

        Args:
            tasks: The node's task group; owns every task of the links.
            listen: "host:port"; port 0 draws a free one.
            advertised: Where others reach us; the listening address by default.

        Returns:
            The port.

        Raises:
            OSError: The address is taken.
        """
        limits = self.limits
        strangers = StrangerLimits(limits.strangers, limits.handshake_ms + GRACE_MS)
        port = ClusterPort(strangers, Acceptor(self, tasks), tasks, self.tls)
        host, _, asked = listen.rpartition(":")
        try:
            number = port.listen(host, int(asked))
        except OSError as why:
            raise OSError(f"cannot listen on {listen}: {why}") from why
        self._port = port
        self._tasks = tasks
        self.address = advertised or f"{host}:{number}"
        for peer in self._addresses:
            self._dial(peer)
        return number

    async def stop(self) -> None:
        """Close every stream and the listener."""
        self._calls.stop()
        for task in self._dialling.values():
            task.cancel()
        self._dialling.clear()
        if self._port is not None:
            self._port.stop()
            self._port = None

    def _dial(self, peer: str) -> None:
        if self._tasks is None:
            return
        for stream in (CONTROL, DATA):
            outbound = Outbound(peer, stream, self._addresses[peer], self)
            self._outbound[peer, stream] = outbound
            name = f"link-{peer}-{stream}"
            self._dialling[peer, stream] = self._tasks.create_task(outbound.run(), name=name)

    # Who is there

    @property
    def peers(self) -> tuple[str, ...]:
        """The other nodes that are dialled."""
        return tuple(self._addresses)

    def address_of(self, node: str) -> str | None:
        """Return the address at which `node` is dialled."""
        return self._addresses.get(node)

    def connect(self, node: str, address: str) -> None:
        """Dial `node` at `address` from now on; the same address again changes nothing."""
        if node == self.node or self._addresses.get(node) == address:
            return
        self._hang_up(node)
        self._addresses[node] = address
        self._dial(node)

    def disconnect(self, node: str) -> None:
        """Forget a node: no dialling, and it is refused as unknown."""
        self._addresses.pop(node, None)
        self._hang_up(node)

    def _hang_up(self, node: str) -> None:
        for stream in (CONTROL, DATA):
            task = self._dialling.pop((node, stream), None)
            if task is not None:
                task.cancel()
            self._outbound.pop((node, stream), None)
            accepted = self._inbound.get((node, stream))
            if accepted is not None:
                accepted.close()

    def reset(self, node: str) -> None:
        """Break every stream with `node`; they are dialled again."""
        for stream in (CONTROL, DATA):
            if (outbound := self._outbound.get((node, stream))) is not None:
                outbound.reset()
            if (accepted := self._inbound.get((node, stream))) is not None:
                accepted.close()

    def identify(self, *, boot: str | None = None, cluster_id: str | None = None) -> None:
        """Speak under a new boot id or cluster id; every stream is opened anew."""
        self.boot = boot or self.boot
        self.cluster_id = cluster_id if cluster_id is not None else self.cluster_id
        for peer in {node for node, _ in (*self._outbound, *self._inbound)}:
            self.reset(peer)

    def end_boot(self, node: str, boot: str) -> None:
        """Group 0 ended a boot: it is refused, and its streams are closed (P1)."""
        ended = self._ended.setdefault(node, [])
        if boot in ended:
            return
        ended.append(boot)
        del ended[:-ENDED_BOOTS_MAX]
        for stream in (CONTROL, DATA):
            accepted = self._inbound.get((node, stream))
            if accepted is not None and accepted.boot == boot:
                accepted.close()

    @property
    def strangers(self) -> int:
        """Accepted connections that have not proven the secret."""
        return 0 if self._port is None else self._port.strangers

    def is_up(self, node: str, stream: int = DATA) -> bool:
        """True while `send` to this stream does not drop."""
        outbound = self._outbound.get((node, stream))
        return outbound is not None and outbound.is_up

    def is_clogged(self, node: str) -> bool:
        """True while so much waits on the data stream that more shall wait at its origin."""
        outbound = self._outbound.get((node, DATA))
        return outbound is not None and outbound.is_clogged

    def on_drained(self, listener: Callable[[str], None]) -> None:
        """Hear of nodes whose data stream was clogged and has room again."""
        self._drained_listeners.append(listener)

    def status(self) -> list[LinkStatus]:
        """Counters of the outgoing streams."""
        return [
            LinkStatus(
                out.node,
                out.stream,
                out.is_up,
                out.waiting_bytes,
                out.sent_payloads,
                out.sent_batches,
                out.dropped,
            )
            for out in self._outbound.values()
        ]

    # Sending and receiving

    def send(self, node: str, stream: int, payload_type: int, *payload: bytes) -> bool:
        """Send a payload with the others of this loop tick.

        Args:
            node: To whom.
            stream: CONTROL or DATA.
            payload_type: Which of its handlers takes it (`broker.cluster.payload_types`).
            payload: Its pieces, together at most PAYLOAD_BYTES_MAX; over 1 MiB it travels in parts.

        Returns:
            False when it was dropped, because the stream is down or broke now.
        """
        outbound = self._outbound.get((node, stream))
        if outbound is None or not outbound.send(payload_type, *payload):
            return False
        self._unflushed[outbound] = None
        return True

    def flush(self) -> None:
        """Let what was sent so far leave now, where nothing is being written already."""
        if self._unflushed:
            unflushed, self._unflushed = self._unflushed, {}
            for outbound in unflushed:
                outbound.flush()

    def on(self, payload_type: int, handler: PayloadHandler) -> None:
        """Hand payloads of one type to `handler(node, boot, payload)`."""
        self._handlers[payload_type] = handler

    async def call(self, node: str, method: str, payload: bytes, timeout_s: float) -> bytes:
        """Ask a node and wait for its answer.

        Raises:
            CallFailed: There is no answer; the request may have been served all the same.
        """
        if node == self.node:
            raise CallFailed("a node does not call itself")
        return await self._calls.call(node, self.boot, method, payload, timeout_s)

    def serve(self, method: str, handler: Handler) -> None:
        """Answer `method` by `await handler(node, boot, payload)`."""
        self._calls.serve(method, handler)

    def on_event(self, listener: Callable[[LinkEvent], None]) -> None:
        """Hear of streams that come up or break."""
        self._event_listeners.append(listener)

    def on_connection_refused(self, listener: Callable[[str], None]) -> None:
        """Hear of nodes at whose address nobody listens."""
        self._refused_listeners.append(listener)

    def on_refusal(self, listener: Callable[[str, Reason, bool], None]) -> None:
        """Hear of failed handshakes: (node, reason, by_peer)."""
        self._refusal_listeners.append(listener)

    def on_enquiry(self, handler: EnquiryHandler) -> None:
        """Let `handler` say whether nodes that ask could join here."""
        self._enquiry_handler = handler

    def _send_call(self, node: str, payload: bytes) -> bool:
        return self.send(node, DATA, payload_types.CALL, payload)

    def _send_reply(self, node: str, payload: bytes) -> bool:
        return self.send(node, DATA, payload_types.REPLY, payload)

    # What the streams tell (Door and Hall)

    def claim(self) -> Claim:
        """Return this node's claim, with a fresh nonce."""
        nonce = secrets.token_bytes(handshake.NONCE_BYTES)
        return Claim(self.cluster_id, self.node, self.boot, nonce)

    def advertised(self) -> str:
        """The address at which others reach this node."""
        return self.address

    def admit(self, node: str, boot: str, cluster_id: str) -> Reason | None:
        """Whether a node that knows the secret may come in."""
        if boot in self._ended.get(node, ()):
            return Reason.STALE_BOOT
        if node == self.node or (cluster_id and node not in self._addresses):
            return Reason.UNKNOWN_NODE
        return None

    async def enquired(self, node: str, address: str, features: list[str]) -> Reason | None:
        """Whether a node that knows the secret could join here."""
        if not self.cluster_id or self._enquiry_handler is None:
            return Reason.NO_CLUSTER
        return await self._enquiry_handler(node, address, features)

    def outbound_up(self, stream: Outbound, boot: str) -> None:
        """A dialled stream carries from now on."""
        self._forget_refusals(stream.node)
        self._emit(LinkEvent(stream.node, boot, stream.stream, outgoing=True, is_up=True))

    def outbound_down(self, stream: Outbound, boot: str) -> None:
        """A dialled stream broke."""
        if stream.stream == DATA:
            self._calls.link_down(stream.node)
        self._emit(LinkEvent(stream.node, boot, stream.stream, outgoing=True, is_up=False))

    def outbound_drained(self, stream: Outbound) -> None:
        """A stream that was clogged has room again."""
        if stream.stream == DATA:
            for listener in self._drained_listeners:
                listener(stream.node)

    def inbound_up(self, stream: Inbound) -> None:
        """A stream is let in; it replaces an older one, and everything of an older boot."""
        for kind in (CONTROL, DATA):
            older = self._inbound.get((stream.node, kind))
            if older is not None and (kind == stream.stream or older.boot != stream.boot):
                del self._inbound[stream.node, kind]
                older.close()
        self._inbound[stream.node, stream.stream] = stream
        if stream.node not in self._addresses and stream.address:
            self.connect(stream.node, stream.address)  # a guest that wants to form or to join
        self._forget_refusals(stream.node)
        event = LinkEvent(stream.node, stream.boot, stream.stream, outgoing=False, is_up=True)
        self._emit(event)

    def inbound_down(self, stream: Inbound) -> None:
        """An accepted stream ended."""
        if self._inbound.get((stream.node, stream.stream)) is stream:
            del self._inbound[stream.node, stream.stream]
        if stream.stream == DATA:
            self._calls.link_down(stream.node)
        event = LinkEvent(stream.node, stream.boot, stream.stream, outgoing=False, is_up=False)
        self._emit(event)

    def received(self, stream: Inbound, items: list[tuple[int, bytes | memoryview]]) -> None:
        """Payloads came. Those of a stream that was replaced or ended are dropped."""
        if self._inbound.get((stream.node, stream.stream)) is not stream:
            return
        node, boot = stream.node, stream.boot
        for payload_type, payload in items:
            handler = self._handlers.get(payload_type)
            if handler is not None:
                handler(node, boot, payload)
            elif payload_type == payload_types.REPLY:
                self._calls.received_reply(node, self.boot, payload)
            elif payload_type == payload_types.CALL and self._tasks is not None:
                self._calls.received_call(node, boot, payload, self._tasks)

    def connection_refused(self, node: str) -> None:
        """A peer's address refused a connection."""
        for listener in self._refused_listeners:
            listener(node)

    def link_refused(self, node: str, reason: Reason, *, by_peer: bool) -> None:
        """A handshake failed: logged once until it works or fails otherwise."""
        if (node, reason, by_peer) not in self._refusals and len(self._refusals) < REFUSALS_MAX:
            self._refusals.add((node, reason, by_peer))
            log.warning(
                "link.refused", extra={"node": node, "reason": reason.value, "by_peer": by_peer}
            )
        for listener in self._refusal_listeners:
            listener(node, reason, by_peer)

    def stranger_refused(self, reason: Reason) -> None:
        """Somebody who has proven nothing was turned away."""
        self._hint(f"a stranger: {reason.value}")

    def unproven_refusal(self, node: str, hint: str) -> None:
        """A refusal came from a peer's address without a proof of the secret."""
        self._hint(f"{node}, or who answers for it, says: {hint}")

    def _hint(self, text: str) -> None:
        """Log what nobody has proven: once a second, however much there is of it."""
        now = asyncio.get_running_loop().time()
        if now - self._hinted_at < HINT_S:
            self._hints_left_out += 1
            return
        log.warning("link.unproven", extra={"what": text, "left_out": self._hints_left_out})
        self._hinted_at, self._hints_left_out = now, 0

    def _forget_refusals(self, node: str) -> None:
        self._refusals = {refusal for refusal in self._refusals if refusal[0] != node}

    def _emit(self, event: LinkEvent) -> None:
        for listener in self._event_listeners:
            listener(event)
