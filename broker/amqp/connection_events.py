"""The settings and events of a connection machine."""

from __future__ import annotations

import msgspec

from broker.amqp.sasl import MECHANISMS


class MachineSettings(msgspec.Struct, frozen=True):
    """The server's side of the negotiation.

    Attributes:
        heartbeat_s: Proposed heartbeat; the client's answer counts.
        frame_max_bytes: Largest frame accepted.
        initial_frame_max_bytes: Largest frame before connection.tune-ok.
        channel_max: How many channels may be open at a time; 0 is without limit.
        max_message_size_bytes: Largest body.
        mechanisms: SASL mechanisms offered, in order of preference.
        handshake_timeout_ms: From the first byte's chance to open-ok, whatever happens between.
    """

    heartbeat_s: int = 60
    frame_max_bytes: int = 131_072
    initial_frame_max_bytes: int = 4_096
    channel_max: int = 2_047
    max_message_size_bytes: int = 134_217_728
    mechanisms: tuple[str, ...] = MECHANISMS
    handshake_timeout_ms: int = 10_000


class Authenticate(msgspec.Struct):
    """Check this login, then call `authenticated` or `refused`."""

    mechanism: str
    username: str
    password: str


class OpenVhost(msgspec.Struct):
    """Check this virtual host, then call `opened` or `fail`."""

    vhost: str


class UpdateSecret(msgspec.Struct):
    """Check that the user is still one, then call `secret_updated`, or `close` with 530."""

    secret: bytes
    reason: str


class PeerClosed(msgspec.Struct):
    """The client is leaving: release all it holds, then call `close_ok`.

    Attributes:
        code: As it gave it.
        text: As it gave it.
        at_ms: Monotonic time at which it was read.
    """

    code: int
    text: str
    at_ms: int


class Closed(msgspec.Struct):
    """Write what is in `out` and drop the socket. An empty reason is a clean end."""

    reason: str


Event = Authenticate | OpenVhost | UpdateSecret | PeerClosed | Closed
