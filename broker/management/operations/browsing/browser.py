"""Looks through messages at the node that has them, within bounds: nothing else may notice.

    who asks        one request of a user at a time, `REQUESTS_MAX` of a node, `SEARCHES_MAX` at the
                    node that serves the queues; others hear that it is busy
    a request       `SCANNED_MAX` messages, `SCANNED_BYTES` of bodies, `SEARCH_S` seconds; then it
                    answers with what it has found, and where to go on
    the loop        batches of `sources`, the rest by the pacer of all listings
    an answer       `ANSWER_BYTES`, or one message

A stream is read at the node that is asked, through the nearest replica, as its consumers read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from broker.fifo.ready.places import Place, Placed
from broker.management.answers import encode
from broker.management.control import NodeControl
from broker.management.operations.browsing.conditions import Conditions
from broker.management.operations.browsing.masking import Masks
from broker.management.operations.browsing.question import Question
from broker.management.operations.browsing.rows import row, token
from broker.management.operations.browsing.sessions import BrowseSessions
from broker.management.operations.browsing.sources import (
    Gone,
    QueueSource,
    Source,
    StreamSource,
    WalkedQueue,
)
from broker.management.operations.browsing.views import Seen, View
from broker.management.operations.leaders import NOT_LED, Leaders
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.management.pace import WorkPacer
from broker.message import Delivery
from broker.metadata.records import REPLICATED, Queue
from broker.queues.classic import ClassicQueue
from broker.server.serving import Serving
from broker.streams.offsets import OffsetSpec

BROWSE: Final = "browse"

SCANNED_MAX: Final = 20_000
SCANNED_BYTES: Final = 16 << 20
SEARCH_S: Final = 2.0
ANSWER_BYTES: Final = 256 << 10
READ_S: Final = 5.0
"""How long a disk may take for one batch."""

REQUESTS_MAX: Final = 4
SEARCHES_MAX: Final = 2

BUSY: Final = "other requests look through messages on this node"
NOT_READ: Final = (
    "the messages can't be read now: the node that has them changed, or its disk is slow"
)
_WAIT_S: Final = 2.0


class TooBusy(Exception):
    """Too many look through messages now; says who."""


class WalkedClassic:
    """A classic queue as `sources.WalkedQueue`.

    Args:
        queue: Served here.
    """

    def __init__(self, queue: ClassicQueue) -> None:
        self._queue = queue

    def walk(self, after: Place, count: int) -> list[Placed]:
        """As `WalkedQueue.walk`."""
        return self._queue.machine.messages.walk(after, count)

    def read(self, items: list[Delivery], done: Callable[[list[Delivery] | None], None]) -> None:
        """As `WalkedQueue.read`."""
        done(self._queue.disk.started(items))


class Search:
    """What one request found so far.

    Args:
        question: What is asked for.
        uid: The queue's.
        is_stream: The queue is one.
        clock: Seconds, from any beginning.

    Attributes:
        rows: The messages, as they are shown.
        place: The last one that was looked at.
        stopped: Why it goes no further: "count", "scanned", "bytes" or "time"; "" while it does.
    """

    def __init__(
        self, question: Question, uid: int, *, is_stream: bool, clock: Callable[[], float]
    ) -> None:
        self.rows: list[msgspec.Raw] = []
        self.place = question.after
        self.stopped = ""
        self.scanned = 0
        self.conditions = Conditions(question)
        self._question = question
        self._masks = Masks(question.masked)
        self._uid = uid
        self._is_stream = is_stream
        self._clock = clock
        self._until_s = clock() + SEARCH_S
        self._bytes = self._answer_bytes = 0

    def judge(self, batch: Sequence[Seen]) -> Generator[None, None, None]:
        """Look at messages, one a step, until there is a reason to stop."""
        if self._question.at is not None:
            yield from self._judge_one(batch, self._question.at.number)
            return
        for seen in batch:
            view = View(seen, self._masks)
            if self.conditions.met_by(view) and not self._show(view):
                self.stopped = "bytes"
                return
            self.place = seen.place
            self.scanned += 1
            self._bytes += len(seen.body)
            if len(self.rows) >= self._question.count:
                self.stopped = "count"
            elif self.scanned >= SCANNED_MAX or self._bytes >= SCANNED_BYTES:
                self.stopped = "scanned"
            elif self._clock() >= self._until_s:
                self.stopped = "time"
            if self.stopped:
                return
            yield

    def _judge_one(self, batch: Sequence[Seen], number: int) -> Generator[None, None, None]:
        """Look for one message, which is in the first batch or has left its place."""
        self.stopped = "count"
        for seen in batch:
            if seen.place.number == number:
                self._show(View(seen, self._masks))
                self.place = seen.place
                return
            yield

    def _show(self, view: View) -> bool:
        """Add a message to the answer; False if there is no room."""
        shown = encode(row(view, self._uid, self._question.truncate, is_stream=self._is_stream))
        if self.rows and self._answer_bytes + len(shown) > ANSWER_BYTES:
            return False
        self._answer_bytes += len(shown)
        self.rows.append(msgspec.Raw(shown))
        return True

    def answer(self, source: Source, node: str) -> bytes:
        """The answer, as JSON."""
        more = bool(self.stopped) and self.place is not None and source.has_more(self.place)
        found: dict[str, Any] = {
            "node": node,
            "messages": self.rows,
            "scanned": self.scanned,
            "stopped": self.stopped if more else "end",
            "next": token(self._uid, self.place) if more and self.place is not None else None,
            "searched_in_part": self.conditions.partly,
            "unreadable": source.unreadable,
        }
        return encode(found)


class Browser:
    """Looks through messages for operators.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
        leaders: The way to the nodes that lead.
        pace: Of all long work of the API.

    Attributes:
        sessions: Who browses what, for the audit log.
    """

    def __init__(
        self, control: NodeControl, remote: RemoteOperations, leaders: Leaders, pace: WorkPacer
    ) -> None:
        self._control = control
        self._remote = remote
        self._leaders = leaders
        self._pace = pace
        self.sessions = BrowseSessions()
        self._users: set[str] = set()
        self._searches = asyncio.Semaphore(SEARCHES_MAX)
        remote.on(BROWSE, self._browse)

    async def browse(self, queue: Queue, question: Question, user: str) -> OperationResult:
        """Look through a queue.

        Args:
            queue: The queue.
            question: What is asked for.
            user: Who asks.

        Returns:
            With JSON in its text; not done with why not.

        Raises:
            TooBusy: Not now.
        """
        with self._turn(user):
            operation = RemoteOperation(BROWSE, queue.uid, msgspec.json.encode(question).decode())
            if queue.type == "stream":
                result = await self._remote.ask(self._control.name, operation)
            elif queue.type in REPLICATED:
                result = await self._leaders.ask(queue, operation)
            else:
                result = await self._remote.ask(queue.home, operation)
        if not result.is_done and result.text == BUSY:
            raise TooBusy(BUSY)
        return result

    @contextmanager
    def _turn(self, user: str) -> Iterator[None]:
        if user in self._users:
            raise TooBusy("another request of yours looks through messages")
        if len(self._users) >= REQUESTS_MAX:
            raise TooBusy(BUSY)
        self._users.add(user)
        try:
            yield
        finally:
            self._users.discard(user)

    # What is asked of this node.

    async def _browse(self, operation: RemoteOperation) -> OperationResult:
        question = msgspec.json.decode(operation.argument, type=Question)
        own = self._control.settings.management_browse_masked
        if own != question.masked:
            question = msgspec.structs.replace(question, masked=(*question.masked, *own))
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._searches.acquire()
        except TimeoutError:
            return OperationResult(is_done=False, text=BUSY)
        try:
            return await self._search(operation.uid, question)
        except (Gone, TimeoutError):
            return OperationResult(is_done=False, text=NOT_READ)
        finally:
            self._searches.release()

    async def _search(self, uid: int, question: Question) -> OperationResult:
        source = self._source(uid, question)
        if source is None:
            return OperationResult(is_done=False, text=NOT_LED)
        search = Search(
            question,
            uid,
            is_stream=isinstance(source, StreamSource),
            clock=asyncio.get_running_loop().time,
        )
        while not search.stopped:
            async with asyncio.timeout(READ_S):
                batch = await source.batch(self._pace)
            if batch is None:
                break
            await self._pace.run(search.judge(batch))
            await asyncio.sleep(
                0
            )  # the loop has a turn, also where all of it took less than a slice
        answer = search.answer(source, self._control.name)
        return OperationResult(is_done=True, text=answer.decode())

    def _source(self, uid: int, question: Question) -> Source | None:
        """The messages from where the question begins; None if this node does not have them."""
        serving = self._control.serving
        if serving is None or not serving.is_valid():
            return None
        queues = serving.queues
        kind, value = question.start
        log = queues.reading.readable(uid) if kind != "position" else None
        if log is not None:
            return StreamSource(log, _spec(question))
        found = walked(serving, uid)
        at = question.at
        after = question.after if at is None else Place(at.rank, at.number - 1)
        return None if found is None else QueueSource(found, after, value)


def walked(serving: Serving, uid: int) -> WalkedQueue | None:
    """Return a classic or quorum queue; None unless this node has its messages."""
    classic = serving.queues.served(uid)
    return serving.queues.quorum_here(uid) if classic is None else WalkedClassic(classic)


def _spec(question: Question) -> OffsetSpec:
    if question.at is not None:
        return OffsetSpec("offset", question.at.number)
    if question.after is not None:
        return OffsetSpec("offset", question.after.number + 1)
    kind, value = question.start
    return OffsetSpec(kind, value)  # type: ignore[arg-type]  # as `question_in` has it
