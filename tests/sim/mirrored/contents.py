"""Reads the contents of a queue on a node, for the checkers."""

from __future__ import annotations

from broker.metadata.queue_settings import settings_of
from tests.sim.mirrored.client import ident_of
from tests.sim.mirrored.history import Content
from tests.sim.mirrored.serving import Serving


def contents_at(serving: Serving, uid: int) -> dict[int, Content] | None:
    """What the queue's master here holds, in memory or on disk; None where there is no master."""
    classic = serving.queues._classic.get(uid)
    if classic is None:
        return None
    machine = classic.machine
    held = {n for _, _, each in machine.messages.checked_out for n in each}
    items = machine.messages.from_number(0, 1 << 60)
    here = {n: each for n, _, each in items if each is not None and not each.is_stub}
    here.update(classic.disk.read([n for n, _, _ in items if n not in here], keep=True))
    return {number: Content(ident_of(each), number in held) for number, each in here.items()}


def is_dying(serving: Serving, uid: int) -> bool:
    """Whether messages of the queue that is mastered here expire, or mirrors have yet to hear."""
    classic, membership = serving.queues._classic.get(uid), serving.queues.mirrored.membership(uid)
    if classic is None or membership is None or membership.master is None:
        return False
    return classic.machine.due_ms() is not None or not membership.master.is_flushed()


def follows_policy(serving: Serving, uid: int) -> bool:
    """Whether the queue that is mastered here lives by its policy as it is now."""
    classic = serving.queues._classic.get(uid)
    if classic is None:
        return True
    policy = serving.process.catalogue.effective_policy(classic.record)
    return classic.settings == settings_of(classic.record, policy)


def replica_at(serving: Serving, uid: int) -> dict[int, Content] | None:
    """What the queue's mirror here holds, in memory or on disk; None where there is no mirror."""
    membership = serving.queues.mirrored.membership(uid)
    if membership is None or membership.mirror is None:
        return None
    replica = membership.mirror.replica
    paged = membership.mirror.disk.read(replica.paged_numbers(), keep=True)
    messages = [*replica.messages(), *paged]
    return {number: Content(ident_of(message), False) for number, message in messages}


def pending_at(serving: Serving, uid: int) -> int:
    """How many commands this node's session with the queue holds without an answer."""
    remote = serving.queues._remote.get(uid)
    return 0 if remote is None else len(remote._pending)
