"""Why a queue does not drain, or that it is well. Pure.

The nodes' reports and the catalogue of group 0 say how things are; this says what it means. Reasons
come in an order: a queue that nobody serves has no consumers either, and the first is what matters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from broker.management.auth import Tag
from broker.management.operations.redriving.tally import Group
from broker.management.report import Holder
from broker.management.resources.diagnosis.background import BackgroundHolder
from broker.management.resources.diagnosis.words import (
    amount,
    counted,
    joined,
    lasting,
    per_second,
)
from broker.management.resources.queues import QueueStates
from broker.management.statistics.measured import Measured
from broker.metadata.queue_settings import QueueSettings
from broker.metadata.records import REPLICATED, Queue
from broker.ports import QueueDetails, QueueStat, StreamFacts

HELD_MS: Final = 60_000
"""Messages that are held for longer deserve a look, unless the request says otherwise."""

UNSENT_BYTES: Final = 1 << 20
"""A client behind so much does not read its socket, or reads it slowly."""

FULL_MS: Final = 2_000
"""A prefetch that has been full for less is one that is used well; times are exact to a second."""

GROWTH: Final = 1.05
"""A queue that takes so many times what it hands out grows."""

NAMED_MAX: Final = 5

BROWSER: Final = "browser"
POLICYMAKER: Final = "policymaker"


class Act(NamedTuple):
    """What somebody may do about it, as a request to this API.

    Attributes:
        label: On a button.
        method: "GET", "POST", "PUT" or "DELETE".
        path: Of the request.
        body: Its JSON; None without.
        loses: What it costs, for a question before it is done; "" if nothing.
    """

    label: str
    method: str
    path: str
    body: dict[str, Any] | None = None
    loses: str = ""


class Reason(NamedTuple):
    """One reason.

    Attributes:
        kind: For programs.
        is_well: Nothing needs to be done.
        text: One sentence.
        proof: What it was seen by, a sentence each.
        advice: What to do; "" for nothing.
        acts: What can be done by a request.
    """

    kind: str
    is_well: bool
    text: str
    proof: tuple[str, ...] = ()
    advice: str = ""
    acts: tuple[Act, ...] = ()


class QueueView(NamedTuple):
    """A queue as the cluster sees it.

    Attributes:
        queue: It.
        settings: What arguments and policies come to.
        states: The nodes' reports about it.
        holders: Who consumes from it, or holds its messages.
        running: Nodes that answer.
        alarms: What nodes are short of: "memory alarm on node rabbit@node1".
        rates: What comes and goes.
        held_ms: Messages that are held for longer deserve a look.
        background: Redrives and migrations that consume from it.
        letters: Dead letters among its first messages, where nobody consumes from it.
        tags: Of BROWSER and POLICYMAKER those that the caller has.
    """

    queue: Queue
    settings: QueueSettings
    states: QueueStates
    holders: Sequence[Holder]
    running: Collection[str]
    alarms: Collection[str]
    rates: Rates
    held_ms: int = HELD_MS
    background: Sequence[BackgroundHolder] = ()
    letters: Sequence[Group] = ()
    tags: Collection[Tag] = ()


class Rates(NamedTuple):
    """Messages a second.

    Attributes:
        incoming: That the queue takes.
        outgoing: That it hands out.
        acked: That are acknowledged.
    """

    incoming: float = 0.0
    outgoing: float = 0.0
    acked: float = 0.0


def rates_of(measured: Measured, keys: Sequence[str]) -> Rates:
    """Pick a queue's rates.

    Args:
        measured: Its counters.
        keys: Their names.
    """
    rates = dict(zip(keys, measured.rates, strict=False))
    out = ("deliver", "deliver_no_ack", "get", "get_no_ack")
    outgoing = sum(rates.get(key, 0.0) for key in out)
    no_ack = rates.get("deliver_no_ack", 0.0) + rates.get("get_no_ack", 0.0)
    return Rates(rates.get("publish", 0.0), outgoing, rates.get("ack", 0.0) + no_ack)


def reasons(view: QueueView) -> list[Reason]:
    """Say how a queue is: the first reason is the sentence, others stand beside it."""
    stat = view.states.stat(view.queue.uid)
    if stat is None or view.states.state(view.queue) in ("down", "minority", "promoting"):
        return [_not_served(view), *_around(view, stat)]
    details = view.states.details(view.queue.uid)
    if details is not None and details.stream is not None:
        return [_of_stream(view, details.stream), *_around(view, stat)]
    return [*_of_queue(view, stat), *_around(view, stat)]


# -- nobody serves it -------------------------------------------------------------------------


def _not_served(view: QueueView) -> Reason:
    queue, states = view.queue, view.states
    damaged = states.damaged_members(queue)
    if queue.type in REPLICATED:
        online = states.online_members(queue)
        missing = [member for member in queue.members if member not in (*online, *damaged)]
        proof = (
            f"{len(online)} of {len(queue.members)} replicas run{_on(online)}",
            *((f"does not answer: {joined(missing)}",) if missing else ()),
            *((f"the log is damaged on {joined(damaged)}",) if damaged else ()),
        )
        if damaged and len(online) <= len(queue.members) // 2:
            text = f"Down: the log of its replica on {joined(damaged)} is damaged."
            advice = "Start the other members; if there are none, see ctl set_log_aside."
            if online:
                advice = (
                    "Put the logs back, or have a whole replica go on alone: ctl "
                    f"force_shrink_member_to_current_member on {' or '.join(online)}."
                )
            return Reason("damaged", False, text, proof, advice)
        if len(online) <= len(queue.members) // 2:
            text = f"Down: no majority, {len(online)} of {len(queue.members)} replicas run."
            advice = f"Start {joined(missing)}, or ctl forget_cluster_node if it is gone for good."
            return Reason("no_majority", False, text, proof, advice)
        return Reason("no_leader", False, "Down: its replicas elect a leader.", proof)
    ring = queue.ring
    if ring is not None and ring.successor is not None:
        text = f"Down for a moment: {ring.successor.node} takes over as the master."
        return Reason("promoting", False, text)
    if ring is not None and ring.last is not None and not ring.is_serving:
        node = ring.last.node
        text = f"Down: it waits for node {node}, the last that had all of its messages."
        advice = f"Start {node}. If it is gone for good: ctl forget_cluster_node {node}."
        return Reason("waits_for_node", False, text, _copies(ring.recoverable), advice)
    if queue.home not in view.running:
        text = f"Down: its messages are on node {queue.home}, which does not run."
        return Reason("node_down", False, text, (), f"Start {queue.home}.")
    text = f"Node {queue.home} serves it and has not answered in time."
    return Reason("no_answer", False, text, (), "Ask again; if it lasts, look at that node's log.")


def _on(nodes: Sequence[str]) -> str:
    return f": {joined(nodes)}" if nodes else ""


def _copies(nodes: Sequence[str]) -> tuple[str, ...]:
    return (f"older copies are on {joined(nodes)}",) if nodes else ()


# -- it is served -----------------------------------------------------------------------------


def _of_queue(view: QueueView, stat: QueueStat) -> Iterator[Reason]:
    synced = view.states.syncing(view.queue.uid)
    if synced is not None:
        text = f"It waits until its mirrors are synchronised: {counted(synced, 'message')} sent."
        path = f"{_path(view.queue)}/actions"
        stop = Act("Stop the synchronisation", "POST", path, {"action": "cancel_sync"})
        yield Reason("syncing", False, text, (), "", (stop,))
    details = view.states.details(view.queue.uid)
    dead = 0 if details is None else details.dead  # counted as ready, but for no consumer
    if stat.ready > dead:
        yield _waiting(view, stat._replace(ready=stat.ready - dead))
    elif stat.unacked:
        yield _handed_out(view, stat)
    elif not dead:
        yield Reason("empty", True, "Well: it is empty.", _flow_proof(view))
    if details is not None and dead:
        yield _dead(view, details)


def _waiting(view: QueueView, stat: QueueStat) -> Reason:
    """Messages wait: is there a consumer that can take one?"""
    serving = [each for each in view.holders if each.is_attached]
    proof = _flow_proof(view)
    ready = f"{counted(stat.ready, 'message')} {'waits' if stat.ready == 1 else 'wait'}"
    if not stat.consumers:
        text = f"Not draining: {ready}, and there is no consumer."
        ttl_ms = view.settings.message_ttl_ms
        if ttl_ms is not None:
            proof += (f"each is dropped or dead-lettered after {lasting(ttl_ms)} (message TTL)",)
        if view.letters:
            return _dead_letters(view, stat, proof)
        return Reason("no_consumer", False, text, proof, "Start a consumer.", (_purge(view, stat),))
    if stat.active is not None:
        serving = [each for each in serving if each.tag == stat.active[1]] or serving
    full = [each for each in serving if is_full(each) and each.newest_ms >= FULL_MS]
    rates = view.rates
    deaf = _not_reading(view, serving)
    if deaf is not None:
        return deaf
    if serving and len(full) == len(serving):
        return _full(view, full, proof)
    if rates.incoming > rates.outgoing * GROWTH and rates.outgoing:
        text = (
            f"It grows: {per_second(rates.incoming)} come in, consumers take "
            f"{per_second(rates.outgoing)}."
        )
        proof = _holds(view.holders)
        return Reason("consumers_slower", False, text, proof, "Add consumers, or make them faster.")
    left = rates.outgoing - rates.incoming
    if left > 0:
        in_ms = int(stat.ready / left * 1000)
        text = f"Well: it drains, and is empty in about {lasting(in_ms)}."
        return Reason("draining", True, text, proof)
    if rates.outgoing:
        text = f"Well: {ready}, and as many come as go."
        return Reason("steady", True, text, proof)
    text = f"Well: {ready}, and {counted(stat.consumers, 'consumer')} can take them now."
    return Reason("begins", True, text, (*_holds(view.holders), *proof))


def _dead_letters(view: QueueView, stat: QueueStat, proof: tuple[str, ...]) -> Reason:
    """Nobody consumes dead letters: they are evidence, and can be sent back."""
    waits = "waits" if stat.ready == 1 else "wait"
    text = f"{counted(stat.ready, 'message')} {waits}, and the first are dead letters."
    died = [
        f"{counted(each.messages, 'message')} of queue '{each.queue}': {each.reason}"
        f"{f' ({each.exception})' if each.exception else ''}"
        for each in view.letters[:NAMED_MAX]
    ]
    advice = "Look at why they died, and send them back when that is mended (ctl redrive)."
    path = _path(view.queue)
    acts: list[Act] = []
    if BROWSER in view.tags:
        acts.append(Act("Browse", "GET", f"{path}/browse"))
    if POLICYMAKER in view.tags:
        loses = f"dead letters of '{view.queue.name}' are published again to where they came from"
        acts.append(Act("Send back", "POST", f"{path}/redrive", {}, loses))
    acts.append(_purge(view, stat))
    proof = (f"among the first are {joined(died)}", "there is no consumer", *proof)
    return Reason("dead_letters", False, text, proof, advice, tuple(acts))


def _not_reading(view: QueueView, serving: Sequence[Holder]) -> Reason | None:
    """No consumer reads what was sent to it, if that is so."""
    unread = [each for each in serving if each.unsent_bytes >= UNSENT_BYTES]
    if not unread or len(unread) < len(serving) or view.rates.outgoing:
        return None
    worst = max(unread, key=lambda each: each.unsent_bytes)
    text = f"Not draining: {_all(serving, 'consumer')} {_do(serving)} not read the socket."
    proof = (f"{amount(worst.unsent_bytes)} wait for {who(worst)}", *_flow_proof(view))
    return Reason("not_reading", False, text, proof, _look_at(worst), (_close(worst),))


def _full(view: QueueView, full: Sequence[Holder], proof: tuple[str, ...]) -> Reason:
    """All consumers hold as much as they may, and nothing has been delivered for a while."""
    since = lasting(min(each.newest_ms for each in full))
    have = "have" if len(full) > 1 else "has"
    text = f"Not draining: {_all(full, 'consumer')} {have} had the prefetch full for {since}."
    worst = max(full, key=lambda each: each.oldest_ms)
    proof = (*_holds(full), *proof)
    return Reason("prefetch_full", False, text, proof, _look_at(worst), _take_away(view, worst))


def is_full(holder: Holder) -> bool:
    """Whether a consumer holds as much as its own prefetch, or its channel's, allows."""
    if holder.no_ack:
        return False
    own = 0 < holder.prefetch <= holder.held
    return own or 0 < holder.channel_prefetch <= holder.channel_held


def _handed_out(view: QueueView, stat: QueueStat) -> Reason:
    """Nothing waits, something is not acknowledged yet."""
    held = [each for each in view.holders if each.held]
    deaf = _not_reading(view, held)
    if deaf is not None:
        return deaf
    unacked = counted(stat.unacked, "message")
    oldest_ms = max((each.oldest_ms for each in held), default=0)
    if oldest_ms < view.held_ms:
        text = f"Well: nothing waits, and consumers work on {unacked}."
        return Reason("worked_on", True, text, (*_holds(held), *_flow_proof(view)))
    worst = max(held, key=lambda each: each.oldest_ms)
    verb = "is" if stat.unacked == 1 else "are"
    text = f"{unacked} {verb} not acknowledged, the oldest for {lasting(oldest_ms)}."
    return Reason("held", False, text, _holds(held), _look_at(worst), _take_away(view, worst))


def _dead(view: QueueView, details: QueueDetails) -> Reason:
    dead = counted(details.dead, "dead message")
    target = view.settings.dead_letter_exchange
    text = f"{dead} wait until the queues of exchange '{target}' have confirmed them."
    proof = (f"{amount(details.dead_bytes)}, kept here meanwhile (at-least-once)",)
    advice = f"Is a queue bound to '{target}', has it a majority, is it below its length limit?"
    return Reason("dead_letters_blocked", False, text, proof, advice)


def _of_stream(view: QueueView, facts: StreamFacts) -> Reason:
    text = f"Well: a stream keeps what was read, {amount(facts.size_bytes)} now, until retention."
    return Reason("stream", True, text, _flow_proof(view))


# -- what stands beside it --------------------------------------------------------------------


def _around(view: QueueView, stat: QueueStat | None) -> Iterator[Reason]:
    """What is true of it whatever else is."""
    for each in view.background:
        of = f"A {each.kind} by {each.user} on {each.node}"
        text = f"{of} holds {counted(each.held, 'message')}; {counted(each.moved, 'message')} went."
        yield Reason(each.kind, True, text)
    if view.alarms:
        text = f"Nothing can be published: {joined(sorted(view.alarms))}."
        advice = "Free memory or disk there, or let consumers catch up; publishers go on then."
        yield Reason("alarm", False, text, (), advice)
    if stat is not None and view.states.state(view.queue) == "flow":
        taken = per_second(view.rates.incoming)
        text = f"Publishers are held back to what the queue can take: {taken} now."
        yield Reason("flow", False, text)
    online, queue = view.states.online_members(view.queue), view.queue
    if stat is not None and queue.type in REPLICATED and len(online) < len(queue.members):
        away = [member for member in queue.members if member not in online]
        text = f"{counted(len(away), 'replica')} of {len(queue.members)} away: {joined(away)}."
        yield Reason("replica_away", False, text, (), f"Start {joined(away)}.")


def _flow_proof(view: QueueView) -> tuple[str, ...]:
    rates = view.rates
    if not any(rates):
        return ("nothing comes in, nothing goes out",)
    return (
        f"{per_second(rates.incoming)} in, {per_second(rates.outgoing)} out, "
        f"{per_second(rates.acked)} acknowledged",
    )


def _holds(holders: Sequence[Holder]) -> tuple[str, ...]:
    """Who holds what, who has held the longest first."""
    found = sorted((each for each in holders if each.held), key=lambda each: -each.oldest_ms)
    lines = [_held(each) for each in found[:NAMED_MAX]]
    if len(found) > NAMED_MAX:
        lines.append(f"{counted(len(found) - NAMED_MAX, 'more consumer')} hold messages")
    return tuple(lines)


def _held(each: Holder) -> str:
    limit = each.prefetch or each.channel_prefetch
    of = f" of {limit:,}" if limit else ""
    what = f"{each.held:,}{of} {'message' if each.held == 1 else 'messages'}"
    return f"{who(each)} holds {what}, the oldest for {lasting(each.oldest_ms)}"


def who(holder: Holder) -> str:
    """A consumer's name for people: the client's own name for its connection, if it has one."""
    client = holder.client or holder.connection
    what = f"consumer {holder.tag}" if holder.tag else "basic.get"
    return f"{client} ({what}, channel {holder.channel})"


def _look_at(holder: Holder) -> str:
    return f"Look at {who(holder)}: does it still work, and acknowledge?"


def _all(holders: Sequence[Holder], what: str) -> str:
    return f"all {len(holders)} {what}s" if len(holders) > 1 else f"the only {what}"


def _do(holders: Sequence[Holder]) -> str:
    return "do" if len(holders) > 1 else "does"


def _take_away(view: QueueView, holder: Holder) -> tuple[Act, ...]:
    """Have a holder's messages go to somebody else."""
    of = {
        "connection_name": holder.connection,
        "channel": holder.channel,
        "consumer_tag": holder.tag,
    }
    path = f"{_path(view.queue)}/holders"
    back = f"{counted(holder.held, 'message')} of {who(holder)} come back to the queue"
    what = "what it does with them meanwhile is done twice"
    if holder.is_attached:
        body = {**of, "give_back": True}
        loses = f"the consumer is cancelled, and {back}; {what}"
        act = Act("Cancel it and give them back", "POST", f"{path}/cancel", body, loses)
    else:
        loses = f"{back}; {what}"
        act = Act("Give them back", "POST", f"{path}/give_back", of, loses)
    return act, _close(holder)


def _close(holder: Holder) -> Act:
    path = f"/api/connections/{quote(holder.connection, safe='')}"
    loses = f"the connection of {who(holder)} is closed; its messages come back to the queue"
    return Act("Close its connection", "DELETE", path, None, loses)


def _purge(view: QueueView, stat: QueueStat) -> Act:
    loses = f"{counted(stat.ready, 'message')} of '{view.queue.name}' for good"
    return Act("Purge", "DELETE", f"{_path(view.queue)}/contents", None, loses)


def _path(queue: Queue) -> str:
    return f"/api/queues/{quote(queue.vhost, safe='')}/{quote(queue.name, safe='')}"
