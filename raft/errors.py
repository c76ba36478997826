"""Errors of Raft groups that an embedder may meet."""

from __future__ import annotations


class RaftError(Exception):
    """Any of the errors below."""


class NotLeader(RaftError):
    """This replica does not lead its group, so it can't take the proposal.

    Attributes:
        hint: The node that leads, as far as this one knows, or None.
    """

    def __init__(self, hint: str | None = None) -> None:
        super().__init__(f"not the leader, which is {hint or 'unknown'}")
        self.hint = hint


class ProposalDropped(RaftError):
    """The proposal was not taken, or its outcome will never be known here."""


class ChangeRefused(RaftError):
    """The membership change can't be made now; the text says why."""


class LogCorrupt(RaftError):
    """The records of the log contradict each other: this replica must not vote, lead or serve."""


class GroupClosed(RaftError):
    """The group was closed on this node."""


class InvariantViolated(RaftError):
    """A bug: the group stops here and keeps the evidence."""
