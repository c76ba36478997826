"""amqpstorm, the client that speaks from a thread of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import amqpstorm
import pytest

from tests.clients.place import Place
from tests.nodes import Node, wait_until


def connect(node: Node) -> amqpstorm.Connection:
    return amqpstorm.Connection("127.0.0.1", "guest", "guest", port=node.amqp_port, timeout=10)


@pytest.fixture
def ends(place: Place) -> Iterator[tuple[amqpstorm.Channel, amqpstorm.Channel]]:
    with connect(place.here) as here, connect(place.there) as there:
        yield here.channel(), there.channel()


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_publish_confirmed_and_consume(
    place: Place, ends: tuple[amqpstorm.Channel, amqpstorm.Channel], queue_type: str
) -> None:
    here, there = ends
    queue = place.declare(f"storm.{uuid.uuid4().hex[:8]}", **{"x-queue-type": queue_type})
    here.queue.declare(queue, durable=True, arguments={"x-queue-type": queue_type})
    here.confirm_deliveries()
    for number in range(50):
        properties = {"delivery_mode": 2, "message_id": str(number), "headers": {"n": number}}
        assert here.basic.publish(b"%d" % number, queue, properties=properties) is True
    got: list[amqpstorm.Message] = []
    there.basic.qos(10)
    there.basic.consume(got.append, queue)

    def all_came() -> bool:
        there.process_data_events()
        for message in got:
            if message.method is not None and not message.properties.get("app_id"):
                message.ack()
                message.properties["app_id"] = "acked"
        return len(got) == 50

    wait_until(all_came, "50 messages")
    assert [message.body for message in got] == [str(number) for number in range(50)]
    assert got[7].properties["headers"] == {"n": 7}
    there.close()  # whatever was not acked would be there again
    assert here.queue.declare(queue, passive=True)["message_count"] == 0
    here.queue.delete(queue)


def test_an_unroutable_message_is_an_error(
    ends: tuple[amqpstorm.Channel, amqpstorm.Channel],
) -> None:
    here, _ = ends
    here.confirm_deliveries()
    with pytest.raises(amqpstorm.AMQPMessageError, match="NO_ROUTE"):
        here.basic.publish(b"lost", "no.queue.at.all", mandatory=True)


def test_a_closed_channel_says_why(ends: tuple[amqpstorm.Channel, amqpstorm.Channel]) -> None:
    here, there = ends
    with pytest.raises(amqpstorm.AMQPChannelError, match="NOT_FOUND - no queue 'none'") as error:
        here.queue.declare("none", passive=True)
    assert error.value.error_code == 404
    assert there.is_open


def test_transactions(ends: tuple[amqpstorm.Channel, amqpstorm.Channel]) -> None:
    """Rows: 1.10 tx.select/commit/rollback"""
    here, there = ends
    queue = here.queue.declare("", exclusive=True)["queue"]
    there.tx.select()
    there.basic.publish(b"dropped", queue)
    there.tx.rollback()
    there.basic.publish(b"kept", queue)
    there.tx.commit()
    message = here.basic.get(queue, no_ack=True)
    assert message is not None
    assert message.body == "kept"
    assert here.basic.get(queue) is None
