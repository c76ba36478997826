"""What queues can be sorted by without an item for each of them. Pure.

Most columns are those of the last sample. What is no number of a sample is looked at anew: state,
node and memory, what queues have in memory and on disk, and the numbers of `QueueDetails`. What
nodes say of a state is put together here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.counters import MESSAGE_KEYS
from broker.metadata.records import REPLICATED, Queue
from broker.ports import QueueDetails, QueueStat

_PREFIX: Final = "message_stats."
_DETAILS: Final = "_details.rate"

OF_STAT: Final[Mapping[str, Callable[[QueueStat], int]]] = {
    "consumers": lambda stat: stat.consumers,
    "message_bytes": lambda stat: stat.ready_bytes + stat.unacked_bytes,
    "message_bytes_ready": lambda stat: stat.ready_bytes,
    "message_bytes_unacknowledged": lambda stat: stat.unacked_bytes,
    "messages": lambda stat: stat.ready + stat.unacked,
    "messages_ready": lambda stat: stat.ready,
    "messages_unacknowledged": lambda stat: stat.unacked,
}

IN_MEMORY: Final[Mapping[str, Callable[[QueueStat], int]]] = {
    "message_bytes_paged_out": lambda stat: (
        stat.ready_bytes + stat.unacked_bytes - stat.alpha_bytes
    ),
    "message_bytes_ram": lambda stat: stat.alpha_bytes,
    "messages_alpha": lambda stat: stat.alpha,
    "messages_beta": lambda stat: stat.beta,
    "messages_delta": lambda stat: stat.delta,
    "messages_gamma": lambda stat: stat.gamma,
    "messages_paged_out": lambda stat: stat.ready + stat.unacked - stat.alpha,
    "messages_ram": lambda stat: stat.alpha,
    "messages_ready_ram": lambda stat: stat.alpha - stat.unacked_alpha,
    "messages_unacknowledged_ram": lambda stat: stat.unacked_alpha,
}
"""How much of a classic queue is in memory, by RabbitMQ's four states.

Out of memory counts what has no content there (beta, gamma, delta), be it to last or not.
"""

QUORUM_IN_MEMORY: Final[Mapping[str, Callable[[QueueStat], int]]] = {
    "message_bytes_ram": lambda stat: (
        stat.alpha_bytes if stat.ram_bytes else stat.ready_bytes + stat.unacked_bytes
    ),
    "messages_ram": lambda stat: stat.alpha if stat.ram_bytes else stat.ready + stat.unacked,
}
"""The same of a quorum queue; one whose bodies are in no log has all in memory."""

OF_DETAILS: Final[Mapping[str, Callable[[QueueDetails], float | None]]] = {
    "consumer_capacity": lambda details: details.capacity,
    "consumer_utilisation": lambda details: details.capacity,
    "disk_bytes": lambda details: details.disk_bytes,
    "head_message_timestamp": lambda details: details.head_timestamp,
    "message_bytes_persistent": lambda details: details.persistent_bytes,
    "messages_persistent": lambda details: details.persistent,
}
"""Numbers that queues of all types have; None stands before all of them."""

_OF_QUEUE: Final = frozenset(MESSAGE_KEYS) - {"confirm", "return_unroutable", "drop_unroutable"}

OF_COUNTS: Final[Mapping[str, tuple[int, ...]]] = {
    **{key: (MESSAGE_KEYS.index(key),) for key in _OF_QUEUE},
    "deliver_get": tuple(
        [MESSAGE_KEYS.index(key) for key in ("deliver", "deliver_no_ack", "get", "get_no_ack")]
    ),
}
"""The numbers that a key of a queue's `message_stats` is the sum of."""

STATE: Final = "state"
NODE: Final = "node"
MEMORY: Final = "memory"
LOOKED_AT: Final = frozenset((STATE, NODE, MEMORY, *IN_MEMORY, *OF_DETAILS))

RANKED: Final = frozenset(
    [
        *LOOKED_AT,
        *OF_STAT,
        *[_PREFIX + key for key in OF_COUNTS],
        *[_PREFIX + key + _DETAILS for key in OF_COUNTS],
    ]
)


def in_memory(column: str, stat: QueueStat, queue_type: str) -> int | None:
    """Return a number of `IN_MEMORY`; None if queues of this type have none.

    Args:
        column: Its name.
        stat: The queue's counts.
        queue_type: "classic", "quorum" or "stream".
    """
    of = {"classic": IN_MEMORY, "quorum": QUORUM_IN_MEMORY}.get(queue_type, {}).get(column)
    return None if of is None else of(stat)


def is_rate(column: str) -> bool:
    """True if a column is a rate; it must be one of `message_stats`."""
    return column.endswith(_DETAILS)


def counted(column: str) -> tuple[int, ...]:
    """Return which numbers a column of `message_stats` is the sum of; none of other columns."""
    return OF_COUNTS.get(column.removeprefix(_PREFIX).removesuffix(_DETAILS), ())


_STATES: Final = (
    "crashed",
    "down",
    "flow",
    "minority",
    "promoting",
    "running",
    "stopped",
    "syncing",
)
HELD: Final = 0.0
"""The node holds publishers of the queue back: one that runs is in flow."""

REPLICA: Final = -1.0
"""The node has a replica of the queue that runs, and does not serve it."""


def state_rank(state: str) -> float:
    """Return where a state stands among all of them; one that is unknown is the last."""
    return float(_STATES.index(state) + 1 if state in _STATES else len(_STATES) + 1)


def by_state(ranks: Iterable[tuple[int, float]]) -> Callable[[Queue], float]:
    """Return what places queues by their state, as `resources.queues.QueueStates.state` has it.

    Args:
        ranks: What all nodes say: uid with `state_rank`, `HELD` or `REPLICA`.
    """
    served: dict[int, float] = {}
    held: set[int] = set()
    online: dict[int, int] = {}
    for uid, rank in ranks:
        if rank == HELD:
            held.add(uid)
        elif rank == REPLICA:
            online[uid] = online.get(uid, 0) + 1
        else:
            served[uid] = rank
    running, flow = state_rank("running"), state_rank("flow")
    down, minority = state_rank("down"), state_rank("minority")

    def place(queue: Queue) -> float:
        rank = served.get(queue.uid)
        if rank is not None:
            return flow if rank == running and queue.uid in held else rank
        if queue.ring is not None and queue.ring.successor is not None:
            return state_rank("promoting")
        count = online.get(queue.uid, 0) if queue.type in REPLICATED else 0
        return minority if 0 < count <= len(queue.members) // 2 else down

    return place
