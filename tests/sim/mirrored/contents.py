"""What a queue's shells on a node hold, read for the judge."""

from __future__ import annotations

from broker.fifo.machine import QueueMachine
from tests.sim.mirrored.client import ident_of
from tests.sim.mirrored.history import Content
from tests.sim.mirrored.serving import Serving


def machine_contents(machine: QueueMachine) -> dict[int, Content]:
    """What is in a queue's machine, by number."""
    line = machine._ready
    ready = [*line._fresh, *(item for _, item in line._returned)]
    found = {item.number: Content(ident_of(item.message), False) for item in ready}
    for held in (each for tags in machine._held.values() for each in tags.values()):
        for number, item in held.items():
            found[number] = Content(ident_of(item.message), True)
    return found


def contents_at(serving: Serving, uid: int) -> dict[int, Content] | None:
    """What the queue's master here holds; None where this node is not the master."""
    classic = serving.queues._classic.get(uid)
    return None if classic is None else machine_contents(classic.machine)


def is_dying(serving: Serving, uid: int) -> bool:
    """Whether messages of the queue that is mastered here expire, or mirrors have yet to hear."""
    classic, seat = serving.queues._classic.get(uid), serving.queues.rings.seat(uid)
    if classic is None or seat is None or seat.master is None:
        return False
    return classic.machine.due_ms() is not None or not seat.master.is_drained_out()


def replica_at(serving: Serving, uid: int) -> dict[int, Content] | None:
    """What the queue's mirror here holds; None where this node is no mirror."""
    seat = serving.queues.rings.seat(uid)
    if seat is None or seat.mirror is None:
        return None
    messages = seat.mirror.replica.messages()
    return {number: Content(ident_of(message), False) for number, message in messages}


def offered_at(serving: Serving, uid: int) -> int:
    """How many commands this node's session with the queue holds without an answer."""
    remote = serving.queues._remote.get(uid)
    return 0 if remote is None else len(remote._offers)
