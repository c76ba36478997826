from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.assembler import Ack, MethodCommand
from broker.fifo.commands import Release
from broker.session.effects import PublishTo
from broker.session.facts import SessionLimits
from tests.unit.session.rig import Client, World, publish


@pytest.fixture
def client() -> Client:
    client = Client(World()).open()
    client.call(spec.QueueDeclare(queue="q"), spec.QueueDeclare(queue="r"))
    return client


def closed(lines: list[str]) -> str:
    assert len(lines) == 1
    assert lines[0].startswith("1 channel.close reply_code=406"), lines
    return lines[0].split(" - ", 1)[1].split(" failed_class_id")[0]


def ready(client: Client, name: str = "q") -> int:
    queue = client.world.catalogue.queue("/", name)
    assert queue is not None
    return client.world.fifos[queue.uid].stat().ready


def test_confirm_select_twice_is_fine(client: Client) -> None:
    """Rows: 1.10 confirm.select"""
    lines = client.call(spec.ConfirmSelect(), spec.ConfirmSelect(no_wait=True))
    assert lines == ["1 confirm.select-ok"]


@pytest.mark.parametrize("drops_doubles", [False, True])
def test_publishes_count_from_confirm_select_on_also_within_one_chunk(
    client: Client, drops_doubles: bool
) -> None:
    """Rows: 1.10 confirm.select"""
    names = ["q"]
    if drops_doubles:  # it gets a copy of its own
        arguments: dict[str, object] = {"x-message-deduplication": True}
        client.call(spec.QueueDeclare(queue="d", arguments=arguments))
        names.append("d")
    client.call(*[spec.QueueBind(queue=name, exchange="amq.fanout") for name in names])
    lines = client.feed(
        publish(exchange="amq.fanout"),
        MethodCommand(1, spec.ConfirmSelect(no_wait=True)),
        publish(exchange="amq.fanout"),
        publish(exchange="amq.fanout"),
    )
    assert lines == ["1 basic.ack delivery_tag=2 multiple"]
    assert [ready(client, name) for name in names] == [3] * len(names)


def test_modes_exclude_each_other(client: Client) -> None:
    """Rows: 1.10 confirm.select; 1.10 tx.select/commit/rollback"""
    client.call(spec.ConfirmSelect())
    assert closed(client.call(spec.TxSelect())) == "cannot switch from confirm to tx mode"
    client.open(2).call(spec.TxSelect(), channel=2)
    (line,) = client.call(spec.ConfirmSelect(), channel=2)
    assert "PRECONDITION_FAILED - cannot switch from tx to confirm mode" in line


@pytest.mark.parametrize("method", [spec.TxCommit(), spec.TxRollback()])
def test_commit_and_rollback_need_select(client: Client, method: spec.Method) -> None:
    assert closed(client.call(method)) == "channel is not transactional"


def test_publishes_reach_queues_at_commit(client: Client) -> None:
    client.call(spec.TxSelect())
    client.feed(publish(), publish(), publish("r"))
    assert ready(client) == 0
    assert client.call(spec.TxCommit()) == ["1 tx.commit-ok"]
    assert (ready(client), ready(client, "r")) == (2, 1)
    assert client.call(spec.TxCommit()) == ["1 tx.commit-ok"]
    assert ready(client) == 2


def test_publishes_are_routed_when_published(client: Client) -> None:
    """Rows: 1.10 tx.select/commit/rollback"""
    client.call(spec.TxSelect())
    client.feed(publish("k", "amq.fanout"))
    client.call(spec.QueueBind(queue="q", exchange="amq.fanout"))
    client.call(spec.TxCommit())
    assert ready(client) == 0


def test_rollback_forgets_publishes_and_restores_acks(client: Client) -> None:
    """Rows: 1.10 tx.select/commit/rollback"""
    client.feed(publish(), publish())
    client.call(spec.BasicConsume(queue="q"), spec.TxSelect())
    client.feed(Ack(1, 1, False), MethodCommand(1, spec.BasicNack(delivery_tag=2)), publish("r"))
    assert client.call(spec.TxRollback()) == ["1 tx.rollback-ok"]
    client.call(spec.TxCommit())
    assert ready(client, "r") == 0
    assert client.feed(Ack(1, 2, True), MethodCommand(1, spec.TxCommit())) == ["1 tx.commit-ok"]


def test_acks_take_effect_at_commit(client: Client) -> None:
    client.feed(publish())
    client.call(spec.BasicConsume(queue="q"), spec.TxSelect())
    client.feed(Ack(1, 1, False))
    assert "unknown delivery tag 1" in closed(client.feed(Ack(1, 1, False)))
    assert ready(client) == 1


def test_requeue_in_a_transaction(client: Client) -> None:
    client.feed(publish())
    client.call(spec.BasicGet(queue="q"), spec.TxSelect())
    client.call(spec.BasicReject(delivery_tag=1, requeue=True))
    assert ready(client) == 0
    client.call(spec.TxCommit())
    assert ready(client) == 1


def test_mandatory_is_returned_at_commit(client: Client) -> None:
    """Rows: 1.10 mandatory"""
    client.call(spec.TxSelect())
    assert client.feed(publish("gone", mandatory=True)) == []
    assert client.call(spec.TxCommit()) == [
        "1 basic.return reply_code=312 reply_text=NO_ROUTE routing_key=gone 'x'",
        "1 tx.commit-ok",
    ]


def test_mandatory_is_returned_at_commit_when_all_its_queues_are_gone(client: Client) -> None:
    """In publish order with what was routed nowhere.

    Rows: 1.10 mandatory; 1.10 tx.select/commit/rollback
    """
    client.call(*[spec.QueueBind(queue=name, exchange="amq.fanout") for name in ("q", "r")])
    client.call(spec.TxSelect())
    mandatory = [publish("q", mandatory=True), publish("gone", mandatory=True)]
    assert client.feed(*mandatory, publish("q"), publish("", "amq.fanout", mandatory=True)) == []
    client.open(2).call(spec.QueueDelete(queue="q"), channel=2)
    assert client.call(spec.TxCommit()) == [
        "1 basic.return reply_code=312 reply_text=NO_ROUTE routing_key=q 'x'",
        "1 basic.return reply_code=312 reply_text=NO_ROUTE routing_key=gone 'x'",
        "1 tx.commit-ok",
    ]
    assert ready(client, "r") == 1


def test_commit_ok_waits_for_every_queue_and_a_refusal_is_406(client: Client) -> None:
    client.call(spec.TxSelect())
    queue = client.world.catalogue.queue("/", "r")
    assert queue is not None
    client.world.refusing.add(queue.uid)
    client.feed(publish(), publish("r"))
    assert closed(client.call(spec.TxCommit())) == "partial tx completion"


def test_command_during_commit_is_504(client: Client) -> None:
    """Rows: 1.10 tx.select/commit/rollback"""
    client.call(spec.TxSelect())
    client.feed(publish())
    client.world.is_held = True
    client.call(spec.TxCommit())
    client.feed(publish())
    client.world.is_held = False
    client.world.let_go()
    assert client.error is not None
    assert client.error.code == 504
    assert client.error.text == "unexpected command while processing 'tx.commit'"


def test_a_transaction_has_a_size_limit() -> None:
    client = Client(World(), limits=SessionLimits(transaction_bytes=100)).open()
    client.call(spec.QueueDeclare(queue="q"), spec.TxSelect())
    lines = client.feed(publish(body=b"x" * 200))
    assert closed(lines) == "transaction is larger than 100 bytes"


def test_a_transaction_that_outgrows_its_limit_within_one_read_is_refused() -> None:
    client = Client(World(), limits=SessionLimits(transaction_bytes=500)).open()
    client.call(spec.QueueDeclare(queue="q"), spec.TxSelect())
    one = publish(body=b"x" * 200)
    lines = client.feed(one, one, one, MethodCommand(1, spec.TxCommit()))
    assert closed(lines) == "transaction is larger than 500 bytes"
    assert ready(client) == 0


def test_an_ack_of_nothing_closes_the_channel_of_a_transaction_that_is_too_large_once() -> None:
    client = Client(World(), limits=SessionLimits(transaction_bytes=100)).open()
    client.call(spec.QueueDeclare(queue="q"), spec.TxSelect())
    lines = client.feed(publish(body=b"x" * 60), publish(body=b"x" * 60), Ack(1, 7, False))
    assert closed(lines) == "transaction is larger than 100 bytes"


def test_of_one_read_a_commit_returns_what_is_mandatory_and_has_lost_its_queue(
    client: Client,
) -> None:
    client.call(spec.TxSelect())
    kinds = [True, True, False, True, False]
    client.feed(*[publish(body=b"%d" % n, mandatory=is_it) for n, is_it in enumerate(kinds)])
    client.call(spec.QueueDelete(queue="q"))
    lines = client.call(spec.TxCommit())
    assert sum("basic.return" in line for line in lines) == kinds.count(True)
    assert lines[-1] == "1 tx.commit-ok"


@pytest.mark.parametrize("is_kept", [False, True])
def test_what_a_transaction_will_return_counts_for_its_size_once(is_kept: bool) -> None:
    """Also where an exchange keeps it: a history goes on without a binding."""
    client = Client(World(), limits=SessionLimits(transaction_bytes=500)).open()
    kind = "x-recent-history" if is_kept else "fanout"
    client.call(spec.ExchangeDeclare(exchange="x", type=kind), spec.TxSelect())
    wasted = publish("nowhere", "x", mandatory=True, body=b"x" * 200)
    assert client.feed(wasted, wasted) == []
    assert closed(client.feed(wasted)) == "transaction is larger than 500 bytes"


def test_a_large_commit_reaches_its_queues_in_pieces_and_is_answered_once(client: Client) -> None:
    """P13: a queue elsewhere may have room for some of it only."""
    client.call(spec.TxSelect())
    client.feed(*[publish()] * 1_001, *[publish("r", body=bytes(600_000))] * 3)
    client.world.is_held = True
    assert client.call(spec.TxCommit()) == []
    pieces = [each for _, each in client.world.held if isinstance(each, PublishTo)]
    assert [len(each.messages) for each in pieces] == [1_000, 1, 1, 1, 1]
    assert [each.queue.name for each in pieces] == ["q", "q", "r", "r", "r"]
    client.world.is_held = False
    client.world.let_go(4)
    assert client.take() == []
    client.world.let_go()
    assert client.take() == ["1 tx.commit-ok"]
    assert (ready(client), ready(client, "r")) == (1_001, 3)


def test_commit_ok_waits_for_its_settles(client: Client) -> None:
    """P18."""
    client.feed(publish(), publish())
    client.call(spec.BasicConsume(queue="q"), spec.TxSelect())
    client.feed(Ack(1, 1, False), MethodCommand(1, spec.BasicNack(delivery_tag=2)))
    client.world.is_held = True
    assert client.call(spec.TxCommit()) == []
    client.world.is_held = False
    client.world.let_go(1)
    assert client.take() == []
    client.world.let_go()
    assert client.take() == ["1 tx.commit-ok"]


def test_a_settle_that_was_lost_to_a_failover_is_406(client: Client) -> None:
    """P18: the queue has given the delivery back meanwhile, and somebody else will have it."""
    client.feed(publish())
    client.call(spec.BasicConsume(queue="q"), spec.TxSelect())
    client.feed(Ack(1, 1, False))
    queue = client.world.catalogue.queue("/", "q")
    assert queue is not None
    fifo = client.world.fifos[queue.uid]
    for consumer in list(fifo.consumers):
        fifo.apply_command(Release(consumer.channel_id))
    assert closed(client.call(spec.TxCommit())) == "partial tx completion"


def pending_commit(client: Client) -> None:
    client.call(spec.TxSelect())
    client.feed(publish())
    client.world.is_held = True
    client.call(spec.TxCommit())


def test_a_channel_may_be_closed_while_its_commit_is_pending(client: Client) -> None:
    """Rows: 1.10 tx.select/commit/rollback"""
    pending_commit(client)
    assert client.call(spec.ChannelClose()) == ["1 channel.close-ok"]
    client.world.is_held = False
    client.world.let_go()
    assert client.error is None
    client.open()
    assert ready(client) == 1


def test_what_was_held_behind_a_commit_is_refused_like_what_comes_later(client: Client) -> None:
    """The channel waits for a declare; behind that come a commit and one command too many."""
    client.call(spec.TxSelect())
    client.feed(publish())
    client.world.is_held = True
    client.call(spec.QueueDeclare(queue="q"), spec.TxCommit(), spec.TxSelect())
    client.world.is_held = False
    client.world.let_go()
    assert client.error is not None
    assert client.error.text == "unexpected command while processing 'tx.commit'"


def test_acks_of_an_open_transaction_make_no_room_for_the_channel(client: Client) -> None:
    """Rows: 1.8 prefetch; 1.10 tx.select/commit/rollback

    They are done at commit; after a rollback all of it is held again.
    """
    client.open(2).feed(*[publish("q", channel=2)] * 4, *[publish("r", channel=2)] * 4)
    client.call(spec.TxSelect(), spec.BasicQos(prefetch_count=2, global_=True))
    lines = client.call(spec.BasicConsume("q", "a"), spec.BasicConsume("r", "b"))
    assert sum("basic.deliver" in line for line in lines) == 2
    assert client.feed(Ack(1, 2, True)) == []
    assert client.call(spec.TxRollback()) == ["1 tx.rollback-ok"]
    assert client.feed(Ack(1, 2, True)) == []
    lines = client.call(spec.TxCommit())
    assert sum("basic.deliver" in line for line in lines) == 2
