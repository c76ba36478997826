"""Channel 0: the table of states, the limits, the clock.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest

from broker.amqp import methods, spec
from broker.amqp.assembler import Command, Fault, MethodCommand, Publish
from broker.amqp.connection import (
    CAPABILITIES,
    GRACE_MS,
    HELD_INPUT_MAX,
    LINGER_INPUT_MAX,
    LINGER_MS,
    STRANGERS_INPUT_MAX,
    Authenticate,
    Closed,
    ConnectionMachine,
    MachineSettings,
    OpenVhost,
    PeerClosed,
    State,
)
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import FRAME, HEARTBEAT, PROTOCOL_HEADER, method_frame
from broker.errors import AmqpError, ReplyCode

START_MS = 1_000
START_OK = spec.ConnectionStartOk(
    {"capabilities": {"authentication_failure_close": True, "connection.blocked": True}},
    "PLAIN",
    b"\0guest\0secret",
    "en_US",
)
TUNE_OK = spec.ConnectionTuneOk(2047, 131_072, 60)
OPEN = spec.ConnectionOpen("/")
CLOSE = spec.ConnectionClose(200, "bye")
DECLARE = method_frame(1, spec.QueueDeclare("q"))
PUBLISH = (
    method_frame(1, spec.BasicPublish("", "q"))
    + build_message("", "q", Properties(), b"hello").content
)


class Client:
    """A machine and what a client and a shell would do with it."""

    def __init__(self, settings: MachineSettings | None = None) -> None:
        self.machine = ConnectionMachine(
            settings or MachineSettings(), {"product": "RabbitMQ", "version": "3.13.7"}, START_MS
        )
        self.now_ms = START_MS

    def send(self, *what: spec.Method | bytes) -> list[Command]:
        raw = b"".join(each if isinstance(each, bytes) else method_frame(0, each) for each in what)
        return self.machine.receive(raw, self.now_ms)

    def at(self, ms: int) -> None:
        self.now_ms = START_MS + ms
        self.machine.tick(self.now_ms)

    def heard(self) -> list[spec.Method | bytes]:
        """What came out since, methods decoded."""
        data, found = self.machine.take_output(), []
        while data:
            if data.startswith(b"AMQP"):
                found.append(data[:8])
                data = data[8:]
                continue
            end = FRAME.unpack_from(data)[2] + 8
            kind, payload = data[0], data[7 : end - 1]
            found.append(methods.decode(payload) if kind == 1 else data[:end])
            data = data[end:]
        return found

    def events(self) -> list[object]:
        found: list[object] = list(self.machine.events)
        self.machine.events.clear()
        return found

    def closed_with(self) -> tuple[int, str]:
        [close] = [each for each in self.heard() if isinstance(each, spec.ConnectionClose)]
        assert self.machine.state is State.CLOSING
        return close.reply_code, close.reply_text


def client_in(state: State) -> Client:
    """A client whose machine has come to `state` the usual way, its output and events read."""
    client = Client()
    steps = [
        (State.HEADER, lambda: client.send(PROTOCOL_HEADER)),
        (State.STARTING, lambda: client.send(START_OK)),
        (State.AUTHENTICATING, lambda: client.machine.authenticated("guest")),
        (State.TUNING, lambda: client.send(TUNE_OK)),
        (State.OPENING, lambda: client.send(OPEN)),
        (State.VHOST, client.machine.opened),
    ]
    for at, step in steps:
        if state is at:
            break
        step()
    if state in (State.PEER_CLOSED, State.LINGERING):
        client.send(CLOSE)
        if state is State.LINGERING:
            client.machine.close_ok()
    elif state in (State.CLOSING, State.CLOSED):
        client.machine.close(AmqpError(ReplyCode.CONNECTION_FORCED, "stop"))
        if state is State.CLOSED:
            client.send(spec.ConnectionCloseOk())
    assert client.machine.state is state
    client.machine.take_output()
    client.machine.events.clear()
    return client


# The way in


def test_a_whole_handshake() -> None:
    """Rows: 1.1 connection.start; 1.1 Server capabilities; 1.1 connection.tune"""
    client = Client()
    client.send(PROTOCOL_HEADER)
    [start] = client.heard()
    assert isinstance(start, spec.ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert (start.mechanisms, start.locales) == (b"PLAIN AMQPLAIN", b"en_US")
    assert start.server_properties == {
        "capabilities": CAPABILITIES,
        "product": "RabbitMQ",
        "version": "3.13.7",
    }
    client.send(START_OK)
    assert client.events() == [Authenticate("PLAIN", "guest", "secret")]
    client.machine.authenticated("guest")
    assert client.heard() == [spec.ConnectionTune(2047, 131_072, 60)]
    client.send(TUNE_OK, OPEN)
    assert client.events() == [OpenVhost("/")]
    client.machine.opened()
    assert client.heard() == [spec.ConnectionOpenOk()]
    machine = client.machine
    assert (machine.state, machine.username, machine.vhost) == (State.RUNNING, "guest", "/")
    assert (machine.frame_max, machine.channel_max, machine.heartbeat) == (131_072, 2047, 60)
    assert machine.capabilities["connection.blocked"] is True
    [command] = client.send(PUBLISH)
    assert isinstance(command, Publish)


def test_byte_by_byte_is_the_same() -> None:
    client = Client()
    for octet in PROTOCOL_HEADER + method_frame(0, START_OK):
        client.send(bytes((octet,)))
    assert client.events() == [Authenticate("PLAIN", "guest", "secret")]


@pytest.mark.parametrize("state", [State.STARTING, State.TUNING, State.OPENING])
def test_half_a_frame_cannot_be_read_on(state: State) -> None:
    """Who reads on for as long as there is input must not spin on it."""
    client = client_in(state)
    client.send(method_frame(0, TUNE_OK)[:-1])
    assert not client.machine.has_input


def test_what_comes_early_waits_for_the_caller() -> None:
    client = client_in(State.TUNING)
    assert client.send(TUNE_OK, OPEN, DECLARE, PUBLISH[:-3]) == []
    assert not client.machine.has_input
    client.machine.opened()
    assert client.machine.has_input
    assert [command.channel for command in client.send()] == [1]
    assert not client.machine.has_input
    [publish] = client.send(PUBLISH[-3:])
    assert isinstance(publish, Publish)


@pytest.mark.parametrize(
    ("state", "most"),
    [(State.AUTHENTICATING, STRANGERS_INPUT_MAX), (State.VHOST, HELD_INPUT_MAX)],
)
def test_early_input_is_bounded(state: State, most: int) -> None:
    client = client_in(state)
    client.send(bytes(most))
    assert client.machine.state is state
    client.send(b"x")
    assert client.machine.state is State.CLOSED


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n",
        b"AMQP\x00\x00\x09\x02",
        b"AMQP\x01\x01\x08\x00",
        b"AMQP\x01\x01\x09\x01",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
    ],
    ids=["1 http", "2 version", "4 0-8", "4 0-8 too", "5 AMQP 1.0", "5 SASL"],
)
def test_other_protocols_hear_ours(first: bytes) -> None:
    """Rows: 1.1 Protocol header"""
    client = Client()
    client.send(first)
    assert client.heard() == [PROTOCOL_HEADER]
    [closed] = client.events()
    assert isinstance(closed, Closed)


def test_0_9_is_taken_as_0_9_1() -> None:
    """Case 3.

    Rows: 1.1 Protocol header
    """
    client = Client()
    client.send(b"AMQP\x01\x01\x00\x09")
    assert isinstance(client.heard()[0], spec.ConnectionStart)


def test_tls_on_a_plain_port_is_dropped() -> None:
    """Case 6."""
    client = Client()
    client.send(b"\x16\x03\x01\x02\x00")
    assert client.heard() == []
    assert client.events() == [Closed("TLS handshake on a listener without TLS")]


@pytest.mark.parametrize(
    "state",
    [
        State.HEADER,
        State.STARTING,
        State.AUTHENTICATING,
        State.TUNING,
        State.OPENING,
        State.VHOST,
    ],
)
def test_the_handshake_has_ten_seconds_in_all(state: State) -> None:
    """Cases 7 and 8: the deadline is absolute, whatever drips in.

    Rows: 1.1 Handshake timeout
    """
    client = client_in(state)
    assert client.machine.next_deadline_ms() == START_MS + 10_000
    for second in range(1, 10):
        client.at(second * 1000)
        client.send(b"")
    assert client.events() == []
    client.at(10_000)
    assert client.events() == [Closed("handshake timeout")]


def test_early_frames_are_small() -> None:
    """Case 9."""
    client = client_in(State.STARTING)
    client.send(FRAME.pack(1, 0, 4097))
    code, text = client.closed_with()
    assert (code, text[:11]) == (501, "FRAME_ERROR")
    assert "{frame_too_large,4097,4088}" in text


@pytest.mark.parametrize("state", [State.STARTING, State.TUNING, State.OPENING])
def test_channels_wait_for_open(state: State) -> None:
    """Case 17."""
    client = client_in(state)
    assert client.send(DECLARE) == []
    assert client.closed_with()[0] == 505


UNEXPECTED = [
    (State.STARTING, TUNE_OK),
    (State.STARTING, OPEN),
    (State.STARTING, spec.ConnectionSecureOk()),
    (State.TUNING, START_OK),
    (State.TUNING, OPEN),
    (State.OPENING, TUNE_OK),
    (State.OPENING, spec.QueueDeclare("q")),
]


@pytest.mark.parametrize(("state", "method"), UNEXPECTED)
def test_methods_in_the_wrong_state(state: State, method: spec.Method) -> None:
    """Case 18.

    Rows: 1.1 Channel state errors
    """
    client = client_in(state)
    client.send(method)
    name = state.name.lower()
    assert client.closed_with() == (
        504,
        f"CHANNEL_ERROR - unexpected method in connection state {name}",
    )


@pytest.mark.parametrize(
    "method",
    [
        START_OK,
        TUNE_OK,
        OPEN,
        spec.QueueDeclare("q"),
        spec.BasicAck(1),
        spec.BasicPublish("", "q"),
        spec.ConnectionCloseOk(),
    ],
    ids=lambda method: type(method).__name__,
)
def test_wrong_methods_of_channel_zero_while_running(method: spec.Method) -> None:
    """Case 18: the fault follows the commands before it, and nothing follows the fault."""
    client = client_in(State.RUNNING)
    first, fault = client.send(DECLARE, method, DECLARE)
    assert isinstance(first, MethodCommand)
    assert isinstance(fault, Fault)
    assert (fault.channel, fault.error.code) == (0, ReplyCode.CHANNEL_ERROR)
    assert fault.error.text == "unexpected method in connection state running"
    assert (fault.error.class_id, fault.error.method_id) == (method.class_id, method.method_id)
    assert client.send(DECLARE) == []


# Login


@pytest.mark.parametrize(
    ("mechanism", "response", "code"),
    [("EXTERNAL", b"", 503), ("PLAIN", b"guest", 502), ("PLAIN", b"\0a\0b\0c", 502)],
)
def test_broken_logins(mechanism: str, response: bytes, code: int) -> None:
    """Cases 41 and 42.

    Rows: 1.1 SASL PLAIN / AMQPLAIN / EXTERNAL / RABBIT-CR-DEMO
    """
    client = client_in(State.STARTING)
    client.send(spec.ConnectionStartOk({}, mechanism, response, "en_US"))
    assert client.closed_with()[0] == code


def test_refused_logins_are_told_who_can_hear_it() -> None:
    """Case 43.

    Rows: 1.1 Login failure; 1.1 Client capabilities honoured
    """
    client = client_in(State.AUTHENTICATING)
    client.machine.refused("Login was refused")
    assert client.closed_with() == (403, "ACCESS_REFUSED - Login was refused")


def test_refused_logins_without_the_capability_end_late_and_silent() -> None:
    """Rows: 1.1 Login failure; 1.1 Client capabilities honoured"""
    client = client_in(State.STARTING)
    client.send(spec.ConnectionStartOk({}, "PLAIN", b"\0a\0b", "en_US"))
    client.machine.events.clear()
    client.machine.refused("Login was refused")
    client.send(OPEN)
    assert (client.heard(), client.events()) == ([], [])
    client.at(GRACE_MS)
    assert (client.heard(), client.events()) == ([], [Closed("login refused")])


# Limits


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "text"),
    [
        (
            0,
            131_072,
            "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
        ),
        (2048, 131_072, "channel_max = 2048 is higher than the maximum allowed value (2047)"),
        (2047, 4095, "frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (2047, 131_073, "frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (2047, 0, "frame_max = 0 (no limit) is higher than the maximum allowed value (131072)"),
    ],
)
def test_limits_the_server_does_not_grant(channel_max: int, frame_max: int, text: str) -> None:
    """Cases 47 and 48.

    Rows: 1.1 tune-ok validation
    """
    client = client_in(State.TUNING)
    client.send(spec.ConnectionTuneOk(channel_max, frame_max, 60))
    assert client.closed_with() == (530, f"NOT_ALLOWED - negotiated {text}")


def test_the_clients_limits_are_final() -> None:
    """Rows: 1.1 tune-ok validation"""
    client = client_in(State.TUNING)
    client.send(spec.ConnectionTuneOk(10, 4096, 0), OPEN)
    client.machine.opened()
    machine = client.machine
    assert (machine.channel_max, machine.frame_max, machine.heartbeat) == (10, 4096, 0)
    assert machine.next_deadline_ms() is None
    [command] = client.send(method_frame(65_535, spec.ChannelOpen()))
    assert command == MethodCommand(65_535, spec.ChannelOpen())  # numbers have no limit


def test_a_vhost_that_is_refused() -> None:
    """Case 46."""
    client = client_in(State.VHOST)
    client.machine.fail(AmqpError(ReplyCode.NOT_ALLOWED, "vhost x not found", 10, 40))
    assert client.closed_with() == (530, "NOT_ALLOWED - vhost x not found")


# Heartbeats


def test_heartbeats_go_out_after_half_the_interval_of_silence() -> None:
    """Rows: 1.1 Heartbeat"""
    client = client_in(State.RUNNING)
    client.at(29_999)
    assert client.heard() == []
    client.at(30_000)
    assert client.heard() == [HEARTBEAT]
    client.at(59_999)
    assert client.heard() == []
    client.machine.wrote_ms = START_MS + 50_000
    client.at(79_999)
    assert client.heard() == []


def ticked(client: Client, start_ms: int, end_ms: int, step_ms: int) -> int:
    """Tick until the connection ends; returns when it did, else `end_ms`."""
    for now_ms in range(start_ms, end_ms, step_ms):
        client.at(now_ms)
        if client.events():
            return now_ms
    return end_ms


@pytest.mark.parametrize(("heard_ms", "step_ms"), [(0, 10), (999, 10), (30_300, 700), (1, 1000)])
def test_silence_for_two_to_three_intervals_ends_the_connection(
    heard_ms: int, step_ms: int
) -> None:
    """Case 40. Half an interval from both bounds, but for what ticks are late.

    Rows: 1.1 Heartbeat
    """
    client = client_in(State.RUNNING)
    ticked(client, 0, heard_ms + 1, step_ms)
    client.at(heard_ms)
    client.send(HEARTBEAT)
    ended_ms = ticked(client, heard_ms, heard_ms + 200_000, step_ms)
    assert 150_000 <= ended_ms - heard_ms <= 150_000 + 2 * step_ms


def test_a_node_that_stood_still_gives_its_clients_another_interval() -> None:
    """What they sent meanwhile lies unread in their sockets."""
    client = client_in(State.RUNNING)
    client.at(59_000)
    client.at(400_000)
    assert client.events() == []
    client.send(HEARTBEAT)
    client.at(480_000)
    assert client.events() == []
    client.at(900_000)  # and again
    assert client.events() == []
    client.at(900_000 + 59_999)
    assert client.events() == []
    client.at(900_000 + 60_000)
    assert client.events() == [Closed("missed heartbeats from client, timeout: 60s")]


def test_anything_received_counts_as_life() -> None:
    client = client_in(State.RUNNING)
    for minute in range(1, 10):
        client.at(minute * 60_000)
        client.send(HEARTBEAT)
    assert client.events() == []


def test_silence_says_nothing_while_the_socket_is_not_read() -> None:
    client = client_in(State.RUNNING)
    client.machine.set_reading(is_reading=False)
    client.at(60_000)
    client.at(120_000)
    client.machine.alarm = "low on memory"
    client.machine.set_reading(is_reading=True)
    client.send(PUBLISH)
    assert client.machine.is_blocked
    for minute in range(3, 9):
        client.at(minute * 60_000)
    assert client.events() == []
    client.machine.unblock()
    for minute in range(9, 12):
        client.at(minute * 60_000)
    assert client.events() == [Closed("missed heartbeats from client, timeout: 60s")]


# Alarms


def test_blocked_is_told_once_to_who_can_hear_it() -> None:
    client = client_in(State.RUNNING)
    client.machine.alarm = "low on disk"
    assert len(client.send(DECLARE)) == 1
    assert client.heard() == []
    client.send(PUBLISH)
    client.send(PUBLISH)
    client.machine.unblock()
    client.machine.unblock()
    assert client.heard() == [
        spec.ConnectionBlocked("low on disk"),
        spec.ConnectionUnblocked(),
    ]
    client.machine.capabilities = {}
    client.send(PUBLISH)
    assert client.machine.is_blocked
    assert client.heard() == []


EMPTY = (
    method_frame(1, spec.BasicPublish("", "q")) + build_message("", "q", Properties(), b"").content
)


def alarmed(state: State = State.RUNNING) -> Client:
    client = client_in(state)
    client.machine.alarm = "low on memory"
    return client


def kinds(commands: list[Command]) -> list[str]:
    return [type(command).__name__ for command in commands]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_publish_under_an_alarm_is_held_and_all_behind_it(step: int) -> None:
    """Rows: 1.1 connection.blocked / unblocked"""
    client = alarmed()
    data = DECLARE + PUBLISH + DECLARE + PUBLISH + EMPTY
    found: list[Command] = []
    for start in range(0, len(data), step):
        found += client.send(data[start : start + step])
    assert kinds(found) == ["MethodCommand"]
    assert (client.machine.is_blocked, client.machine.has_input) == (True, False)
    assert client.heard() == [spec.ConnectionBlocked("low on memory")]
    client.machine.alarm = ""
    client.machine.unblock()
    assert client.machine.has_input
    assert kinds(client.send()) == ["Publish", "MethodCommand", "Publish", "Publish"]
    assert not client.machine.has_input


def test_a_message_without_body_meets_the_alarm_and_is_carried_out() -> None:
    client = alarmed()
    assert kinds(client.send(EMPTY + DECLARE)) == ["Publish"]
    assert client.machine.is_blocked


@pytest.mark.parametrize(("first", "last"), [(b"he", b"llo"), (b"", b"hello")])
def test_the_last_piece_of_a_message_completes_it(first: bytes, last: bytes) -> None:
    """The alarm came in its middle."""
    client = client_in(State.RUNNING)
    client.send(PUBLISH[: -len(b"hello") - 8])
    client.machine.alarm = "low on memory"
    if first:
        assert client.send(FRAME.pack(3, 1, len(first)) + first + b"\xce") == []
        assert client.machine.is_blocked
        client.machine.unblock()
    assert kinds(client.send(FRAME.pack(3, 1, len(last)) + last + b"\xce")) == ["Publish"]
    assert client.machine.is_blocked


def test_the_alarm_changes_no_error_and_no_close() -> None:
    broken = FRAME.pack(9, 1, 0) + b"\xce"
    client = alarmed()
    assert kinds(client.send(DECLARE + broken + PUBLISH)) == ["MethodCommand", "Fault"]
    assert not client.machine.is_blocked
    client = alarmed()
    client.send(CLOSE, PUBLISH, CLOSE)
    assert (client.machine.state, client.machine.is_blocked) == (State.PEER_CLOSED, False)
    client.send()
    client.machine.close_ok()
    assert client.heard() == [spec.ConnectionCloseOk()] * 2


def test_who_is_blocked_and_told_to_go_is_heard() -> None:
    client = alarmed()
    client.send(PUBLISH, DECLARE, spec.ConnectionCloseOk())
    client.machine.close(AmqpError(ReplyCode.CONNECTION_FORCED, "x"))
    assert client.machine.has_input
    client.send()
    assert client.events() == [Closed("")]  # it cannot be told from one sent later


# The way out


def test_the_client_leaves() -> None:
    """Rows: 1.1 Close"""
    client = client_in(State.RUNNING)
    content = build_message("", "", Properties(), bytes(9), channel=2, frame_max=16).content
    client.send(method_frame(2, spec.BasicPublish()), content[:-9])
    assert client.machine.assembler.partial_bytes > 0
    commands = client.send(DECLARE, CLOSE, DECLARE)
    assert [command.channel for command in commands] == [1]
    assert client.machine.assembler.partial_bytes == 0
    [event] = client.events()
    assert isinstance(event, PeerClosed)
    assert (event.code, event.text) == (200, "bye")
    assert client.heard() == []  # exclusive queues go first
    assert client.send(DECLARE) == []
    client.machine.close_ok()
    assert client.heard() == [spec.ConnectionCloseOk()]
    assert (client.machine.state, client.events()) == (State.LINGERING, [])
    client.send(spec.ConnectionCloseOk())
    assert client.events() == [Closed("")]


def test_closes_before_the_first_is_answered_are_answered_with_it() -> None:
    """Rows: 1.1 Close"""
    client = client_in(State.RUNNING)
    client.send(CLOSE, DECLARE, CLOSE)
    client.send(CLOSE)
    assert client.heard() == []
    client.machine.close_ok()
    assert client.heard() == [spec.ConnectionCloseOk()] * 3


@pytest.mark.parametrize("state", [State.LINGERING, State.CLOSING])
def test_a_close_when_all_is_over_is_answered_and_nothing_else_is(state: State) -> None:
    """Rows: 1.1 Close"""
    client = client_in(state)
    client.send(DECLARE, PUBLISH)
    client.send(FRAME.pack(9, 7, 1) + b"x\xce", TUNE_OK, CLOSE, HEARTBEAT, CLOSE)
    assert client.heard() == [spec.ConnectionCloseOk()] * 2
    assert (client.machine.state, client.events()) == (state, [])


@pytest.mark.parametrize(("heartbeat", "linger_ms"), [(0, 30_000), (5, 5_000), (60, 30_000)])
@pytest.mark.parametrize("closer", ["client", "server"])
def test_the_socket_is_the_clients_for_a_heartbeat_or_30_s(
    closer: str, heartbeat: int, linger_ms: int
) -> None:
    """Rows: 1.1 Close"""
    client = client_in(State.TUNING)
    client.send(spec.ConnectionTuneOk(2047, 131_072, heartbeat), OPEN)
    client.machine.opened()
    if closer == "client":
        client.send(CLOSE)
        client.machine.close_ok()
    else:
        client.machine.close(AmqpError(ReplyCode.NOT_FOUND, "x"))
    client.events()
    client.at(linger_ms - 1)
    assert client.events() == []
    client.at(linger_ms)
    [closed] = client.events()
    assert isinstance(closed, Closed)


@pytest.mark.parametrize("state", [State.LINGERING, State.CLOSING])
def test_what_is_no_frame_any_more_ends_after_a_short_grace(state: State) -> None:
    client = client_in(state)
    client.send(b"\xff" * 20, CLOSE)
    assert client.heard() == []
    client.at(GRACE_MS - 1)
    assert client.events() == []
    client.at(GRACE_MS)
    assert len(client.events()) == 1


@pytest.mark.parametrize("state", [State.PEER_CLOSED, State.LINGERING, State.CLOSING])
def test_what_is_sent_after_the_end_is_bounded(state: State) -> None:
    client = client_in(state)
    piece = HEARTBEAT * (1 << 17)
    for _ in range(LINGER_INPUT_MAX // len(piece)):
        client.send(piece)
    assert client.events() == []
    client.send(HEARTBEAT)
    assert client.events() == [Closed("too much input after connection.close")]
    assert client.machine.state is State.CLOSED


def test_a_stranger_who_is_refused_has_a_short_grace() -> None:
    client = client_in(State.AUTHENTICATING)
    client.machine.refused("no")
    client.at(GRACE_MS)
    assert client.events() == [Closed("no close-ok from the client")]


def test_the_server_closes_and_hears_only_the_end() -> None:
    """Case 37."""
    client = client_in(State.RUNNING)
    error = AmqpError(ReplyCode.UNEXPECTED_FRAME, "why", 60, 40)
    client.machine.close(error)
    client.machine.close(error)
    assert client.heard() == [spec.ConnectionClose(505, "UNEXPECTED_FRAME - why", 60, 40)]
    assert client.send(DECLARE, PUBLISH, TUNE_OK) == []
    assert client.events() == []
    assert client.send(spec.ConnectionCloseOk()) == []
    assert client.events() == [Closed("")]


def test_two_closes_that_cross() -> None:
    client = client_in(State.CLOSING)
    client.send(CLOSE)
    assert client.heard() == [spec.ConnectionCloseOk()]
    client.send(spec.ConnectionCloseOk())
    assert client.events() == [Closed("")]


def test_a_close_that_crosses_a_held_one_is_answered_after_it() -> None:
    client = client_in(State.RUNNING)
    client.machine.close(AmqpError(ReplyCode.NOT_ALLOWED, "x"), is_held=True)
    client.send(CLOSE)
    assert client.heard() == []
    client.at(GRACE_MS)  # what the client held is released no sooner
    assert [type(method) for method in client.heard()] == [
        spec.ConnectionClose,
        spec.ConnectionCloseOk,
    ]
    client.at(GRACE_MS + LINGER_MS)
    assert client.events() == [Closed("no close-ok from the client")]


def test_no_close_ok_in_time() -> None:
    """Case 38.

    Rows: 1.1 Close
    """
    client = client_in(State.CLOSING)
    client.at(LINGER_MS - 1)
    assert client.events() == []
    client.at(LINGER_MS)
    assert client.events() == [Closed("no close-ok from the client")]


@pytest.mark.parametrize("state", [State.STARTING, State.TUNING, State.OPENING])
def test_a_client_may_leave_during_the_handshake(state: State) -> None:
    client = client_in(state)
    client.send(CLOSE)
    assert client.heard() == [spec.ConnectionCloseOk()]
    assert client.events() == [Closed("closed by the client during the handshake")]


def test_a_running_fault_is_handed_on_in_order() -> None:
    client = client_in(State.RUNNING)
    commands = client.send(PUBLISH, FRAME.pack(9, 1, 0) + b"\xce", PUBLISH)
    assert [type(command) for command in commands] == [Publish, Fault]
    assert client.machine.state is State.RUNNING
    fault = commands[-1]
    assert isinstance(fault, Fault)
    client.machine.close(fault.error)
    assert client.closed_with() == (
        501,
        "FRAME_ERROR - type 9, all octets = <<>>: unknown_frame",
    )


def test_commands_pass_as_the_same_list() -> None:
    client = client_in(State.RUNNING)
    commands = client.send(DECLARE, HEARTBEAT)
    assert commands == [MethodCommand(1, spec.QueueDeclare("q"))]


@pytest.mark.parametrize("state", [State.CLOSED, State.PEER_CLOSED, State.LINGERING, State.CLOSING])
def test_late_answers_of_the_caller_are_ignored(state: State) -> None:
    client = client_in(state)
    machine = client.machine
    machine.authenticated("x")
    machine.refused("x")
    machine.opened()
    machine.fail(AmqpError(ReplyCode.NOT_ALLOWED, "x"))
    machine.alarm = "x"
    machine.receive(PUBLISH, START_MS)
    assert (machine.state, client.heard(), client.events()) == (state, [], [])


@pytest.mark.parametrize("state", list(State))
def test_no_state_raises_for_any_input(state: State) -> None:
    if state is State.SILENT:
        pytest.skip("entered by a refused login only")
    for what in (b"", b"\0" * 50, PUBLISH, DECLARE, PROTOCOL_HEADER, HEARTBEAT, b"\xff" * 9):
        client_in(state).send(what)
    for method in spec.METHODS.values():
        client_in(state).send(method())


@pytest.mark.parametrize("state", [State.AUTHENTICATING, State.RUNNING])
def test_a_lost_connection_lets_go_of_its_buffers(state: State) -> None:
    client = client_in(state)
    client.send(PUBLISH[:-3])
    client.machine.lost()
    assert client.machine.assembler.partial_bytes == 0
    assert not client.machine.has_input
    assert client.send(PUBLISH) == []
    assert client.machine.next_deadline_ms() is None
