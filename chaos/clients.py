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
from typing import Any, NamedTuple

import pika
import pika.exceptions
from pika.channel import Channel
from pika.spec import Basic, BasicProperties
from typing_extensions import override

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
_PUBLISHER, _PUBLISHING_ID = "x-warren-publisher", "x-warren-publishing-id"
_OFFSET = "x-stream-offset"
_READ_IDLE_S = 5.0


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


class _Sent(NamedTuple):
    """A message that waits for its answer: when it was sent, and what it is."""

    at: float
    publisher: str
    seq: int
    pad_bytes: int


class Publisher(Client):
    """Publishes persistent, mandatory messages with confirms to the default exchange.

    One with a name tells the broker, which is a stream, who published each message under which
    number. Then its next connection sends again what the last one heard nothing of.
    """

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        nodes: Iterator[str],
        ports: Mapping[str, int],
        *,
        queue: str,
        plan: Iterator[generators.Publish],
        is_named: bool = False,
    ) -> None:
        super().__init__(name, recorder, nodes, ports)
        self._queue = queue
        self._plan = plan
        self._is_named = is_named
        self._tag = 0
        self._seq = 0
        self._due = 0.0
        self._waiting: dict[int, _Sent] = {}  # by delivery tag, in order of tags
        self._again: list[_Sent] = []

    def _attach(self, channel: Channel) -> None:
        self._tag = self._seq = 0
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=lambda _ok: self._begin())

    def _begin(self) -> None:
        again, self._again = self._again, []
        for sent in again:
            self._send(sent._replace(at=time.monotonic()))
        self._next()

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
        self._seq += 1
        sent = _Sent(time.monotonic(), self._label, self._seq, pad_bytes)
        content = generators.body(sent.publisher, sent.seq, pad_bytes)
        self._about("publish", "invoke", sent, size=len(content), body_crc=zlib.crc32(content))
        self._send(sent)

    def _send(self, sent: _Sent) -> None:
        assert self._channel is not None
        self._tag += 1
        self._waiting[self._tag] = sent
        headers: dict[str, Any] | None = None
        if self._is_named:
            headers = {_PUBLISHER: sent.publisher, _PUBLISHING_ID: sent.seq}
        properties = BasicProperties(
            delivery_mode=2, message_id=generators.msg_id(sent.publisher, sent.seq),
            app_id="chaos", headers=headers,
        )  # fmt: skip
        content = generators.body(sent.publisher, sent.seq, sent.pad_bytes)
        self._channel.basic_publish("", self._queue, content, properties, mandatory=True)

    def _answered(self, frame: Any) -> None:
        method = frame.method
        op, type_ = ("confirm", "ok") if isinstance(method, Basic.Ack) else ("nack", "info")
        last = method.delivery_tag
        covered = [tag for tag in self._waiting if tag < last] if method.multiple else []
        for tag in (*covered, last):  # the last even if nothing waits: a second answer must show
            sent = self._waiting.pop(tag, None) or _Sent(0.0, self._label, tag, 0)
            self._about(op, type_, sent, delivery_tag=tag)

    def _returned(
        self, _channel: Channel, method: Basic.Return, _properties: BasicProperties, content: bytes
    ) -> None:
        found = generators.identity(content)
        code = f"{method.reply_code} {method.reply_text}"
        who = (found.publisher, found.seq) if found is not None else (self._label, 0)
        self._about("return", "fail", _Sent(0.0, *who, 0), code=code)

    def _about(self, op: str, type_: str, sent: _Sent, **columns: str | int | bool) -> None:
        self._write(
            op,
            type_,
            op_id=f"{sent.publisher}/{sent.seq}",
            vhost=_VHOST,
            routing_key=self._queue,
            queue=self._queue,
            publisher=sent.publisher,
            seq=sent.seq,
            msg_id=generators.msg_id(sent.publisher, sent.seq),
            **columns,
        )

    def _check(self) -> None:
        oldest = next((sent.at for sent in self._waiting.values()), None)
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
        for sent in self._waiting.values():
            self._about("unknown", "info", sent, code=why)
        if self._is_named:
            self._again = [*self._waiting.values(), *self._again]
        self._waiting.clear()


class Consumer(Client):
    """Consumes, acks in batches of drawn size, gives a few back.

    Attributes:
        ack_delay_s: Seconds from a full batch to its ack; with what is prefetched a bound for how
            fast it takes messages. May change at any time.
        last_delivery: When it got its last message; `time.monotonic`.
    """

    _gives_back = True

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
        ack_delay_s: float = 0.0,
    ) -> None:
        super().__init__(name, recorder, nodes, ports)
        self.ack_delay_s = ack_delay_s
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
            arguments=self._consume_arguments(),
            callback=self._consuming,
        )

    def _consume_arguments(self) -> Mapping[str, Any] | None:
        return self._arguments

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
            stream_offset=offset_of(properties),
            size=len(content),
            body_crc=zlib.crc32(content),
        )
        self._got(offset_of(properties))
        step = next(self._plan)
        if step.is_requeued and self._gives_back:
            self._about("requeue", "ok", tag, msg_id)
            channel.basic_reject(tag, requeue=True)
            return
        self._held.append((tag, msg_id))
        if len(self._held) < step.batch:
            return
        if self.ack_delay_s:
            self._later(self.ack_delay_s, self._ack)
        else:
            self._ack()

    def _got(self, offset: int) -> None:
        """Note where a stream's consumer is."""

    def _ack(self) -> None:
        if not self._held or self._channel is None or not self._channel.is_open:
            return
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
        if self._channel is not None and self._channel.is_open and not self.ack_delay_s:
            self._ack()
        if self._ended.is_set():
            if self._ending_s() > CONFIRM_TIMEOUT_S:
                self._abandon("close not answered")
                return
            self._finish()
        self._later(_CHECK_S, self._check)

    def _lost(self, why: str) -> None:
        self._held.clear()


class StreamConsumer(Consumer):
    """Reads a stream from its beginning; its next connection goes on behind what it has read."""

    _gives_back = False
    _next_offset = 0

    @override
    def _consume_arguments(self) -> Mapping[str, Any]:
        return {_OFFSET: self._next_offset}

    @override
    def _got(self, offset: int) -> None:
        self._next_offset = offset + 1


def offset_of(properties: BasicProperties) -> int:
    """The offset of a stream's message; 0 of any other."""
    return int((properties.headers or {}).get(_OFFSET, 0))


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


def read_stream(port: int, queue: str, recorder: Recorder, node: str, attempt: int) -> int:
    """Read a whole stream through one node.

    Args:
        port: The node's AMQP port.
        queue: The stream.
        recorder: Where its messages go, as gets.
        node: The node's name.
        attempt: Which try this is: each is a consumer of its own.

    Returns:
        How many messages there were, up to what the stream says that it has.

    Raises:
        pika.exceptions.AMQPError: The node refuses, or cannot be reached.
    """
    label, count = f"drain.{node}.{attempt}", 0
    with _connect(port) as connection:
        channel = connection.channel()
        expected = channel.queue_declare(queue, passive=True).method.message_count
        channel.basic_qos(prefetch_count=_PREFETCH)
        arguments = {_OFFSET: "first"}
        read = channel.consume(
            queue, consumer_tag=label, arguments=arguments, inactivity_timeout=_READ_IDLE_S
        )
        while count < expected:
            method, properties, content = next(read)
            if method is None:
                break
            found = generators.identity(content)
            recorder.write(
                "get",
                "ok",
                node=node,
                connection=label,
                channel=channel.channel_number,
                vhost=_VHOST,
                queue=queue,
                consumer_tag=label,
                delivery_tag=method.delivery_tag,
                msg_id=generators.msg_id(*found) if found else properties.message_id or "",
                publisher=found.publisher if found else "",
                seq=found.seq if found else 0,
                exchange=method.exchange,
                routing_key=method.routing_key,
                redelivered=bool(method.redelivered),
                stream_offset=offset_of(properties),
                size=len(content),
                body_crc=zlib.crc32(content),
            )
            channel.basic_ack(method.delivery_tag)
            count += 1
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
