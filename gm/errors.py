"""Errors of a ring that its owner may meet."""

from __future__ import annotations


class GmError(Exception):
    """Base of the errors of this package."""


class PayloadDamaged(GmError):
    """The bytes from a link are not a ring message, or are of another version."""


class RingClosed(GmError):
    """The ring is not open on this node, or has stopped: the outcome of broadcasts is unknown."""


class InvariantViolated(GmError):
    """A bug: the ring stops here, and the member must leave and come back empty."""
