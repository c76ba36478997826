"""Queues: `/api/queues`. Counts, state and leader come from the nodes that serve them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from broker.errors import Refusal, ReplyCode
from broker.management import paging, request_body
from broker.management.answers import (
    ApiError,
    bad_request,
    json,
    no_content,
    not_found,
    plain,
    refuse,
    stored,
)
from broker.management.call import Call, Route
from broker.management.reports import CONSUMERS, QUEUES, Owner, Report, Served
from broker.management.resources import consumers, policies
from broker.metadata import arguments
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import DeclareQueue
from broker.metadata.records import Queue
from broker.metadata.results import Declared
from broker.metadata.rings import Ring
from broker.ports import Done, QueueStat

Item = dict[str, Any]

ANSWER_TIMEOUT_S = 6.0
"""How long a queue may take for what is asked of it; a little more than a proposal may."""


SLICE = 500
"""Queues shown between two turns of the loop: about 5 ms, so that clients don't wait for it."""


class QueueStates:
    """What nodes say of queues, put together.

    Args:
        reports: By node.
    """

    def __init__(self, reports: Mapping[str, Report]) -> None:
        self.served: dict[int, tuple[str, Served]] = {}
        self.online: dict[int, list[str]] = {}
        self.owners: dict[int, Owner] = {}
        for node, report in reports.items():
            for served in report.served:
                known = self.served.get(served.uid)
                if known is None or known[1].term < served.term:
                    self.served[served.uid] = (node, served)
            for uid in report.replicas:
                self.online.setdefault(uid, []).append(node)
            for owner in report.owners:
                self.owners[owner.uid] = owner

    def stat(self, uid: int) -> QueueStat | None:
        """A queue's counts; None when the node that serves it did not answer."""
        found = self.served.get(uid)
        return None if found is None else found[1].stat

    def node(self, queue: Queue) -> str:
        """Who serves a queue; "" for a quorum queue that nobody leads now."""
        found = self.served.get(queue.uid)
        if found is not None:
            return found[0]
        return queue.home if queue.type == "classic" else ""

    def online_members(self, queue: Queue) -> list[str]:
        """Members whose replica runs, in the order of the members."""
        online = self.online.get(queue.uid, ())
        return [member for member in queue.members if member in online]

    def syncing(self, uid: int) -> int | None:
        """Messages that a synchronisation of mirrors has sent so far, None without one."""
        found = self.served.get(uid)
        return None if found is None else found[1].syncing

    def state(self, queue: Queue) -> str:
        """One of "running", "syncing", "promoting", "minority" and "down"."""
        if self.syncing(queue.uid) is not None:
            return "syncing"
        stat = self.stat(queue.uid)
        if stat is not None:
            return stat.state
        if queue.ring is not None and queue.ring.successor is not None:
            return "promoting"
        if queue.type == "quorum":
            online = len(self.online_members(queue))
            if 0 < online <= len(queue.members) // 2:
                return "minority"
        return "down"


def item(queue: Queue, states: QueueStates, catalogue: Catalogue) -> Item:
    """A queue as RabbitMQ shows it."""
    found: Item = {
        "arguments": plain(queue.arguments),
        "auto_delete": queue.auto_delete,
        "durable": queue.durable,
        "exclusive": queue.exclusive_owner is not None,
        "exclusive_consumer_tag": None,
        "head_message_timestamp": None,
        "incarnation": queue.uid,
        "name": plain(queue.name),
        "node": states.node(queue) or queue.home,
        "single_active_consumer_tag": None,
        "state": states.state(queue),
        "type": queue.type,
        "vhost": plain(queue.vhost),
        **policies.of_queue(catalogue, queue),
    }
    if queue.type == "quorum":
        found["leader"] = states.node(queue)
        found["members"] = list(queue.members)
        found["online"] = states.online_members(queue)
    else:
        found["leader"] = queue.home
        found |= _mirrors(queue.ring, states.syncing(queue.uid))
    stat = states.stat(queue.uid)
    if stat is not None:
        if stat.active is not None:
            found["single_active_consumer_tag"] = plain(stat.active[1])
        found |= _counts(stat)
        if queue.type == "classic":
            found |= _counts_in_memory(stat)
    owner = states.owners.get(queue.uid)
    if owner is not None:
        found["owner_pid_details"] = {
            "name": owner.name,
            "peer_host": owner.peer_host,
            "peer_port": owner.peer_port,
        }
    return found


def _mirrors(ring: Ring | None, syncing: int | None) -> Item:
    """Where copies of a mirrored queue are, and what is to be waited for while it is down."""
    if ring is None:
        return {"recoverable_slaves": None}
    mirrors = ring.mirrors()
    found: Item = {
        "recoverable_slaves": list(ring.recoverable),
        "slave_nodes": [each.node for each in mirrors],
        "synchronised_slave_nodes": [each.node for each in mirrors if each in ring.synced],
    }
    if syncing is not None:
        found["sync_messages"] = syncing
    if ring.is_down and ring.last is not None:
        found["waits_for"] = ring.last.node
    return found


def _counts(stat: QueueStat) -> Item:
    return {
        "consumers": stat.consumers,
        "message_bytes": stat.ready_bytes + stat.unacked_bytes,
        "message_bytes_ready": stat.ready_bytes,
        "message_bytes_unacknowledged": stat.unacked_bytes,
        "messages": stat.ready + stat.unacked,
        "messages_ready": stat.ready,
        "messages_unacknowledged": stat.unacked,
    }


def _counts_in_memory(stat: QueueStat) -> Item:
    """A classic queue keeps all of its messages in memory, the durable ones on disk as well."""
    return {
        "message_bytes_paged_out": 0,
        "message_bytes_ram": stat.ready_bytes + stat.unacked_bytes,
        "messages_paged_out": 0,
        "messages_ram": stat.ready + stat.unacked,
        "messages_ready_ram": stat.ready,
        "messages_unacknowledged_ram": stat.unacked,
    }


def totals(states: QueueStates, queues: Iterable[Queue]) -> Item:
    """Messages of all these queues together."""
    stats = [stat for queue in queues if (stat := states.stat(queue.uid)) is not None]
    ready = sum(stat.ready for stat in stats)
    unacked = sum(stat.unacked for stat in stats)
    return {
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
    }


async def ask(begin: Callable[[Done], None]) -> object:
    """Ask a queue something and wait for its answer.

    Args:
        begin: Asks; calls what it is given once.

    Returns:
        The answer.

    Raises:
        ApiError: As `refuse`; 503 when there is none in time.
    """
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def done(result: object) -> None:
        if not answer.done():
            answer.set_result(result)

    begin(done)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            result = await answer
    except TimeoutError:
        refuse(Refusal(ReplyCode.INTERNAL_ERROR, "the queue did not answer in time"))
    if isinstance(result, Refusal):
        refuse(result)
    return result


def named(call: Call) -> Queue:
    """The queue in the path.

    Raises:
        ApiError: 404; 401 for a vhost the caller may not see.
    """
    queue = call.catalogue.queue(call.vhost(), call.name("name"))
    if queue is None:
        raise not_found()
    return queue


async def show_all(call: Call) -> web.Response:
    """GET /api/queues."""
    queues = [queue for queue in call.catalogue.queues() if call.sees(queue.vhost)]
    return await _show(call, queues)


async def show_vhost(call: Call) -> web.Response:
    """GET /api/queues/VHOST."""
    return await _show(call, call.catalogue.queues(call.vhost()))


async def _show(call: Call, queues: list[Queue]) -> web.Response:
    states = QueueStates(await call.reports.gather(QUEUES))
    queues.sort(key=lambda queue: (queue.vhost, queue.name))
    items: list[Item] = []
    for start in range(0, len(queues), SLICE):
        items += [item(queue, states, call.catalogue) for queue in queues[start : start + SLICE]]
        await asyncio.sleep(0)
    return json(paging.arranged(items, call.query))


async def show(call: Call) -> web.Response:
    """GET /api/queues/VHOST/NAME."""
    queue = named(call)
    reports = await call.reports.gather(QUEUES, CONSUMERS, uids=[queue.uid])
    found = item(queue, QueueStates(reports), call.catalogue)
    here = {"name": plain(queue.name), "vhost": plain(queue.vhost)}
    attached = [
        consumer
        for report in reports.values()
        for consumer in report.consumers
        if consumer["queue"] == here
    ]
    single = [queue] if consumers.has_single(queue) else []
    found["consumer_details"] = consumers.told(
        attached, consumers.active_of(reports.values(), single)
    )
    found["deliveries"] = []
    found["incoming"] = []
    return json(paging.only_columns(found, call.query))


async def put(call: Call) -> web.Response:
    """PUT /api/queues/VHOST/NAME: declare."""
    vhost, name = call.vhost(), call.name("name")
    body = await call.body()
    given = request_body.table(body, "arguments")
    durable = request_body.flag(body, "durable")
    auto_delete = request_body.flag(body, "auto_delete")
    call.check("configure", "queue", name, vhost)
    dead_letter = given.get("x-dead-letter-exchange")
    if isinstance(dead_letter, str):
        call.check("read", "queue", name, vhost)
        call.check("write", "exchange", dead_letter, vhost)
    existing = call.catalogue.queue(vhost, name)
    if existing is not None:
        home, members = existing.home, existing.members
    else:
        home, members = _place(call, vhost, name, given, durable=durable, auto_delete=auto_delete)
        wanted_node = request_body.text(body, "node", "")
        node = call.catalogue.node(wanted_node)
        if wanted_node and (node is None or not node.alive):
            raise bad_request(f"node {wanted_node[:80]} is not running")
        if wanted_node and members == (home,):
            home, members = wanted_node, (wanted_node,)
    result = await call.propose(
        DeclareQueue(
            vhost=vhost,
            name=name,
            durable=durable,
            auto_delete=auto_delete,
            exclusive_owner=None,
            arguments=given,
            home=home,
            members=members,
        )
    )
    return stored(is_new=isinstance(result, Declared) and result.created)


def _place(
    call: Call,
    vhost: str,
    name: str,
    given: dict[str, object],
    *,
    durable: bool,
    auto_delete: bool,
) -> tuple[str, tuple[str, ...]]:
    record = call.catalogue.vhost(vhost)
    if record is None:
        raise not_found()
    wanted = arguments.with_default_type(
        given, record, durable=durable, exclusive=False, auto_delete=auto_delete
    )
    queue_type = wanted.get(arguments.QUEUE_TYPE, "classic")
    return call.serving.context.place(vhost, name, str(queue_type), wanted)


async def delete(call: Call) -> web.Response:
    """DELETE /api/queues/VHOST/NAME?if-empty=true&if-unused=true."""
    queue = named(call)
    call.check("configure", "queue", queue.name, queue.vhost)
    _check_not_owned(queue)
    if_empty = call.query.get("if-empty") == "true"
    if_unused = call.query.get("if-unused") == "true"
    if queue.type == "quorum" and (if_empty or if_unused):
        await _check_conditions(call, queue, if_empty=if_empty, if_unused=if_unused)
    queues = call.serving.queues
    await ask(lambda done: queues.delete(queue, done, if_unused=if_unused, if_empty=if_empty))
    return no_content()


async def _check_conditions(call: Call, queue: Queue, *, if_empty: bool, if_unused: bool) -> None:
    """A quorum queue's delete knows no conditions (as RabbitMQ's): look first, then delete."""
    stat = await ask(call.serving.queues.open(queue).stat)
    if isinstance(stat, QueueStat):
        where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        if if_unused and stat.consumers:
            raise bad_request(f"{where} in use")
        if if_empty and stat.ready:
            raise bad_request(f"{where} not empty")


async def purge(call: Call) -> web.Response:
    """DELETE /api/queues/VHOST/NAME/contents."""
    queue = named(call)
    call.check("read", "queue", queue.name, queue.vhost)
    _check_not_owned(queue)
    await ask(call.serving.queues.open(queue).purge)
    return no_content()


def _check_not_owned(queue: Queue) -> None:
    if queue.exclusive_owner is not None:
        raise ApiError(
            400,
            f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost "
            f"'{queue.vhost}'",
        )


ROUTES = (
    Route("GET", "/api/queues", show_all),
    Route("GET", "/api/queues/{vhost}", show_vhost),
    Route("GET", "/api/queues/{vhost}/{name}", show),
    Route("PUT", "/api/queues/{vhost}/{name}", put),
    Route("DELETE", "/api/queues/{vhost}/{name}", delete),
    Route("DELETE", "/api/queues/{vhost}/{name}/contents", purge),
)
