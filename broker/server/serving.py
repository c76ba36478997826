"""Everything of a node that serves clients: queues, connections, the lease over them.

`stop_app` stops exactly this; the node stays a member of its cluster. Built anew when the node's
boot was ended while it ran (docs/protocol-rules.md P1): nothing of the old boot may speak for the
new one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import random
import secrets
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from broker.audit.actor import BROKER, Actor
from broker.cluster.authentication import keys
from broker.cluster.lease import LeaseWatch
from broker.cluster.membership import ClusterMembership
from broker.cluster.replicas import placement
from broker.cluster.replicas.repair import Led, Repair
from broker.cluster.timer_alignment import aligned_delay_s, midway_delay_s, tenth
from broker.config import Settings
from broker.errors import ReplyCode
from broker.metadata import policy_keys
from broker.metadata.access import Access
from broker.metadata.applying.exchanges import LOG_EXCHANGE
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import (
    ChangeRings,
    DeclareLogExchange,
    DeleteQueue,
    EndConnection,
    NoteLeader,
)
from broker.metadata.records import REPLICATED
from broker.metadata.results import Changes
from broker.metadata.streams.settings import initial_size
from broker.ports import Clock, Done, Journal
from broker.queues.mirrored.proposals import STEPS_MAX
from broker.queues.node import NodeContext
from broker.queues.paging.node_pager import LOOK_S, MemoryUse, NodePager, trim_memory
from broker.queues.registry import QueueRegistry
from broker.queues.replicas.survivor import MemberState
from broker.server import resource_usage
from broker.server.alarm_watch import AlarmWatch, Gauge
from broker.server.alarms import AlarmLimits, Board, limits_of
from broker.server.alternate_exchange_warnings import AlternateExchangeWarnings
from broker.server.background import SERVING_SLICE_S, every, in_slices
from broker.server.context import ServerContext
from broker.server.entrance.doors import Doors
from broker.server.events.log import LogExchange
from broker.server.events.queue_news import QueueNews
from broker.server.events.system_exchange import SystemExchange
from broker.server.exclusive_queue_cleanup import ExclusiveQueueCleanup
from broker.server.groups import QueueGroups
from broker.server.listener import TICK_S, AmqpListener
from broker.server.node_service import NodeService
from broker.server.shares.half_sent import HalfSentShared, budget_bytes
from broker.server.sockets import many_sockets
from broker.server.sockets.outbox import Outbox
from broker.server.usage_exchange import UsageExchange
from broker.session.facts import SessionLimits
from broker.session.traced_vhosts import TracedVhosts
from broker.storage.message_store import MessageStore
from broker.storage.replaced_logs import ReplacedLogs

_log = logging.getLogger(__name__)

GUARD_S: Final = 0.2
"""How often the lease is looked at while connections wait for it."""

LEASE_WAIT_S: Final = 5.0
"""How long a start waits for the lease before it leaves it to the guard to open the ports."""

OPEN_LOOK_S: Final = 0.05

BEGIN_SLICE_S: Final = 0.005
"""Replicas are begun for so long in one turn of the loop; each takes some 0.2 ms."""

QUEUES_TICK_S: Final = 1.0
BUSY_TEND_S: Final = 0.2

HAND_OVER_S: Final = 10.0
"""How long a stopping node tries to hand its mirrored queues over."""

DRAIN_S: Final = 4.0
"""How much of that it waits for what is under way in them."""

MAINTENANCE_TEXT: Final = "Node was put into maintenance mode"
"""As rabbit_maintenance.erl, close_all_client_connections/0."""


class Serving:
    """The serving half of a node, from start to stop.

    Args:
        settings: The node's settings.
        cluster: The other half: links, Raft groups, group 0.
        journal: The node's store.
        store: Classic queues' messages.
        service: The door to other nodes.
        clock: Time.
        server_properties: For connection.start.
        doors: Places, turns and logins; the process's.
        alarm_limits: Where alarms begin, None: as the settings say.

    Attributes:
        alarms: Reads memory and disk.
        queues: Every queue as this node sees it.
        listener: AMQP ports and connections.
        queue_news: Which queues got other leaders and members.
        context: What connections share.
        access: Logins and permissions.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: ClusterMembership,
        journal: Journal,
        store: MessageStore,
        service: NodeService,
        clock: Clock,
        server_properties: dict[str, object],
        doors: Doors,
        alarm_limits: AlarmLimits | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.catalogue: Catalogue = cluster.metadata.catalogue
        self.catalogue.alternate_missing = AlternateExchangeWarnings().note
        self.access = Access(
            self.catalogue,
            settings.loopback_users,
            settings.channel_max_per_node,
            settings.password_hashing,
        )
        self._settings = settings
        self._cluster = cluster
        self._service = service
        self._clock = clock
        self.queue_news = QueueNews(clock)
        replaced = ReplacedLogs(Path(settings.data_dir))
        self._groups = QueueGroups(
            cluster.host, self.catalogue, cluster.node, journal, self.queue_news, replaced
        )
        self._tasks: asyncio.TaskGroup | None = None
        self._running: list[asyncio.Task[None]] = []
        self._journal = journal
        self._lease_watch = LeaseWatch()
        self._is_stopped = False
        self._is_closing = False
        self._is_let_in = False  # clients have been waited for; `_guard` may open the ports
        self._is_behind = False  # a change of group 0 was not followed to its end
        self._exclusive_queue_cleanup = ExclusiveQueueCleanup(
            self.catalogue, cluster.node, cluster.boot
        )
        board = Board(cluster.node)
        traced = TracedVhosts(clock)
        node = NodeContext(
            node=cluster.node,
            boot=cluster.boot,
            catalogue=self.catalogue,
            clock=clock,
            journal=journal,
            store=store,
            transport=service,
            defer=loop.call_soon,
            later=loop.call_later,
            propose=self._propose,
            has_lease=self.is_valid,
            leader=self._leader,
            draw=partial(random.getrandbits, 64),
            has_alarm=lambda: bool(board.reason),
            watch=traced,
        )
        self.queues = QueueRegistry(node, self._groups, cluster.peers)
        self.context = self._build_context(server_properties, doors, board, traced)
        self._log_exchange = self._made_log_exchange() if settings.log.exchange else None
        self.listener = AmqpListener(self.context)
        self._usage = UsageExchange(cluster.links, self.access.usage, cluster.peers)
        self.alarms = self._watch(board, alarm_limits)
        self._pager = self._build_pager()
        self._repair = Repair(
            cluster.node, settings, self.catalogue, clock, self, cluster.peers, cluster
        )

    def _build_context(
        self,
        server_properties: dict[str, object],
        doors: Doors,
        board: Board,
        traced: TracedVhosts,
    ) -> ServerContext:
        cluster, settings = self._cluster, self._settings
        return ServerContext(
            settings=settings,
            node=cluster.node,
            boot=cluster.boot,
            clock=self._clock,
            outbox=Outbox(asyncio.get_running_loop(), self._clock, many_sockets.opened()),
            catalogue=self.catalogue,
            access=self.access,
            metadata=cluster,
            queues=self.queues,
            lease=self,
            spawn=self.spawn,
            send_reply=self._service.send_direct_reply,
            place=self._place,
            new_name=_new_name,
            limits=_limits(settings),
            reply_secret=keys.derive(cluster.settings.secret, keys.Purpose.DIRECT_REPLIES),
            server_properties=server_properties,
            doors=doors,
            alarms=board,
            traced=traced,
            half_sent=HalfSentShared(
                budget_bytes(
                    limits_of(settings).memory_limit(resource_usage.memory_total(settings)),
                    settings.max_message_size_bytes,
                )
            ),
        )

    def _build_pager(self) -> NodePager:
        return NodePager(
            _Memory(self.alarms),
            self._settings.vm_memory_high_watermark_paging_ratio,
            self.queues,
            self._clock,
            asyncio.get_running_loop().call_soon,
        )

    def _watch(self, board: Board, limits: AlarmLimits | None) -> AlarmWatch:
        cluster, settings = self._cluster, self._settings
        watch = AlarmWatch(
            board,
            settings,
            self._clock,
            Gauge(settings),
            cluster.links,
            cluster.peers,
            self.listener.follow_alarms,
        )
        if limits is not None:
            watch.limits = limits
        return watch

    # Start and stop

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Recover queues. Where that fails, all of it is undone. `open` lets clients in."""
        self._tasks = tasks
        await self._journal_synced()  # what an earlier serving wrote is recovered from disk
        try:
            await in_slices(self.queues.opening())  # nobody reaches them before `attach`
            self._service.attach(self.queues, self.listener, self._groups)
            here = self.catalogue.node(self._cluster.node)
            is_current = here is not None and here.boot == self.context.boot
            self._groups.erase_unknown(self.catalogue.all_queues(), is_current=is_current)
            await self._begin_replicas()
            self.queues.reconcile_all()
            self.alarms.start()
        except BaseException:
            self._let_go()  # or the next one would find its queues open already
            raise
        idle = policy_keys.stored_fault(self.catalogue.policies())
        if idle is not None:
            _log.warning("policy.without_effect: %s", idle)
        for name, work in (
            ("connections", every(TICK_S, self.listener.tick, tenth(2))),
            ("queues", every(QUEUES_TICK_S, self._tick_queues, tenth(4))),
            ("replicas", every(QUEUES_TICK_S, self._tend_replicas, self._until_tending)),
            ("pager", every(LOOK_S, self._page, midway_delay_s)),
            ("lease-guard", every(GUARD_S, self._guard, midway_delay_s)),
        ):
            self._running.append(tasks.create_task(work, name=name))

    async def _begin_replicas(self) -> None:
        """Begin replicas a few at a time: other nodes' heartbeats don't wait for all of them."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + BEGIN_SLICE_S
        for uid in list(self.catalogue.queue_uids()):
            self.queues.begin_replica(uid)
            if now_s() >= until_s:
                await asyncio.sleep(0)
                until_s = now_s() + BEGIN_SLICE_S

    async def formed(self) -> None:
        """Wait until the cluster is formed and, for some seconds, until the lease is held."""
        lease_wait_s = LEASE_WAIT_S
        while not self._is_closing:
            if not self._cluster.missing_peers():
                if self.is_valid() or lease_wait_s <= 0:
                    break
                lease_wait_s -= OPEN_LOOK_S
            await asyncio.sleep(OPEN_LOOK_S)

    async def open(self) -> None:
        """Accept clients as soon as what they ask can be done: formed cluster, lease held.

        Where the lease does not come in time, `_guard` opens the ports when it does.

        Raises:
            OSError: An AMQP address is taken; nothing listens then.
        """
        await self.formed()
        if self._is_closing:
            return
        if self.is_valid() and not self.is_drained:
            await self.listener.open()
        self._is_let_in = True
        self._cluster.formed()
        self._declare_exchanges()
        if self._log_exchange is not None:
            self._log_exchange.begin()

    def _made_log_exchange(self) -> LogExchange:
        exchange = SystemExchange(
            LOG_EXCHANGE,
            DeclareLogExchange(self._settings.default_vhost),
            self.catalogue,
            self._cluster,
            self.queues,
            self.context.lease,
        )
        return LogExchange(exchange, self._cluster.node, self._settings.log)

    def _declare_exchanges(self) -> None:
        """Declare the exchanges to which the broker publishes, where they are not there."""
        self.spawn(self.context.events.declare())
        if self._log_exchange is not None:
            self.spawn(self._log_exchange.declare())

    async def _journal_synced(self) -> None:
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not synced.done():
                synced.set_result(None)

        self._journal.when_synced(done)
        await synced

    def applied(self, changes: Changes) -> None:
        """Follow group 0 (P6); called inside each apply, which a bug here must not end."""
        if self._is_stopped:
            return
        try:
            self.queues.reconcile(changes)
            self.listener.follow(changes)
            self._usage.follow(changes)
            self._repair.follow(changes)
            self.alarms.follow(changes)
            self.queue_news.follow(changes)
            self._count(changes)
        except Exception:  # noqa: BLE001 - the outermost frame of what runs inside an apply
            _log.exception("queues.not_reconciled")
            self._is_behind = True

    def _count(self, changes: Changes) -> None:
        """Count the queues that came and went here; forget the counters of vhosts that went."""
        counts, node = self.context.counts, self._cluster.node
        counts.churn.queue_created += sum(each.home == node for each in changes.queues_added)
        counts.churn.queue_deleted += sum(each.home == node for each in changes.queues_removed)
        counts.gone_queues.update([each.uid for each in changes.queues_removed])
        for vhost in changes.vhosts_removed:
            counts.forget_vhost(vhost)

    def peers_changed(self) -> None:
        """A node came or went: batches may have another way now."""
        if not self._is_stopped:
            self.queues.retarget()
            self._repair.look_soon()
            self.alarms.peers_changed()

    async def stop(self, text: str) -> None:
        """Close clients in good order and hand leadership over.

        Args:
            text: What clients are told behind `CONNECTION_FORCED - `.
        """
        self._is_closing = True
        self.listener.close_ports()
        await self.listener.close_connections(text)
        await self._groups.hand_over(self.heirs() or self._cluster.peers.up())
        await self._hand_over_mirrored_queues()
        self._let_go()

    # Maintenance

    @property
    def is_drained(self) -> bool:
        """True while this node is in maintenance mode."""
        record = self.catalogue.node(self._cluster.node)
        return record is not None and record.being_drained

    def heirs(self) -> list[str]:
        """Other nodes that are heard and not in maintenance: they may lead in place of this one."""
        drained = self.catalogue.drained()
        return [node for node in self._cluster.peers.up() if node not in drained]

    async def suspend_clients(self) -> int:
        """Close the AMQP ports and all connections (320) for maintenance; returns how many."""
        count = len(self.listener.connections)
        self.listener.close_ports()
        await self.listener.close_connections(MAINTENANCE_TEXT)
        return count

    async def resumed_clients(self) -> bool:
        """Wait until `_guard` has opened the AMQP ports after maintenance.

        Returns:
            False if it has not within `LEASE_WAIT_S`: the lease is away, or an address was taken.
        """
        for _ in range(int(LEASE_WAIT_S / OPEN_LOOK_S)):
            if self.listener.is_open:
                return True
            await asyncio.sleep(OPEN_LOOK_S)
        return False

    async def hand_over_quorum_queues(self) -> None:
        """Give the leadership of quorum queues led here to nodes that are not in maintenance."""
        await self._groups.hand_over(self.heirs())

    async def open_again(self) -> None:
        """Listen after a suspension; without the lease `_guard` does, once it is back.

        Raises:
            OSError: An AMQP address is taken.
        """
        may_open = self._is_let_in and not self._is_closing and not self.is_drained
        if may_open and self.is_valid():
            await self.listener.open()

    def why_closed(self) -> str:
        """Say why clients are not accepted; "" if they are."""
        if self.is_drained:
            return "the node is in maintenance mode (revive ends it)"
        if self.listener.is_suspended:
            return "client listeners are suspended (resume_listeners ends that)"
        if not self.listener.is_open:
            return "clients are not accepted: too few members of the cluster can be reached"
        return ""

    def _let_go(self) -> None:
        """End what runs here; clients are gone, and what is on disk stays."""
        self._is_stopped = True
        if self._log_exchange is not None:
            self._log_exchange.end()
        self.alarms.stop()
        self._service.detach()
        for task in self._running:
            task.cancel()
        for replica in self.queues.local_replicas():
            self._groups.close(replica.record.uid, erase=False)
        self.queues.stop()

    async def _hand_over_mirrored_queues(self) -> None:
        """Give every mirrored queue mastered here to a mirror, as far as policies allow.

        What has happened in them comes round first, so that the successor has it all at once; what
        has not by then is in the ring all the same, and comes round without this node (P22).
        """
        mirrored = self.queues.mirrored
        if self._is_stopped or not self.is_valid() or not mirrored.masters():
            return
        drained = asyncio.Event()
        mirrored.pause(drained.set)
        try:
            async with asyncio.timeout(HAND_OVER_S):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(drained.wait(), DRAIN_S)
                steps = mirrored.shutdown_handovers()
                for start in range(0, len(steps), STEPS_MAX):
                    part = tuple(steps[start : start + STEPS_MAX])
                    await self._cluster.propose(ChangeRings(part))
        except TimeoutError:
            _log.warning(
                "mirrored_queues.hand_over_timeout", extra={"queues": len(mirrored.masters())}
            )

    # For connections

    def is_valid(self, now_ms: int | None = None) -> bool:
        """May this boot serve now (P1, P4)? A `broker.server.context.Lease`."""
        cluster = self._cluster
        if now_ms is None:
            now_ms = self._clock.monotonic_ms()
        is_held = now_ms < cluster.metadata.lease.until_ms  # `is_held`: every read asks
        return is_held and cluster.links.boot == self.context.boot

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something nobody waits for."""
        if self._tasks is None or self._is_stopped:
            work.close()
            return
        self._tasks.create_task(self._logged(work))

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        """The outermost frame of a background task: a bug there must not end the node."""
        try:
            await work
        except Exception:  # noqa: BLE001 - the outermost frame
            _log.exception("task.failed")

    def _place(
        self, vhost: str, name: str, queue_type: str, arguments: dict[str, object]
    ) -> tuple[str, tuple[str, ...]]:
        """Place a new queue (`broker.session.facts.Placement`)."""
        here = self._cluster.node
        # Who was never here yet has no replica of its own to vote with (`QueueGroups.open`).
        nodes = [node for node in self.catalogue.nodes() if node.booted_at]
        running = [node.name for node in nodes if node.alive]
        drained = self.catalogue.drained()
        leading = [node for node in running if node not in drained] or running
        led = self.catalogue.homes()
        policy = self.catalogue.effective_policy_for(vhost, name, queue_type)
        configured = self._settings.queue_leader_locator
        strategy = placement.locator(queue_type, arguments, policy, configured)
        if queue_type not in REPLICATED:
            candidates = running if strategy == "client-local" else leading
            home = placement.leader(strategy, here, candidates or [here], led)
            return home, (home,)
        size = initial_size(arguments, policy)
        if queue_type == "quorum":
            asked = arguments.get("x-quorum-initial-group-size")
            size = asked if isinstance(asked, int) else self._settings.quorum_initial_group_size
        members = placement.replica_nodes(
            here,
            running,
            self.catalogue.replicas(),
            len(nodes) if size is None else size,
            members=[node.name for node in nodes],
        )
        candidates = [member for member in members if member in leading] or [here]
        if strategy == placement.SPREAD:
            led = self.catalogue.leaders()
        return placement.leader(strategy, here, candidates, led), members

    def _leader(self) -> str | None:
        """Return group 0's leader; this node only once it has applied the last leader's entries."""
        metadata = self._cluster.metadata
        is_here = metadata.leader == self._cluster.node
        return None if is_here and not metadata.is_leading else metadata.leader

    def _propose(self, command: DeleteQueue | ChangeRings, done: Done, by: Actor = BROKER) -> None:
        async def ask() -> None:
            done(await self.context.events.propose(command, by))

        self.spawn(ask())

    # Background

    async def _tick_queues(self) -> None:
        if self._is_behind:
            self.queues.reconcile_all()
            self._is_behind = False
        await in_slices(self.queues.tick(), slice_s=SERVING_SLICE_S)
        self._usage.tick()
        self.alarms.tick()
        self._declare_exchanges()
        self.context.events.stream.tick()
        for owner in self._exclusive_queue_cleanup.find(self.listener.connections):
            self.spawn(self._close_owner(owner))

    async def _page(self) -> None:
        self._pager.tick()

    async def _close_owner(self, owner: str) -> None:
        """Delete what a connection that is gone still owns; asked again while it is there."""
        await self.context.events.propose(EndConnection(owner))

    async def _tend_replicas(self) -> None:
        """Members of quorum queues and their leader hints; each step may wait for a majority."""
        for uid, leader in self._groups.blank():
            if await self._service.ask_readmit(leader, uid):
                self._groups.readmitted(uid)
        for uid, node in self._groups.damaged():
            # Who leads has all that was confirmed: a majority without this replica elected it, or
            # takes it out now.
            if await self._service.ask_readmit(node, uid) and self.queues.begin_anew(uid):
                self._groups.readmitted(uid)
        unfinished = await self._groups.tend(
            self.queues.take_untended(), self._cluster.peers.up(), self._service.ask_may_vote
        )
        self.queues.stir(unfinished)
        if self.is_drained:
            await self.hand_over_quorum_queues()  # elections may have made it a leader again
        led, self.queues.led_lately = self.queues.led_lately, {}
        if led:
            self._repair.look_soon()
        moved = [
            (uid, node)
            for uid, node in led.items()
            if (queue := self.catalogue.queue_by_uid(uid)) is not None and queue.home != node
        ]
        if moved:
            await self._cluster.propose(NoteLeader(tuple(moved)))
        await self._repair.tick()

    def _until_tending(self, seconds: float) -> float:
        """Members follow each other quickly while queues get theirs."""
        return aligned_delay_s(BUSY_TEND_S if self._repair.is_busy else seconds)

    def replica_state(self, uid: int) -> MemberState:
        """Say how this node's replica of a queue is."""
        return self._groups.state(uid)

    def lead_alone(self, uid: int) -> None:
        """Have a replica here go on alone, as it is the only one by the catalogue (P8)."""
        self._groups.lead_alone(uid)
        self.queues.reopen(uid)

    def led(self, uid: int | None) -> Iterator[Led]:
        """Quorum queues led here, or the one of this uid."""
        for replica in self.queues.local_replicas() if uid is None else self.queues.replica(uid):
            group = self._cluster.host.group(replica.record.uid)
            if replica.is_leading and group is not None:
                yield Led(replica.record, group)

    async def _guard(self) -> None:
        """Wake connections when the lease is back; close everything when it stays away (P4).

        In maintenance the ports stay closed whatever the lease.
        """
        is_drained = self.is_drained
        if is_drained and self.listener.is_open:
            await self.suspend_clients()
        is_held = self.is_valid()
        lost_ms = self._lease_watch.look(self._clock.monotonic_ms(), is_held=is_held)
        if is_held:
            is_shut = not self.listener.is_open and not self.listener.is_suspended
            if self._is_let_in and is_shut and not self._is_closing and not is_drained:
                _log.info("lease.back")
                await self.listener.open()
            self.queues.lease_back()
            self.context.lease_back()
        elif self.listener.is_open and lost_ms > self._settings.cluster_disconnect_after_ms:
            _log.warning("Cluster minority status detected - awaiting recovery")
            self.listener.close_ports()
            await self.listener.close_connections(
                "this node can't reach a majority of its cluster; connect to another one"
            )

    def drop_boot(self) -> None:
        """This boot was ended: nothing may leave under its name any more (P1)."""
        self._is_stopped = self._is_closing = True
        self._service.detach()
        self.listener.close_ports()
        for connection in list(self.listener.connections.values()):
            connection.close(ReplyCode.CONNECTION_FORCED, "this node was declared dead meanwhile")


class _Memory:
    """The memory of this process, whose limit is the alarms'. A `node_pager.ProcessMemory`."""

    def __init__(self, alarms: AlarmWatch) -> None:
        self._alarms = alarms

    def look(self) -> MemoryUse:
        return MemoryUse(resource_usage.memory_used(), self._alarms.memory_limit_bytes)

    def trim(self) -> None:
        trim_memory()


def _new_name() -> str:
    """22 URL-safe characters (`broker.session.facts.Names`)."""
    return base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")


def _limits(settings: Settings) -> SessionLimits:
    return SessionLimits(
        max_message_size=settings.max_message_size_bytes,
        consumers_per_channel=settings.consumer_max_per_channel or 0,
        consumer_timeout_ms=settings.consumer_timeout_ms or 0,
        cluster_queues=settings.cluster_queue_limit,
        cluster_exchanges=settings.cluster_exchange_limit,
        quorum_global_qos=settings.quorum_global_qos,
        events_vhost=settings.events_vhost or settings.default_vhost,
    )
