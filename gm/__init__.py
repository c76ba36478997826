"""Guaranteed multicast, many rings to a node. Knows nothing of queues, of Raft or of AMQP.

`core` is the protocol without IO; its docstring explains it. `RingHost` runs all rings of a node on
one transport. The embedder gives each ring a `RingOwner`, pushes views into it and keeps its
`RingHandle`. `ports` lists what the embedder must provide.
"""

from gm.core.effects import Counters, RingDelivery
from gm.core.limits import MemberLimits
from gm.core.view import MemberId, Slot, View
from gm.errors import GmError, InvariantViolated, PayloadDamaged, RingClosed
from gm.host import RingHandle, RingHost
from gm.ports import RingOwner, Transport, ViewStore
from gm.settings import RingHostConfig

__all__ = [
    "Counters",
    "GmError",
    "InvariantViolated",
    "MemberId",
    "MemberLimits",
    "PayloadDamaged",
    "RingClosed",
    "RingDelivery",
    "RingHandle",
    "RingHost",
    "RingHostConfig",
    "RingOwner",
    "Slot",
    "Transport",
    "View",
    "ViewStore",
]
