"""One connection's life on channel 0: handshake, limits, heartbeats, close. Pure.

    state           input                           output, event                  next state
    HEADER          AMQP 0 0 9 1, or 1 1 0 9        connection.start               STARTING
                    TLS ClientHello                 Closed                         CLOSED
                    any other 8 bytes               AMQP 0 0 9 1, Closed           CLOSED
    STARTING        start-ok                        Authenticate                   AUTHENTICATING
    AUTHENTICATING  authenticated()                 connection.tune                TUNING
                    refused(), client is capable    connection.close 403           CLOSING
                    refused(), client is not        nothing for 3 s, then Closed   SILENT
    TUNING          tune-ok within the limits       -                              OPENING
    OPENING         connection.open                 OpenVhost                      VHOST
    VHOST           opened()                        open-ok                        RUNNING
                    fail(error)                     connection.close               CLOSING
    RUNNING         commands                        handed to the caller           RUNNING
                    update-secret                   UpdateSecret                   RUNNING
                    secret_updated()                update-secret-ok               RUNNING
                    connection.close                PeerClosed                     PEER_CLOSED
                    any fault                       Fault, to be answered by close()
                    close(error)                    connection.close               CLOSING
    PEER_CLOSED     close_ok()                      close-ok                       LINGERING
    LINGERING       connection.close                close-ok                       LINGERING
                    close-ok, or its time is over   Closed                         CLOSED
    CLOSING         connection.close                close-ok                       CLOSING
                    close-ok, or its time is over   Closed                         CLOSED
    before RUNNING  connection.close                close-ok, Closed               CLOSED
                    any other method                connection.close 504           CLOSING
                    channel above 0                 connection.close 505           CLOSING
                    handshake deadline              Closed                         CLOSED
    RUNNING         silence for 2.5 heartbeats      Closed                         CLOSED

In AUTHENTICATING and VHOST the caller has the word: input is held, bounded, and read on afterwards.
In RUNNING every fault, channel 0's too, goes out among the commands: whoever runs them in order
answers it by `close`, so that what came before it is done first.

Whoever closed, the socket is the client's to close: one that is closed by us while the client
still writes is reset, and the client may lose what it was told. So the end is read, not heard, for
a heartbeat interval, at most `LINGER_MS` and `LINGER_INPUT_MAX`; `GRACE_MS` for strangers and where
the frame boundaries are lost. A second connection.close is answered as the first.

How to call it, for each chunk: `receive`, run the commands, then run and clear `events`; while
`has_input`, again with no bytes. Write `out` when something is in it.

Source: rabbit_reader.erl (states, texts, order of checks), rabbit_heartbeat.erl.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from broker.amqp import sasl, spec
from broker.amqp.assembler import Assembler, Command, Fault, MethodCommand
from broker.amqp.connection_events import (
    Authenticate,
    Closed,
    Event,
    MachineSettings,
    OpenVhost,
    PeerClosed,
    UpdateSecret,
)
from broker.amqp.frames import (
    FRAME,
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
    HEARTBEAT,
    PROTOCOL_HEADER,
    method_frame,
)
from broker.amqp.shape import NO_SHAPE, Shape
from broker.errors import AmqpError, ReplyCode

GRACE_MS: Final = 3_000
"""How late a refusal hangs up (rabbit_reader.erl: SILENT_CLOSE_DELAY), and how long a
connection.close waits for what the client had to be released."""

LINGER_MS: Final = 30_000
"""How long a client may leave its socket open when the connection is over, at most; a shorter
heartbeat interval counts instead (rabbit_reader.erl: CLOSING_TIMEOUT, close_connection/1)."""

LINGER_INPUT_MAX: Final = 16 << 20
"""Bytes a client may still send when the connection is over: more than sockets hold of it."""

HELD_INPUT_MAX: Final = 1 << 20
"""Bytes held while the caller decides about a vhost."""

STRANGERS_INPUT_MAX: Final = 1 << 16
"""Bytes held of a client that has not logged in."""

CAPABILITIES: Final[dict[str, object]] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}

_HEADERS_TAKEN: Final = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")
_TLS_HANDSHAKE: Final = b"\x16\x03"
_PROXY_HEADERS: Final = (b"PROXY ", b"\r\n\r\n\0\r\nQ")
"""How version 1 and 2 of the PROXY protocol begin."""
_CHANNELS_UNLIMITED: Final = 65_535

_SUSPECT_BEATS: Final = 1.5
"""A client that was silent for so many heartbeat intervals is looked at again one later, and
dropped if nothing has come: after two and a half, the middle of RabbitMQ's two to three. The second
look is for clients of a node that stood still: what they sent meanwhile was not read yet."""


class State(Enum):
    """The states of a connection; the table at the top of the file has their transitions."""

    HEADER = auto()
    STARTING = auto()
    AUTHENTICATING = auto()
    TUNING = auto()
    OPENING = auto()
    VHOST = auto()
    RUNNING = auto()
    PEER_CLOSED = auto()
    LINGERING = auto()
    CLOSING = auto()
    SILENT = auto()
    CLOSED = auto()


_RUNNING: Final = State.RUNNING
"""Looked up here, once: every chunk asks for it, and Python 3.11 does not cache such lookups."""

_HANDSHAKE: Final = frozenset(
    {
        State.HEADER,
        State.STARTING,
        State.AUTHENTICATING,
        State.TUNING,
        State.OPENING,
        State.VHOST,
    }
)
_ENDING: Final = frozenset({State.PEER_CLOSED, State.LINGERING, State.CLOSING})
_BEATS: Final = frozenset({State.OPENING, State.VHOST, State.RUNNING}) | _ENDING
_READS: Final = frozenset({State.STARTING, State.TUNING, State.OPENING})


class ConnectionMachine:
    """Channel 0 of one connection.

    Args:
        settings: The server's limits.
        server_properties: For connection.start; `capabilities` is added if it is not there.
        now_ms: Monotonic time of the accept; the handshake's deadline counts from it.

    Attributes:
        state: Where in the table it is.
        out: Bytes to write, in order; the caller empties it.
        events: What the caller has to do, in order, after the commands; the caller empties it.
        frame_max: Largest frame in bytes, negotiated after tune-ok.
        channel_max: How many channels may be open at a time, negotiated after tune-ok.
        heartbeat: Negotiated interval in seconds; 0 is none.
        client_properties: From start-ok.
        capabilities: The client's, from its properties.
        mechanism: SASL mechanism the client chose.
        alarm: What a publisher is told, such as "low on memory"; "" without an alarm. The caller's.
        is_blocked: The client has published under an alarm: nothing is read until `unblock`.
        username: Who logged in; "" before.
        vhost: What connection.open asked for; "" before.
        held: Input that is not parsed yet: `has_input` says whether it can be.
        assembler: Knows which contents are not complete.
        wrote_ms: When something was written last, monotonic milliseconds; the caller sets it, and
            the next heartbeat can wait.
    """

    __slots__ = (
        "_check_ms",
        "_closes_owed",
        "_deadline_ms",
        "_ending_bytes",
        "_heard_ms",
        "_is_paused",
        "_last_word",
        "_now_ms",
        "_server_properties",
        "_settings",
        "_suspected_ms",
        "alarm",
        "assembler",
        "capabilities",
        "channel_max",
        "client_properties",
        "events",
        "frame_max",
        "heartbeat",
        "held",
        "is_blocked",
        "mechanism",
        "out",
        "state",
        "username",
        "vhost",
        "wrote_ms",
    )

    def __init__(
        self, settings: MachineSettings, server_properties: Mapping[str, object], now_ms: int
    ) -> None:
        self.state = State.HEADER
        self.out: list[bytes] = []
        self.events: list[Event] = []
        self.frame_max = settings.initial_frame_max_bytes
        self.channel_max = settings.channel_max or _CHANNELS_UNLIMITED
        self.heartbeat = 0
        self.client_properties: dict[str, object] = {}
        self.capabilities: dict[str, object] = {}
        self.mechanism = ""
        self.username = ""
        self.vhost = ""
        self._settings = settings
        properties = {"capabilities": CAPABILITIES, **server_properties}
        self._server_properties = dict(sorted(properties.items()))
        self.assembler = Assembler(
            frame_max=self.frame_max, max_message_size=settings.max_message_size_bytes
        )
        self.held = b""
        self._last_word: spec.ConnectionClose | None = None
        self._closes_owed = 0  # connection.close that we have not answered yet
        self._ending_bytes = 0
        self._now_ms = now_ms
        self._deadline_ms: int | None = now_ms + settings.handshake_timeout_ms
        self.wrote_ms = now_ms
        self._check_ms = now_ms
        self._heard_ms = now_ms
        self._suspected_ms = now_ms
        self._is_paused = False
        self.alarm = ""
        self.is_blocked = False

    # What the socket brings

    def receive(self, data: bytes, now_ms: int) -> list[Command]:
        """Take a chunk.

        Args:
            data: What the socket gave; may be empty, to read on in held input.
            now_ms: Monotonic time.

        Returns:
            Commands for the session, in order, to be run before `events`. A hard Fault among them
            is the last and wants `close`.
        """
        self._now_ms = now_ms
        self._heard_ms = now_ms
        if self.state is _RUNNING:
            if self.alarm or self.is_blocked:
                return self._receive_under_alarm(data)
            if self.held:
                data, self.held = self.held + data, b""
            commands = self.assembler.feed(data)
            return self._sorted(commands) if self.assembler.has_channel_zero else commands
        if self.state in _ENDING:
            self._receive_ending(data)
            return []
        if self.state in _HANDSHAKE:
            self.held += data
            return self._shake_hands()
        return []

    @property
    def steady_shape(self) -> Shape:
        """The shape of a publish that the next chunk may be, as it lies; `NO_SHAPE`: of none."""
        if self.held or self.is_blocked or not self.assembler.is_whole:
            return NO_SHAPE
        return self.assembler.shape

    def heard(self, now_ms: int) -> None:
        """A chunk was taken that is one publish of the steady shape: no need to `receive` it."""
        self._now_ms = now_ms
        self._heard_ms = now_ms

    @property
    def has_input(self) -> bool:
        """Held bytes can be read on: call `receive(b"", now_ms)`. An unfinished frame cannot."""
        if not self.held:
            return False
        if self.state in _READS:
            return self._frame_end() > 0
        is_running = self.state is State.RUNNING and not self.is_blocked
        return is_running or self.state in _ENDING

    @property
    def has_published(self) -> bool:
        """The client has begun to publish."""
        return self.assembler.has_content

    def _receive_under_alarm(self, data: bytes) -> list[Command]:
        """Read until the client publishes: the rest, that message's too, waits for `unblock`.

        A content frame is what tells: what it completes is carried out (a message without a body,
        the last piece of one that was under way), and nothing behind it is looked at.

        Source: rabbit_reader.erl, post_process_frame/3, publish_received/1, recvloop/4.
        """
        self.held += data
        if self.is_blocked:
            return []
        commands, rest = self.assembler.feed_to_content(self.held)
        self.held = rest or b""
        commands = self._sorted(commands)
        if rest is not None and self.state is State.RUNNING:
            self.is_blocked = True
            self._notify(spec.ConnectionBlocked(self.alarm))
        return commands

    def _sorted(self, commands: list[Command]) -> list[Command]:
        """Keep channel 0's methods here and hand on the rest."""
        self.assembler.has_channel_zero = False
        passed: list[Command] = []
        for command in commands:
            if command.channel == 0 and isinstance(command, MethodCommand):
                error = self._on_method(command.method)
                if error is not None:
                    self.assembler.refuse()
                    passed.append(Fault(0, error))
                    break
            elif self.state is State.RUNNING:
                passed.append(command)
        return passed

    def _receive_ending(self, data: bytes) -> None:
        """Take what comes when the connection is over, or is going to be: only its end counts."""
        self._ending_bytes += len(data)
        if self._ending_bytes > LINGER_INPUT_MAX:
            self._end("too much input after connection.close")
            return
        data, self.held = self.held + data, b""
        self._sorted(self.assembler.feed(data))
        if self.assembler.is_lost and self._deadline_ms is not None:
            self._deadline_ms = min(self._deadline_ms, self._now_ms + GRACE_MS)

    def _on_method(self, method: spec.Method) -> AmqpError | None:
        """A method of channel 0 in RUNNING or later."""
        if self.state in _ENDING:
            if isinstance(method, spec.ConnectionClose):
                self._closes_owed += 1
                if self.state is not State.PEER_CLOSED and self._last_word is None:
                    self._answer_closes()
            elif isinstance(method, spec.ConnectionCloseOk) and self.state is not State.PEER_CLOSED:
                self._end("")
        elif self.state is State.RUNNING:
            if isinstance(method, spec.ConnectionClose):
                self._peer_closes(method)
            elif isinstance(method, spec.ConnectionUpdateSecret):
                secret = method.new_secret
                self.events.append(UpdateSecret(secret, method.reason))
            else:
                return self._unexpected(method)
        return None

    def _peer_closes(self, method: spec.ConnectionClose) -> None:
        self.state = State.PEER_CLOSED
        self._closes_owed = 1
        self.assembler.refuse()
        self.events.append(PeerClosed(method.reply_code, method.reply_text, self._now_ms))

    # The handshake

    def _shake_hands(self) -> list[Command]:
        """Read held input frame by frame, for as long as the client has the word."""
        if self.state is State.HEADER and not self._take_header():
            return []
        while self.state in _READS:
            frame = self._next_frame()
            if not frame:
                return []
            for command in self.assembler.feed(frame):
                error = self._on_handshake(command)
                if error is not None:
                    self.close(error)
                    break
            self.assembler.has_channel_zero = False
        if self.state in _ENDING:
            self._receive_ending(b"")
            return []
        if len(self.held) > (HELD_INPUT_MAX if self.username else STRANGERS_INPUT_MAX):
            self._end("too much input before the connection was open")
        return []

    def _take_header(self) -> bool:
        """The first eight bytes; False when there is nothing to read after them."""
        if self.held.startswith(_TLS_HANDSHAKE):
            self._end("TLS handshake on a listener without TLS")
            return False
        if len(self.held) < len(PROTOCOL_HEADER):
            return False
        header = self.held[: len(PROTOCOL_HEADER)]
        self.held = self.held[len(PROTOCOL_HEADER) :]
        if header not in _HEADERS_TAKEN:
            self.out.append(PROTOCOL_HEADER)
            if header.startswith(_PROXY_HEADERS):
                self._end("PROXY header on a listener without proxy_protocol = true")
            else:
                self._end(f"unsupported protocol header {header!r}")
            return False
        self._send(
            spec.ConnectionStart(
                0,
                9,
                self._server_properties,
                " ".join(self._settings.mechanisms).encode(),
                b"en_US",
            )
        )
        self.state = State.STARTING
        return True

    def _next_frame(self) -> bytes:
        """Cut one frame from the held input; empty when none is complete.

        A frame over the limit is given at once, as far as it is there, for the assembler to refuse.
        """
        held, end = self.held, self._frame_end()
        if end:
            self.held = held[end:]
        return held[:end]

    def _frame_end(self) -> int:
        """Return where the held input's first frame ends; 0 while it is incomplete."""
        held = self.held
        if len(held) < FRAME.size:
            return 0
        size: int = FRAME.unpack_from(held)[2]
        end = size + FRAME_OVERHEAD
        return 0 if size <= self.assembler.frame_max and end > len(held) else end

    def _on_handshake(self, command: Command) -> AmqpError | None:
        """One command before RUNNING; returns what is wrong with it."""
        if isinstance(command, Fault):
            return command.error
        if command.channel != 0 or not isinstance(command, MethodCommand):
            return AmqpError(
                ReplyCode.UNEXPECTED_FRAME,
                f"frame on channel {command.channel} in connection state {self.state.name.lower()}",
            )
        method = command.method
        if isinstance(method, spec.ConnectionClose):
            self._send(spec.ConnectionCloseOk())
            self._end("closed by the client during the handshake")
            return None
        if isinstance(method, spec.ConnectionStartOk) and self.state is State.STARTING:
            return self._on_start_ok(method)
        if isinstance(method, spec.ConnectionTuneOk) and self.state is State.TUNING:
            return self._on_tune_ok(method)
        if isinstance(method, spec.ConnectionOpen) and self.state is State.OPENING:
            self.vhost = method.virtual_host
            self.state = State.VHOST
            self.events.append(OpenVhost(method.virtual_host))
            return None
        return self._unexpected(method)

    def _on_start_ok(self, method: spec.ConnectionStartOk) -> AmqpError | None:
        self.client_properties = method.client_properties
        capabilities = method.client_properties.get("capabilities")
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        self.mechanism = method.mechanism
        try:
            username, password = sasl.credentials_of(
                method.mechanism, method.response, self._settings.mechanisms
            )
        except AmqpError as error:
            return error
        self.state = State.AUTHENTICATING
        self.events.append(Authenticate(method.mechanism, username, password))
        return None

    def authenticated(self, username: str) -> None:
        """The login is good. Ignored, as all such answers, when the connection ended meanwhile."""
        if self.state is not State.AUTHENTICATING:
            return
        self.username = username
        settings = self._settings
        self._send(
            spec.ConnectionTune(
                settings.channel_max, settings.frame_max_bytes, settings.heartbeat_s
            )
        )
        self.state = State.TUNING

    def refused(self, text: str) -> None:
        """The login is not good.

        Args:
            text: What a client that can hear it is told.
        """
        if self.state is not State.AUTHENTICATING:
            return
        if self.capabilities.get("authentication_failure_close") is True:
            self.close(AmqpError(ReplyCode.ACCESS_REFUSED, text))
            return
        self.state = State.SILENT
        self.held = b""
        self._deadline_ms = self._now_ms + GRACE_MS

    def _on_tune_ok(self, method: spec.ConnectionTuneOk) -> AmqpError | None:
        settings = self._settings
        error = _check_limit(
            "frame_max", FRAME_MIN_SIZE, method.frame_max, settings.frame_max_bytes
        ) or _check_limit("channel_max", 1, method.channel_max, settings.channel_max)
        if error is not None:
            return error
        self.frame_max = method.frame_max or settings.frame_max_bytes
        self.channel_max = method.channel_max or _CHANNELS_UNLIMITED
        self.heartbeat = method.heartbeat
        # Until open-ok frames stay small; see `opened`.
        self.state = State.OPENING
        self.wrote_ms = self._now_ms
        self._check_ms = self._now_ms + self._suspect_after_ms
        return None

    @property
    def _suspect_after_ms(self) -> int:
        return round(self.heartbeat * 1000 * _SUSPECT_BEATS)

    def opened(self) -> None:
        """The virtual host is there and allowed."""
        if self.state is not State.VHOST:
            return
        self.assembler.set_frame_max(self.frame_max)
        self._send(spec.ConnectionOpenOk())
        self.state = State.RUNNING
        self._deadline_ms = None

    def fail(self, error: AmqpError) -> None:
        """The virtual host is not there, or not for this user."""
        self.close(error)

    def secret_updated(self) -> None:
        """The new secret was taken. Ignored when the connection is ending."""
        if self.state is State.RUNNING:
            self._send(spec.ConnectionUpdateSecretOk())

    # The end

    def close(self, error: AmqpError, *, is_held: bool = False) -> None:
        """Send connection.close and ignore what still comes; nothing happens when it is ending.

        `is_held` has it sent by `say_why`, or when the grace is over.
        """
        if self.state not in _HANDSHAKE and self.state is not State.RUNNING:
            return
        if self.state is State.HEADER:
            self._end(error.reply_text)
            return
        why = (int(error.code), error.reply_text, error.class_id, error.method_id)
        self._last_word = spec.ConnectionClose(*why)
        self.state = State.CLOSING
        self.assembler.refuse()
        self._deadline_ms = self._now_ms + GRACE_MS
        if not is_held:
            self.say_why()

    def say_why(self) -> None:
        """Send the connection.close that was held: all the client had is released."""
        if self._last_word is not None:
            self._send(self._last_word)
            self._last_word = None
            self._answer_closes()
            self._linger()

    def close_ok(self) -> None:
        """All the client held is released: let it go."""
        if self.state is State.PEER_CLOSED:
            self._answer_closes()
            self.state = State.LINGERING
            self._linger()

    @property
    def is_over(self) -> bool:
        """The client has closed and was answered: only its socket is still there."""
        return self.state is State.LINGERING

    def _answer_closes(self) -> None:
        for _ in range(self._closes_owed):
            self._send(spec.ConnectionCloseOk())
        self._closes_owed = 0

    def _linger(self) -> None:
        """Leave the socket to the client for a while."""
        linger_ms = min(self.heartbeat * 1000 or LINGER_MS, LINGER_MS)
        if not self.username or self.assembler.is_lost:
            linger_ms = GRACE_MS
        self._deadline_ms = self._now_ms + linger_ms

    def lost(self) -> None:
        """The socket is gone: let go of what was buffered."""
        self.state = State.CLOSED
        self._deadline_ms = None
        self.held = b""
        self._last_word = None
        self.assembler.forget()

    def _end(self, reason: str) -> None:
        self.lost()
        self.events.append(Closed(reason))

    # Time

    def tick(self, now_ms: int) -> list[Event]:
        """Do what is due: heartbeats, deadlines.

        Args:
            now_ms: Monotonic time.

        Returns:
            `events`.
        """
        self._now_ms = now_ms
        if self._deadline_ms is not None and now_ms >= self._deadline_ms:
            if self._last_word is not None:
                self.say_why()
            else:
                self._end(_OVERDUE.get(self.state, "handshake timeout"))
        elif self.heartbeat and self.state in _BEATS:
            self._beat(now_ms)
        return self.events

    def _beat(self, now_ms: int) -> None:
        if now_ms >= self.wrote_ms + self.heartbeat * 500:
            self.out.append(HEARTBEAT)
            self.wrote_ms = now_ms
        if now_ms < self._check_ms:
            return
        if self._is_paused or self.is_blocked or self.state in _ENDING:
            self._heard_ms = now_ms  # it is not read, or ends soon, whatever it says
        suspect_ms = self._heard_ms + self._suspect_after_ms
        if now_ms < suspect_ms:
            self._check_ms = suspect_ms
        elif self._heard_ms >= self._suspected_ms:
            self._suspected_ms = now_ms
            self._check_ms = now_ms + self.heartbeat * 1000
        else:
            self._end(f"missed heartbeats from client, timeout: {self.heartbeat}s")

    def beat(self) -> None:
        """Write a heartbeat now, if the client gets any.

        The system of a client that is gone answers with a reset, which is noticed though the socket
        is not read; its close lies behind what it had sent.
        """
        if self.heartbeat and self.state in _BEATS:
            self.out.append(HEARTBEAT)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the latest, in monotonic ms; None for never."""
        due = [] if self._deadline_ms is None else [self._deadline_ms]
        if self.heartbeat and self.state in _BEATS:
            due += (self.wrote_ms + self.heartbeat * 500, self._check_ms)
        return min(due, default=None)

    def set_reading(self, *, is_reading: bool) -> None:
        """The caller stopped or resumed reading the socket: silence says nothing meanwhile."""
        self._is_paused = not is_reading
        self._heard_ms = self._now_ms

    # Alarms

    def unblock(self) -> None:
        """Go on with held input (`has_input`): no alarm is on any more."""
        if self.is_blocked:
            self.is_blocked = False
            self._heard_ms = self._now_ms
            self._notify(spec.ConnectionUnblocked())

    def _notify(self, method: spec.Method) -> None:
        if self.state is State.RUNNING and self.capabilities.get("connection.blocked") is True:
            self._send(method)

    # Output

    def take_output(self) -> bytes:
        """All of `out` as one piece; empties it."""
        data = b"".join(self.out)
        self.out.clear()
        return data

    def _send(self, method: spec.Method) -> None:
        self.out.append(method_frame(0, method))

    def _unexpected(self, method: spec.Method) -> AmqpError:
        return AmqpError(
            ReplyCode.CHANNEL_ERROR,
            f"unexpected method in connection state {self.state.name.lower()}",
            method.class_id,
            method.method_id,
        )


_OVERDUE: Final = {
    State.CLOSING: "no close-ok from the client",
    State.LINGERING: "",
    State.SILENT: "login refused",
}


def _check_limit(field: str, least: int, client: int, server: int) -> AmqpError | None:
    """Compare a value of tune-ok with ours; 0 stands for no limit on either side."""
    if client != 0 and client < least:
        relation = f"lower than the minimum allowed value ({least})"
    elif server != 0 and (client == 0 or client > server):
        relation = f"higher than the maximum allowed value ({server})"
    else:
        return None
    unlimited = " (no limit)" if client == 0 else ""
    text = f"negotiated {field} = {client}{unlimited} is {relation}"
    return AmqpError(ReplyCode.NOT_ALLOWED, text, 10, 31)


__all__ = [
    "Authenticate",
    "Closed",
    "ConnectionMachine",
    "Event",
    "MachineSettings",
    "OpenVhost",
    "PeerClosed",
    "State",
    "UpdateSecret",
]
