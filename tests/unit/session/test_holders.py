"""An operator gives messages back and cancels consumers behind their client's back."""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.assembler import Ack, Command
from broker.fifo.commands import Discard, Requeue, Settle
from broker.session.holders.acts import CancelConsumer, GiveBack
from tests.unit.session.rig import Client, World, command, commands_of, publish

UNKNOWN = "unknown delivery tag"


def holding(world: World, *, cancel_notify: bool = True) -> Client:
    """Consumer "c" holds the messages 1 to 3 of 4."""
    client = Client(world, cancel_notify=cancel_notify).open()
    client.call(spec.QueueDeclare(queue="q"))
    client.feed(*[publish(body=b"%d" % n) for n in range(1, 5)])
    client.call(spec.BasicQos(prefetch_count=3))
    assert len(client.call(spec.BasicConsume(queue="q", consumer_tag="c"))) == 4
    world.log.clear()
    return client


def other(world: World) -> Client:
    """A second consumer of the queue."""
    client = Client(world, 2).open()
    client.call(spec.BasicQos(prefetch_count=10))
    assert bodies(client.call(spec.BasicConsume(queue="q", consumer_tag="other"))) == ["'4'"]
    return client


def uid(world: World) -> int:
    (found,) = world.fifos
    return found


class Asker:
    """Who waits for the answers of queues."""

    def __init__(self) -> None:
        self.answers: list[object] = []

    def came(self, result: object, /) -> None:
        self.answers.append(result)


def give_back(client: Client, *tags: int, of: str = "c") -> int:
    """What an operator's request comes to: of some tags, or of all."""
    (channel,) = client.session.channels()
    only = frozenset(tags) if tags else None
    asker = Asker()
    step = GiveBack(uid(client.world), of, channel.next_tag - 1, only, asker)
    given, effects = client.session.act(channel, step, 0)
    client.world.run(client, effects)
    assert client.world.is_held or len(asker.answers) == given.requests
    return given.messages


def cancel(client: Client, tag: str = "c") -> Asker | None:
    """Who waits for the answer; None if there is nothing to cancel."""
    (channel,) = client.session.channels()
    asker = Asker()
    step = CancelConsumer(uid(client.world), tag, asker)
    given, effects = client.session.act(channel, step, 0)
    client.world.run(client, effects)
    return asker if given.requests else None


def bodies(lines: list[str]) -> list[str]:
    return [line.rsplit(" ", 1)[1] for line in lines if "deliver" in line]


def test_what_is_given_back_goes_to_others_as_redelivered() -> None:
    world = World()
    client = holding(world)
    taker = other(world)
    cancel(client)
    assert give_back(client) == 3
    lines = taker.take()
    assert bodies(lines) == ["'1'", "'2'", "'3'"]
    assert all(" redelivered " in line for line in lines)
    assert give_back(client) == 0


def test_some_are_given_back_and_the_others_stay() -> None:
    client = holding(World())
    cancel(client)
    assert give_back(client, 2, 77) == 1
    assert [each.numbers for each in commands_of(client.world.log, Requeue)] == [[2]]
    client.take()
    assert client.feed(Ack(1, 1, False), Ack(1, 3, False)) == []


@pytest.mark.parametrize(
    "late",
    [
        Ack(1, 2, False),
        command(spec.BasicNack(delivery_tag=2, requeue=True)),
        command(spec.BasicNack(delivery_tag=2)),
        command(spec.BasicReject(delivery_tag=2)),
        command(spec.BasicReject(delivery_tag=2, requeue=True)),
    ],
)
@pytest.mark.parametrize("is_transactional", [False, True])
def test_who_settles_it_later_hears_no_error_and_settles_nothing(
    late: Command, *, is_transactional: bool
) -> None:
    client = holding(World())
    if is_transactional:
        client.call(spec.TxSelect())
    cancel(client)
    give_back(client, 2)
    client.take()
    client.world.log.clear()
    ends = [command(spec.TxCommit())] if is_transactional else []
    assert client.feed(late, *ends) in ([], ["1 tx.commit-ok"])
    assert client.feed(late, *ends) in ([], ["1 tx.commit-ok"])  # and once more
    assert commands_of(client.world.log, Settle, Requeue, Discard) == []


def test_multiple_means_the_others_up_to_a_tag_that_was_given_back() -> None:
    client = holding(World())
    cancel(client)
    give_back(client, 2)
    client.take()
    client.world.log.clear()
    assert client.feed(Ack(1, 2, True)) == []
    assert [each.numbers for each in commands_of(client.world.log, Settle)] == [[1]]
    assert UNKNOWN in client.feed(Ack(1, 1, False))[0]  # which it has acknowledged: as ever


def test_a_consumer_that_goes_on_gets_it_again_under_a_new_tag() -> None:
    client = holding(World())
    assert give_back(client) == 3
    lines = client.take()
    assert bodies(lines) == ["'1'", "'2'", "'3'"]
    assert "delivery_tag=4 " in lines[0]
    client.world.log.clear()
    client.feed(Ack(1, 3, True))  # it speaks of the first time
    assert commands_of(client.world.log, Settle) == []
    client.feed(Ack(1, 4, False))
    assert [each.numbers for each in commands_of(client.world.log, Settle)] == [[1]]


def test_an_ack_that_waited_behind_a_question_finds_it_given_back() -> None:
    world = World()
    client = holding(world)
    cancel(client)
    client.take()
    world.is_held = True
    assert client.call(spec.QueueDeclare(queue="slow")) == []
    client.feed(Ack(1, 1, False))
    give_back(client, 1)
    world.is_held = False
    world.let_go()
    assert client.take() == ["1 queue.declare-ok queue=slow"]


def test_what_basic_get_took_is_given_back() -> None:
    world = World()
    client = holding(world)
    assert "get-ok" in client.call(spec.BasicGet(queue="q"))[0]
    assert give_back(client, of="") == 1
    assert "get-ok" in client.call(spec.BasicGet(queue="q"))[0]


def test_a_cancelled_consumer_is_told_and_keeps_what_it_holds() -> None:
    world = World()
    client = holding(world)
    asker = cancel(client)
    assert asker is not None
    assert client.take() == ["1 basic.cancel consumer_tag=c no_wait"]
    assert len(asker.answers) == 1
    assert world.consumer_count(uid(world)) == 0
    assert cancel(client) is None
    assert client.feed(Ack(1, 3, True)) == []
    assert client.call(spec.BasicConsume(queue="q", consumer_tag="c"))[0].endswith(
        "basic.consume-ok consumer_tag=c"
    )


def test_a_client_that_knows_no_cancel_is_not_told() -> None:
    client = holding(World(), cancel_notify=False)
    assert cancel(client)
    assert client.take() == []


def test_the_channel_goes_on_while_its_consumer_is_cancelled() -> None:
    world = World()
    client = holding(world)
    world.is_held = True
    asker = cancel(client)
    assert asker is not None
    client.feed(Ack(1, 1, False))  # behind it at the queue
    assert client.call(spec.QueueDeclare(queue="other")) == []  # a question of its own
    world.is_held = False
    world.let_go(1)
    assert client.take() == ["1 basic.cancel consumer_tag=c no_wait"]
    assert len(asker.answers) == 1
    assert client.feed(publish()) == []  # it waits for its declare-ok, not for the cancel
    world.let_go()
    assert client.take() == ["1 queue.declare-ok queue=other"]


def test_a_client_that_cancels_at_the_same_time_gets_its_answer() -> None:
    world = World()
    client = holding(world)
    world.is_held = True
    asker = cancel(client)
    assert asker is not None
    assert client.call(spec.BasicCancel(consumer_tag="c")) == []
    world.is_held = False
    world.let_go()
    assert client.take() == [
        "1 basic.cancel consumer_tag=c no_wait",
        "1 basic.cancel-ok consumer_tag=c",
    ]


def test_a_channel_that_ends_meanwhile_is_left_alone() -> None:
    world = World()
    client = holding(world)
    world.is_held = True
    asker = cancel(client)
    assert asker is not None
    client.call(spec.ChannelClose(200, "bye", 0, 0))
    world.is_held = False
    world.let_go()
    assert (client.take(), asker.answers) == ([], [])
    assert world.fifos[uid(world)].stat().ready == 4
