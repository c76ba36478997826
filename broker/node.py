"""The composition root: builds a node from its parts, starts and stops them in order.

Start: data folder and store, journal, links and group 0, this boot committed, queues recovered,
AMQP ports opened, then `Server startup complete`. Stop is the reverse: clients are told, leaders
handed over, everything synced. Two halves can be stopped apart:

    process   the management API; lives as long as the process
    member    store, links, Raft groups, group 0: the node in its cluster       (`reset` ends it)
    serving   queues, connections                                               (`stop_app` ends it)

After `stop_app` the member goes on retired: it votes in group 0, but its boot has ended, so its
transient and exclusive queues are gone and others take its durable classic queues for down.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from broker import interpreter
from broker.audit.actor import BROKER, SETTINGS, Actor
from broker.cluster.admission.enquiry import Applicant, NotAdmitted, enquire
from broker.cluster.authentication.exposure import objection
from broker.cluster.authentication.secret import SecretUnusable, effective_secret
from broker.cluster.configured import cluster_settings
from broker.cluster.identity import IdentityDamaged, IdentityFile
from broker.cluster.membership import ClusterMembership
from broker.cluster.metadata_group import GROUP
from broker.cluster.timer_alignment import tenth
from broker.config import Settings
from broker.errors import Refusal
from broker.management.app import ManagementServer
from broker.management.control import NodeError
from broker.management.metrics.server import MetricsServer
from broker.management.operations.registry import Operations
from broker.management.operations.start_definitions import StartDefinitions
from broker.management.operations.timeline.watching import LOOK_S
from broker.management.reports import SAMPLE_S
from broker.management.resources.rights import attempts
from broker.metadata.results import Changes
from broker.ports import Clock
from broker.server import resource_usage
from broker.server.alarms import AlarmLimits
from broker.server.background import every
from broker.server.entrance.certificates import certificates_of
from broker.server.entrance.doors import Doors
from broker.server.loop_watch import LoopWatch
from broker.server.node_service import NodeService
from broker.server.serving import Serving
from broker.storage import opening, private
from broker.storage.group_commit import GroupCommit
from broker.storage.message_store import MessageStore
from broker.storage.store import StoreDamaged, StoreLocked, StoreUnusable
from raft.errors import LogCorrupt

_log = logging.getLogger(__name__)

EXIT_SYNC_FAILED: Final = 74
"""sysexits.h EX_IOERR: a failed sync stops the node (docs/planted-bugs.md D2)."""

EXIT_METADATA_FAILED: Final = 70
"""sysexits.h EX_SOFTWARE: this node's copy of group 0 stopped because of a bug or damage."""

READY_LOG_S: Final = 10.0
JOIN_S: Final = 12.0
DOORS_S: Final = 1.0


class SystemClock:
    """`broker.ports.Clock` of the real world.

    Within a millisecond it gives the same object: who keeps the time, as every connection does,
    then lets go of an object that others keep, too, and that is in the processor's caches.
    """

    def __init__(self) -> None:
        self._now_ms = self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        now_ms = time.time_ns() // 1_000_000
        if now_ms == (last_ms := self._now_ms):
            return last_ms
        self._now_ms = now_ms
        return now_ms

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return time.time_ns() // 1000

    def monotonic_ms(self) -> int:
        """Milliseconds that never jump."""
        now_ms = time.monotonic_ns() // 1_000_000
        if now_ms == (last_ms := self._monotonic_ms):
            return last_ms
        self._monotonic_ms = now_ms
        return now_ms

    def busy_ms(self) -> int:
        """Milliseconds of processor time of the calling thread."""
        return time.thread_time_ns() // 1_000_000


@dataclass(slots=True)
class _Member:
    """The half of a node that belongs to a cluster."""

    cluster: ClusterMembership
    journal: GroupCommit
    store: MessageStore
    service: NodeService
    tasks: asyncio.TaskGroup
    runner: asyncio.Task[None]
    ended: asyncio.Event


class Node:
    """One node of a cluster. A `broker.management.control.NodeControl`.

    Args:
        settings: All of its settings.

    Attributes:
        settings: As given.
        clock: The system's.
        started: Set when the node serves for the first time.
        failure: Why it did not start; "" if it did, or has not yet.

    Raises:
        TlsUnusable: A certificate can't be used; the text says what to do.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.started = asyncio.Event()
        self.failure = ""
        self._is_process = False
        self.clock: Clock = SystemClock()
        self.started_ms = self.clock.now_ms()
        self.memory_at_start_bytes = resource_usage.memory_used()
        self._member: _Member | None = None
        self._serving: Serving | None = None
        self._management: ManagementServer | None = None
        self._metrics: MetricsServer | None = None
        self._operations = Operations(self)
        self._definitions = StartDefinitions(settings, self._operations.importer)
        self._doors = Doors(certificates_of(settings))
        self._loop_watch = LoopWatch()
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._lock = asyncio.Lock()
        self._is_app_wanted = False
        self.is_beginning = True
        self._exit_code = 0
        self._alarm_limits: AlarmLimits | None = None  # those set at run time, for the next boot

    # What the API may know (`NodeControl`)

    @property
    def name(self) -> str:
        """Node name."""
        return self.settings.node_name

    @property
    def management_port(self) -> int:
        """Where the HTTP API listens; it must be on, without TLS."""
        assert self._management is not None
        return self._management.port

    @property
    def doors(self) -> Doors:
        """Places, turns and logins at its ports."""
        return self._doors

    @property
    def loop_watch(self) -> LoopWatch:
        """Measures the turns of the event loop."""
        return self._loop_watch

    @property
    def serving(self) -> Serving | None:
        """What serves clients."""
        return self._serving

    @property
    def cluster(self) -> ClusterMembership | None:
        """The node among others."""
        return None if self._member is None else self._member.cluster

    @property
    def journal(self) -> GroupCommit | None:
        """The node's writer."""
        return None if self._member is None else self._member.journal

    @property
    def service(self) -> NodeService | None:
        """The door to other nodes."""
        return None if self._member is None else self._member.service

    def why_not_ready(self) -> str:
        """Say why clients are not served; "" while they are."""
        if self._member is None:
            return "the node has no cluster; start_app founds one, join_cluster joins one"
        if self._member.cluster.forgotten_by:
            return f"the cluster forgot this node, says {self._member.cluster.forgotten_by}"
        if self._serving is None:
            return "the broker is stopped (start_app starts it) or still starting"
        missing = self._member.cluster.missing_peers()
        if missing:
            return f"the cluster is forming: {', '.join(missing)} did not join yet"
        if self._definitions.is_loading:
            return "definitions are being imported"
        return self._serving.why_closed()

    # The process

    async def run(self) -> int:
        """Run as a process of its own until SIGTERM or SIGINT; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._is_process = True
        self._loop_watch.start()
        code = await self.serve()
        self._loop_watch.stop()
        return code

    async def serve(self) -> int:
        """Run until `stop`, beside whatever else this event loop runs; returns the exit code."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            doors = [
                tasks.create_task(every(DOORS_S, self._tick_doors, tenth(6)), name="doors"),
                tasks.create_task(
                    every(DOORS_S, self._doors.look_at_certificates, tenth(7)),
                    name="certificates",
                ),
                tasks.create_task(
                    every(
                        min(SAMPLE_S, self.settings.statistics_interval_ms / 1000),
                        self._operations.reports.sample,
                        tenth(8),
                    ),
                    name="statistics",
                ),
                tasks.create_task(
                    every(LOOK_S, self._operations.timeline.look, tenth(9)), name="timeline"
                ),
            ]
            starting = tasks.create_task(self._start())
            await self._stopping.wait()
            starting.cancel()
            await asyncio.wait([starting])
            await self._stop()
            for each in doors:
                each.cancel()
        return self._exit_code

    async def _tick_doors(self) -> None:
        self._doors.tick(self.clock.monotonic_ms())

    def stop(self) -> None:
        """End the process in good order; a second call does nothing more."""
        self._stopping.set()

    async def _start(self) -> None:
        settings = self.settings
        try:
            if settings.management_listener or settings.management_tls_listener:
                self._management = ManagementServer(self, self._operations)
                await self._management.start()
            if settings.metrics_listener or settings.metrics_tls_listener:
                self._metrics = MetricsServer(self, self._operations.reports)
                await self._metrics.start()
            await self.start_app()
        except _Stopping:
            return
        except (OSError, NodeError) as error:
            _log.critical("node.not_started: %s", error)
            self.failure = str(error)
            self._exit_code = 1
            self.stop()
            return
        if self.settings.pid_file is not None:
            await asyncio.to_thread(_write_pid, Path(self.settings.pid_file))
        if self._is_process:
            interpreter.settle_memory()
        self.started.set()
        _log.info("Server startup complete; connect to %s", ", ".join(self.settings.urls()))

    async def _stop(self) -> None:
        _log.info("node.stopping")
        async with self._lock:
            await self._stop_serving("broker forced connection closure with reason 'shutdown'")
            await self._leave_member()
        for server in (self._management, self._metrics):
            if server is not None:
                await server.stop()
        _log.info("node.stopped")

    # Parts that can be stopped apart (`NodeControl`)

    async def start_app(self) -> None:
        """Serve clients; founds or joins a cluster first where the node has none.

        Raises:
            OSError: An address is taken.
            NodeError: The store can't be used, definitions can't be imported, or the process ends.
        """
        self._is_app_wanted = True
        async with self._lock:
            self._require_going_on()
            if self._serving is not None or not self._is_app_wanted:
                return
            self._operations.seeding.check()
            await self._definitions.check()
            try:
                member = self._member or await self._begin_member(self._peers())
            finally:
                self.is_beginning = False
            await self._ready(member)
            await self._begin_serving(member)

    async def stop_app(self) -> None:
        """Stop serving clients; the node stays a member of its cluster."""
        self._is_app_wanted = False
        async with self._lock:
            self._alarm_limits = None
            self._definitions.again()
            await self._stop_serving("broker forced connection closure with reason 'shutdown'")
            if self._member is not None:
                await self._member.cluster.retire()

    async def reset(self) -> None:
        """Leave the cluster and forget everything.

        Raises:
            NodeError: While the app runs, or when the others can't be told.
        """
        async with self._lock:
            self._require_stopped("reset")
            await self._forget_self()
            await self._leave_member()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def force_reset(self) -> None:
        """Forget everything and tell nobody: for a node whose cluster is gone.

        Raises:
            NodeError: While the app runs.
        """
        async with self._lock:
            self._require_stopped("force_reset")
            await self._leave_member()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def join_cluster(self, node: str) -> bool:
        """Join another node's cluster with nothing of one's own.

        Returns:
            False if this node was a member of it already: nothing has changed.

        Raises:
            NodeError: While the app runs, or when that node can't be joined.
        """
        async with self._lock:
            self._require_stopped("join_cluster")
            if node == self.name:
                raise NodeError(f"cannot cluster node with itself: {node}")
            address = self._address_of(node)
            if await self._is_in_cluster_of(node, address):
                return False
            await self._forget_self()
            await self._leave_member()
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            member = await self._begin_member({node: address}, joins_only=True)
            try:
                async with asyncio.timeout(JOIN_S):
                    await self._ready(member)
            except TimeoutError:
                await self._leave_member()
                text = (
                    f"node {node} at {address} did not let this node in though it said it would; "
                    "this node has left its old cluster: try join_cluster again"
                )
                raise NodeError(text) from None
            await member.cluster.retire()  # until start_app
            return True

    async def forget(self, node: str, by: Actor = BROKER) -> object:
        """Remove a stopped node from the cluster."""
        if self._member is None:
            raise NodeError("this node has no cluster")
        return await self._member.cluster.forget(node, by)

    # The member half

    @property
    def _folder(self) -> Path:
        return Path(self.settings.data_dir)

    def _secret(self) -> bytes:
        """The secret this node proves to others.

        Raises:
            NodeError: It must not be used, or can't; the text says what to do.
        """
        unsafe = objection(self.settings)
        if unsafe is not None:
            raise NodeError(unsafe)
        try:
            return effective_secret(self.settings)
        except SecretUnusable as why:
            raise NodeError(str(why)) from why

    def _peers(self) -> dict[str, str]:
        return {peer.node: f"{peer.host}:{peer.port}" for peer in self.settings.cluster_peers}

    def _address_of(self, node: str) -> str:
        configured = self.settings.peer_address(node)
        if configured is not None:
            return f"{configured[0]}:{configured[1]}"
        if self._member is not None:
            known = self._member.cluster.links.address_of(node)
            if known is not None:
                return known
        host = node.partition("@")[2]
        return f"{host}:{self.settings.inter_node_listener().port}"

    async def _begin_member(self, peers: dict[str, str], *, joins_only: bool = False) -> _Member:
        journal, store = await self._open_store()
        rng = random.SystemRandom()
        cluster = ClusterMembership(
            cluster_settings(
                self.settings,
                self._secret(),
                self._doors.certificates.links,
                peers,
                joins_only=joins_only,
            ),
            journal,
            self.clock,
            rng,
            lambda: secrets.token_hex(8),
            on_group_failed=self._group_failed,
            files=journal,
        )
        begun: asyncio.Future[_Member] = asyncio.get_running_loop().create_future()
        assert self._tasks is not None  # run() set it
        running = self._run_member(cluster, journal, store, begun)
        runner = self._tasks.create_task(running, name="member")
        member = await begun
        member.runner = runner
        self._member = member
        cluster.metadata.on_applied(self._applied)
        cluster.on_boot_ended(self._boot_ended)
        cluster.peers.on_event(lambda _event: self._peers_changed())
        return member

    async def _open_store(self) -> tuple[GroupCommit, MessageStore]:
        """Open the store and count its messages, before the others hear of this node.

        Raises:
            NodeError: It can't be used; the text says why and what to do.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            IdentityFile(self._folder, self.name)  # another node's folder is left alone
            self._secret()  # before anything is opened that would have to be closed again
            opened = await asyncio.to_thread(opening.open_for_node, self._folder / "store")
            journal = GroupCommit(opened.store, self._sync_failed)
        except OSError as error:
            raise NodeError(
                f"the data directory {self._folder} can't be used: {error}: let the user the node "
                "runs as read and write there and start again"
            ) from error
        except (IdentityDamaged, StoreDamaged, StoreLocked, StoreUnusable) as error:
            raise NodeError(str(error)) from error
        for path in (await asyncio.to_thread(private.close_to_others, self._folder))[:1]:
            _log.warning("data.open_to_others: chmod -R go= %s, for %s", self._folder, path)
        try:
            return journal, await asyncio.to_thread(opening.count_messages, journal, opened)
        except (StoreDamaged, StoreUnusable) as error:
            await asyncio.to_thread(journal.close)
            raise NodeError(str(error)) from error
        except BaseException:
            await asyncio.to_thread(journal.close)
            raise

    async def _run_member(
        self,
        cluster: ClusterMembership,
        journal: GroupCommit,
        store: MessageStore,
        begun: asyncio.Future[_Member],
    ) -> None:
        """Hold the member's task group open until it is told to end."""
        ended = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                service = NodeService(
                    cluster.links, cluster.metadata.catalogue, lambda work: _spawn(tasks, work)
                )
                attempts.serve(self._doors, cluster.links)
                self._operations.serve(cluster.links)
                try:
                    await cluster.start(tasks)
                except OSError as error:
                    begun.set_exception(error)
                    return
                begun.set_result(
                    _Member(cluster, journal, store, service, tasks, _current_task(), ended)
                )
                await ended.wait()
                await cluster.stop()
                _end_group()
        except* _MemberEnded:
            pass
        finally:
            await opening.close(journal, store, self._folder / "store")

    async def _ready(self, member: _Member) -> None:
        """Wait until this boot lives in group 0, saying every now and then what is missing.

        Raises:
            NodeError: The process is told to end meanwhile.
        """
        member.cluster.revive()
        async with asyncio.TaskGroup() as tasks:
            awaited = (
                tasks.create_task(member.cluster.ready()),
                tasks.create_task(self._stopping.wait()),
            )
            first = asyncio.FIRST_COMPLETED
            while not (await asyncio.wait(awaited, timeout=READY_LOG_S, return_when=first))[0]:
                _log.warning("node.waiting: %s", member.cluster.why_waiting())
            for task in awaited:
                task.cancel()
        self._require_going_on()

    async def _leave_member(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.ended.set()
            await asyncio.wait([member.runner])

    async def _is_in_cluster_of(self, node: str, address: str) -> bool:
        """Whether this node and `node` are members of one cluster; if not, it could join there.

        Raises:
            NodeError: It could not, and nothing of its own may be given up.
        """
        links = None if self._member is None else self._member.cluster.links
        own = "" if links is None else links.address
        applicant = Applicant(self.name, own, self._secret(), self._doors.certificates.links)
        try:
            answer = await enquire(applicant, node, address)
        except NotAdmitted as why:
            raise NodeError(str(why)) from why
        return answer.is_member and links is not None and links.cluster_id == answer.cluster_id

    async def _forget_self(self) -> None:
        """Tell the rest of the cluster that this node will not come back.

        Raises:
            NodeError: Nobody can be told.
        """
        member = self._member
        if member is None:
            return
        known = {node.name for node in member.cluster.metadata.catalogue.nodes()}
        if self.name not in known or len(known) == 1 or member.cluster.forgotten_by:
            return
        result = await member.cluster.forget(self.name)
        if isinstance(result, Refusal):
            raise NodeError(f"this node can't leave its cluster: {result.text}")

    def _require_going_on(self) -> None:
        if self._stopping.is_set():
            raise _Stopping

    def _require_stopped(self, what: str) -> None:
        self._require_going_on()
        if self._serving is not None:
            raise NodeError(f"{what} needs the broker stopped: run stop_app first")

    # The serving half

    async def _begin_serving(self, member: _Member) -> None:
        serving = Serving(
            self.settings,
            member.cluster,
            member.journal,
            member.store,
            member.service,
            self.clock,
            self._server_properties(),
            self._doors,
            self._alarm_limits,
        )
        with interpreter.uncollected():
            await serving.start(member.tasks)
            if self._is_process and not self.started.is_set():
                interpreter.keep()
        await asyncio.sleep(0)  # with many queues that was a long turn, and so is the next
        self._serving = serving
        serving.alarms.follow_store(member.journal, self._give_leaders_away)
        if serving.context.boot != member.cluster.boot:  # it was ended while this began
            self._boot_ended(serving.context.boot, member.cluster.boot)
        else:
            serving.applied(Changes(restored=True))  # what was applied since it looked (P6)
            await self._let_clients_in(serving)

    async def _let_clients_in(self, serving: Serving) -> None:
        """Open the AMQP ports when the cluster is formed, saying every now and then who is missing.

        Raises:
            OSError: An AMQP address is taken: nothing serves then.
            NodeError: The definitions of the settings can't be imported: likewise.
        """
        opening_ports = asyncio.ensure_future(self._prepare_clients(serving))
        try:
            while not (await asyncio.wait([opening_ports], timeout=READY_LOG_S))[0]:
                _log.warning("node.waiting: %s", self.why_not_ready())
            opening_ports.result()
        except (OSError, NodeError):
            await self._stop_serving("the node can't serve clients")
            raise
        finally:
            opening_ports.cancel()

    async def _prepare_clients(self, serving: Serving) -> None:
        """Import definitions once the cluster is formed, then open the AMQP ports.

        The first vhost of a cluster that was founded just now gets what new vhosts get.
        """
        member = self._member
        is_new = member is not None and member.cluster.is_just_founded()
        if is_new and not self.settings.definitions_paths:
            await serving.formed()
            propose = partial(serving.context.events.propose, by=SETTINGS)
            name = self.settings.default_vhost
            await self._operations.seeding.plant(name, serving.catalogue, propose)
        if self._definitions.is_due:
            await serving.formed()
            if self._serving is serving:  # it may have been stopped meanwhile
                await self._definitions.load()
        await serving.open()

    async def _stop_serving(self, text: str) -> None:
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.stop(text)

    def _applied(self, changes: Changes) -> None:
        if self._serving is not None:
            self._serving.applied(changes)

    def _peers_changed(self) -> None:
        if self._serving is not None:
            self._serving.peers_changed()

    def _boot_ended(self, old: str, new: str) -> None:
        """The cluster declared this node dead while it lived: serve anew under the new boot."""
        del old, new
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.drop_boot()
            if self._tasks is not None:
                self._tasks.create_task(self._serve_again(serving), name="serve-again")

    async def _serve_again(self, dropped: Serving) -> None:
        async with self._lock:
            await dropped.stop("this node was declared dead meanwhile")
            self._alarm_limits = dropped.alarms.limits
        if self._is_app_wanted:
            with suppress(_Stopping):
                await self.start_app()

    def _server_properties(self) -> dict[str, object]:
        settings = self.settings
        catalogue = self._member.cluster.metadata.catalogue if self._member else None
        return {
            "cluster_name": (catalogue.cluster_name if catalogue else "") or settings.node_name,
            "copyright": "Apache License 2.0",
            "information": "https://www.rabbitmq.com is what we are compatible with",
            "platform": f"Python {sys.version_info.major}.{sys.version_info.minor}",
            "product": settings.compat_product,
            "version": settings.compat_version,
            "x-impl": "WarrenMQ",
        }

    def _group_failed(self, group: int, error: BaseException) -> None:
        """A node without its group 0 could never serve again: better a restart than a shell.

        Of a queue whose log is damaged, the others have what is lost here.
        """
        if group != GROUP and isinstance(error, LogCorrupt) and self._serving is not None:
            self._serving.queues.replica_failed(group, str(error))
        if group == GROUP:
            _log.critical("metadata.failed", exc_info=error)
            self._exit_code = EXIT_METADATA_FAILED
            self.stop()

    def _give_leaders_away(self) -> None:
        """This node can't write for now: what it leads goes on sooner elsewhere."""
        if self._member is not None and self._tasks is not None:
            self._tasks.create_task(_hand_groups_over(self._member.cluster), name="hand-over")

    def _sync_failed(self, error: BaseException) -> None:
        """Nothing more may be promised: end at once, without any clean-up that could promise."""
        _log.critical("journal.failed: %s", error)
        logging.shutdown()
        sys.stderr.write(f"warrenmq: {error}\n")
        sys.stderr.flush()
        os._exit(EXIT_SYNC_FAILED)


def _write_pid(path: Path) -> None:
    path.write_text(f"{os.getpid()}\n")
    path.chmod(0o644)  # whoever watches over services reads it


async def _hand_groups_over(cluster: ClusterMembership) -> None:
    """Ask living members to lead the Raft groups that are led here, group 0 as well."""
    living = [node for node in cluster.peers.up() if node != cluster.node]
    moves = []
    for group in cluster.host.groups():
        others = [node for node in group.voters if node in living]
        if group.is_leader and others:
            moves.append(group.transfer(others[group.id % len(others)]))
    if moves:
        _log.warning("groups.handed_over: %d, for this node can't write", len(moves))
        await asyncio.gather(*moves, return_exceptions=True)


class _Stopping(NodeError):
    """The process is told to end: nothing more is begun."""

    def __init__(self) -> None:
        super().__init__("the node is stopping")


class _MemberEnded(Exception):
    """Ends the member's task group from inside."""


def _end_group() -> None:
    raise _MemberEnded


def _current_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _spawn(tasks: asyncio.TaskGroup, work: object) -> None:
    tasks.create_task(work)  # type: ignore[arg-type]


def run(settings: Settings, started: Callable[[Node], None] | None = None) -> int:
    """Run one node in the foreground.

    Args:
        settings: All of its settings.
        started: Given the node before it starts (for embedding).

    Returns:
        The process's exit code.
    """
    interpreter.share_quickly()
    interpreter.settle_memory()

    async def main() -> int:
        node = Node(settings)
        if started is not None:
            started(node)
        return await node.run()

    return uvloop.run(main())
