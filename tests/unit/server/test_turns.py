"""Publishers of messages that are expensive to route take turns, with everybody else between."""

from __future__ import annotations

import asyncio
import itertools
import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.amqp import spec
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import method_frame
from broker.metadata import commands
from broker.server.shares.turns import COSTLY_MS, SHARED_MS, FairTurns, Rota, has_hung_up
from tests.unit.server.rig import Client, Node, turn, virtually
from tests.unit.server.test_flow import Queues, Slow, published
from tests.virtual_loop import VirtualClock

DEAR_MS = 3
KEYS = ["-"] * 600
"""More steps of routing than are taken in one go (`WORK_MAX`)."""


def works(took_ms: float) -> None:
    """Let time pass as if the loop had worked all of it."""
    loop: Any = asyncio.get_running_loop()
    loop._jumping.now_s += took_ms / 1000


class Dear(Slow):
    """Each batch for it takes the loop 3 ms."""

    def publish(self, messages: list[Any], seqnos: list[int] | None, publisher: Any) -> bool:
        works(DEAR_MS)
        return super().publish(messages, seqnos, publisher)


def dear(queue: str = "a") -> bytes:
    """A publish with many keys."""
    message = build_message("", queue, Properties(headers={"CC": KEYS}), b"dear", channel=1)
    return method_frame(1, spec.BasicPublish("", queue)) + message.content


async def passes(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def other_user(node: Node) -> Client:
    node.world.apply(commands.SetPermissions("other", "/", ".*", ".*", ".*"))
    client = await node.client().logged_in(user="other")
    client.send(spec.ConnectionOpen("/"))
    client.send(spec.ChannelOpen(), channel=1)
    await client.heard()
    return client


@given(
    entered=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), unique=True, min_size=1)
)
def test_users_take_turns_and_so_do_the_connections_of_each(entered: list[tuple[str, int]]) -> None:
    rota = Rota()
    given_to: list[tuple[str, int]] = []
    for user, number in entered:
        rota.enter(user, number, lambda who=(user, number): given_to.append(who))  # type: ignore[misc]
    while rota:
        rota.take()()
    assert sorted(given_to) == sorted(entered)
    for user in "abc":
        own = [number for name, number in given_to if name == user]
        assert own == [number for name, number in entered if name == user]
        for other in "abc":
            turns = "".join(name for name, _ in given_to if name in {user, other})
            both = min(turns.count(user), turns.count(other))
            if user < other:
                assert turns[: 2 * both] in {(user + other) * both, (other + user) * both}


@virtually
async def test_expensive_messages_are_carried_out_for_5_ms_at_a_time() -> None:
    node = Queues(a=Dear())
    client, other = await node.client().with_channel(), await other_user(node)
    client.send(dear() * 9)
    assert node.named["a"].count == 2, "6 ms"
    assert not client.wire.is_reading
    other.send(published("b"))
    assert node.named["b"].count == 1, "who is cheap does not wait"
    await passes(2)
    assert node.named["a"].count == 2
    await asyncio.sleep(SHARED_MS / 1000)
    await turn()
    assert node.named["a"].count == 9
    assert client.wire.is_reading
    client.send(dear())
    assert node.named["a"].count == 9, "it was expensive lately: this waits for its turn too"
    await passes(10)
    assert node.named["a"].count == 10
    await asyncio.sleep(COSTLY_MS / 1000)
    client.send(dear())
    assert node.named["a"].count == 11


@virtually
async def test_time_that_other_processes_take_is_not_the_publishers() -> None:
    """A read of 50 new routing keys that took 2 ms in 80 was slowed down for a second."""
    clock = VirtualClock()

    class Preempted(Slow):
        def publish(self, messages: list[Any], seqnos: list[int] | None, publisher: Any) -> bool:
            works(DEAR_MS)
            clock.others_ms += DEAR_MS
            return super().publish(messages, seqnos, publisher)

    node = Queues(a=Preempted())
    node.context.clock = clock
    client = await node.client().with_channel()
    client.send(dear() * 9)
    assert node.named["a"].count == 9
    assert client.wire.is_reading
    client.send(dear())
    assert node.named["a"].count == 10, "it is not expensive: nothing waits for a turn"


@virtually
async def test_the_order_of_expensive_and_cheap_commands_is_kept() -> None:
    node = Queues(a=Dear())
    client = await node.client().with_channel()
    close = method_frame(0, spec.ConnectionClose(200, "bye", 0, 0))
    client.send(dear() * 5 + published("b") + close)
    assert (node.named["a"].count, node.named["b"].count) == (2, 0)
    await asyncio.sleep(0.1)
    assert (node.named["a"].count, node.named["b"].count) == (5, 1)
    assert isinstance((await client.heard())[-1], spec.ConnectionCloseOk)


@virtually
async def test_twenty_expensive_connections_of_one_user_take_no_more_turns_than_one() -> None:
    node = Queues(a=Dear(), b=Dear())
    many = [await node.client().with_channel() for _ in range(20)]
    alone = await other_user(node)
    for client in many:
        client.send(dear("a") * 50)
    alone.send(dear("b") * 50)
    before = node.named["a"].count
    while node.named["b"].count < 50:
        await asyncio.sleep(0.001)
    assert node.named["a"].count - before <= 52


@virtually
async def test_what_a_channel_had_to_hold_back_takes_turns_too() -> None:
    """A declare waits for group 0; the publishes behind it come all at once."""
    node = Queues(a=Dear())
    client = await node.client().with_channel()
    client.send(
        method_frame(1, spec.ExchangeDeclare(exchange="new", type="fanout"))
        + dear() * 40
        + published("b")
    )
    assert node.named["a"].count == 0
    await turn()
    assert 0 < node.named["a"].count < 10
    assert node.named["b"].count == 0
    client.send(published("b"))
    await asyncio.sleep(1)
    assert (node.named["a"].count, node.named["b"].count) == (40, 2)
    assert client.wire.is_reading


@virtually
async def test_turns_leave_as_much_time_as_they_take_while_others_use_the_loop() -> None:
    clock = VirtualClock()
    turns = FairTurns(clock)
    began: list[int] = []

    def work() -> None:
        began.append(clock.monotonic_ms())
        works(20)
        if len(began) < 8:
            turns.enter("user", 1, work)

    turns.others_ms = clock.monotonic_ms()
    turns.enter("user", 1, work)
    await asyncio.sleep(1)
    gaps = [b - a - 20 for a, b in itertools.pairwise(began)]
    assert gaps == [20, 20, 0, 0, 0, 0, 0], "the others are silent for 100 ms then"


@virtually
async def test_a_turn_that_fails_ends_no_other() -> None:
    turns, done = FairTurns(VirtualClock()), []
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, why: failed.append(why))
    turns.enter("user", 1, lambda: done[0])
    turns.enter("user", 2, lambda: done.append("second"))
    await passes(10)
    assert (len(failed), done) == (1, ["second"])


@virtually
async def test_what_a_gone_client_left_is_dropped_if_it_is_expensive() -> None:
    node = Queues(a=Dear())
    client = await node.client().with_channel()
    ours, theirs = socket.socketpair()
    with ours:
        client.wire._extra["socket"] = ours  # type: ignore[attr-defined]
        client.send(dear() * 50)
        theirs.close()
        await passes(10)
        assert node.named["a"].count == 2
        assert client.wire.is_aborted
        assert node.ended == [client.shell]


@virtually
async def test_what_a_gone_client_left_is_carried_out_if_it_is_cheap() -> None:
    node = Queues()
    client = await node.client().with_channel()
    ours, theirs = socket.socketpair()
    with ours:
        client.wire._extra["socket"] = ours  # type: ignore[attr-defined]
        theirs.close()
        client.send(published("a") * 2_000)
        await passes(20)
        assert node.named["a"].count == 2_000


def test_a_closed_socket_is_noticed_though_nobody_reads_it() -> None:
    class Socket(asyncio.Transport):
        pass

    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = Socket({"socket": ours})
        theirs.send(b"unread")
        assert not has_hung_up(transport)
        theirs.shutdown(socket.SHUT_WR)
        assert has_hung_up(transport)
    assert not has_hung_up(transport), "closed here"
    assert not has_hung_up(Socket())
    assert not has_hung_up(None)
