from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.assembler import Ack, Fault, MethodCommand
from broker.errors import AmqpError, Refusal, ReplyCode
from broker.fifo.commands import Cancel, Release, Requeue, Settle
from broker.metadata import commands
from broker.session.effects import ChannelEnded, CloseConnection, PublishTo
from broker.session.facts import SessionLimits
from broker.session.session import CLOSE_MS_MAX
from tests.unit.session.rig import Client, World, commands_of, deliveries, kinds_of, publish


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return Client(world).open()


def with_queue(client: Client, name: str = "q") -> Client:
    client.call(spec.QueueDeclare(queue=name, durable=True))
    return client


def test_method_on_channel_that_is_not_open_is_504(world: World) -> None:
    """Rows: 1.1 Channel state errors"""
    client = Client(world)
    client.call(spec.BasicQos())
    assert client.error is not None
    assert (client.error.code, client.error.text) == (504, "expected 'channel.open'")
    assert (client.error.class_id, client.error.method_id) == (60, 10)


def test_second_open_is_504(client: Client) -> None:
    """Rows: 1.1 Channel state errors"""
    client.call(spec.ChannelOpen())
    assert client.error is not None
    assert (client.error.code, client.error.text) == (504, "second 'channel.open' seen")


def test_hard_error_releases_and_ignores_the_rest(client: Client) -> None:
    with_queue(client).call(spec.BasicConsume(queue="q", consumer_tag="c"))
    client.world.log.clear()
    assert client.call(spec.ChannelFlow(active=False), spec.BasicQos()) == []
    assert kinds_of(client.world.log) == [Release, ChannelEnded, CloseConnection]
    assert client.error is not None
    assert (client.error.code, client.error.text) == (540, "active=false")
    assert client.session.is_closed


def test_soft_error_closes_the_channel_and_ignores_until_close_ok(client: Client) -> None:
    lines = client.call(spec.BasicGet(queue="nope"), spec.BasicQos(), spec.TxSelect())
    assert lines == [
        "1 channel.close reply_code=404 reply_text=NOT_FOUND - no queue 'nope' in vhost '/' "
        "failed_class_id=60 failed_method_id=70"
    ]
    assert client.call(spec.BasicQos()) == []
    assert client.call(spec.ChannelCloseOk()) == []
    assert client.call(spec.ChannelOpen()) == ["1 channel.open-ok"]


def test_an_open_before_close_ok_is_ignored_like_everything_else(client: Client) -> None:
    """Rows: 1.1 Channel state errors"""
    client.feed(publish(exchange="nope"))
    assert client.call(spec.ChannelOpen(), spec.QueueDeclare("q"), spec.ChannelOpen()) == []
    assert client.error is None
    assert client.call(spec.ChannelCloseOk(), spec.ChannelOpen()) == ["1 channel.open-ok"]


def test_close_crossing_ours_is_answered_and_the_number_stays_busy(client: Client) -> None:
    client.call(spec.BasicGet(queue="nope"))
    assert client.call(spec.ChannelClose()) == ["1 channel.close-ok"]
    assert client.call(spec.ChannelCloseOk(), spec.ChannelOpen()) == ["1 channel.open-ok"]


def test_client_close_releases_what_the_channel_held(client: Client) -> None:
    """Rows: 1.9 channel/conn close"""
    with_queue(client).feed(publish(), publish())
    client.call(spec.BasicConsume(queue="q"))
    assert client.call(spec.ChannelClose()) == ["1 channel.close-ok"]
    client.open()
    assert client.call(spec.BasicGet(queue="q")) == [
        "1 basic.get-ok delivery_tag=1 redelivered routing_key=q message_count=1 'x'"
    ]


@pytest.fixture
def consuming(client: Client) -> Client:
    """Consumers of two auto-delete queues and of one that stays; what is asked is not answered."""
    client.call(*[spec.QueueDeclare(queue=name, auto_delete=True) for name in ("a", "b")])
    with_queue(client, "c").call(*[spec.BasicConsume(queue=name) for name in ("a", "b", "c")])
    client.world.log.clear()
    client.world.is_held = True
    assert client.call(spec.ChannelClose(), spec.ChannelOpen()) == []
    return client


def test_close_ok_waits_for_auto_delete_queues(consuming: Client) -> None:
    """Rows: 1.3 durable / exclusive / auto_delete; 1.9 channel/conn close"""
    world = consuming.world
    world.let_go(1)
    assert consuming.take() == []
    world.let_go()
    assert consuming.take() == ["1 channel.close-ok", "1 channel.open-ok"]
    assert kinds_of(world.log) == [Cancel, Cancel, *[Release] * 3, ChannelEnded]


def test_close_ok_does_not_wait_for_ever(consuming: Client) -> None:
    consuming.world.run(consuming, consuming.session.tick(CLOSE_MS_MAX - 1))
    assert consuming.take() == []
    consuming.world.run(consuming, consuming.session.tick(CLOSE_MS_MAX))
    assert consuming.take() == ["1 channel.close-ok", "1 channel.open-ok"]
    consuming.world.let_go()
    assert consuming.take() == [], "late answers concern nobody"


def test_publishes_of_a_chunk_are_one_effect_per_queue(client: Client) -> None:
    with_queue(client).call(spec.ConfirmSelect())
    with_queue(client, "r")
    client.world.log.clear()
    first = publish("q")
    assert client.feed(first, first, publish("r"), first) == ["1 basic.ack delivery_tag=4 multiple"]
    effects = [effect for effect in client.world.log if isinstance(effect, PublishTo)]
    assert [(e.queue.name, e.seqnos) for e in effects] == [("q", [1, 2, 4]), ("r", [3])]


def test_settles_of_a_chunk_are_one_effect_per_consumer(client: Client) -> None:
    with_queue(client).feed(*[publish()] * 5)
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    client.world.log.clear()
    client.feed(Ack(1, 2, True), Ack(1, 4, False), Ack(1, 3, False))
    assert [(each.tag, each.numbers) for each in commands_of(client.world.log, Settle)] == [
        ("c", [1, 2, 4, 3])
    ]


def test_waiting_channel_holds_back_in_order_and_others_go_on(client: Client) -> None:
    client.open(2)
    client.world.is_held = True
    assert client.feed(
        MethodCommand(1, spec.QueueDeclare(queue="q")),
        publish("q"),
        MethodCommand(1, spec.BasicGet(queue="q", no_ack=True)),
        MethodCommand(2, spec.BasicQos()),
    ) == ["2 basic.qos-ok"]
    client.world.is_held = False
    client.world.let_go()
    assert client.take() == [
        "1 queue.declare-ok queue=q",
        "1 basic.get-ok delivery_tag=1 routing_key=q 'x'",
    ]


def test_backlog_of_a_waiting_channel_congests_the_connection(world: World) -> None:
    client = Client(world, limits=SessionLimits(held_commands=3, held_bytes=1000)).open()
    world.is_held = True
    client.call(spec.QueueDeclare(queue="q"))
    client.call(*[spec.BasicQos()] * 3)
    assert not client.session.is_congested
    client.call(spec.BasicQos())
    assert client.session.is_congested
    world.is_held = False
    world.let_go()
    assert not client.session.is_congested


def test_answer_for_a_channel_number_that_was_used_again_is_dropped(client: Client) -> None:
    client.world.is_held = True
    client.call(spec.QueueDeclare(queue="q"))
    client.feed(Fault(1, AmqpError(ReplyCode.CHANNEL_ERROR, "x")))
    client.world.is_held = False
    client.world.let_go()
    assert client.take() == []


def test_soft_fault_waits_its_turn(client: Client) -> None:
    client.world.is_held = True
    fault = Fault(1, AmqpError(ReplyCode.PRECONDITION_FAILED, "message size 9", 60, 40))
    client.feed(MethodCommand(1, spec.QueueDeclare(queue="q")), fault)
    client.world.is_held = False
    client.world.let_go()
    assert client.take() == [
        "1 queue.declare-ok queue=q",
        "1 channel.close reply_code=406 reply_text=PRECONDITION_FAILED - message size 9 "
        "failed_class_id=60 failed_method_id=40",
    ]


def test_held_close_is_answered_when_the_channel_fails_meanwhile(client: Client) -> None:
    lines = client.call(spec.QueueBind(queue="nope", exchange="amq.direct"), spec.ChannelClose())
    assert "404" in lines[0]
    client.open(2).call(spec.QueueDeclare(queue="q"), channel=2)
    client.world.is_held = True
    method = spec.QueueBind(queue="q", exchange="nope")
    assert client.call(method, spec.ChannelClose(), channel=2) == []
    client.world.is_held = False
    client.world.let_go()
    lines = client.take()
    assert "404" in lines[0]
    assert lines[1:] == ["2 channel.close-ok"]
    client.call(spec.ChannelCloseOk(), channel=2)
    client.open(2)


def test_publish_after_a_failed_ack_in_the_same_chunk_is_ignored(client: Client) -> None:
    """A run of publishes must not go on over the channel's end."""
    with_queue(client)
    client.world.log.clear()
    again = publish()
    lines = client.feed(again, Ack(1, 99, False), again, again)
    assert len(lines) == 1
    assert "unknown delivery tag 99" in lines[0]
    published = [e.messages for e in client.world.log if isinstance(e, PublishTo)]
    assert published == [[again.message]]


def test_pending_confirms_are_told_before_the_channel_closes(client: Client) -> None:
    with_queue(client).call(spec.ConfirmSelect())
    client.feed(publish())
    client.world.is_held = True
    client.feed(publish(), publish())
    client.world.is_held = False
    client.world.let_go()
    lines = client.feed(publish(exchange="nope"))
    assert lines[0] == "1 basic.ack delivery_tag=3 multiple"
    assert "no exchange 'nope' in vhost '/'" in lines[1]


def test_consumer_timeout_closes_the_channel(client: Client) -> None:
    """Rows: 1.1 consumer (ack) timeout"""
    with_queue(client).feed(publish())
    client.call(spec.BasicConsume(queue="q"))
    client.world.run(client, client.session.tick(1_800_000))
    assert client.take() == []
    client.world.run(client, client.session.tick(1_800_001))
    (line,) = client.take()
    assert "406" in line
    assert "delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000" in line


def test_deliveries_of_an_older_epoch_time_nobody_out_and_cost_no_credit(client: Client) -> None:
    """P18: their queue's home has restarted; the client may still settle them, for nothing."""
    with_queue(client).feed(publish(), publish())
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    client.call(spec.BasicConsume(queue="q", consumer_tag="old"))
    key = client.session._channels[1].key
    client.world.run(client, client.session.consumer_lost(key, "old"))
    client.world.run(client, client.session.tick(1_900_000))
    client.now_ms = 1_900_000
    assert client.take() == ["1 basic.cancel consumer_tag=old no_wait"]
    lines = client.call(spec.BasicConsume(queue="q", consumer_tag="new"))
    assert any("basic.deliver consumer_tag=new delivery_tag=2" in line for line in lines), lines
    assert client.feed(Ack(1, 1, False)) == []
    client.world.run(client, client.session.tick(3_700_001))
    (line,) = client.take()
    assert "timed out" in line


def test_a_consumer_whose_queue_moved_begins_with_its_whole_credit(client: Client) -> None:
    """P18: what the old master delivered or had parked here comes again; its acks do no harm."""
    with_queue(client)
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    key = client.session._channels[1].key
    client.session.deliver(key, "c", deliveries(1, 2))  # 2 waits for room in the channel
    client.take()
    client.world.run(client, client.session.consumer_moved(key, "c"))
    assert client.take() == []
    client.session.deliver(key, "c", deliveries(1 << 48, count=1))
    (line,) = client.take()
    assert line.startswith("1 basic.deliver consumer_tag=c delivery_tag=2 redelivered")
    assert client.feed(Ack(1, 1, False), Ack(1, 2, False)) == []
    client.session.deliver(key, "c", deliveries((1 << 48) + 1))
    assert len(client.take()) == 1
    assert client.call(spec.BasicCancel(consumer_tag="c")) == ["1 basic.cancel-ok consumer_tag=c"]


def test_a_consumer_without_acks_keeps_what_its_old_master_gave_it(client: Client) -> None:
    """It was settled when it was handed out: nobody else has it."""
    with_queue(client)
    client.call(spec.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    key = client.session._channels[1].key
    client.session.deliver(key, "c", deliveries(1))
    client.world.run(client, client.session.consumer_moved(key, "c"))
    (line,) = client.take()
    assert line.startswith("1 basic.deliver consumer_tag=c delivery_tag=1")


def test_what_a_moved_consumer_has_parked_goes_back_when_it_is_cancelled(client: Client) -> None:
    with_queue(client)
    client.call(spec.BasicQos(prefetch_count=1, global_=True))
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    key = client.session._channels[1].key
    client.world.is_held = True
    client.call(spec.BasicCancel(consumer_tag="c"))
    client.world.run(client, client.session.consumer_moved(key, "c"))
    client.session.deliver(key, "c", deliveries(7, 8))
    effects = client.session.complete(client.session._context.last_token, None, 0)
    assert kinds_of(effects) == [Requeue]
    assert commands_of(effects, Requeue)[0].numbers == [8]


def test_a_move_that_comes_late_finds_nobody(client: Client) -> None:
    key = client.session._channels[1].key
    assert client.session.consumer_moved(key, "nobody") == []
    assert client.session.consumer_moved(9, "c") == []


def test_late_verdicts_do_not_reach_a_channel_that_was_opened_since(client: Client) -> None:
    with_queue(client).call(spec.ConfirmSelect())
    client.world.is_held = True
    client.feed(publish(), publish())
    client.call(spec.ChannelClose(), spec.ChannelOpen(), spec.ConfirmSelect())
    client.feed(publish(), publish())
    client.world.let_go(1)
    assert client.take() == []
    client.world.let_go()
    assert client.take() == ["1 basic.ack delivery_tag=2 multiple"]


def test_late_deliveries_do_not_reach_a_channel_that_was_opened_since(client: Client) -> None:
    with_queue(client)
    method = spec.BasicConsume(queue="q", consumer_tag="c")
    client.call(method)
    key = client.session._channels[1].key
    client.call(spec.ChannelClose(), spec.ChannelOpen(), method)
    client.session.deliver(key, "c", deliveries(1))
    assert client.session.consumer_lost(key, "c") == []
    assert client.take() == []


def test_deliveries_for_unknown_consumers_are_dropped(client: Client) -> None:
    key = client.session._channels[1].key
    client.session.deliver(key, "nobody", deliveries(1))
    client.session.deliver(9, "nobody", deliveries(1))
    assert client.take() == []


def test_paused_session_pauses_consumers_that_come_later(client: Client) -> None:
    with_queue(client)
    client.world.run(client, client.session.set_active(active=False))
    client.call(spec.BasicConsume(queue="q", no_ack=True))
    assert client.feed(publish()) == []
    client.world.run(client, client.session.set_active(active=True))
    assert len(client.take()) == 1


def test_close_channels_releases_and_writes_nothing(client: Client) -> None:
    with_queue(client).feed(publish())
    client.call(spec.BasicConsume(queue="q"))
    effects = client.session.close_channels()
    assert kinds_of(effects) == [Release, ChannelEnded]
    assert client.take() == []
    assert client.feed(publish()) == []


def test_access_request_is_granted(client: Client) -> None:
    assert client.call(spec.AccessRequest()) == ["1 access.request-ok ticket=1"]


def test_flow_true_is_a_no_op(client: Client) -> None:
    """Rows: 1.1 channel.flow"""
    assert client.call(spec.ChannelFlow(active=True)) == ["1 channel.flow-ok active"]


@pytest.mark.parametrize("method", [spec.ChannelOpen(), spec.QueueDeclare("q"), spec.BasicAck(1)])
@pytest.mark.parametrize("number", [1, 3, 65_535])
def test_more_channels_than_negotiated_is_530(
    world: World, number: int, method: spec.Method
) -> None:
    """Rows: 1.1 channel_max"""
    client = Client(world)
    client.session._context.facts = client.session._context.facts._replace(channel_max=2)
    client.open(2)
    client.open(60_000)
    client.call(method, channel=number)
    assert client.error is not None
    assert (client.error.code, client.error.class_id, client.error.method_id) == (530, 0, 0)
    assert client.error.text == (
        "number of channels opened (2) has reached the negotiated channel_max (2)"
    )


def timed_out_ms(client: Client, *, not_before: int) -> int:
    """Milliseconds in the text of the timeout that comes just after `not_before`."""
    client.world.run(client, client.session.tick(not_before))
    assert client.take() == []
    client.world.run(client, client.session.tick(not_before + 1))
    (line,) = client.take()
    return int(line.split("Timeout value used: ")[1].split(" ms")[0])


@pytest.mark.parametrize(
    ("argument", "policy", "expected"),
    [
        (5_000, None, 5_000),
        (None, 7_000, 7_000),
        (5_000, 7_000, 5_000),
        (9_000_000, None, 9_000_000),
    ],
)
def test_a_queue_may_have_a_consumer_timeout_of_its_own(
    client: Client, argument: int | None, policy: int | None, expected: int
) -> None:
    """The smaller of argument and policy, instead of the node's, which may be the smaller one.

    Rows: 1.1 consumer (ack) timeout
    """
    arguments: dict[str, object] = {} if argument is None else {"x-consumer-timeout": argument}
    client.call(spec.QueueDeclare(queue="slow", arguments=arguments))
    if policy is not None:
        definition = {"consumer-timeout": policy}
        client.world.apply(commands.SetPolicy("/", "p", "^slow$", definition))
    client.feed(publish("slow"))
    client.call(spec.BasicConsume(queue="slow"))
    assert timed_out_ms(client, not_before=expected) == expected


def test_a_policy_changes_the_consumer_timeout_of_what_is_out_already(client: Client) -> None:
    """Rows: 1.1 consumer (ack) timeout"""
    with_queue(client).feed(publish())
    client.call(spec.BasicConsume(queue="q"))
    client.world.run(client, client.session.tick(50))
    client.world.apply(commands.SetPolicy("/", "p", ".*", {"consumer-timeout": 100}))
    assert timed_out_ms(client, not_before=100) == 100


def test_a_consumer_timeout_gives_everything_back(client: Client) -> None:
    """Rows: 1.1 consumer (ack) timeout"""
    with_queue(client).feed(publish(), publish())
    client.call(spec.BasicConsume(queue="q"))
    client.world.run(client, client.session.tick(1_800_001))
    assert "406" in client.take()[0]
    client.open(2)
    (line,) = client.call(spec.BasicGet(queue="q"), channel=2)
    assert "redelivered" in line


class Quota:
    """Lets so many channels be open, by what it is told of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: list[str] = []

    def channel_refusal(self, user: str) -> Refusal | None:
        is_full = len(self.open) >= self.most
        return Refusal(ReplyCode.NOT_ALLOWED, f"enough, {user}") if is_full else None

    def channel_opened(self, user: str) -> None:
        self.open.append(user)

    def channels_closed(self, user: str, count: int) -> None:
        for _ in range(count):
            self.open.remove(user)


def test_a_quota_is_told_of_every_channel_that_comes_and_goes(world: World) -> None:
    quota = Quota(9)
    client = Client(world, quota=quota)
    for number in (1, 2, 3, 4):
        client.open(number)
    assert quota.open == ["guest"] * 4
    client.call(spec.ChannelClose(), channel=1)
    client.call(spec.QueueDeclare("none", passive=True), channel=2)
    assert quota.open == ["guest"] * 3  # the second waits for its close-ok
    client.call(spec.ChannelCloseOk(), channel=2)
    assert len(quota.open) == client.session.channel_count == 2
    client.call(spec.ChannelOpen(), channel=3)  # twice: a hard error
    assert client.error is not None
    client.session.close_channels()
    assert quota.open == []


def test_channels_beyond_a_quota_are_refused(world: World) -> None:
    """Rows: 1.1 channel_max"""

    client = Client(world, quota=Quota(1))
    client.open(1)
    client.call(spec.ChannelOpen(), channel=2)
    assert client.error is not None
    assert (client.error.code, client.error.text) == (530, "enough, guest")
    assert (client.error.class_id, client.error.method_id) == (20, 10)
