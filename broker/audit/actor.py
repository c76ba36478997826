"""Who asks for a change. Pure.

It goes from the connection or the request to the proposal as an argument. It is no context
variable: timers and tasks that begin inside a request would inherit its user, and the broker's own
acts would stand under that name.
"""

from __future__ import annotations

from typing import Final

import msgspec

INTERNAL_USER: Final = "rmq-internal"
"""RabbitMQ's name for the broker itself (rabbit.hrl, INTERNAL_USER)."""


class Actor(msgspec.Struct, array_like=True, frozen=True):
    """Who asks for a change. It goes to other nodes, too: fields are only appended.

    Attributes:
        user: The authenticated user; `INTERNAL_USER` for the broker itself.
        via: "amqp", "http", "ctl" (HTTP with the User-Agent of ctl), "config" (the settings),
            "cluster" (another node), "broker" (nobody asked).
        address: The name of the AMQP connection, the HTTP client's address, the file, or the node.
        part_of: What one line sums up: its changes have none of their own. "" for a single change.
    """

    user: str = INTERNAL_USER
    via: str = "broker"
    address: str = ""
    part_of: str = ""


BROKER: Final = Actor()
"""The broker itself: nobody asked."""

SETTINGS: Final = Actor(via="config")
"""The node's settings: the first user, definitions that are imported at the start."""
