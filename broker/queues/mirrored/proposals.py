"""Collects the steps of all rings of this node: one proposal at a time for all queues (P2).

A step that is wanted again while it is under way is not proposed twice. The outcome of a proposal
is known when it is answered; one that timed out may still be committed. Every later proposal says
that this node has given up the earlier one (`commands.encode_request`, lowest), and group 0 then
refuses it. So the answer to a later proposal settles all before it (P20).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.errors import Refusal
from broker.metadata.commands import ChangeRings
from broker.metadata.ring_commands import RingStep
from broker.ports import Done

STEPS_MAX: Final = 1_000
"""Most steps of one proposal: more would delay other commands of group 0."""

GATHER_S: Final = 0.01
"""How long a step waits for others: a death concerns many queues within one or two turns."""

Outcome = Callable[[bool | None], None]
"""Called with True: done; False: not done, or the record says so; None: not known yet."""


class Proposer(Protocol):
    """The node, as it proposes to group 0 (`broker.queues.node.NodeContext`)."""

    def propose(self, command: ChangeRings, done: Done, /) -> None:
        """Propose a command in the background, then call back with its result."""
        ...

    def after(self, seconds: float, call: Callable[[], None]) -> object:
        """Call something after so many seconds."""
        ...


class Proposals:
    """The steps that this node wants, and the proposal under way.

    Args:
        node: This node, which proposes to group 0.
    """

    def __init__(self, node: Proposer) -> None:
        self._node = node
        self._wanted: dict[RingStep, Outcome] = {}
        self._under_way: dict[RingStep, Outcome] = {}
        self._unknown: dict[RingStep, Outcome] = {}
        self._is_asking = False  # perhaps without steps, to settle unknown outcomes
        self._is_due = False
        self._is_over = False

    def want(self, step: RingStep, outcome: Outcome | None = None) -> None:
        """Have a step proposed soon, unless it is already on its way.

        Args:
            step: Fenced, so that it is harmless if it comes late.
            outcome: Called with the result, in the turn that applied the step.
        """
        if step in self._under_way or step in self._unknown or self._is_over:
            return
        self._wanted.setdefault(step, outcome or _ignore)
        self._schedule(GATHER_S)

    def tick(self) -> None:
        """Settle proposals without an answer by another one. Call once a second."""
        if self._unknown:
            self._schedule(GATHER_S)

    def end(self) -> None:
        """Propose nothing more."""
        self._is_over = True
        self._wanted.clear()

    def _schedule(self, seconds: float) -> None:
        if not self._is_due and not self._is_asking:
            self._is_due = True
            self._node.after(seconds, self._flush)

    def _flush(self) -> None:
        self._is_due = False
        if self._is_asking or self._is_over or not (self._wanted or self._unknown):
            return
        self._is_asking = True
        steps = list(self._wanted)[:STEPS_MAX]
        self._under_way = {step: self._wanted.pop(step) for step in steps}
        self._node.propose(ChangeRings(tuple(steps)), self._answered)

    def _answered(self, result: object) -> None:
        self._is_asking = False
        under_way, self._under_way = self._under_way, {}
        if isinstance(result, Refusal):
            self._unknown.update(under_way)
            for outcome in under_way.values():
                outcome(None)
        else:
            settled, self._unknown = self._unknown, {}
            for outcome in settled.values():
                outcome(False)  # or it was done; the record says which
            assert isinstance(result, tuple | list)
            for outcome, is_done in zip(under_way.values(), result, strict=True):
                outcome(bool(is_done))
        if self._wanted:
            self._schedule(GATHER_S)


def _ignore(outcome: bool | None) -> None:  # noqa: FBT001 - the shape of an Outcome
    """Nothing to do: the record shows the outcome."""
