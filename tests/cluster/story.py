"""Records what happens to every message of a queue, over one connection that does both ends.

A worker publishes numbered messages with confirms, consumes them in order and acks; when its node
dies, the story says what must be in the queue, what must not, and in which order. An ack is known
to be on disk once a publish that the same connection sent after it was confirmed.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from typing import ClassVar, Final

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.nodes import Node
from tests.wire.raw import BODY, CONTENT_HEADER, METHOD, Raw, content_header, frame, publish

PERSISTENT: Final = b"\x10\x00\x02"  # delivery-mode is there, and 2
FRAME_BYTES: Final = 131_064
PUBLISHES, DELIVERIES = 1, 2  # channels
BURST: Final = 20
NUMBER_BYTES: Final = 10


class Story:
    """One queue through all lives of its node.

    Attributes:
        published: The last number.
        must: Confirmed or seen after a restart, and not acked.
        acked: Acked, and nobody knows yet whether that is on disk.
        gone: Settled for sure, or missed after a restart: never to be seen again.
    """

    prefetch = 0
    consume: ClassVar[dict[str, object]] = {}

    def __init__(self, node: Node, queue: str, size: int, **arguments: object) -> None:
        self.node, self.queue, self.size = node, queue, size
        self.published = 0
        self.must: set[int] = set()
        self.acked: set[int] = set()
        self.gone: set[int] = set()
        self.faults: list[str] = []
        self.lock = threading.Lock()
        with node.connect() as connection:
            connection.channel().queue_declare(queue, durable=True, arguments=arguments)

    def body(self, number: int) -> bytes:
        return b"%0*d" % (NUMBER_BYTES, number) + b"%d" % (number % 10) * (self.size - NUMBER_BYTES)

    def number(self, body: bytes) -> int:
        """The number of a body, which must be whole."""
        number = int(body[:NUMBER_BYTES])
        if body != self.body(number):
            self.faults.append(f"message {number} is damaged")
        return number

    def look(self) -> list[int]:
        """Everything in the queue, in order; it stays there."""
        with Raw(self.node.amqp_port) as raw:
            raw.to_channel()
            there = raw.call(1, spec.QueueDeclare(self.queue, passive=True), spec.QueueDeclareOk)
            raw.call(1, spec.BasicQos(prefetch_count=self.prefetch), spec.BasicQosOk)
            consume = spec.BasicConsume(self.queue, arguments=self.consume)
            raw.call(1, consume, spec.BasicConsumeOk)
            found = [self.number(_content(raw)[1]) for _ in range(there.message_count)]
            raw.call(0, spec.ConnectionClose(320, "seen"), spec.ConnectionCloseOk)
        return found

    def judge(self) -> None:
        """Nobody works any more, and the node was restarted: is everything as it must be?"""
        found = self.look()
        there = set(found)
        assert not self.faults, self.faults
        assert found == sorted(there), "out of order, or twice"
        assert not self.must - there, f"confirmed and lost: {_some(self.must - there)}"
        assert not there & self.gone, f"settled and back: {_some(there & self.gone)}"
        assert max(there, default=0) <= self.published, "invented"
        self.gone.update(set(range(1, self.published + 1)) - there)
        self.must, self.acked = there, set()


class Worker(threading.Thread):
    """Works on a story until its node is dead or it is told to end.

    Args:
        story: Of one queue.
        window: Publishes that may wait for their confirms.
        keeps: So many messages stay in the queue; None: nothing is consumed.
        limit: Publish no more than so many; 0: others publish meanwhile.

    Attributes:
        confirmed: How many confirms have come.
        is_blocked: By an alarm.
    """

    def __init__(
        self, story: Story, window: int = 100, keeps: int | None = None, limit: int = 1 << 30
    ) -> None:
        super().__init__(daemon=True)
        self._story = story
        self._window = window
        self._keeps = keeps
        self._limit = story.published + limit
        self._ended = threading.Event()
        self._raw = Raw(story.node.amqp_port)
        # Publishes without an answer: number, and how many acks had been sent before it.
        self._waiting: deque[tuple[int, int]] = deque()
        self._first_tag = 0
        self._acks: list[int] = []
        self._settled = 0
        self._is_alone = limit > 0
        self._expected = deque(sorted(story.must))
        self._last = 0
        self._deliveries: deque[tuple[int, int]] = deque()
        self._error: BaseException | None = None
        self.confirmed = 0
        self.is_blocked = False

    def run(self) -> None:
        try:
            self._begin()
            while not self._ended.is_set():
                self._publish()
                if not self._read():
                    return
                self._ack()
        except OSError:
            return  # the node is gone, or nothing came for a while
        except BaseException as error:  # told by `end`
            self._error = error
            raise
        finally:
            self._raw.socket.close()

    def end(self) -> None:
        """Wait until it has noticed that its node is dead, or ends now."""
        self._ended.set()
        self.join(30)
        assert not self.is_alive()
        assert self._error is None, self._error

    def _begin(self) -> None:
        raw, story = self._raw.to_channel(PUBLISHES), self._story
        raw.call(PUBLISHES, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        self._first_tag = 1
        if self._keeps is not None:
            raw.open_channel(DELIVERIES)
            raw.call(DELIVERIES, spec.BasicQos(0, 200), spec.BasicQosOk)
            raw.call(DELIVERIES, spec.BasicConsume(story.queue), spec.BasicConsumeOk)

    def _publish(self) -> None:
        story, pieces = self._story, []
        room = min(self._window - len(self._waiting), self._limit - story.published, BURST)
        if self.is_blocked or room <= 0:
            return
        for _ in range(room):
            story.published += 1
            body = story.body(story.published)
            pieces += [
                publish(PUBLISHES, story.queue),
                content_header(PUBLISHES, len(body), properties=PERSISTENT),
            ]
            for start in range(0, len(body), FRAME_BYTES):
                pieces.append(frame(BODY, PUBLISHES, body[start : start + FRAME_BYTES]))
            self._waiting.append((story.published, len(self._acks)))
            self._expected.append(story.published)
        self._raw.socket.sendall(b"".join(pieces))

    def _read(self) -> bool:
        """One frame, or one delivery; False when the node has hung up."""
        came = self._raw.read()
        if came is None:
            return False
        method = came.method
        if isinstance(method, spec.BasicAck):
            self._confirm(method.delivery_tag, is_multiple=method.multiple)
        elif isinstance(method, spec.BasicDeliver):
            number = self._story.number(_body(self._raw))
            self._arrived(number)
            self._deliveries.append((method.delivery_tag, number))
        elif isinstance(method, spec.ConnectionBlocked | spec.ConnectionUnblocked):
            self.is_blocked = isinstance(method, spec.ConnectionBlocked)
        elif isinstance(method, spec.ConnectionClose) and method.reply_code == 320:
            return False  # the node ends in good order
        else:
            self._story.faults.append(f"the node says {method}")
            return False
        return True

    def _arrived(self, number: int) -> None:
        """Each comes in its place; beside another publisher only the order is known."""
        due = self._expected.popleft() if self._is_alone else self._last + 1
        if number != due if self._is_alone else number < due:
            self._story.faults.append(f"message {number} came where {due} was due")
        self._last = number

    def _confirm(self, tag: int, *, is_multiple: bool) -> None:
        story = self._story
        position = tag - self._first_tag
        assert is_multiple or position == 0, "one queue confirms in order"
        with story.lock:
            for _ in range(position + 1):
                number, acks = self._waiting.popleft()
                if number not in story.acked:
                    story.must.add(number)
                story.gone.update(self._acks[self._settled : acks])
                self._settled = max(self._settled, acks)
        self._first_tag = tag + 1
        self.confirmed += position + 1

    def _ack(self) -> None:
        story, last = self._story, 0
        while self._deliveries and self._deliveries[0][1] <= story.published - (self._keeps or 0):
            last, number = self._deliveries.popleft()
            with story.lock:
                story.acked.add(number)
                story.must.discard(number)
            self._acks.append(number)
        if last:
            self._raw.send(method_frame(DELIVERIES, spec.BasicAck(last, multiple=True)))


class StreamStory(Story):
    """A stream, of which nothing is consumed before it is looked at."""

    prefetch = 65_535
    consume: ClassVar[dict[str, object]] = {"x-stream-offset": "first"}

    def __init__(self, node: Node, stream: str, size: int) -> None:
        super().__init__(node, stream, size, **{"x-queue-type": "stream"})


def _content(raw: Raw) -> tuple[spec.BasicDeliver, bytes]:
    """The next delivery."""
    return raw.expect(spec.BasicDeliver), _body(raw)


def _body(raw: Raw) -> bytes:
    """What follows basic.deliver."""
    header = raw.read()
    assert header is not None
    if header.kind != CONTENT_HEADER:
        raise AssertionError(f"{header} instead of a content header")
    size = struct.unpack_from(">HHQ", header.payload)[2]
    body = b""
    while len(body) < size:
        piece = raw.read()
        if piece is None:
            raise ConnectionResetError("in the middle of a content")
        assert piece.kind == BODY != METHOD
        body += piece.payload
    return body


def _some(numbers: set[int]) -> str:
    return f"{len(numbers)}, the first {sorted(numbers)[:5]}"
