"""One AMQP client's socket: bytes to the connection machine, commands to the session, effects out.

An `asyncio.Protocol`, so a socket read is one call: parse the chunk, run the session once, hand its
effects to queues, mark the connection for writing. Nothing here awaits.

Back-pressure, both ways: while the client does not read (`pause_writing`) its consumers are paused
at their queues; while the session or a queue is congested, or an alarm stands, the socket is not
read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from broker.amqp.commands import Command
from broker.amqp.connection import (
    GRACE_MS,
    Authenticate,
    Closed,
    ConnectionMachine,
    Event,
    OpenVhost,
    PeerClosed,
    State,
    UpdateSecret,
)
from broker.amqp.shape import NO_SHAPE
from broker.doors.proxy_header import Ends
from broker.errors import AmqpError, ReplyCode
from broker.message import Message
from broker.metadata.commands import EndConnection
from broker.server.connection_facts import ConnectionInfo, machine_settings
from broker.server.context import ServerContext
from broker.server.effect_runner import EffectRunner
from broker.server.entrance.tls import TlsFacts
from broker.server.opening import LoginDialogue, facts_of, session_of
from broker.server.shares.half_sent import IDLE_MS, PROGRESS_MS, HalfSentOf, HalfSentVerdict
from broker.server.shares.turns import SLICE_MS, has_hung_up
from broker.server.sockets.socket_io import FULL_BYTES, Reads, fit
from broker.server.throttle import TURN_COMMANDS_MIN, Throttle, Turn
from broker.session.basic_publish import WORK_MAX, PreparedPublish
from broker.session.effects import Effect
from broker.session.session import Session

_log = logging.getLogger(__name__)

WRITE_HIGH_BYTES = 1024 * 1024
"""Unsent output above which a connection's consumers are paused (docs/bad-input.md case 39)."""

UNTAKEN_BYTES_MAX = 16 * 1024 * 1024
"""Unsent output above which a client's socket is not read: deliveries were paused long before, so
these are answers to what it asks, and who takes none gets no more."""

REPLIES_BYTES_MAX = 64 * 1024 * 1024
"""Unsent output above which a direct reply costs the client its connection: others decide how many
of them come, and nobody would know of one that was dropped."""

CLOSE_WAITS_MS = 10_000
"""How long a client's close waits for what it had asked before."""

FIRST_STEPS_MS_MAX = 2
"""What the first `WORK_MAX` steps of routing in a read take of its slice, at most: 4 us each."""

PRECISE_HEARTBEAT_MAX_S = 5
"""Heartbeat intervals up to this have a timer of their own; for longer ones ticks are exact enough:
two that are a second late each still fall within three intervals."""

HALTS_MAX = 3
"""Heartbeat intervals in which a full socket may stay so (docs/bad-input.md case 39)."""


class AmqpConnection(asyncio.Protocol):
    """The shell of one connection.

    Args:
        context: The node.
        connection_id: Unique within the boot.
        ended: Called once when the socket is gone and everything is released.
        tls: What its TLS handshake settled; None without TLS.
        ends: What a proxy says of the client; None: the socket's own ends count.

    Attributes:
        info: What listings show.
        session: The channels; None before connection.open.
        effect_runner: Of the session.
        is_marked: See `Outbox`.
    """

    __slots__ = (
        "_alarms",
        "_context",
        "_delivered_bytes",
        "_ended",
        "_half_sent",
        "_has_got",
        "_is_cut",
        "_is_glutted",
        "_is_going_on",
        "_is_mute",
        "_is_reading",
        "_is_released",
        "_login",
        "_machine",
        "_prepared",
        "_stalled",
        "_taken",
        "_throttle",
        "_timer",
        "_transport",
        "_turn",
        "effect_runner",
        "info",
        "is_marked",
        "session",
    )

    def __init__(
        self,
        context: ServerContext,
        connection_id: int,
        ended: Callable[[AmqpConnection], None],
        tls: TlsFacts | None = None,
        ends: Ends | None = None,
    ) -> None:
        self.info = ConnectionInfo(connection_id, tls, ends)
        self.session: Session | None = None
        self.is_marked = False
        self._context = context
        self._ended = ended
        self._machine = ConnectionMachine(
            machine_settings(context.settings, tls),
            context.server_properties,
            context.clock.monotonic_ms(),
        )
        self.effect_runner: EffectRunner | None = None
        self._transport: asyncio.Transport | None = None
        self._login = LoginDialogue(context, self.info, self._machine)
        self._alarms = context.alarms
        self._is_reading = True
        self._throttle = Throttle(context.clock, self)
        self._delivered_bytes = 0  # in this turn
        self._has_got = False  # by basic.get, since the last flush
        self._is_glutted = False  # it asks and does not read
        self._stalled: list[Command] = []
        self._turn = Turn()
        self._prepared: PreparedPublish | None = None
        self._is_cut = False  # what is stalled waits for its turn, not for the lease
        self._is_going_on = False
        self._is_mute = False
        self._half_sent = HalfSentOf(context.half_sent, connection_id, self)
        self._taken: tuple[int, int] | None = None  # bytes a slow reader took, and when we looked
        self._is_released = False
        self._timer: asyncio.TimerHandle | None = None  # of a short heartbeat interval

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket; the client speaks first."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if self.info.tls is not None:
            self._transport.set_protocol(Reads(self, self._context.room, is_encrypted=True))
        self.info.connected(self._transport, self._context.clock.now_ms())
        now_ms = self._context.clock.monotonic_ms()
        if not self._context.doors.handshakes.enter(self, self.info.peer_host, now_ms):
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Run one chunk through machine and session; a stranger's waits for its turn."""
        session, prepared, machine = self.session, self._prepared, self._machine
        if session is not None:
            if prepared is None or not self._publish(prepared, data):
                self._receive(data)
                if machine.assembler.shape is not NO_SHAPE:
                    self._prepared = session.prepare(machine.steady_shape, prepared)
            self._context.outbox.flush_if_many()
        elif not self._context.doors.turns.run(self.info.peer_host, partial(self._receive, data)):
            self.pause_reading()  # a flush reads on

    def _publish(self, prepared: PreparedPublish, data: bytes) -> bool:
        """Carry out a read that brings one publish like the last one.

        Returns:
            False if nothing was done: `_receive` does it.
        """
        machine, context, runner = self._machine, self._context, self.effect_runner
        shape, size = prepared.shape, len(data)
        if (
            machine.assembler.shape is not shape
            or self._alarms.reason
            or not self._is_reading  # something is stalled or blocked, and this is behind it
            or size >= FULL_BYTES
            or runner is None
        ):
            return False
        message = shape.single(data)
        now_ms = context.clock.monotonic_ms()
        if message is None or not context.lease.is_valid(now_ms):
            return False
        effect = prepared.publish(message)
        if effect is None:
            return False
        machine.heard(now_ms)
        self.info.received_bytes += size
        self.info.reads += 1
        context.turns.others_ms = now_ms
        runner.publish(effect)
        return True

    def _receive(self, data: bytes) -> None:
        if self._transport is None:
            return  # it was lost while it waited
        size = len(data)
        self.info.received_bytes += size
        self.info.reads += 1
        machine = self._machine
        machine.alarm = self._alarms.reason
        now_ms = self._context.clock.monotonic_ms()
        while True:
            commands = machine.receive(data, now_ms)
            if commands:
                self._handle(commands, now_ms)
                if size >= FULL_BYTES:
                    fit(self._transport, self, self._context.room, size // len(commands))
            if self._stalled:
                break  # what follows waits too
            if machine.events:
                self._run_events()
            if not machine.held or not machine.has_input:
                break
            data = b""
        if machine.assembler.partial_bytes or self._half_sent.held_bytes:
            self._note_half_sent(size, now_ms)
        if machine.is_blocked:
            self.pause_reading()
        self._mark_if_due()

    def _mark_if_due(self) -> None:
        """Have `flush` called if it has something to do: not after a publish without a confirm."""
        session, machine = self.session, self._machine
        is_idle = session is not None and self._is_reading and not (session.out or session.is_due)
        if not is_idle or machine.out or machine.events:
            self._context.outbox.mark(self)

    def _handle(self, commands: list[Command], now_ms: int, *, has_turn: bool = False) -> None:
        session = self.session
        if session is None or session.is_closed:
            return
        if self._stalled or not self._context.lease.is_valid(now_ms):
            self._stalled += commands
            self._context.lease_waiters[self] = None
            self.pause_reading()
            return
        turn = self._turn
        if not has_turn:
            if now_ms < turn.costly_until_ms:
                self._put_off(commands)
                return
            self._context.turns.others_ms = now_ms
        if len(commands) > turn.commands:
            self._put_off(commands[turn.commands :])
            commands = commands[: turn.commands]
        effects = session.handle(commands, now_ms)
        if effects and self.effect_runner is not None:
            self.effect_runner.run(effects)
        if len(commands) >= TURN_COMMANDS_MIN or session.rest or session.work >= WORK_MAX:
            self._end_turn(session, len(commands), now_ms)
        if session.is_congested:
            self.pause_reading()

    def _end_turn(self, session: Session, count: int, now_ms: int) -> None:
        """Go on with expensive messages while the slice lasts; learn what the commands took.

        Not called after a few cheap ones: their time says nothing.

        Args:
            session: Has carried out the commands, but for its `rest`.
            count: Commands.
            now_ms: When the turn began, monotonic milliseconds.
        """
        clock, turn = self._context.clock, self._turn
        took_ms = clock.monotonic_ms() - now_ms
        rest = session.rest
        if rest:
            rest, is_slice_used_up = self._carry_out_rest(session, now_ms, took_ms)
            took_ms = clock.monotonic_ms() - now_ms
        else:
            is_slice_used_up = took_ms >= SLICE_MS and session.work >= WORK_MAX
        if is_slice_used_up:
            turn.used_up(now_ms + took_ms)
        if rest:
            self._put_off(rest)
        turn.took(count - len(rest), took_ms)

    def _carry_out_rest(
        self, session: Session, now_ms: int, took_ms: int
    ) -> tuple[Sequence[Command], bool]:
        """Carry out what the first `WORK_MAX` steps of routing left, until the slice is used up.

        A slice is processor time: a machine that gives the processor to others in the middle of a
        cheap read must not make the client an expensive publisher for a second. The processor's
        clock costs more than the other one, so it is read only when something is left after the
        first `WORK_MAX` steps; those count for at most `FIRST_STEPS_MS_MAX`.

        Args:
            session: Its `rest` is what was left.
            now_ms: When the read began, monotonic milliseconds.
            took_ms: What the first steps took, in milliseconds.

        Returns:
            What is left, and whether the slice is used up by routing.
        """
        clock = self._context.clock
        commands = session.rest
        began_ms = clock.busy_ms() - min(took_ms, FIRST_STEPS_MS_MAX)
        while commands and not self._is_held():
            if clock.busy_ms() - began_ms >= SLICE_MS:
                return commands, True
            self._carry(session.handle(commands, now_ms))
            commands = session.rest
        is_used_up = clock.busy_ms() - began_ms >= SLICE_MS and session.work >= WORK_MAX
        return commands, is_used_up

    def _put_off(self, commands: Sequence[Command]) -> None:
        """Keep what has to wait for the next turn of the loop, before what waits already."""
        self._stalled[:0] = commands
        self._is_cut = True
        self._throttle.note()
        self.pause_reading()
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if self._is_going_on:
            return
        self._is_going_on = True
        user = self._login.user
        if user is not None and self._turn.is_costly(self._context.clock.monotonic_ms()):
            self._context.turns.enter(user.name, self.info.connection_id, self._go_on)
        else:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """The others have had their turn: carry out what was cut off, and what lay behind it."""
        self._is_going_on = False
        if self._transport is None:
            return
        now_ms = self._context.clock.monotonic_ms()
        session = self.session
        if session is not None and session.unfinished:
            self._finish_held(session, now_ms)
        if self._is_held():
            return  # `resume_reading` comes back to it
        if self._turn.is_costly(now_ms) and has_hung_up(self._transport):
            self._drop_unrouted()
            return
        self._is_cut = False
        stalled, self._stalled = self._stalled, []
        self._handle(stalled, now_ms, has_turn=True)
        if not self._stalled:
            self.data_received(b"")

    def _finish_held(self, session: Session, now_ms: int) -> None:
        """Go on with what a channel had held back and what took too long in one turn."""
        self._turn.used_up(now_ms)
        self._carry(session.go_on(now_ms))
        self._context.outbox.mark(self)  # whose flush comes back for more

    def _drop_unrouted(self) -> None:
        """The client of expensive messages is gone: nobody is kept waiting for what it left."""
        why = f"the client is gone, {len(self._stalled)} commands of its last read are dropped"
        self._stalled.clear()
        self._drop(why)
        self.abort()

    def pause_writing(self) -> None:
        """The client reads too slowly: pause its consumers."""
        self._taken = (-1, self._context.clock.monotonic_ms())
        if self.effect_runner is not None:
            self.effect_runner.is_full = True
        if self.session is not None:
            self._carry(self.session.set_active(active=False))

    def resume_writing(self) -> None:
        """The client caught up: go on."""
        self._taken = None
        self._is_glutted = False
        effect_runner = self.effect_runner
        if effect_runner is not None:
            effect_runner.is_full = False
        if self.session is not None and not self._is_mute:
            self._carry(self.session.set_active(active=True))  # may fill the socket again
        if effect_runner is not None:
            effect_runner.go_on()
        self.resume_reading()

    def eof_received(self) -> bool:
        """The client half-closed: the connection is over."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: release everything."""
        if exc is not None:
            _log.debug("connection.lost", extra={"connection": self.info.name, "why": repr(exc)})
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._context.doors.handshakes.leave(self)
        self._context.access.usage.disconnected(self.info.connection_id)
        self._half_sent.leave(self._context.clock.monotonic_ms())
        self._release(None)
        # The parts hold each other: without this, buffers would wait for the garbage collector.
        self._machine.lost()
        self._stalled.clear()
        self._ended(self)

    # For the node

    @property
    def state(self) -> str:
        """The state that listings show: running, blocking, blocked, flow or closing."""
        session = self.session
        if session is None or session.is_closed:
            return "closing"
        if self._machine.is_blocked:
            return "blocked"
        if self._alarms.reason:
            return "blocking"
        return "flow" if self._throttle.is_flow() else "running"

    def channel_state(self, number: int, *, is_closing: bool) -> str:
        """Return the state of a channel that listings show: running, flow or closing.

        Args:
            number: The channel's.
            is_closing: It waits for close-ok.
        """
        if is_closing:
            return "closing"
        return "flow" if self._throttle.is_channel_flow(number) else "running"

    def follow_alarms(self) -> None:
        """Alarms have changed: without one, who is blocked goes on.

        With one, clients are blocked as they publish, by what they send (1.21). One that only
        consumes is read on. A connection that ends is not blocked: its last word has to be heard.

        Source: rabbit_reader.erl, control_throttle/1.
        """
        machine = self._machine
        machine.alarm = self._alarms.reason
        if not machine.alarm and machine.is_blocked:
            machine.unblock()
            self.flush(self._context.clock.monotonic_ms())  # before answers to what was held

    def flush(self, now_ms: int) -> None:
        """Write what gathered in this turn (`Outbox`)."""
        session = self.session
        if self._machine.events and not self._stalled:
            self._run_events()
        out = self._machine.out
        if session is not None:
            if session.is_due:
                session.flush()
                if session.unfinished:
                    self._go_on_soon()
            if session.out and (self._context.lease.is_valid(now_ms) or self._may_speak(now_ms)):
                self._write(session.out, now_ms)
        if out:  # the machine's own frames come last: a close follows what it closes
            self._write(out, now_ms)
        self._delivered_bytes = 0
        if self._has_got and self.effect_runner is not None:
            self._has_got = False
            self.effect_runner.go_on()
        if not self._is_reading:
            self.resume_reading()

    def _write(self, out: list[bytes], now_ms: int) -> None:
        pieces = out[:]
        out.clear()  # first: a full socket may say more here
        transport = self._transport
        if transport is None:
            return
        self._machine.wrote_ms = now_ms
        self.info.writes += 1
        self.info.sent_bytes += self._context.outbox.write(transport, self.info, pieces)
        if self._taken is not None and self._untaken_bytes() > UNTAKEN_BYTES_MAX:
            self._is_glutted = True
            self.pause_reading()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for room in the socket."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _untaken_bytes(self) -> int:
        """Return the unsent bytes of a client that does not read; 0 for one that does."""
        return 0 if self._taken is None else self.unsent_bytes

    def pause_reading(self) -> None:
        """Stop reading the socket."""
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._machine.set_reading(is_reading=False)
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on with what lay here, and read on, if nothing else holds the client back."""
        if self._is_reading or self._is_held():
            return
        if self._is_cut or (self._machine.has_input and not self._stalled):
            self._go_on_soon()
        if self._stalled or self._must_wait() or self._half_sent.is_waiting:
            return
        self._is_reading = True
        self._half_sent.resumed(self._context.clock.monotonic_ms())
        self._machine.set_reading(is_reading=True)
        if self._transport is not None:
            self._transport.resume_reading()

    def wrote(self) -> None:
        """The session may have output: have it written at the end of this turn."""
        self._context.outbox.mark(self)

    def delivered(self, size_bytes: int) -> None:
        """Write at the turn's end, or now: a full socket has to pause its consumers in between."""
        self._delivered_bytes += size_bytes
        if self._delivered_bytes > WRITE_HIGH_BYTES and not self._is_released:
            self._delivered_bytes = 0
            session = self.session
            now_ms = self._context.clock.monotonic_ms()
            if session is not None and session.out and self._may_speak(now_ms):
                self._write(session.out, now_ms)
        self._context.outbox.mark(self)

    def got(self) -> None:
        """Have the next basic.get wait until this one's message is written."""
        self._has_got = True

    def _read_on(self) -> None:
        self._receive(b"")

    def resume(self) -> None:
        """The lease is there: run and write what waited for it (P4)."""
        if self._stalled and not self._is_cut:
            stalled, self._stalled = self._stalled, []
            self._handle(stalled, self._context.clock.monotonic_ms())
            if not self._stalled:
                self._receive(b"")  # what lay behind it
            self._context.outbox.mark(self)  # a flush reads on
        if self._is_mute:
            self._is_mute = False
            if self.session is not None and self._taken is None:
                self._carry(self.session.set_active(active=True))
            self._context.outbox.mark(self)

    def tick(self, now_ms: int) -> None:
        """Heartbeats and deadlines; called about once a second."""
        self._tick_machine(now_ms)
        if self._timer is None and 0 < self._machine.heartbeat <= PRECISE_HEARTBEAT_MAX_S:
            self._set_timer(now_ms)
        if self.session is not None and not self.session.is_closed:
            self._carry(self.session.tick(now_ms))
            self._look_at_half_sent(now_ms)
        self._check_reader(now_ms)
        if self._is_cut and self._turn.is_costly(now_ms):
            self._machine.beat()
        if self._is_reading and self._machine.has_published and self._transport is not None:
            self._throttle.look_at_input(self._transport)
        self._mark_if_due()

    def _tick_machine(self, now_ms: int) -> None:
        self._machine.tick(now_ms)
        if self._machine.events and not self._stalled:
            self._run_events()

    def _set_timer(self, now_ms: int) -> None:
        """Wake for what is due between ticks."""
        due_ms = self._machine.next_deadline_ms()
        if due_ms is not None and self._transport is not None:
            wait_s = max(1, due_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._beat)

    def _beat(self) -> None:
        self._timer = None
        now_ms = self._context.clock.monotonic_ms()
        self._tick_machine(now_ms)
        self._set_timer(now_ms)
        self._context.outbox.mark(self)

    def _note_half_sent(self, size: int, now_ms: int) -> None:
        """Stop where the node has no room for more half-sent messages of the client."""
        verdict = self._half_sent.note(self._machine.assembler, size, now_ms)
        if verdict is HalfSentVerdict.GO_ON:
            return
        if verdict is HalfSentVerdict.WAIT:
            self._throttle.note()
            self.pause_reading()
            return
        text = "the incomplete messages of this connection take more memory than the node has"
        self.fail(AmqpError(ReplyCode.RESOURCE_ERROR, text))

    def _look_at_half_sent(self, now_ms: int) -> None:
        """Close a client that leaves a message incomplete, sooner while others wait for room."""
        half_sent = self._half_sent
        is_read = self._is_reading or half_sent.is_waiting
        if half_sent.look(now_ms, is_read=is_read) is HalfSentVerdict.CLOSE:
            text = (
                f"a message grew by less than half a mebibyte in {PROGRESS_MS // 1000} s while "
                "others waited for its memory"
            )
        elif self._is_reading and half_sent.is_left(now_ms):
            text = f"a message was left incomplete for {IDLE_MS // 1000} s"
        else:
            return
        self.fail(AmqpError(ReplyCode.RESOURCE_ERROR, text))

    def _check_reader(self, now_ms: int) -> None:
        """Drop a client that takes nothing of a full socket, heartbeats or not."""
        if self._taken is None or self._transport is None:
            return
        taken, since_ms = self._taken
        now_taken = self.info.sent_bytes - self._transport.get_write_buffer_size()
        if now_taken != taken or self._machine.is_blocked:
            self._taken = (now_taken, now_ms)  # who is stuck sending can't read either
        elif (
            self.info.heartbeat_s and now_ms - since_ms >= HALTS_MAX * self.info.heartbeat_s * 1000
        ):
            self._drop("the client does not read")
            self.abort()

    def close(self, code: ReplyCode, text: str) -> None:
        """Close in good order: tell the client why, unless it has closed already."""
        if self._machine.is_over and self._transport is not None:
            self._transport.close()
        else:
            self.fail(AmqpError(code, text))

    def fail(self, error: AmqpError) -> None:
        """End the connection with a hard error; the machine ignores what comes after.

        The client hears of it when its exclusive queues are gone, so that its next connection can
        declare them (as rabbit_reader: close_connection, then send). A node that stops may not
        live to see that.
        """
        why = {"connection": self.info.name, "code": int(error.code), "text": error.text}
        _log.warning("connection.closed_by_server", extra=why)
        self._machine.close(error, is_held=error.code is not ReplyCode.CONNECTION_FORCED)
        self._half_sent.leave(self._context.clock.monotonic_ms())
        self._release(self._machine.say_why)
        self._context.outbox.mark(self)

    def abort(self) -> None:
        """Drop the socket now."""
        if self._transport is not None:
            self._transport.abort()

    def deliver_reply(self, channel: int, key: str, message: Message) -> None:
        """Hand a direct reply to the channel that waits for it."""
        if self._untaken_bytes() > REPLIES_BYTES_MAX:
            self._drop("the client does not read its replies")
            self.abort()
        elif self.session is not None:
            self.session.deliver_reply(channel, key, message)
            self._context.outbox.mark(self)

    # Parts

    def _may_speak(self, now_ms: int) -> bool:
        """Without the lease nothing is confirmed or delivered, by a last word neither (P4)."""
        session = self.session
        if session is None or self._context.lease.is_valid(now_ms):
            return True
        if self._is_released:
            session.out.clear()
        elif not self._is_mute:
            self._is_mute = True
            self._context.lease_waiters[self] = None
            self._carry(session.set_active(active=False))  # what they get would pile up here
        return False

    def _carry(self, effects: list[Effect]) -> None:
        if effects and self.effect_runner is not None:
            self.effect_runner.run(effects)

    def _run_events(self) -> None:
        events = self._machine.events
        while events and not self._is_early(events[0]):  # else `flush` comes back to it
            event = events.pop(0)
            if isinstance(event, Authenticate):
                self._login.ask(event, self._read_on)
            elif isinstance(event, OpenVhost):
                self._open(event.vhost)
            elif isinstance(event, UpdateSecret):
                self._update_secret(event.reason)
            elif isinstance(event, PeerClosed):
                self._release(self._machine.close_ok)
            elif isinstance(event, Closed):
                self._drop(event.reason)

    def _is_early(self, event: Event) -> bool:
        """True if a client's close is behind what it sent before, which is to be done first."""
        if type(event) is not PeerClosed or self.session is None or not self.session.has_held:
            return False
        return self._context.clock.monotonic_ms() - event.at_ms < CLOSE_WAITS_MS

    def _open(self, vhost: str) -> None:
        context, user = self._context, self._login.user
        assert user is not None  # the machine opens after authentication only
        self._half_sent.opened(user.name)
        most = context.settings.connection_max
        refusal = context.access.opening_refusal(user.name, vhost, most)
        if refusal is not None:
            self._machine.fail(AmqpError(refusal.code, refusal.text, 10, 40))
            return
        facts = facts_of(context, self.info, self._machine, user, vhost)
        self.session = session_of(context, facts)
        self.effect_runner = EffectRunner(context, self.session, self, self._throttle)
        self.effect_runner.is_full = self._taken is not None
        self.info.opened(facts, self._machine)
        if context.events.is_watched:
            headers = self.info.event_headers(facts)
            context.events.publish("connection.created", headers, user.name)
        self._machine.opened()
        context.doors.handshakes.leave(self)
        context.access.usage.connected(self.info.connection_id, vhost, user.name)

    def _update_secret(self, reason: str) -> None:
        """Users of our own database have no secret that ends; their rights are looked at again."""
        session, user = self.session, self._login.user
        if session is None or user is None or session.is_closed:
            return
        if self._context.catalogue.user(user.name) is None:
            _log.error("Secret update was refused for user '%s': no such user", user.name)
            text = "New secret was refused by one of the backends"
            self.fail(AmqpError(ReplyCode.NOT_ALLOWED, text, 10, 70))
            return
        facts = {"connection": self.info.name, "user": user.name, "why": reason}
        _log.info("connection.secret_updated", extra=facts)
        self._carry(session.check_rights())
        self._machine.secret_updated()

    def _release(self, then: Callable[[], None] | None) -> None:
        """Release all the session holds; exclusive queues go before `then` runs.

        So do auto-delete queues whose last consumers were here.
        """
        session = self.session
        if session is None or self._is_released:
            if then is not None:
                then()
            return
        self._is_released = True
        self._stalled.clear()  # or its end would wait for a lease that may not come
        if then is not None and self.effect_runner is not None:
            then = self.effect_runner.after_consumers(then)
        self._carry(session.close_channels())
        if self._context.catalogue.queues_of(session.owner):
            self._context.spawn(self._delete_owned(session.owner, then))
        elif then is not None:
            then()

    async def _delete_owned(self, owner: str, then: Callable[[], None] | None) -> None:
        await self._context.events.propose(EndConnection(owner), self.info.actor)
        if then is not None:
            then()
            self._context.outbox.mark(self)

    def _drop(self, reason: str) -> None:
        if reason:
            # Port scans and health checks say nothing, and nobody wants to read of them.
            level = logging.INFO if self.info.received_bytes else logging.DEBUG
            where = {"connection": self.info.name, "why": reason}
            _log.log(level, "connection.dropped", extra=where)
        self._release(None)
        self.flush(self._context.clock.monotonic_ms())
        self._context.outbox.submit()
        if self._transport is None:
            return
        self._transport.close()
        if self._transport.get_write_buffer_size():  # a peer that is gone never takes it
            asyncio.get_running_loop().call_later(GRACE_MS / 1000, self.abort)

    def _is_held(self) -> bool:
        """Nothing of the client's is carried out: queues, its channels or its socket are full."""
        session = self.session
        is_congested = session is not None and session.is_congested
        return is_congested or self._throttle.is_waiting or self._is_glutted

    def _must_wait(self) -> bool:
        """Blocked by an alarm; a client that is told to go may still answer."""
        return self._machine.is_blocked and self._machine.state is State.RUNNING
