"""Errors of a ring that its owner may meet."""

from __future__ import annotations


class GmError(Exception):
    """Any of the errors below."""


class PayloadDamaged(GmError):
    """Bytes from a link that are no ring message, or of another version."""


class RingClosed(GmError):
    """The ring is not open on this node, or has stopped; what was broadcast has no outcome."""


class InvariantViolated(GmError):
    """A bug: the ring stops here, and the member must leave and come back empty."""
