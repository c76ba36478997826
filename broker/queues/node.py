"""A node as its queues see it: time, disk, the way to other nodes, and which boots are over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from broker.fifo.commands import Offer
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import Clock, Done, Journal
from broker.queues.dead_letters import DeadLetters
from broker.queues.envelopes import Answer
from broker.queues.timing import Defer, Later
from broker.storage.message_store import MessageStore

Post = Callable[[str, Answer], None]
"""Send an answer to a node; dropped when the node is not reachable (it will offer again)."""


@dataclass(slots=True, frozen=True)
class NodeContext:
    """The node as a classic queue sees it.

    Attributes:
        node: Its name.
        clock: Time.
        journal: Tells when records are durable.
        store: Where persistent messages of durable queues go, and come from at a restart.
        post: Answers to nodes, this one included.
        is_clogged: Tells whether more deliveries to a node shall wait here (P14).
        defer: `loop.call_soon`.
        later: `loop.call_later`.
        unused: Told the incarnation of a queue that is to go because nobody uses it, and what to
            call when it is gone, or is not going.
        dead_letters: Takes what dies.
    """

    node: str
    clock: Clock
    journal: Journal
    store: MessageStore
    post: Post
    is_clogged: Callable[[str], bool]
    defer: Defer
    later: Later
    unused: Callable[[int, Callable[[], None]], None]
    dead_letters: DeadLetters


class PeerTransport(Protocol):
    """The way to the registries of other nodes (`broker.server.node_service`)."""

    def send_offer(self, node: str, uid: int, offer: Offer) -> None:
        """Carry an offer; dropped when the node is not reachable."""
        ...

    def send_answer(self, node: str, answer: Answer) -> None:
        """Carry an answer; dropped when the node is not reachable."""
        ...

    def is_clogged(self, node: str) -> bool:
        """True while more for a node shall wait at its origin (P14)."""
        ...

    def send_ring(self, node: str, payload: bytes) -> None:
        """Carry bytes of mirrored queues' rings; dropped when the node is not reachable."""
        ...

    def ask_delete(
        self, node: str, queue: Queue, done: Done, *, if_unused: bool, if_empty: bool
    ) -> None:
        """Have a queue's home delete it (`QueueRegistry.delete_here`)."""
        ...

    def ask_stat(self, node: str, uid: int, done: Done, *, is_declare: bool = False) -> None:
        """`done(QueueStat)` from the node that serves the queue, or a `Refusal`.

        Args:
            node: Who is asked.
            uid: The queue's incarnation.
            done: Told.
            is_declare: A declare asks, which renews the life of a queue that expires.
        """
        ...


STRANGE_MS: Final = 60_000
"""A boot that group 0 does not name for so long has ended."""

STRANGE_BOOTS_MAX: Final = 1_024


class Boots:
    """Judges boots.

    Args:
        catalogue: Which boots live, and the latest that have ended.
        clock: Time.
    """

    def __init__(self, catalogue: Catalogue, clock: Clock) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._strange: dict[tuple[str, str], int] = {}  # not named by group 0, since when

    def is_over(self, node: str, boot: str) -> bool:
        """True if group 0 has ended a boot.

        One that it does not name may be so new that this node has not heard of it, or have ended
        longer ago than is remembered: time tells.
        """
        record = self._catalogue.node(node)
        if record is not None and record.boot == boot:
            return False
        if record is not None and boot in record.ended_boots:
            return True
        now_ms = self._clock.monotonic_ms()
        if len(self._strange) > STRANGE_BOOTS_MAX:
            self._strange.clear()
        return now_ms - self._strange.setdefault((node, boot), now_ms) >= STRANGE_MS
