"""Questions for a queue's counts, from a node that does not serve it."""

from __future__ import annotations

from typing import NamedTuple

from broker.errors import Refusal
from broker.ports import Done
from broker.queues.client.routes import HomeRoute, LeaderRoute
from broker.queues.node import PeerTransport


class _Question(NamedTuple):
    done: Done
    until_ms: int
    is_declare: bool


class StatQuestions:
    """Unanswered questions for a queue's counts; repeated to each new server until they time out.

    Args:
        uid: The queue's incarnation.
        transport: Carries questions.
        route: Names the node that serves the queue now.
    """

    def __init__(self, uid: int, transport: PeerTransport, route: HomeRoute | LeaderRoute) -> None:
        self._uid = uid
        self._transport = transport
        self._route = route
        self._waiting: list[_Question] = []
        self._is_over = False

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, done: Done, until_ms: int, *, is_declare: bool) -> None:
        """Ask now if a node serves the queue, else with the next `again`.

        Args:
            done: Called with the counts.
            until_ms: Until when it waits for a serving node, monotonic milliseconds.
            is_declare: A declare asks, which renews the queue's x-expires.
        """
        question = _Question(done, until_ms, is_declare)
        target = self._route.target
        if target is None:
            self._waiting.append(question)
            return

        def answered(stat: object) -> None:
            if isinstance(stat, Refusal) and not self._is_over:
                self._waiting.append(question)  # between two leaders, or about to serve
            else:
                done(stat)

        self._transport.ask_stat(target, self._uid, answered, is_declare=is_declare)

    def again(self, now_ms: int, refusal: Refusal | None, late: Refusal) -> None:
        """Ask the waiting questions again.

        Args:
            now_ms: Monotonic milliseconds.
            refusal: Answer to all of them; None: ask them.
            late: Answer to those that have waited for too long.
        """
        waiting, self._waiting = self._waiting, []
        for done, until_ms, is_declare in waiting:
            if refusal is not None or now_ms >= until_ms:
                done(refusal or late)
            else:
                self.ask(done, until_ms, is_declare=is_declare)

    def end(self, refusal: Refusal) -> None:
        """The queue is gone: refuse all questions."""
        self._is_over = True
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            question.done(refusal)
