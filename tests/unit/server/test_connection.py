"""What the shell of a connection adds to its cores: bounds, deadlines, the order of the end."""

from __future__ import annotations

import asyncio

import pytest

from broker.amqp import spec
from broker.amqp.connection import State
from broker.amqp.frames import FRAME, HEARTBEAT, PROTOCOL_HEADER, method_frame
from broker.doors.attempts import USER_BURST, WAIT_MS_MAX
from broker.doors.turns import STEPS
from broker.metadata import commands
from broker.server.connection import HALTS_MAX
from broker.server.shares.half_sent import IDLE_MS, PROGRESS_MS
from tests.unit.server.rig import Client, Node, start_ok, turn, virtually

ATTACKER = "192.0.2.1"
LIMIT = "NOT_ALLOWED - connection refused: node connection limit (1) is reached"


def body(size: int, channel: int = 1) -> bytes:
    return FRAME.pack(3, channel, size) + bytes(size) + b"\xce"


def half_sent(size: int, *, channel: int = 1) -> bytes:
    """A publish with half of its body."""
    header = FRAME.pack(2, channel, 14) + b"\0\x3c\0\0" + (2 * size).to_bytes(8) + b"\0\0\xce"
    return method_frame(channel, spec.BasicPublish("", "q")) + header + body(size, channel)


def closes(methods: list[spec.Method]) -> list[tuple[int, str]]:
    found = [each for each in methods if isinstance(each, spec.ConnectionClose)]
    return [(each.reply_code, each.reply_text) for each in found]


async def ticked(client: Client, seconds: int) -> None:
    for _ in range(seconds):
        await asyncio.sleep(1)
        client.shell.tick(client.node.clock.monotonic_ms())


# Who may come in


@virtually
async def test_connection_max_counts_open_connections() -> None:
    """Rows: 1.1 Limits"""
    node = Node(connection_max=1)
    stranger = node.client()  # no more than accepted: takes nobody's place
    first = await node.client().opened()
    second = await node.client().logged_in()
    second.send(spec.ConnectionOpen("/"))
    assert closes(await second.heard()) == [(530, LIMIT)]
    first.send(spec.ConnectionClose(200, "bye"))
    await turn()
    third = await node.client().logged_in()
    third.send(spec.ConnectionOpen("/"))
    assert closes(await third.heard()) == [(530, LIMIT)]  # its socket counts, as in RabbitMQ
    first.wire.close()
    await turn()
    await node.client().opened()
    assert stranger.wire.is_open


@pytest.mark.parametrize(
    ("peer", "user", "is_welcome"),
    [
        ("127.0.0.1", "guest", True),
        ("127.8.8.8", "guest", True),
        ("::1", "guest", True),
        ("::ffff:127.0.0.1", "guest", True),
        ("192.0.2.1", "guest", False),
        ("::ffff:192.0.2.1", "guest", False),
        ("2001:db8::1", "guest", False),
        ("192.0.2.1", "other", True),
    ],
)
@virtually
async def test_guest_comes_from_here_only(peer: str, user: str, is_welcome: bool) -> None:
    """Rows: 1.1 guest loopback only"""
    client = Node().client(peer)
    client.send(PROTOCOL_HEADER)
    await turn()
    client.wire.written = b""
    client.send(start_ok(user, user))
    [answer] = await client.heard()
    if is_welcome:
        assert isinstance(answer, spec.ConnectionTune)
    else:
        assert closes([answer])[0][0] == 403
        assert "localhost" not in closes([answer])[0][1]


@virtually
async def test_a_vhost_without_permission_is_530() -> None:
    """Rows: 1.1 connection.open / vhost"""
    node = Node()
    node.world.apply(commands.AddVhost("theirs"))
    client = await node.client().logged_in()
    client.send(spec.ConnectionOpen("theirs"))
    text = "NOT_ALLOWED - access to vhost 'theirs' refused for user 'guest'"
    assert closes(await client.heard()) == [(530, text)]


async def guess(node: Node, address: str, user: str, password: str = "wrong") -> Client:
    client = node.client(address)
    client.send(PROTOCOL_HEADER, start_ok(user, password))
    await turn()
    return client


def is_let_in(methods: list[spec.Method]) -> bool:
    return any(isinstance(each, spec.ConnectionTune) for each in methods)


@virtually
async def test_guesses_at_a_user_wait_and_then_are_refused_unseen() -> None:
    """The right password among them is refused like the others: who guesses learns nothing."""
    node = Node(loopback_users=frozenset())
    at_once = [await guess(node, ATTACKER, "guest") for _ in range(USER_BURST)]
    assert all([closes(await each.heard()) for each in at_once])
    late = [await guess(node, ATTACKER, "guest") for _ in range(WAIT_MS_MAX // 1000)]
    unseen = await guess(node, ATTACKER, "guest", "guest")
    assert not any([closes(await each.heard()) for each in (*late, unseen)])
    await asyncio.sleep(WAIT_MS_MAX / 1000)
    assert all([closes(await each.heard()) for each in late])
    assert closes(await unseen.heard())[0][0] == 403
    counted = node.context.doors.logins.tally.by_source()
    assert [each["auth_attempts_failed"] for each in counted] == [USER_BURST + 4]


@virtually
async def test_a_right_password_from_elsewhere_is_not_held_up() -> None:
    node = Node(loopback_users=frozenset())
    for _ in range(USER_BURST + 5):
        await guess(node, ATTACKER, "guest")
    elsewhere = await guess(node, "192.0.2.2", "guest", "guest")
    assert is_let_in(await elsewhere.heard())
    neighbour = await guess(node, ATTACKER, "other", "other")
    assert is_let_in(await neighbour.heard())


@virtually
async def test_what_came_behind_a_late_login_is_carried_out() -> None:
    node = Node(loopback_users=frozenset())
    for _ in range(USER_BURST):
        await guess(node, ATTACKER, "guest")
    client = node.client(ATTACKER)
    client.send(
        PROTOCOL_HEADER,
        start_ok("guest", "guest"),
        spec.ConnectionTuneOk(2047, 131_072, 0),
        spec.ConnectionOpen("/"),
    )
    await asyncio.sleep(1)
    found = await client.heard()
    assert any(isinstance(each, spec.ConnectionOpenOk) for each in found), found


@virtually
async def test_failed_logins_of_an_address_have_one_line_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    for number in range(5):
        await guess(node, ATTACKER, f"user{number}")
    await guess(node, "192.0.2.2", "user")
    node.context.doors.tick(0)
    node.context.doors.tick(1_000)
    lines = [each.message for each in caplog.records if "login" in each.message]
    assert len([each for each in lines if "login refused" in each]) == 2
    assert lines[2:] == ["4 more logins of 192.0.2.1 were refused within a second"]


@virtually
async def test_strangers_have_so_many_steps_in_a_turn_of_the_loop() -> None:
    """Each address one before any its second; who is in is not among them."""
    node = Node()
    attackers = [node.client(ATTACKER) for _ in range(STEPS * 2)]
    honest = node.client("192.0.2.2")
    for client in (*attackers, honest):
        client.send(PROTOCOL_HEADER)
    began = [each for each in attackers if each.shell._machine.state is not State.HEADER]
    assert len(began) == STEPS
    assert honest.shell._machine.state is State.HEADER
    await asyncio.sleep(0)
    assert honest.shell._machine.state is State.STARTING
    await turn()
    assert all([await client.heard() for client in attackers])


# Half-sent contents


PIECE = 100_000


def begin(client: Client, size: int, sent: int, channel: int = 1) -> None:
    """Send a part of a large message."""
    header = FRAME.pack(2, channel, 14) + b"\0\x3c\0\0" + size.to_bytes(8) + b"\0\0\xce"
    client.send(method_frame(channel, spec.BasicPublish("", "q")) + header)
    for _ in range(sent // PIECE):
        if client.wire.is_reading:
            client.send(body(PIECE, channel))


def read(clients: list[Client]) -> list[bool]:
    return [client.wire.is_reading for client in clients]


@virtually
async def test_who_holds_most_waits_until_another_has_finished() -> None:
    node = Node(half_sent_bytes=5_000_000)
    clients = [await node.client().with_channel() for _ in range(3)]
    for client in clients:
        begin(client, 2_000_000, 1_900_000)
    assert read(clients) == [True, False, False]
    assert clients[1].shell.state == "flow"
    clients[0].send(body(PIECE))
    assert read(clients) == [True, True, False]
    while clients[1].shell.state == "flow" and not clients[2].wire.is_reading:
        clients[1].send(body(PIECE))
    assert read(clients) == [True, True, True]
    for client in clients:
        assert not closes(await client.heard())


@virtually
async def test_a_half_message_that_stands_still_while_others_wait_is_506() -> None:
    node = Node(half_sent_bytes=5_000_000)
    clients = [await node.client().with_channel() for _ in range(3)]
    for client in clients:
        begin(client, 2_000_000, 1_900_000)
    await ticked(clients[0], 2 * PROGRESS_MS // 1000)
    text = (
        "RESOURCE_ERROR - a message grew by less than half a mebibyte in 5 s while others "
        "waited for its memory"
    )
    assert closes(await clients[0].heard()) == [(506, text)]
    assert clients[1].wire.is_reading


@virtually
async def test_half_sent_bytes_go_with_their_connection() -> None:
    node = Node()
    client = await node.client().with_channel()
    begin(client, 1_000_000, 500_000)
    assert node.context.half_sent.arbiter.held > 500_000
    client.wire.abort()
    await turn()
    assert node.context.half_sent.arbiter.held == 0


@virtually
async def test_more_than_the_whole_budget_is_506() -> None:
    client = await Node(half_sent_bytes=200_000).client().with_channel()
    begin(client, 1_000_000, 200_000)
    text = (
        "RESOURCE_ERROR - the incomplete messages of this connection take more memory than the "
        "node has"
    )
    assert closes(await client.heard()) == [(506, text)]


@virtually
async def test_a_message_left_incomplete_is_506() -> None:
    client = await Node().client().with_channel()
    client.send(half_sent(10))
    for _ in range(IDLE_MS // 1000 - 1):
        await ticked(client, 1)
        client.send(HEARTBEAT)
    assert not closes(await client.heard())
    await ticked(client, 1)
    text = "RESOURCE_ERROR - a message was left incomplete for 60 s"
    assert closes(await client.heard()) == [(506, text)]


@virtually
async def test_a_slow_message_is_borne() -> None:
    client = await Node().client().with_channel()
    client.send(half_sent(10))
    for _ in range(10):
        await ticked(client, IDLE_MS // 1000 - 1)
        client.send(body(1))
    assert not closes(await client.heard())
    assert client.wire.is_open


# Who does not read


@virtually
async def test_a_client_that_does_not_read_has_its_consumers_paused() -> None:
    node = Node()
    client = await consuming(node)
    client.shell.pause_writing()
    client.shell.resume_writing()
    assert node.sink.active == [False, True]


@virtually
async def test_a_client_that_takes_nothing_is_dropped_though_it_beats() -> None:
    node = Node()
    client = await consuming(node, heartbeat=2)
    client.wire.unsent = 1 << 21
    client.shell.pause_writing()
    for _ in range(HALTS_MAX * 2):
        client.send(HEARTBEAT)
        await ticked(client, 1)
    assert client.wire.is_open
    await ticked(client, 2)
    assert client.wire.is_aborted
    assert node.sink.released
    await turn()
    assert node.ended == [client.shell]


@virtually
async def test_a_client_that_reads_slowly_is_borne() -> None:
    client = await consuming(Node(), heartbeat=1)
    client.wire.unsent = 1 << 21
    client.shell.pause_writing()
    for _ in range(20):
        client.send(HEARTBEAT)
        client.wire.unsent -= 100
        await ticked(client, 1)
    assert client.wire.is_open


@virtually
async def test_who_is_silent_and_takes_nothing_lets_its_messages_go_at_once() -> None:
    """Missed heartbeats: what it held goes back before the socket has anything to say."""
    node = Node()
    client = await consuming(node, heartbeat=1)
    client.wire.unsent = 10
    await ticked(client, 4)
    assert node.sink.released
    assert not client.wire.is_open
    assert not client.wire.is_aborted
    await asyncio.sleep(4)
    assert client.wire.is_aborted
    assert node.ended == [client.shell]


async def consuming(node: Node, heartbeat: int = 0) -> Client:
    client = await node.client().with_channel(heartbeat)
    client.send(spec.QueueDeclare("q"), spec.BasicConsume("q", "tag"), channel=1)
    assert isinstance((await client.heard())[-1], spec.BasicConsumeOk)
    return client


# The lease


@virtually
async def test_without_the_lease_a_client_waits_and_then_goes_on() -> None:
    node = Node()
    client = await consuming(node)
    node.is_valid_lease = False
    client.send(half_sent(1) + body(1))
    assert node.sink.count == 0
    assert not client.wire.is_reading
    node.is_valid_lease = True
    node.context.lease_back()
    await turn()
    assert node.sink.count == 1
    assert client.wire.is_reading


@virtually
async def test_the_client_hears_why_when_its_exclusive_queues_are_gone() -> None:
    """So that its next connection may declare them. The wait for group 0 is bounded.

    Rows: 1.1 Close
    """
    node = Node()
    agreed = asyncio.Event()
    propose = node.propose

    async def slowly(command: commands.AnyCommand, /, **_by: object) -> object:
        if isinstance(command, commands.EndConnection):
            await agreed.wait()
        return await propose(command)

    node.propose = slowly  # type: ignore[method-assign]
    first, second = [await node.client().with_channel() for _ in range(2)]
    for client, name in ((first, "one"), (second, "two")):
        client.send(spec.QueueDeclare(queue=name, exclusive=True), channel=1)
        assert isinstance((await client.heard())[-1], spec.QueueDeclareOk)
    first.send(spec.ChannelOpen(), channel=1)
    assert await first.heard() == []
    agreed.set()
    assert closes(await first.heard()) == [(504, "CHANNEL_ERROR - second 'channel.open' seen")]
    assert node.world.catalogue.queue("/", "one") is None

    agreed.clear()
    second.send(spec.ChannelOpen(), channel=1)
    await ticked(second, 3)
    assert [code for code, _ in closes(await second.heard())] == [504]
    await ticked(second, 30)
    assert not second.wire.is_open
