"""What a registry needs to talk to the registries of other nodes. No code, only promises."""

from __future__ import annotations

from typing import Protocol

from broker.fifo.commands import Offer
from broker.metadata.records import Queue
from broker.ports import Done
from broker.queues.envelopes import Answer


class Mail(Protocol):
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
