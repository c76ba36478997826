"""Guaranteed multicast, many rings to a node. Knows nothing of queues, of Raft or of AMQP.

`core` is the protocol without IO; its docstring is the essay. `Host` runs all rings of a node on
one transport; whoever embeds it gives each ring a `RingOwner`, pushes views into it and holds a
`Ring`. What the embedder must provide stands in `ports`.
"""

from gm.core.effects import Counters, Delivery
from gm.core.limits import Limits
from gm.core.view import MemberId, Slot, View
from gm.errors import GmError, InvariantViolated, PayloadDamaged, RingClosed
from gm.host import Host, Ring
from gm.ports import RingOwner, Transport, ViewStore
from gm.settings import HostConfig

__all__ = [
    "Counters",
    "Delivery",
    "GmError",
    "Host",
    "HostConfig",
    "InvariantViolated",
    "Limits",
    "MemberId",
    "PayloadDamaged",
    "Ring",
    "RingClosed",
    "RingOwner",
    "Slot",
    "Transport",
    "View",
    "ViewStore",
]
