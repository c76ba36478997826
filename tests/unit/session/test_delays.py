"""Publishing to an x-delayed-message exchange: delayed and immediate messages, and confirms."""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.content import decode_properties
from broker.message import Message
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.routing.types import TYPES
from broker.session.effects import PublishTo
from tests.unit.session.rig import NODE, Client, World, publish

TYPE = "x-delayed-message"


@pytest.fixture
def client() -> Client:
    client = Client(World()).open()
    client.call(spec.QueueDeclare(queue="q"), spec.QueueDeclare(queue="r"))
    declare(client)
    client.call(spec.QueueBind(queue="q", exchange="later", routing_key="k"))
    return client


def declare(client: Client, name: str = "later", inner: str = "direct", **more: object) -> None:
    arguments = {"x-delayed-type": inner, **more}
    lines = client.call(spec.ExchangeDeclare(exchange=name, type=TYPE, arguments=arguments))
    assert lines == ["1 exchange.declare-ok"]


def late(delay: object, key: str = "k", exchange: str = "later", **more: object):
    headers = {"x-delay": delay, **more.pop("headers", {})}
    return publish(key, exchange, headers=headers, **more)


def store_of(client: Client, name: str = "later") -> Queue:
    store = client.world.catalogue.store("/", name)
    assert store is not None
    return store


def kept(client: Client, name: str = "later") -> list[Message]:
    uid = store_of(client, name).uid
    log = client.world.log
    return [m for e in log if isinstance(e, PublishTo) and e.queue.uid == uid for m in e.messages]


def ready(client: Client, name: str = "q") -> int:
    queue = client.world.catalogue.queue("/", name)
    assert queue is not None
    return client.world.fifos[queue.uid].stat().ready


def close_text(lines: list[str]) -> str:
    assert len(lines) == 1, lines
    return lines[0].split(" - ", 1)[1].rsplit(" failed_class_id=60 failed_method_id=40", 1)[0]


def test_the_proposer_places_the_store(client: Client):
    store = store_of(client)
    assert (store.home, store.members) == (NODE, (NODE,))


@pytest.mark.parametrize("delay", [5000, "5000", 5000.7])
def test_a_delayed_message_goes_to_the_store_and_to_no_queue(client: Client, delay: object):
    """The row's plugin loses it with its node; here the store is a quorum queue.

    Rows: 1.11 sender selected delay
    """
    client.call(spec.ConfirmSelect())
    assert client.feed(late(delay, expiration="77")) == ["1 basic.ack delivery_tag=1"]
    assert ready(client) == 0
    assert [m.ttl_ms for m in kept(client)] == [5000]
    (message,) = kept(client)
    assert (message.exchange, message.routing_key) == ("later", "k")
    assert decode_properties(message).headers == {"x-delay": delay}
    assert decode_properties(message).expiration == "77"


@pytest.mark.parametrize("delay", [0, -5000, "soon", True, None, 0.3])
def test_what_is_no_delay_goes_at_once(client: Client, delay: object):
    client.feed(late(delay), publish("k", "later"))
    assert ready(client) == 2
    assert kept(client) == []


def test_ten_years_are_the_longest_delay(client: Client):
    most = 315_360_000_000
    assert client.feed(late(most)) == []
    assert [m.ttl_ms for m in kept(client)] == [most]
    text = close_text(client.feed(late(most + 1)))
    assert text == f"invalid x-delay '{most + 1}': {{value_too_large,{most + 1}}}"


def test_the_publisher_is_confirmed_when_the_store_has_it(client: Client):
    client.call(spec.ConfirmSelect())
    client.world.is_held = True
    assert client.feed(late(5000)) == []
    client.world.is_held = False
    client.world.let_go()
    assert client.take() == ["1 basic.ack delivery_tag=1"]
    client.world.refusing.add(store_of(client).uid)
    assert client.feed(late(5000)) == ["1 basic.nack delivery_tag=2"]


def test_a_delayed_message_keeps_the_keys_of_cc_and_bcc(client: Client):
    client.feed(late(5000, "none", headers={"CC": ["k"], "BCC": ["b"]}))
    (message,) = kept(client)
    assert message.bcc == ("b",)
    assert decode_properties(message).headers == {"x-delay": 5000, "CC": ["k"]}


def test_an_exchange_bound_to_a_delaying_one_serves_its_own_queues_at_once(client: Client):
    client.call(
        spec.QueueBind(queue="r", exchange="amq.fanout"),
        spec.ExchangeBind(destination="later", source="amq.fanout"),
        spec.ConfirmSelect(),
    )
    assert client.feed(late(5000, exchange="amq.fanout")) == ["1 basic.ack delivery_tag=1"]
    assert (ready(client), ready(client, "r")) == (0, 1)
    (message,) = kept(client)
    assert (message.exchange, message.ttl_ms) == ("amq.fanout", 5000)


def test_one_refusal_of_queue_or_store_is_a_nack(client: Client):
    client.call(
        spec.QueueBind(queue="r", exchange="amq.fanout"),
        spec.ExchangeBind(destination="later", source="amq.fanout"),
        spec.ConfirmSelect(),
    )
    client.world.refusing.add(store_of(client).uid)
    assert client.feed(late(5000, exchange="amq.fanout")) == ["1 basic.nack delivery_tag=1"]


def test_mandatory_asks_whether_the_message_could_be_routed_now(client: Client):
    client.call(spec.ConfirmSelect())
    assert client.feed(late(5000, mandatory=True)) == ["1 basic.ack delivery_tag=1"]
    assert client.feed(late(5000, "nowhere", mandatory=True)) == [
        "1 basic.return reply_code=312 reply_text=NO_ROUTE exchange=later routing_key=nowhere 'x'",
        "1 basic.ack delivery_tag=2",
    ]
    assert len(kept(client)) == 1
    assert client.feed(late(5000, "nowhere")) == ["1 basic.ack delivery_tag=3"]
    assert len(kept(client)) == 2, "a binding may come before it is due"


def test_a_transaction_keeps_nothing_before_it_commits(client: Client):
    client.call(spec.TxSelect())
    client.feed(late(5000), late(1), publish("k", "later"))
    assert (kept(client), ready(client)) == ([], 0)
    assert client.call(spec.TxCommit()) == ["1 tx.commit-ok"]
    assert [m.ttl_ms for m in kept(client)] == [5000, 1]
    assert ready(client) == 1


def test_a_transaction_that_is_rolled_back_keeps_nothing(client: Client):
    client.call(spec.TxSelect())
    client.feed(late(5000), late(5000, "nowhere", mandatory=True))
    assert client.call(spec.TxRollback()) == ["1 tx.rollback-ok"]
    assert kept(client) == []


def test_the_alternate_exchange_is_asked_when_the_message_is_due_not_before(client: Client):
    declare(client, "other", **{"alternate-exchange": "amq.fanout"})
    client.call(spec.QueueBind(queue="r", exchange="amq.fanout"))
    client.feed(late(5000, "nowhere", "other"))
    assert ready(client, "r") == 0
    assert len(kept(client, "other")) == 1
    client.feed(late(-5000, "nowhere", "other"))
    assert ready(client, "r") == 1


def test_write_on_the_exchange_is_all_that_a_publish_needs(client: Client):
    client.world.apply(commands.SetPermissions("guest", "/", "", "^later$", ""))
    assert client.feed(late(5000)) == []
    assert len(kept(client)) == 1
    client.world.apply(commands.SetPermissions("guest", "/", "", "", ".*"))
    assert "write access to exchange 'later'" in close_text(client.feed(late(5000)))


def test_an_inner_topic_exchange_routes_by_patterns(client: Client):
    declare(client, "topics", "topic")
    client.call(spec.QueueBind(queue="q", exchange="topics", routing_key="a.*"))
    client.call(spec.ConfirmSelect())
    client.feed(publish("a.b", "topics"), publish("b.b", "topics"))
    assert ready(client) == 1


STORE = "amq.delayed.later"
NO_QUEUE = f"NOT_FOUND - no queue '{STORE}' in vhost '/'"


@pytest.mark.parametrize(
    "method",
    [
        spec.QueueDeclare(queue=STORE, passive=True),
        spec.BasicConsume(queue=STORE),
        spec.BasicGet(queue=STORE),
        spec.QueuePurge(queue=STORE),
        spec.QueueBind(queue=STORE, exchange="amq.fanout"),
    ],
)
def test_no_client_reaches_the_store(client: Client, method: spec.Method):
    (line,) = client.call(method)
    assert NO_QUEUE in line


def test_a_client_can_neither_declare_nor_delete_nor_publish_to_the_store(client: Client):
    client.call(spec.ConfirmSelect())
    assert client.feed(publish(STORE, mandatory=True)) == [
        f"1 basic.return reply_code=312 reply_text=NO_ROUTE routing_key={STORE} 'x'",
        "1 basic.ack delivery_tag=1",
    ]
    assert client.call(spec.QueueDelete(queue=STORE)) == ["1 queue.delete-ok"]
    assert client.world.catalogue.store("/", "later") is not None
    (line,) = client.call(spec.QueueDeclare(queue=STORE))
    assert f"queue name '{STORE}' contains reserved prefix 'amq.*'" in line


def test_deleting_the_exchange_takes_what_it_keeps(client: Client):
    store = store_of(client)
    client.feed(late(5000))
    assert client.call(spec.ExchangeDelete(exchange="later")) == ["1 exchange.delete-ok"]
    assert store.uid not in client.world.fifos


@pytest.mark.parametrize("inner", [each for each in TYPES if each != TYPE])
def test_every_other_type_can_be_the_inner_one(client: Client, inner: str):
    declare(client, "outer", inner)
    key = "1" if inner == "x-consistent-hash" else "k"
    (line,) = client.call(spec.QueueBind(queue="r", exchange="outer", routing_key=key))
    assert line == "1 queue.bind-ok"
    client.call(spec.ConfirmSelect())
    client.feed(publish("k", "outer"), late(5000, exchange="outer"), late(-1, exchange="outer"))
    client.take()
    assert ready(client, "r") == 2
    assert len(kept(client, "outer")) == 1
