"""Whether a node may be reached by others as it is set up. Pure."""

from __future__ import annotations

from broker.cluster.authentication import link_tls, secret
from broker.config import Settings


def objection(settings: Settings) -> str | None:
    """Return why a node with these settings must not start, and what to set; None if it may.

    Args:
        settings: All of a node's.
    """
    return secret.objection(settings) or link_tls.objection(settings)
