"""aio-pika: confirms, and its robust connection when the node it talks to is killed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import aio_pika
import pytest
import pytest_asyncio
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustChannel
from aio_pika.exceptions import DeliveryError

from tests.clients.place import Place
from tests.nodes import Node, Trio

PATIENCE_S = 60.0


def url(node: Node) -> str:
    return f"amqp://guest:guest@127.0.0.1:{node.amqp_port}/?heartbeat=10"


@pytest_asyncio.fixture
async def ends(
    place: Place,
) -> AsyncIterator[tuple[AbstractRobustChannel, AbstractRobustChannel]]:
    here = await aio_pika.connect_robust(url(place.here))
    there = await aio_pika.connect_robust(url(place.there))
    yield await here.channel(), await there.channel()
    await here.close()
    await there.close()


@pytest.mark.asyncio
async def test_confirms_and_an_iterator(
    ends: tuple[AbstractRobustChannel, AbstractRobustChannel],
) -> None:
    here, there = ends
    exchange = await here.declare_exchange(f"aio.{uuid.uuid4().hex[:8]}", "topic", auto_delete=True)
    queue = await there.declare_queue("", exclusive=True)
    await queue.bind(exchange.name, "a.*")
    messages = [
        aio_pika.Message(b"%d" % number, headers={"n": number, "f": 0.5}, message_id=str(number))
        for number in range(100)
    ]
    verdicts = await asyncio.gather(*(exchange.publish(each, "a.b") for each in messages))
    assert {type(each).__name__ for each in verdicts} == {"Ack"}
    await there.set_qos(10)
    got = []
    async with asyncio.timeout(PATIENCE_S), queue.iterator() as incoming:
        async for message in incoming:
            async with message.process():
                got.append((message.body, message.headers))
            if len(got) == 100:
                break
    assert got == [(b"%d" % number, {"n": number, "f": 0.5}) for number in range(100)]


@pytest.mark.asyncio
async def test_an_unroutable_message_is_an_error(place: Place) -> None:
    connection = await aio_pika.connect(url(place.there))
    async with connection:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(DeliveryError) as error:
            await channel.default_exchange.publish(aio_pika.Message(b"lost"), "no.queue.at.all")
    assert error.value.message is not None


@pytest.mark.asyncio
async def test_rpc_over_direct_reply_to(
    ends: tuple[AbstractRobustChannel, AbstractRobustChannel],
) -> None:
    here, there = ends
    requests = await there.declare_queue("", exclusive=True)

    async def double(message: AbstractIncomingMessage) -> None:
        async with message.process():
            assert message.reply_to is not None
            await there.default_exchange.publish(
                aio_pika.Message(message.body * 2, correlation_id=message.correlation_id),
                message.reply_to,
            )

    await requests.consume(double)
    answer: asyncio.Future[AbstractIncomingMessage] = asyncio.get_running_loop().create_future()
    replies = await here.get_queue("amq.rabbitmq.reply-to", ensure=False)
    await replies.consume(answer.set_result, no_ack=True)
    request = aio_pika.Message(b"ab", reply_to="amq.rabbitmq.reply-to", correlation_id="c1")
    await here.default_exchange.publish(request, requests.name)
    async with asyncio.timeout(PATIENCE_S):
        message = await answer
    assert (message.body, message.correlation_id) == (b"abab", "c1")


@pytest.mark.asyncio
async def test_a_robust_connection_outlives_its_node(own_trio: Trio) -> None:
    """Its node is killed: it goes on at another one, with queue, binding and consumer restored."""
    first, second, third = own_trio.nodes
    proxy = await Switch(first.amqp_port).start()
    got: asyncio.Queue[bytes] = asyncio.Queue()
    name = "robust"

    async def took(message: AbstractIncomingMessage) -> None:
        async with message.process():
            got.put_nowait(message.body)

    robust = await aio_pika.connect_robust(
        f"amqp://guest:guest@127.0.0.1:{proxy.port}/?heartbeat=10", reconnect_interval=0.3
    )
    other = await aio_pika.connect_robust(url(third))
    try:
        channel = await robust.channel()
        await channel.set_qos(5)
        exchange = await channel.declare_exchange("robust.in", "direct", durable=True)
        arguments = {"x-queue-type": "quorum"}
        queue = await channel.declare_queue(name, durable=True, arguments=arguments)
        await queue.bind(exchange, "key")
        transient = await channel.declare_queue("robust.mine", exclusive=True)
        await transient.consume(took)
        await queue.consume(took)
        publisher = await other.channel()
        outside = await publisher.get_exchange("robust.in")
        persistent = aio_pika.DeliveryMode.PERSISTENT
        await outside.publish(aio_pika.Message(b"before", delivery_mode=persistent), "key")
        async with asyncio.timeout(PATIENCE_S):
            assert await got.get() == b"before"
            back = asyncio.Event()
            robust.reconnect_callbacks.add(lambda *_: back.set())
            proxy.target = second.amqp_port
            first.kill()
            await back.wait()
        async with asyncio.timeout(PATIENCE_S):
            await outside.publish(aio_pika.Message(b"after", delivery_mode=persistent), "key")
            bodies = {await got.get()}
            while b"after" not in bodies:  # "before" again, if its ack was lost with the node
                bodies.add(await got.get())
            await channel.default_exchange.publish(aio_pika.Message(b"mine"), "robust.mine")
            while b"mine" not in bodies:
                bodies.add(await got.get())
        assert bodies <= {b"before", b"after", b"mine"}
    finally:
        await robust.close()
        await other.close()
        await proxy.stop()


class Switch:
    """A port that stands before whichever node it is set to, like a load balancer."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Switch:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            async with asyncio.TaskGroup() as both:
                both.create_task(pump(reader, far_writer))
                both.create_task(pump(far_reader, writer))
        except (OSError, ExceptionGroup):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
