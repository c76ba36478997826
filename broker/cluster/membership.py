"""The membership of one node in its cluster, from start to stop. Owned by `broker.node`.

Start: links up; a cluster is founded, joined, or known from the identity file; group 0 is opened;
this boot id is committed (P1); then `ready`. While it runs, the leader of group 0 turns the failure
detectors' verdicts into ends of boots (P2, P7) and makes the group's members follow the catalogue.
A node that learns that its boot was ended draws a new one, without a restart. A retired node
(stop_app) is a member whose boot was ended by itself: it votes, and answers for nobody.

Invariants:
    1. Group 0 is founded only with the cluster id that formation gave, by one node, once.
    2. A node without data of group 0 is never a voter: a join removes what it was, adds a learner,
       and promotes it when it has caught up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from broker.audit.actor import BROKER, Actor
from broker.cluster import payload_types
from broker.cluster.admission.join_service import IS_MEMBER_METHOD, JoinService
from broker.cluster.authentication.handshake import Reason
from broker.cluster.authentication.link_certificates import LinkCertificates
from broker.cluster.calls import CallFailed
from broker.cluster.detector import PeerState, PeerStateChange
from broker.cluster.identity import IdentityFile
from broker.cluster.joining import Joining
from broker.cluster.links import Links
from broker.cluster.metadata_group import GROUP, PROPOSE_TIMEOUT_S, MetadataGroup
from broker.cluster.outbound import LinkLimits
from broker.cluster.peers import Peers
from broker.cluster.recovery import advice
from broker.cluster.recovery.forgetting import LostNodes
from broker.cluster.timer_alignment import WakeSignal, aligned_delay_s
from broker.cluster.transport import LinkTransport
from broker.errors import Refusal, ReplyCode
from broker.metadata import commands, results
from broker.metadata.machine import MetadataMachine
from broker.metadata.results import Changes
from broker.metadata.rings import is_expendable
from broker.ports import Clock, Journal
from raft.core.node import Rng
from raft.errors import LogCorrupt, RaftError
from raft.host import RaftHost
from raft.ports import LogFiles

log = logging.getLogger(__name__)

FORGET_METHOD = "membership.forget"
ASK_TIMEOUT_S = 6.0
FORGET_TIMEOUT_S = 30.0
FORGET_CALL_S = 3.0  # then the next node is asked
"""A little longer than a proposal may take."""

HAND_OVER_S = 2.0
END_BOOT_S = 2.0
WATCH_S, SETTLED_WATCH_S = 0.1, 1.0
RETRY_S = 0.2
FORGOTTEN_RETRY_S = 10.0


class ClusterSettings(NamedTuple):
    """The operator's settings for the cluster.

    Attributes:
        node: This node's name, "rabbit@node1".
        listen: "host:port" for other nodes; port 0 draws one.
        peers: The configured peers, name -> "host:port"; this node may be among them. One can
            name a proxy.
        secret: The cluster's shared secret.
        folder: Where the identity file lives.
        founding: The first contents of a new cluster; nodes and cluster id are filled in.
        advertised: The address at which others reach this node; by default where it listens.
        silent_ms: A node that is only silent, its death not proven, is declared dead after this.
            Its exclusive and transient queues go with that, so it is P27's 60 s.
        limits: Of the links.
        tls: Certificates for links; None: they have no TLS.
        joins_only: True if a node without a cluster may join a peer's, but found none.
        formation_timeout_ms: How long clients of a new cluster wait for configured peers that are
            missing.
    """

    node: str
    listen: str
    peers: dict[str, str]
    secret: bytes
    folder: Path
    founding: commands.Bootstrap
    advertised: str = ""
    silent_ms: int = 60_000
    limits: LinkLimits = LinkLimits()
    tls: LinkCertificates | None = None
    joins_only: bool = False
    formation_timeout_ms: int = 30_000


class ClusterMembership:
    """This node as a member of its cluster.

    Args:
        settings: The settings of the operator.
        journal: The node's store.
        clock: Monotonic time.
        rng: Draws ids; election timeouts too.
        draw_id: Draws 16 hex characters that were never drawn before.
        on_group_failed: See `RaftHost`.
        files: See `RaftHost`.

    Attributes:
        forgotten_by: A node of this cluster that does not know this one; "" if there is none.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        journal: Journal,
        clock: Clock,
        rng: Rng,
        draw_id: Callable[[], str],
        *,
        on_group_failed: Callable[[int, BaseException], None] | None = None,
        files: LogFiles | None = None,
    ) -> None:
        self.settings = settings
        self.file = IdentityFile(settings.folder, settings.node)
        self._draw_id = draw_id
        self._save_boot(draw_id())
        identity = self.file.identity
        self.links = Links(
            settings.node,
            identity.boot,
            identity.cluster_id,
            settings.secret,
            {**identity.members, **settings.peers},
            settings.limits,
            settings.tls,
        )
        self.host = RaftHost(
            settings.node,
            journal,
            LinkTransport(self.links),
            clock,
            rng,
            on_group_failed=on_group_failed,
            tick_delay_s=aligned_delay_s,
            files=files,
        )
        self.peers = Peers(self.links, clock, lambda: self.metadata.applied_index)
        self.metadata = MetadataGroup(
            self.links,
            self.host,
            MetadataMachine(),
            clock,
            lambda node, boot, at: node in self._lost.names or self.peers.is_over(node, boot, at),
        )
        self._lost = LostNodes(self.file, self.metadata)
        configured = tuple(sorted({settings.node, *settings.peers}))
        self._joining = Joining(
            self.links,
            self.file,
            configured,
            clock,
            draw_id,
            joins_only=settings.joins_only,
            formation_timeout_ms=settings.formation_timeout_ms,
        )
        JoinService(self.links, self.metadata, self._lost)
        self._ready = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._running: list[asyncio.Task[None]] = []
        self._wake = WakeSignal()
        self._is_stopping = False
        self._own_boot_over = asyncio.Event()  # while it is stopping
        self._is_committing = True  # `_live` comes to it
        self._is_retired = False
        self._has_founded = False
        self.forgotten_by = ""
        self._strangers_to: set[str] = set()
        self._foreign: set[str] = set()
        self._ending: set[str] = set()
        self._boot_listeners: list[Callable[[str, str], None]] = []
        self._wire()

    def _wire(self) -> None:
        self.links.on(
            payload_types.RAFT, lambda node, _boot, payload: self.host.receive(node, payload)
        )
        self.links.on_refusal(self._refused)
        self.links.serve(FORGET_METHOD, self._serve_forget)
        self.peers.on_event(self._peer_event)
        self.peers.on_applied(self.metadata.reported)
        self.metadata.on_applied(self._applied)

    # What anyone may ask

    @property
    def node(self) -> str:
        """This node's name."""
        return self.settings.node

    @property
    def boot(self) -> str:
        """Its boot id now."""
        return self.links.boot

    def missing_peers(self) -> list[str]:
        """Configured peers that clients of a new cluster still wait for; [] once formed."""
        return self._joining.missing(self._living())

    def formed(self) -> None:
        """Note that this cluster accepts clients: from now on `missing_peers` is empty."""
        self._joining.formed(self._living())

    def _living(self) -> set[str]:
        return {record.name for record in self.metadata.catalogue.nodes() if record.alive}

    def why_waiting(self) -> str:
        """Explain to an operator why this node is not ready, and what can be done."""
        foreign = {node for node in self._foreign if not self.links.is_up(node)}
        self._foreign.clear()  # who still belongs elsewhere is refused again
        return advice.while_waiting(
            folder=str(self.settings.folder),
            peers=self.links.peers,
            reached=self.peers.up(),
            foreign=foreign,
            has_cluster=bool(self.file.identity.cluster_id),
            is_data_lost=self._joining.is_data_lost,
        )

    async def propose(
        self,
        command: commands.AnyCommand,
        timeout_s: float = PROPOSE_TIMEOUT_S,
        by: Actor = BROKER,
    ) -> object:
        """Change group 0: the command's result, or a `Refusal`. See `MetadataGroup.propose`."""
        return await self.metadata.propose(command, timeout_s, by)

    def on_boot_ended(self, listener: Callable[[str, str], None]) -> None:
        """Call back with (old, new) when this boot was ended and a new one begins (P1).

        Nack what is held, close what the old boot owned; called inside an apply.
        """
        self._boot_listeners.append(listener)

    # Start and stop

    async def start(self, tasks: asyncio.TaskGroup) -> int:
        """Listen and begin to find the cluster; `ready` says when it is found.

        Returns:
            The port for other nodes.

        Raises:
            OSError: The address is taken.
        """
        self._tasks = tasks
        port = await self.links.start(tasks, self.settings.listen, self.settings.advertised)
        for name, coroutine in (
            ("peers", self.peers.run()),
            ("lease", self.metadata.run()),
            ("member", self._live()),
        ):
            self._running.append(tasks.create_task(coroutine, name=name))
        return port

    async def ready(self) -> None:
        """Wait until this boot lives in group 0: from then on proposals work."""
        await self._ready.wait()

    async def stop(self) -> None:
        """Stop in good order: end this boot, hand over group 0, close the links.

        The lease ends here: clients must have been told before.
        """
        self._is_stopping = True
        await self._hand_over()  # first: other nodes ignore an ended boot
        if self._successors() and self._ready.is_set():
            await self._end_own_boot()
        self.metadata.lease.drop()
        for task in self._running:
            task.cancel()
        await self.links.stop()
        self.host.close()

    async def _end_own_boot(self) -> None:
        """End this boot; others cut its links then, and so may the answer never come.

        Whoever takes over from this node waits for the end of its process, so nothing is waited
        for in vain: that it has ended is seen in group 0, or told by the peer that cuts the link.
        """
        end = commands.EndBoot(self.node, self.boot)
        try:
            async with asyncio.timeout(END_BOOT_S), asyncio.TaskGroup() as tasks:
                proposal = tasks.create_task(self.metadata.propose(end, END_BOOT_S))
                over = tasks.create_task(self._own_boot_over.wait())
                await asyncio.wait((proposal, over), return_when=asyncio.FIRST_COMPLETED)
                proposal.cancel()
                over.cancel()
        except TimeoutError:
            log.info("membership.boot_not_ended")

    async def retire(self) -> None:
        """End this boot as the end of the process would, and stay a member (stop_app).

        Clients must have been told before. Without a majority the boot ends with the next one.
        """
        if self._is_retired:
            return
        self._is_retired = True
        await self._hand_over()
        boot = self.boot
        if self._ready.is_set():
            await self.metadata.propose(commands.EndBoot(self.node, boot))
        if boot == self.boot:
            self._draw_boot()

    def revive(self) -> None:
        """Undo `retire`: begin the boot that was drawn then; `ready` follows."""
        if self._is_retired:
            self._is_retired = False
            self._begin_boot()

    def _successors(self) -> list[str]:
        """Nodes that could lead group 0 instead of this one, those that serve first."""
        group, node_of = self.metadata.group, self.metadata.catalogue.node
        up = [node for node in self.peers.up() if group is not None and node in group.voters]
        living = [n for n in up if (record := node_of(n)) is not None and record.alive]
        drained = self.metadata.catalogue.drained()
        living.sort(key=lambda node: node in drained)
        return living or ([] if self._is_retired else up)

    async def hand_over(self) -> None:
        """Hand the leadership of group 0 to a node that is not in maintenance, if there is one."""
        drained = self.metadata.catalogue.drained()
        if any(node not in drained for node in self._successors()):
            await self._hand_over()

    async def _hand_over(self) -> None:
        """Hand the leadership of group 0 to another node, if one can take it."""
        group, others = self.metadata.group, self._successors()
        if group is None or not group.is_leader or not others:
            return
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await group.transfer(others[0])
        except (RaftError, TimeoutError) as why:
            log.info("metadata.not_handed_over", extra={"why": str(why)})

    def is_just_founded(self) -> bool:
        """True if this node has founded its cluster since it was last asked."""
        was, self._has_founded = self._has_founded, False
        return was

    def _save_boot(self, boot: str) -> None:
        self.file.save(msgspec.structs.replace(self.file.identity, boot=boot))

    async def _live(self) -> None:
        """Get a cluster, open group 0, boot; then watch the others while leading."""
        belonged = bool(self.file.identity.cluster_id)
        await self._joining.get_cluster()
        await self._open(belonged=belonged)
        if self.file.identity.is_founding:
            await self._found()
        assert self.metadata.group is not None, "it was opened just now"
        await self._joining.be_voter(self.metadata.group)
        await self._commit_boot()
        while True:
            if self.metadata.is_leading:
                if self._is_retired:
                    await self._hand_over()  # without a boot it can't end others'
                else:
                    if self.node in self.metadata.catalogue.drained():
                        await self.hand_over()
                    self._end_dead_boots()
                    self._end_silent_memberships()
                await self._follow_catalogue()
            await self._wake.wait(WATCH_S if self._is_unsettled() else SETTLED_WATCH_S)

    async def _open(self, *, belonged: bool) -> None:
        assert self._tasks is not None, "start comes first"
        is_founding = self.file.identity.is_founding
        if belonged and not is_founding and GROUP not in self.host.groups_on_disk():
            await self._joining.join_again()
        try:
            self.metadata.open(self._tasks, (self.node,) if is_founding else None)
        except LogCorrupt:
            log.exception("metadata.damaged")
            await self._joining.join_again()  # before that nobody is known to have what is here
            self.host.close_group(GROUP, erase=True)
            self.metadata.open(self._tasks, None)

    async def _found(self) -> None:
        identity = self.file.identity
        address = self.links.address
        founding = msgspec.structs.replace(
            self.settings.founding,
            cluster_id=identity.cluster_id,
            nodes=((self.node, address),),
        )
        while True:
            if not isinstance(await self.metadata.propose_first(founding), Refusal):
                break
            await asyncio.sleep(RETRY_S)
        self.file.save(msgspec.structs.replace(self.file.identity, is_founding=False))
        self._has_founded = True

    # Boots

    async def _commit_boot(self) -> None:
        """Commit the present boot id (P1); again and again until it is done."""
        try:
            while not self._is_retired and not await self._commit(self.boot):
                pass
        finally:
            self._is_committing = False

    async def _commit(self, boot: str) -> bool:
        """Try once; True when `boot` lives and is still ours."""
        command = commands.BootNode(self.node, boot, self.links.address)
        result = await self.metadata.propose_first(command)
        if boot != self.boot:
            return False
        if not isinstance(result, Refusal):
            self.metadata.boot_lives()
            await self._lost.forget(lambda: boot == self.boot)
            if boot != self.boot:
                return False
            self._ready.set()
            return True
        record = self.metadata.catalogue.node(self.node)
        log.warning("membership.boot_refused: %s", result.text)
        await self._ask_whether_forgotten()
        if record is not None and boot in record.ended_boots:
            if boot == self.boot:
                self._draw_boot()
        elif result.code is ReplyCode.NOT_ALLOWED:  # forgotten: an operator must reset it
            await asyncio.sleep(FORGOTTEN_RETRY_S)
        await asyncio.sleep(RETRY_S)
        return False

    def _draw_boot(self) -> None:
        """Draw a new boot id after this one was ended."""
        old, new = self.boot, self._draw_id()
        log.warning("membership.boot_ended", extra={"old": old, "new": new})
        self._ready.clear()
        self._save_boot(new)
        self.links.identify(boot=new)
        self.metadata.boot_ended()
        self.metadata.book.seen_as(self.node, new)  # our own lease is dropped for certain
        for listener in self._boot_listeners:
            listener(old, new)

    def _reboot(self) -> None:
        if self._is_stopping:
            self._own_boot_over.set()
        if self._is_stopping or self._tasks is None:
            return
        self._draw_boot()
        self._begin_boot()

    def _begin_boot(self) -> None:
        """Have the present boot id committed, by the task that runs or by a new one."""
        if self._is_retired or self._is_committing or self._tasks is None:
            return
        self._is_committing = True
        task = self._tasks.create_task(self._commit_boot(), name="boot")
        self._running.append(task)
        task.add_done_callback(self._running.remove)

    def _refused(self, node: str, reason: Reason, by_peer: bool) -> None:  # noqa: FBT001
        if by_peer and reason is Reason.STALE_BOOT:
            self._reboot()
        elif by_peer and reason is Reason.UNKNOWN_NODE:
            self._strangers_to.add(node)
        elif reason is Reason.WRONG_CLUSTER:
            self._foreign.add(node)

    # Following group 0

    def _applied(self, changes: Changes) -> None:
        if changes.features_changed or changes.restored:
            self._note_features()
        if not (changes.nodes_changed or changes.boots_ended or changes.restored):
            return
        self._wake.set()
        known: dict[str, str] = {}
        for record in self.metadata.catalogue.nodes():
            if record.name == self.node:
                if self.boot in record.ended_boots:
                    self.metadata.lease.drop()
                    self._reboot()
                continue
            for boot in record.ended_boots:
                self.links.end_boot(record.name, boot)
            known[record.name] = record.address
            address = self.settings.peers.get(record.name, record.address)
            self.links.connect(record.name, address)
        if not self.metadata.catalogue.nodes():
            return
        before = self.file.identity.members
        for node in set(before) - set(known) - set(self.settings.peers):
            self.links.disconnect(node)  # forgotten; guests that are about to join stay
        if known != before:
            self.file.save(msgspec.structs.replace(self.file.identity, members=known))

    def _note_features(self) -> None:
        """Note in the identity file what an older version can't read: it refuses that file."""
        known, identity = self.metadata.catalogue.features, self.file.identity
        if not known <= set(identity.features):  # a start replays the log from a time before
            features = tuple(sorted(known.union(identity.features)))
            self.file.save(msgspec.structs.replace(identity, features=features))

    def _peer_event(self, event: PeerStateChange) -> None:
        told = {"node": event.node, "boot": event.boot, "verdict": event.verdict.value}
        log.info("peer.verdict", extra=told)
        self._wake.set()
        book = self.metadata.book
        if event.verdict is PeerState.UP:
            book.seen_as(event.node, event.boot)
            self.host.peer_up(event.node)
            return
        if event.verdict is PeerState.GONE:
            book.proven_dead(event.node, event.boot or book.holders().get(event.node, ""))
        self.host.peer_suspected(event.node)

    def _is_unsettled(self) -> bool:
        """True while something is under way that only another look advances."""
        is_growing = self.metadata.group is not None and bool(self.metadata.group.learners)
        return is_growing or bool(self._ending) or len(self.peers.up()) < len(self.links.peers)

    def _end_dead_boots(self) -> None:
        """As the leader, propose EndBoot for each node that the detector holds dead (P2, P7)."""
        assert self._tasks is not None, "start comes first"
        for record in self.metadata.catalogue.nodes():
            if record.boot is None or record.name == self.node or record.name in self._ending:
                continue
            if self.peers.is_dead(record.name, record.boot, self.settings.silent_ms):
                self._ending.add(record.name)
                end = commands.EndBoot(record.name, record.boot)
                self._tasks.create_task(self._end(record.name, end))

    def _end_silent_memberships(self) -> None:
        """As the leader, let mirrored queues go on without a suspected node (P7)."""
        assert self._tasks is not None, "start comes first"
        catalogue = self.metadata.catalogue
        for record in catalogue.nodes():
            name, boot = record.name, record.boot
            is_suspected = self.peers.verdict(name) is PeerState.SUSPECTED
            if not is_suspected or boot is None or name in self._ending:
                continue
            if any(each.ring and is_expendable(each.ring, name) for each in catalogue.rings()):
                self._ending.add(name)
                self._tasks.create_task(self._end(name, commands.EndMemberships(name, boot)))

    async def _end(self, node: str, command: commands.AnyCommand) -> None:
        try:
            result = await self.metadata.propose(command)
            log.info("membership.ended", extra={"node": node, "is": repr((command, result))})
        finally:
            self._ending.discard(node)

    async def _follow_catalogue(self) -> None:
        """As the leader: group 0's members are the catalogue's nodes; one change at a time (P6)."""
        group = self.metadata.group
        assert group is not None, "a leader has its group"
        status = group.status()
        nodes = {record.name for record in self.metadata.catalogue.nodes()}
        nodes.difference_update(self._lost.names)
        if self.node not in nodes:
            return
        try:
            for node in (*status.voters, *status.learners):
                if node not in nodes:
                    await group.remove(node)
            for node in sorted(nodes - {*status.voters, *status.learners}):
                await group.add_learner(node)
            for node in status.learners:
                caught_up = status.matches.get(node, 0) >= status.commit_index
                if node in nodes and caught_up and self.peers.verdict(node) is PeerState.UP:
                    await group.promote(node)
        except RaftError as why:
            log.info("membership.change_refused", extra={"why": str(why)})

    # Members come and go

    async def forget(self, node: str, by: Actor = BROKER) -> object:
        """Remove a stopped node from the cluster for good. Asked at any member.

        Args:
            node: Its name.
            by: Who asks for it.

        Returns:
            True, or False if it was no member, or a `Refusal`.
        """
        if not self._is_retired:
            return await self.propose(commands.ForgetNode(node), by=by)
        text = "no other node of the cluster answers; start one, or wipe this node's data folder"
        self._strangers_to.clear()
        try:
            async with asyncio.timeout(FORGET_TIMEOUT_S):
                while True:
                    if node == self.node and self._strangers_to:
                        return True  # done, and the answer was lost with the link
                    await self._hand_over()
                    for peer in filter(self.links.is_up, self.links.peers):
                        try:
                            reply = await self.links.call(
                                peer, FORGET_METHOD, node.encode(), FORGET_CALL_S
                            )
                        except CallFailed as why:
                            text = str(why)
                        else:
                            return results.decode_result(reply)
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            return Refusal(ReplyCode.INTERNAL_ERROR, text)

    async def _serve_forget(self, node: str, _boot: str, payload: bytes) -> bytes:
        if self._is_retired:
            raise CallFailed("the broker on this node is stopped: start it with start_app")
        by = Actor(via="cluster", address=node)
        result = await self.propose(commands.ForgetNode(payload.decode()), by=by)
        if isinstance(result, Refusal) and result.code is ReplyCode.INTERNAL_ERROR:
            raise CallFailed(result.text)
        return results.encode_result(result)

    async def _ask_whether_forgotten(self) -> None:
        """Log it if other nodes of this cluster do not know this node (any more)."""
        forgotten_by = [node for node in self._strangers_to if not self.links.is_up(node)]
        for peer in self.peers.up():
            try:
                if await self.links.call(peer, IS_MEMBER_METHOD, b"", ASK_TIMEOUT_S) == b"no":
                    forgotten_by.append(peer)
            except CallFailed:
                continue
        self._strangers_to.clear()
        self.forgotten_by = forgotten_by[0] if forgotten_by else ""
        if forgotten_by:
            log.error(
                "membership.forgotten: Node '%s' thinks it's clustered with node '%s', but '%s' "
                "disagrees; reset this node, then join_cluster",
                self.node,
                self.forgotten_by,
                self.forgotten_by,
            )
