"""Queues: `/api/queues`. Counts, state and leader come from the nodes that serve them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from typing import Any

from aiohttp import web

from broker.cluster.replicas.target import GroupSizes
from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import Purge
from broker.management import memory, paging, request_body
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
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.pace import STEP
from broker.management.report import CONSUMERS, FLOWS, QUEUES, Owner, Report, Served
from broker.management.resources import consumers, policies
from broker.management.statistics import flows, ranks
from broker.management.statistics.measured import Measured, total
from broker.management.statistics.message_stats import backing_rates, idle_since, levels, of_queue
from broker.management.statistics.totals import Sums
from broker.metadata import arguments
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import DeclareQueue
from broker.metadata.records import REPLICATED, Queue
from broker.metadata.results import Declared
from broker.metadata.rings import Ring
from broker.ports import Done, QueueDetails, QueueStat, StreamFacts

Item = dict[str, Any]

ANSWER_TIMEOUT_S = 6.0
"""How long a queue may take for what is asked of it; a little more than a proposal may."""

MESSAGE_RAM_BYTES = 600
"""What a message takes of the memory beside its body, about."""


class QueueStates:
    """The nodes' reports about queues, joined.

    Args:
        reports: By node.
    """

    def __init__(self, reports: Mapping[str, Report] | None = None) -> None:
        self.served: dict[int, tuple[str, Served]] = {}
        self.online: dict[int, list[str]] = {}
        self.owners: dict[int, Owner] = {}
        self._held: set[int] = set()
        self._damaged: dict[int, list[str]] = {}
        for node, report in (reports or {}).items():
            for _ in self._take(node, report):
                pass

    @classmethod
    def merged(cls, reports: Mapping[str, Report]) -> Generator[None, None, QueueStates]:
        """The states of many queues, in steps (`broker.management.pace`)."""
        states = cls()
        for node, report in reports.items():
            yield from states._take(node, report)
        return states

    def _take(self, node: str, report: Report) -> Generator[None, None, None]:
        for number, served in enumerate(report.served, 1):
            known = self.served.get(served.uid)
            if known is None or known[1].term < served.term:
                self.served[served.uid] = (node, served)
            if not number % STEP:
                yield
        for number, uid in enumerate(report.replicas, 1):
            self.online.setdefault(uid, []).append(node)
            if not number % STEP:
                yield
        self._held.update(report.held)
        for uid in report.damaged:
            self._damaged.setdefault(uid, []).append(node)
        self.owners.update((owner.uid, owner) for owner in report.owners)

    def stat(self, uid: int) -> QueueStat | None:
        """A queue's counts; None when the node that serves it did not answer."""
        found = self.served.get(uid)
        return None if found is None else found[1].stat

    def measured(self, uid: int) -> Measured:
        """A queue's counters and rates; none when the node that serves it did not answer."""
        found = self.served.get(uid)
        return Measured() if found is None else found[1].measured

    def details(self, uid: int) -> QueueDetails | None:
        """What else the node that serves a queue says of it; None where it says nothing."""
        found = self.served.get(uid)
        return None if found is None else found[1].details

    def node(self, queue: Queue) -> str:
        """Return the node that serves a queue; "" for one with replicas and no leader."""
        found = self.served.get(queue.uid)
        if found is not None:
            return found[0]
        return queue.home if queue.type == "classic" else ""

    def online_members(self, queue: Queue) -> list[str]:
        """Members whose replica runs, in the order of the members."""
        online = self.online.get(queue.uid, ())
        return [member for member in queue.members if member in online]

    def damaged_members(self, queue: Queue) -> list[str]:
        """Members whose replica has a damaged log, in the order of the members."""
        damaged = self._damaged.get(queue.uid, ())
        return [member for member in queue.members if member in damaged]

    def syncing(self, uid: int) -> int | None:
        """Messages that a synchronisation of mirrors has sent so far, None without one."""
        found = self.served.get(uid)
        return None if found is None else found[1].syncing

    def voters(self, uid: int) -> list[str] | None:
        """Replicas of a quorum queue that have a vote; None when its leader did not say."""
        found = self.served.get(uid)
        return None if found is None else found[1].voters

    def behind(self, uid: int) -> list[str]:
        """Members of a quorum queue that lack much of its log, as far as its leader said."""
        found = self.served.get(uid)
        return [] if found is None else found[1].behind

    def state(self, queue: Queue) -> str:
        """One of "running", "flow", "syncing", "promoting", "minority" and "down"."""
        if self.syncing(queue.uid) is not None:
            return "syncing"
        stat = self.stat(queue.uid)
        if stat is not None:
            is_held = stat.state == "running" and queue.uid in self._held
            return "flow" if is_held else stat.state
        if queue.ring is not None and queue.ring.successor is not None:
            return "promoting"
        if queue.type in REPLICATED:
            online = len(self.online_members(queue))
            if 0 < online <= len(queue.members) // 2:
                return "minority"
        return "down"


def item(
    queue: Queue, states: QueueStates, catalogue: Catalogue, sizes: GroupSizes, version: int = 1
) -> Item:
    """A queue as RabbitMQ shows it.

    Args:
        queue: Which.
        states: What nodes say of it.
        catalogue: Group 0.
        sizes: How many replicas quorum queues should have.
        version: Of a classic queue that asks for none (`classic_queue.default_version`).
    """
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
    if queue.type in REPLICATED:
        found |= _members(queue, states)
    else:
        found["leader"] = queue.home
        found |= _mirrors(queue.ring, states.syncing(queue.uid))
    if queue.type == "quorum":
        found["open_files"] = dict.fromkeys(found["online"], 0)  # all share the node's store
        found["target_group_size"] = sizes.target(queue)
        found["missing_members"] = sizes.missing(queue, states.voters(queue.uid))
    stat = states.stat(queue.uid)
    if stat is not None:
        if stat.active is not None:
            kind = "single_active" if consumers.has_single(queue) else "exclusive"
            found[f"{kind}_consumer_tag"] = plain(stat.active[1])
        found |= _counts(stat)
        found["memory"] = memory.of_queue(stat, queue.type)
        measured = states.measured(queue.uid)
        found |= levels(measured) | idle_since(measured)
        if stats := of_queue(measured):
            found["message_stats"] = stats
        details = states.details(queue.uid)
        if details is not None:
            found |= _details(queue, details)
            if queue.type == "quorum":
                found |= _of_quorum(stat, details)
        if queue.type == "classic":
            found |= {key: of(stat) for key, of in ranks.IN_MEMORY.items()}
            found["backing_queue_status"] = {
                **_backing_queue_status(stat, _version(queue, catalogue, version)),
                **backing_rates(measured),
                **_priority_lengths(details),
            }
    owner = states.owners.get(queue.uid)
    if owner is not None:
        found["owner_pid_details"] = {
            "name": owner.name,
            "peer_host": owner.peer_host,
            "peer_port": owner.peer_port,
        }
    return found


def _members(queue: Queue, states: QueueStates) -> Item:
    """Return the members of a queue with replicas, and how they are."""
    found: Item = {
        "leader": states.node(queue),
        "members": list(queue.members),
        "online": states.online_members(queue),
    }
    if damaged := states.damaged_members(queue):
        found["damaged_members"] = damaged
    return found


def _mirrors(ring: Ring | None, syncing: int | None) -> Item:
    """Return a mirrored queue's copies, and what is awaited while the queue is down."""
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


def _details(queue: Queue, details: QueueDetails) -> Item:
    of_stream = {} if details.stream is None else _of_stream(queue.uid, details.stream)
    return of_stream | {key: of(details) for key, of in ranks.OF_DETAILS.items()}


def _of_quorum(stat: QueueStat, details: QueueDetails) -> Item:
    """The keys of quorum queues alone; those whose bodies are in no log have all in memory."""
    limit = details.delivery_limit
    return {
        "delivery_limit": "unlimited" if limit is None else limit,
        "message_bytes_dlx": details.dead_bytes,
        "messages_dlx": details.dead,
        **{key: of(stat) for key, of in ranks.QUORUM_IN_MEMORY.items()},
    }


def _of_stream(uid: int, facts: StreamFacts) -> Item:
    """The keys of streams alone; `stream` is ours."""
    return {
        "committed_offset": facts.next_offset - 1,
        "segments": facts.segments,
        "stream": {
            "bytes": facts.size_bytes,
            "disk_bytes": facts.disk_bytes,
            "first_offset": facts.first_offset,
            "first_timestamp": facts.first_ms,
            "last_timestamp": facts.last_ms,
            "next_offset": facts.next_offset,
            "offsets": facts.offsets,
            "publishers": facts.publishers,
            "publishers_forgotten": facts.publishers_forgotten,
            "segments": facts.segments,
            "uid": str(uid),
        },
    }


def _backing_queue_status(stat: QueueStat, version: int) -> Item:
    """Return RabbitMQ's `backing_queue_status`, as far as it means something here.

    All alphas that are ready count as q4, the head; q1 and q2, which RabbitMQ fills behind a
    delta, stay empty.
    """
    in_memory = stat.alpha - stat.unacked_alpha
    return {
        "delta": ["delta", "undefined", stat.delta, 0, "undefined"],
        "len": stat.ready,
        "mode": stat.mode,
        "next_seq_id": stat.next_number - 1,
        "pending_acks": stat.unacked,
        "q1": 0,
        "q2": 0,
        "q3": max(0, stat.ready - in_memory - stat.delta),
        "q4": in_memory,
        "ram_ack_count": stat.unacked_alpha,
        "ram_msg_count": in_memory,
        "target_ram_count": _target_count(stat),
        "version": version,
    }


def _priority_lengths(details: QueueDetails | None) -> Item:
    """`priority_lengths` of a queue with priorities."""
    if details is None or not details.priorities:
        return {}
    lengths = {str(priority): count for priority, count in enumerate(details.priorities)}
    return {"priority_lengths": lengths}


def _target_count(stat: QueueStat) -> int | str:
    """Return the number of messages that may be in memory, at the queue's mean size."""
    if stat.ram_target_bytes is None:
        return "infinity"
    messages = stat.ready + stat.unacked
    body_bytes = (stat.ready_bytes + stat.unacked_bytes) // messages if messages else 0
    return stat.ram_target_bytes // (MESSAGE_RAM_BYTES + body_bytes)


def group_sizes(call: Call) -> GroupSizes:
    """Return the number of replicas that quorum queues should have, by this node's settings."""
    return GroupSizes(call.catalogue, call.control.settings)


def _default_version(call: Call) -> int:
    return call.control.settings.classic_queue_default_version


def _version(queue: Queue, catalogue: Catalogue, default: int) -> int:
    """A classic queue's `x-queue-version`: taken and shown; there is one way to store messages."""
    policy = catalogue.effective_policy(queue)
    found = queue.arguments.get("x-queue-version", policy.get("queue-version", default))
    return found if isinstance(found, int) else default


def of_vhosts(reports: Iterable[Report], vhosts: Collection[str]) -> Measured:
    """The counters of some vhosts, of all nodes together; ask for STATISTICS."""
    return total(
        measured
        for report in reports
        for vhost, measured in report.statistics.vhosts.items()
        if vhost in vhosts
    )


def totals(reports: Collection[Report], vhosts: Collection[str]) -> Item:
    """Messages of all queues of some vhosts together.

    A queue whose leader changes just now may be counted twice, or not at all.
    """
    found: list[Sums] = [
        sums
        for report in reports
        for vhost, sums in report.totals.queues.items()
        if vhost in vhosts
    ]
    ready = sum(sums.ready for sums in found)
    unacked = sum(sums.unacked for sums in found)
    measured = of_vhosts(reports, vhosts)
    return {
        **levels(measured),
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


async def show_all(call: Call) -> Parts:
    """GET /api/queues."""
    every = await call.reports.pace.run(call.orders.by_name(call.catalogue))
    vhosts = {vhost.name: call.sees(vhost.name) for vhost in call.catalogue.vhosts()}
    if all(vhosts.values()):
        return await _show(call, every, every)
    return await _show(call, every, [each for each in every if vhosts.get(each.vhost, False)])


async def show_vhost(call: Call) -> Parts:
    """GET /api/queues/VHOST."""
    vhost = call.vhost()
    every = await call.reports.pace.run(call.orders.by_name(call.catalogue))
    return await _show(call, every, [queue for queue in every if queue.vhost == vhost])


async def _show(call: Call, every: list[Queue], queues: list[Queue]) -> Parts:
    """List queues; where it is one page, only those of the page are asked for.

    What exists is looked up here and now, so what the caller has declared is there. Its counts
    come from the gathering that follows.

    Args:
        call: The request.
        every: All queues in the order of their names.
        queues: Those of them that the caller may see.
    """
    run = call.reports.pace.run
    query: paging.Query = call.query
    began_ms = call.control.clock.monotonic_ms()
    arranged = await call.orders.arranging(len(queues), query, call.catalogue)
    if arranged is not None:
        query = {key: value for key, value in query.items() if not key.startswith("sort")}
    matching = await run(call.orders.matching(every, query))
    choice = await run(paging.chosen(queues, query, lambda queue: queue.name, arranged, matching))
    uids = None if choice.page is None else [queue.uid for queue in choice.records]
    states = await run(
        QueueStates.merged(await call.reports.gather(QUEUES, uids=uids, ages=call.ages()))
    )
    catalogue, sizes, version = call.catalogue, group_sizes(call), _default_version(call)

    def shown(queue: Queue) -> Item | None:
        now = catalogue.queue_by_uid(queue.uid)
        return None if now is None else item(now, states, catalogue, sizes, version)

    def keep(placed: list[Queue], ranks: list[paging.Rank]) -> None:
        if len(placed) == len(every) and "page" in query:
            places = {queue.uid: rank for queue, rank in zip(placed, ranks, strict=True)}
            call.orders.keep(query["sort"], places, began_ms)

    return await run(paging.shown(choice, query, shown, keep))


async def show(call: Call) -> web.Response:
    """GET /api/queues/VHOST/NAME."""
    queue = named(call)
    reports = await call.reports.gather(
        *(QUEUES, CONSUMERS, FLOWS),
        uids=[queue.uid],
        ages=call.ages(),
        flows=flows.Asked(queue=queue.uid),
    )
    states, version = QueueStates(reports), _default_version(call)
    found = item(queue, states, call.catalogue, group_sizes(call), version)
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
    every = [report.flows for report in reports.values()]
    found["deliveries"] = flows.deliveries_of_queue(every)
    found["incoming"] = flows.incoming_of_queue(every)
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
            queue_limit=call.serving.context.limits.cluster_queues,
        )
    )
    call.serving.context.counts.churn.queue_declared += 1
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
    await ask(
        lambda done: queues.delete(queue, done, if_unused=if_unused, if_empty=if_empty, by=call.by)
    )
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
    await ask(partial(call.serving.queues.open(queue).submit, Purge()))
    return no_content()


def _check_not_owned(queue: Queue) -> None:
    if queue.exclusive_owner is not None:
        raise ApiError(
            400,
            f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost "
            f"'{queue.vhost}'",
        )


ROUTES = (
    listing("/api/queues", show_all),
    listing("/api/queues/detailed", show_all),
    listing("/api/queues/{vhost}", show_vhost),
    Endpoint("GET", "/api/queues/{vhost}/{name}", show),
    Endpoint("PUT", "/api/queues/{vhost}/{name}", put),
    Endpoint("DELETE", "/api/queues/{vhost}/{name}", delete),
    Endpoint("DELETE", "/api/queues/{vhost}/{name}/contents", purge),
)
