"""A node, as the classic queues that live on it see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.ports import Clock, Journal
from broker.queues.dead_letters import DeadLetters
from broker.queues.envelopes import Answer
from broker.queues.timing import Defer, Later
from broker.storage.message_store import MessageStore

Post = Callable[[str, Answer], None]
"""Send an answer to a node; dropped when the node is not reachable (it will offer again)."""


@dataclass(slots=True, frozen=True)
class Home:
    """What a classic queue needs of the node on which it lives.

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
