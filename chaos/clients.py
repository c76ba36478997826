"""Publishers and consumers: what the generators say, done with pika, written to the history.

Each client is a thread with an IO loop of its own. It stays on a node until the connection ends
or answers nothing for `CONFIRM_TIMEOUT_S`, then goes on to the next. Every connection of a
publisher is a new publisher in the history ("p1.2"): order and confirms hold within one.

An outcome that is not known stays unknown: whatever happens after a publish was handed to pika,
it is never recorded as failed.
"""

from __future__ import annotations

import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pika
import pika.exceptions
from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from chaos import generators
from chaos.cluster import HOST
from chaos.history import Recorder

CONFIRM_TIMEOUT_S = 10.0
_HEARTBEAT_S = 10
_CHECK_S = 0.25
_RETRY_S = 0.2
_BEHIND_MAX_S = 0.5
_IN_FLIGHT_MAX = 1_000
_PREFETCH = 50
_VHOST = "/"


class Client(threading.Thread, ABC):
    """One client: connects, works, and connects to the next node when that ends.

    Args:
        name: Its name, also of its recorder.
        recorder: Where its events go.
        nodes: The nodes it tries, in turn.
        ports: AMQP port of each node.
    """

    def __init__(
        self, name: str, recorder: Recorder, nodes: Iterator[str], ports: Mapping[str, int]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._recorder = recorder
        self._nodes = nodes
        self._ports = ports
        self._ended = threading.Event()
        self._count = 0
        self._node = ""
        self._label = ""
        self._connection: pika.SelectConnection | None = None
        self._channel: Channel | None = None
        self._is_over = True
        self._ending_since: float | None = None
        self.crash: BaseException | None = None

    def run(self) -> None:
        """Work until ended."""
        try:
            for node in self._nodes:
                if self._ended.is_set():
                    break
                self._count += 1
                self._node, self._label = node, f"{self.name}.{self._count}"
                self._work()
                self._ended.wait(_RETRY_S)
        except BaseException as error:  # noqa: BLE001  the thread's outermost frame; the run reports it
            self.crash = error
        finally:
            self._recorder.close()

    def end(self) -> None:
        """Ask it to finish what is in flight and stop; returns at once."""
        self._ended.set()

    def _work(self) -> None:
        """One connection, from its opening to its end."""
        self._is_over = False
        self._channel = None
        parameters = pika.ConnectionParameters(
            HOST,
            self._ports[self._node],
            heartbeat=_HEARTBEAT_S,
            connection_attempts=1,
            socket_timeout=3,
            stack_timeout=5,
        )
        connection = pika.SelectConnection(
            parameters,
            on_open_callback=self._opened,
            on_open_error_callback=self._not_opened,
            on_close_callback=self._closed,
        )
        self._connection = connection
        self._later(_CHECK_S, self._check)
        connection.ioloop.start()
        connection.ioloop.close()

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call something on the loop, unless the connection is over by then."""
        assert self._connection is not None
        self._connection.ioloop.call_later(delay_s, lambda: None if self._is_over else act())

    def _opened(self, connection: Any) -> None:
        self._write("open", "ok")
        connection.channel(channel_number=1, on_open_callback=self._channel_opened)

    def _not_opened(self, _connection: Any, error: BaseException) -> None:
        self._write("open", "fail", code=str(error) or type(error).__name__)
        self._over("not opened")

    def _closed(self, _connection: Any, error: BaseException) -> None:
        is_ours = isinstance(error, pika.exceptions.ConnectionClosedByClient)
        if not self._is_over:
            self._write("close", "ok" if is_ours else "info", code=str(error))
            self._over("closed")

    def _channel_opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        self._attach(channel)

    def _channel_closed(self, _channel: Channel, error: BaseException) -> None:
        if self._is_over or isinstance(error, pika.exceptions.ChannelClosedByClient):
            return
        assert self._connection is not None
        self._write("close", "info", code=str(error))
        self._over("channel closed")

    def _abandon(self, why: str) -> None:
        """Leave a connection that says nothing."""
        self._write("close", "info", code=why)
        self._over(why)

    def _over(self, why: str) -> None:
        assert self._connection is not None
        self._is_over = True
        self._lost(why)
        if self._connection.is_open:
            self._connection.close()  # sent if the socket takes it; nobody waits for the answer
        self._connection.ioloop.stop()

    def _finish(self) -> None:
        """Close in order: what was sent before is handled before."""
        assert self._connection is not None
        if self._connection.is_open:
            self._connection.close()

    def _ending_s(self) -> float:
        """Seconds for which it has been trying to end."""
        now = time.monotonic()
        if self._ending_since is None:
            self._ending_since = now
        return now - self._ending_since

    def _write(self, op: str, type_: str, **columns: str | int | bool) -> None:
        channel = self._channel.channel_number if self._channel is not None else 0
        self._recorder.write(
            op, type_, node=self._node, connection=self._label, channel=channel, **columns
        )

    @abstractmethod
    def _attach(self, channel: Channel) -> None:
        """The channel is open: begin."""

    @abstractmethod
    def _check(self) -> None:
        """Called a few times a second while the connection lives; schedules itself again."""

    @abstractmethod
    def _lost(self, why: str) -> None:
        """The connection is over: settle the books."""


class Publisher(Client):
    """Publishes persistent, mandatory messages with confirms to the default exchange."""

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        nodes: Iterator[str],
        ports: Mapping[str, int],
        *,
        queue: str,
        plan: Iterator[generators.Publish],
    ) -> None:
        super().__init__(name, recorder, nodes, ports)
        self._queue = queue
        self._plan = plan
        self._tag = 0
        self._due = 0.0
        self._waiting: dict[int, float] = {}  # delivery tag -> when sent; in order of tags

    def _attach(self, channel: Channel) -> None:
        self._tag = 0
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=lambda _ok: self._next())

    def _next(self) -> None:
        if self._is_over or self._ended.is_set():
            return
        step = next(self._plan)
        if len(self._waiting) < _IN_FLIGHT_MAX:
            self._publish(step.pad_bytes)
        # Pauses follow the plan, not each other: the rate holds however long a publish takes.
        now = time.monotonic()
        self._due = max(self._due, now - _BEHIND_MAX_S) + step.pause_s
        self._later(max(0.0, self._due - now), self._next)

    def _publish(self, pad_bytes: int) -> None:
        assert self._channel is not None
        tag = self._tag = self._tag + 1  # also the publisher's seq: one channel for each connection
        content = generators.body(self._label, tag, pad_bytes)
        self._about("publish", "invoke", tag, size=len(content), body_crc=zlib.crc32(content))
        self._waiting[tag] = time.monotonic()
        properties = BasicProperties(
            delivery_mode=2, message_id=generators.msg_id(self._label, tag), app_id="chaos"
        )
        self._channel.basic_publish("", self._queue, content, properties, mandatory=True)

    def _answered(self, frame: Any) -> None:
        method = frame.method
        op, type_ = ("confirm", "ok") if isinstance(method, Basic.Ack) else ("nack", "info")
        last = method.delivery_tag
        covered = [tag for tag in self._waiting if tag < last] if method.multiple else []
        for tag in (*covered, last):  # the last even if nothing waits: a second answer must show
            self._waiting.pop(tag, None)
            self._about(op, type_, tag, delivery_tag=tag)

    def _returned(
        self, _channel: Channel, method: Basic.Return, _properties: BasicProperties, content: bytes
    ) -> None:
        found = generators.identity(content)
        code = f"{method.reply_code} {method.reply_text}"
        self._about("return", "fail", found.seq if found is not None else 0, code=code)

    def _about(self, op: str, type_: str, seq: int, **columns: str | int | bool) -> None:
        self._write(
            op,
            type_,
            op_id=f"{self._label}/{seq}",
            vhost=_VHOST,
            routing_key=self._queue,
            queue=self._queue,
            publisher=self._label,
            seq=seq,
            msg_id=generators.msg_id(self._label, seq),
            **columns,
        )

    def _check(self) -> None:
        oldest = next(iter(self._waiting.values()), None)
        if self._ended.is_set():
            if self._ending_s() > CONFIRM_TIMEOUT_S:
                self._abandon("unanswered")
                return
            if oldest is None:
                self._finish()
        elif oldest is not None and time.monotonic() - oldest > CONFIRM_TIMEOUT_S:
            self._abandon("timeout")
            return
        self._later(_CHECK_S, self._check)

    def _lost(self, why: str) -> None:
        for tag in self._waiting:
            self._about("unknown", "info", tag, code=why)
        self._waiting.clear()


class Consumer(Client):
    """Consumes, acks in batches of drawn size, gives a few back."""

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        nodes: Iterator[str],
        ports: Mapping[str, int],
        *,
        queue: str,
        plan: Iterator[generators.Handling],
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, recorder, nodes, ports)
        self._queue = queue
        self._plan = plan
        self._arguments = arguments
        self._held: list[tuple[int, str]] = []  # delivery tag and message, to be acked together
        self.last_delivery = time.monotonic()

    def _attach(self, channel: Channel) -> None:
        channel.add_on_cancel_callback(lambda _frame: self._cancelled())
        channel.basic_qos(prefetch_count=_PREFETCH)
        channel.basic_consume(
            self._queue,
            self._delivered,
            consumer_tag=self._label,
            arguments=self._arguments,
            callback=self._consuming,
        )

    def _consuming(self, _frame: Any) -> None:
        self._write("consume", "ok", queue=self._queue, consumer_tag=self._label)

    def _cancelled(self) -> None:
        if not self._is_over:
            self._write("cancel", "info", queue=self._queue, consumer_tag=self._label)
            self._abandon("cancelled")

    def _delivered(
        self, channel: Channel, method: Basic.Deliver, properties: BasicProperties, content: bytes
    ) -> None:
        self.last_delivery = time.monotonic()
        found = generators.identity(content)
        msg_id = generators.msg_id(*found) if found else properties.message_id or ""
        tag = method.delivery_tag
        self._about(
            "deliver",
            "ok",
            tag,
            msg_id,
            publisher=found.publisher if found else "",
            seq=found.seq if found else 0,
            exchange=method.exchange,
            routing_key=method.routing_key,
            redelivered=bool(method.redelivered),
            size=len(content),
            body_crc=zlib.crc32(content),
        )
        step = next(self._plan)
        if step.is_requeued:
            self._about("requeue", "ok", tag, msg_id)
            channel.basic_reject(tag, requeue=True)
            return
        self._held.append((tag, msg_id))
        if len(self._held) >= step.batch:
            self._ack()

    def _ack(self) -> None:
        if not self._held:
            return
        assert self._channel is not None
        for tag, msg_id in self._held:
            self._about("ack", "ok", tag, msg_id)
        last, is_multiple = self._held[-1][0], len(self._held) > 1
        self._held.clear()
        self._channel.basic_ack(last, multiple=is_multiple)

    def _about(
        self, op: str, type_: str, tag: int, msg_id: str, **columns: str | int | bool
    ) -> None:
        self._write(
            op,
            type_,
            vhost=_VHOST,
            queue=self._queue,
            consumer_tag=self._label,
            delivery_tag=tag,
            msg_id=msg_id,
            **columns,
        )

    def _check(self) -> None:
        if self._channel is not None and self._channel.is_open:
            self._ack()
        if self._ended.is_set():
            if self._ending_s() > CONFIRM_TIMEOUT_S:
                self._abandon("close not answered")
                return
            self._finish()
        self._later(_CHECK_S, self._check)

    def _lost(self, why: str) -> None:
        self._held.clear()


def within(timeout_s: float, what: str, act: Callable[[], int]) -> int:
    """Do something that blocks, for so long at most.

    pika's blocking calls wait for ever as long as the peer sends heartbeats. The thread that
    waits is left behind.

    Args:
        timeout_s: How long.
        what: Its words, for the error.
        act: What blocks.

    Returns:
        What it returned.

    Raises:
        TimeoutError: It did not return in time.
        pika.exceptions.AMQPError: What it raised.
        OSError: As well.
    """
    results: list[int] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(act())
        except (pika.exceptions.AMQPError, OSError, ValueError) as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    raise TimeoutError(f"{what}: no answer within {timeout_s:.0f} s")


def declare(port: int, queue: str, queue_type: str) -> int:
    """Declare the durable queue under test.

    Returns:
        How many messages are in it.

    Raises:
        pika.exceptions.AMQPError: The node refuses, or cannot be reached.
    """
    with _connect(port) as connection:
        answer = connection.channel().queue_declare(
            queue, durable=True, arguments={"x-queue-type": queue_type}
        )
        return int(answer.method.message_count)


def drain(port: int, queue: str, recorder: Recorder, node: str, *, empty_gets: int = 3) -> int:
    """Get and ack through one node until the queue is empty several times in a row.

    Args:
        port: The node's AMQP port.
        queue: The queue.
        recorder: Where the gets go.
        node: The node's name.
        empty_gets: How many empty answers in a row end it.

    Returns:
        How many messages there were.

    Raises:
        pika.exceptions.AMQPError: The node refuses, or cannot be reached.
    """
    label = f"drain.{node}"
    empty = count = 0
    with _connect(port) as connection:
        channel = connection.channel()
        while empty < empty_gets:
            method, properties, content = channel.basic_get(queue)
            if method is None or content is None:
                empty += 1
                time.sleep(0.1)  # what is being requeued gets a moment to arrive
                continue
            empty, count = 0, count + 1
            found = generators.identity(content)
            msg_id = generators.msg_id(*found) if found else properties.message_id or ""
            about: dict[str, str | int | bool] = {
                "node": node,
                "connection": label,
                "channel": channel.channel_number,
                "vhost": _VHOST,
                "queue": queue,
                "consumer_tag": label,
                "delivery_tag": method.delivery_tag,
                "msg_id": msg_id,
            }
            recorder.write(
                "get",
                "ok",
                **about,
                publisher=found.publisher if found else "",
                seq=found.seq if found else 0,
                exchange=method.exchange,
                routing_key=method.routing_key,
                redelivered=bool(method.redelivered),
                size=len(content),
                body_crc=zlib.crc32(content),
            )
            recorder.write("ack", "ok", **about)
            channel.basic_ack(method.delivery_tag)
    return count


def depth(port: int, queue: str) -> int:
    """Ready messages as a passive declare on one node counts them.

    Raises:
        pika.exceptions.AMQPError: The node refuses, or cannot be reached.
    """
    with _connect(port) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def _connect(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            HOST, port, heartbeat=_HEARTBEAT_S, socket_timeout=5, stack_timeout=10,
            blocked_connection_timeout=20,
        )
    )  # fmt: skip
