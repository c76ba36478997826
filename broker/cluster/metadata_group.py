"""Group 0 on this node: proposals from here, answers for others, the lease (P3, P4, P6).

A proposal goes to the leader (over a link if that is another node), carries (boot, number), and is
tried again under each new leader until it has an answer or its 5 s are over; the machine answers a
repetition with the first answer. The leader answers when every node that may hold the lease has
applied the change; the proposing node passes the answer on when it has applied it itself.

Shells hear `on_applied(changes)` inside each apply, before this node reports the index as applied:
what a change means here has happened when the proposer is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from broker.audit import trail
from broker.audit.actor import BROKER, SETTINGS, Actor
from broker.cluster import payload_types
from broker.cluster.calls import CallFailed
from broker.cluster.feature_gate import FeatureGate
from broker.cluster.lease import RENEW_MS, LeaseBook, NodeLease
from broker.cluster.links import Links
from broker.cluster.outbound import CONTROL
from broker.cluster.timer_alignment import aligned_delay_s, midway_delay_s
from broker.errors import Refusal, ReplyCode
from broker.metadata import commands, results
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import Node
from broker.metadata.results import Changes
from broker.ports import Clock
from raft.errors import GroupClosed, NotLeader, ProposalDropped, RaftError
from raft.group import Group
from raft.host import RaftHost

log = logging.getLogger(__name__)

GROUP = 0
PROPOSE_METHOD = "metadata.propose"
PROPOSE_TIMEOUT_S = 5.0
"""P3: a proposal that is not committed in 5 s fails, it does not hang."""

PULSE_S = 0.05
"""How often expiries are looked at and failed proposals tried again."""

IDLE_PULSE_S = 0.2

_RETRIED = (CallFailed, NotLeader, ProposalDropped, TimeoutError)
"""TimeoutError: a forwarded call that a change of leader has ended; our own limit is further out
and arrives as a cancellation."""


class _Answer(msgspec.Struct, array_like=True):
    """The leader's answer on the wire: applied where it matters up to `index`."""

    index: int
    result: bytes


_decode_answer = msgspec.msgpack.Decoder(_Answer).decode

Outcome = tuple[int, object]


class MetadataGroup:
    """Group 0 with its lease, and proposals to its leader. A `raft.ports.Machine`.

    Args:
        links: To the other nodes; its `node` and `boot` are ours.
        host: This node's Raft groups.
        machine: The replicated machine.
        clock: Monotonic time.
        is_over: True if a node's boot, begun at an index, is proven dead by what this node saw.
    """

    def __init__(
        self,
        links: Links,
        host: RaftHost,
        machine: MetadataMachine,
        clock: Clock,
        is_over: Callable[[str, str, int], bool],
    ) -> None:
        self.machine = machine
        self.catalogue = machine.catalogue
        self.applied_index = 0
        self.lease = NodeLease()
        self.book = LeaseBook()
        self.group: Group | None = None
        self.gate = FeatureGate(links, machine.catalogue)
        self._links = links
        self._host = host
        self._clock = clock
        self._is_over = is_over
        self._is_leading = False
        self._led_from = 0
        self._booting: dict[str, str] = {}  # what each node asks this leader to boot it with
        self._lives = asyncio.Event()
        self._next_number = 1
        self._outstanding: dict[int, None] = {}
        self._awaiting_all: list[tuple[int, asyncio.Future[None]]] = []
        self._awaiting_here: list[tuple[int, asyncio.Future[None]]] = []
        self._forwarded: set[asyncio.Timeout] = set()
        self._listeners: list[Callable[[Changes], None]] = []
        self._is_report_due = False
        self._is_confirming = False
        self._lease_requests: list[tuple[str, str, int]] = []
        self._requested_ms = 0
        self._told_leader: str | None = None
        self._tasks: asyncio.TaskGroup | None = None
        links.on(payload_types.APPLIED, self._received_applied)
        links.on(payload_types.LEASE_REQUEST, self._received_lease_request)
        links.on(payload_types.LEASE_GRANT, self._received_lease_grant)
        links.serve(PROPOSE_METHOD, self._serve_propose)

    # What anyone may ask

    @property
    def leader(self) -> str | None:
        """The leader of group 0, as far as this node knows."""
        return None if self.group is None else self.group.leader

    @property
    def is_leading(self) -> bool:
        """True from the apply of this leader's first own entry to its loss of leadership."""
        return self._is_leading

    def has_lease(self) -> bool:
        """True if this node may route, confirm and deliver now. Ask before each batch (P4)."""
        return self.lease.is_held(self._clock.monotonic_ms())

    def on_applied(self, listener: Callable[[Changes], None]) -> None:
        """Call back with the changes of each applied command or snapshot; it must not raise."""
        self._listeners.append(listener)

    # Starting

    def open(self, tasks: asyncio.TaskGroup, initial_voters: tuple[str, ...] | None) -> None:
        """Open the group: recover it, found it (initial voters), or wait for a leader (None).

        Raises:
            LogCorrupt: Its data here is damaged.
        """
        self._tasks = tasks
        self.group = self._host.open_group(
            GROUP,
            initial_voters,
            self,
            campaign_at_once=initial_voters == (self._links.node,),
            on_leader_change=self._leader_changed,
        )

    def boot_lives(self) -> None:
        """Note that BootNode of the current boot id is committed: proposals may begin."""
        self._lives.set()
        self._request_lease(self._clock.monotonic_ms())

    def boot_ended(self) -> None:
        """End this boot: no lease and no proposals until the next one is committed."""
        self._lives.clear()
        self.lease.drop()
        self._next_number = 1
        self._outstanding = {}  # a new one: proposals of this boot may still be ending
        self._wake_forwarded()

    # Proposing

    async def propose(
        self,
        command: commands.AnyCommand,
        timeout_s: float = PROPOSE_TIMEOUT_S,
        by: Actor = BROKER,
    ) -> object:
        """Change group 0, and tell the audit log of it.

        Args:
            command: What to do.
            timeout_s: How long it may take, seconds.
            by: Who asks for it.

        Returns:
            The command's result, or a `Refusal`. INTERNAL_ERROR (541) says that the outcome is
            unknown or that there is no leader. Answered means: every node with a lease has
            applied it.
        """
        line = trail.begin(self._links.node, by, command, self.catalogue)
        result = await self._propose(command, timeout_s)
        if line is not None:
            line.end(result)
        return result

    async def _propose(self, command: commands.AnyCommand, timeout_s: float) -> object:
        try:
            async with asyncio.timeout(timeout_s):
                await self._lives.wait()
                return await self._propose_numbered(command)
        except TimeoutError:
            text = f"the cluster did not agree on the change in {timeout_s:g} s"
            return Refusal(ReplyCode.INTERNAL_ERROR, text)
        except GroupClosed:
            return Refusal(ReplyCode.INTERNAL_ERROR, "this node is stopping")

    async def propose_first(
        self, command: commands.AnyCommand, timeout_s: float = PROPOSE_TIMEOUT_S
    ) -> object:
        """Propose Bootstrap or BootNode, which need no living boot; otherwise as `propose`."""
        data = commands.encode_request(self._links.boot, 1, 1, command)
        line = trail.begin(self._links.node, SETTINGS, command, self.catalogue)
        try:
            async with asyncio.timeout(timeout_s):
                result = await self._submit(data, self._links.boot)
        except (TimeoutError, GroupClosed):
            return Refusal(ReplyCode.INTERNAL_ERROR, "the cluster did not agree in time")
        if line is not None:
            line.end(result)
        return result

    async def _propose_numbered(self, command: commands.AnyCommand) -> object:
        boot, number, outstanding = self._links.boot, self._next_number, self._outstanding
        self._next_number += 1
        outstanding[number] = None
        try:
            lowest = next(iter(outstanding))
            data = commands.encode_request(boot, number, lowest, command)
            refusal = commands.size_refusal(data)
            return await self._submit(data, boot) if refusal is None else refusal
        finally:
            del outstanding[number]

    async def _submit(self, data: bytes, boot: str) -> object:
        while boot == self._links.boot:
            try:
                index, result = await self._submit_once(data)
            except _RETRIED as why:
                log.debug("metadata.retry", extra={"why": repr(why)})
                await asyncio.sleep(PULSE_S)
                continue
            await self._applied_here(index)
            return result
        return Refusal(ReplyCode.INTERNAL_ERROR, "this node was declared dead")

    async def _submit_once(self, data: bytes) -> Outcome:
        leader = self.leader
        if leader is None:
            raise CallFailed("no leader")
        if leader == self._links.node:
            return await self._lead(data)
        async with asyncio.timeout(None) as scope:
            self._forwarded.add(scope)
            try:
                reply = await self._links.call(leader, PROPOSE_METHOD, data, PROPOSE_TIMEOUT_S)
            finally:
                self._forwarded.discard(scope)
        answer = _decode_answer(reply)
        return answer.index, results.decode_result(answer.result)

    async def _applied_here(self, index: int) -> None:
        if self.applied_index < index:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaiting_here.append((index, future))
            await future

    # Leading

    async def _serve_propose(self, _node: str, _boot: str, data: bytes) -> bytes:
        try:
            index, result = await self._lead(data)
        except RaftError as why:
            raise CallFailed(repr(why)) from why
        return msgspec.msgpack.encode(_Answer(index, results.encode_result(result)))

    async def _lead(self, data: bytes) -> Outcome:
        """Commit an entry here, and wait until all who may hold a lease have applied it."""
        request = commands.decode_request(data)
        refusal = await self.gate.enter(request.command)
        if refusal is not None:
            return self.applied_index, refusal
        try:
            return await self._append(data, request)
        finally:
            self.gate.leave(request.command)

    async def _append(self, data: bytes, request: commands.Request) -> Outcome:
        data = await self._judged(data, request)
        group = self.group
        if group is None or not self._is_leading:
            raise NotLeader(self.leader)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()

        def done(result: object) -> None:
            if outcome.done():
                return
            if isinstance(result, RaftError):
                outcome.set_exception(result)
            else:  # called inside the apply of this very entry
                outcome.set_result((self.applied_index, result))

        group.propose_nowait(data, done)
        index, result = await outcome
        everywhere: asyncio.Future[None] = loop.create_future()
        self._awaiting_all.append((index, everywhere))
        self._answer_applied()
        await everywhere
        return index, result

    async def _judged(self, data: bytes, request: commands.Request) -> bytes:
        """Write into a BootNode whether it is the first after a stop of all; nothing else changes.

        The entry that comes of it is appended in the same turn of the loop: no boot that begins
        later can lose what it declares to this one.
        """
        command = request.command
        if not isinstance(command, commands.BootNode):
            return data
        record = self.catalogue.node(command.node)
        if record is not None and command.boot not in record.ended_boots:
            self._booting[command.node] = command.boot
        while self._is_leading:
            others = [each for each in self.catalogue.nodes() if each.name != command.node]
            serve = [self._serves(each) for each in others]
            if any(serve) or None not in serve:
                judged = msgspec.structs.replace(command, is_first=not any(serve))
                return commands.encode_request(request.boot, request.number, request.lowest, judged)
            await asyncio.sleep(PULSE_S)
            if self._booting.get(command.node, command.boot) != command.boot:
                raise ProposalDropped("a later process of the node asks by now")
        return data

    def _serves(self, node: Node) -> bool | None:
        """As the leader, return whether a boot goes on; None while its lease may still run.

        One that was heard goes on until it is ended, or proven dead: a pause is no stop.
        """
        name, boot, began = node.name, node.boot, node.booted_at
        if boot is None or self._is_over(name, boot, began):
            return False
        if name == self._links.node:
            return boot == self._links.boot
        if self._booting.get(name, boot) != boot:
            return False  # a later process of it asks
        if began > self._led_from or self.book.has_reported(name, boot):
            return True
        return None if self.book.may_hold(name, boot, self._clock.monotonic_ms()) else False

    def _answer_applied(self) -> None:
        """Answer the changes that every possible holder of a lease has applied."""
        if not self._awaiting_all:
            return
        if not self._is_leading:
            waiting, self._awaiting_all = self._awaiting_all, []
            for _, future in waiting:
                if not future.done():
                    future.set_exception(NotLeader(self.leader))
            return
        lowest = self.book.applied_by_all(self._clock.monotonic_ms())
        self._awaiting_all = _settle(self._awaiting_all, self.applied_index, lowest)

    # raft.ports.Machine

    def apply(self, index: int, data: bytes) -> object:
        """Apply one committed entry."""
        result = self.machine.apply(index, data)
        self._advanced(index)
        return result

    def snapshot(self) -> Sequence[bytes]:
        """The whole state."""
        return self.machine.snapshot()

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        """Replace the whole state."""
        self.machine.restore(index, parts)
        self._advanced(index)

    def role_changed(self, *, leader: bool, term: int) -> None:
        """Note that this replica began or ceased to lead."""
        log.info("metadata.role", extra={"leading": leader, "term": term})
        self._is_leading = leader
        if leader:
            latest = [
                (record.name, record.boot or record.ended_boots[-1], record.booted_at)
                for record in self.catalogue.nodes()
                if record.boot or record.ended_boots
            ]
            living = [each for each in latest if not self._is_over(*each)]
            self.book.began([(each[0], each[1]) for each in living], self._clock.monotonic_ms())
            self._led_from = self.applied_index
            self._booting.clear()
        self._lease_requests.clear()
        self._report_soon()

    def _advanced(self, index: int) -> None:
        self.applied_index = index
        changes = self.machine.take_changes()
        for node, _boot in changes.boots_ended:
            record = self.catalogue.node(node)
            if record is not None and record.boot is not None:
                self.book.seen_as(node, record.boot)  # a new boot ended it: no process is left
        for listener in self._listeners:
            listener(changes)
        self.lease.applied(index)
        self._awaiting_here = _settle(self._awaiting_here, index, None)
        self._report_soon()

    # Telling the leader what is applied here

    def _leader_changed(self, leader: str | None) -> None:
        if leader == self._told_leader:
            return
        self._told_leader = leader
        self._wake_forwarded()
        self._requested_ms = -RENEW_MS
        self._report_soon()

    def _wake_forwarded(self) -> None:
        now = asyncio.get_running_loop().time()
        for scope in self._forwarded:
            if not scope.expired():
                scope.reschedule(now)

    def _report_soon(self) -> None:
        """Report at the end of this loop tick, once for all that was applied in it."""
        if not self._is_report_due:
            self._is_report_due = True
            asyncio.get_running_loop().call_soon(self._report)

    def _report(self) -> None:
        self._is_report_due = False
        leader = self.leader
        if self._is_leading:
            self.book.reported(self._links.node, self._links.boot, self.applied_index)
        elif leader is not None and leader != self._links.node:
            payload = payload_types.encode(payload_types.AppliedIndex(self.applied_index))
            self._links.send(leader, CONTROL, payload_types.APPLIED, payload)
        self._answer_applied()

    def _received_applied(self, node: str, boot: str, payload: bytes | memoryview) -> None:
        self.reported(node, boot, payload_types.decode_applied(payload).index)

    def reported(self, node: str, boot: str, index: int) -> None:
        """Note the index that a node has applied, by its report or heartbeat."""
        self.book.reported(node, boot, index)
        self._answer_applied()

    # The lease

    async def run(self) -> None:
        """Renew the lease and check expiries, until cancelled."""
        while True:
            now_ms = self._clock.monotonic_ms()
            wait_ms = RENEW_MS if self.lease.is_held(now_ms) else RENEW_MS // 5
            if self._lives.is_set() and now_ms - self._requested_ms >= wait_ms:
                self._request_lease(now_ms)
            self._answer_applied()
            is_asked = bool(self._awaiting_all)
            await asyncio.sleep(
                aligned_delay_s(PULSE_S) if is_asked else midway_delay_s(IDLE_PULSE_S)
            )

    def _request_lease(self, now_ms: int) -> None:
        leader = self.leader
        if leader is None:
            return
        self._requested_ms = now_ms
        number = self.lease.request(now_ms)
        if leader == self._links.node:
            self._lease_asked(leader, self._links.boot, number)
        else:
            payload = payload_types.encode(payload_types.LeaseRequest(number))
            self._links.send(leader, CONTROL, payload_types.LEASE_REQUEST, payload)

    def _received_lease_request(self, node: str, boot: str, payload: bytes | memoryview) -> None:
        self._lease_asked(node, boot, payload_types.decode_lease_request(payload).number)

    def _lease_asked(self, node: str, boot: str, number: int) -> None:
        if not self._is_leading or not self.catalogue.is_living(node, boot):
            return
        self._lease_requests.append((node, boot, number))
        if not self._is_confirming and self._tasks is not None:
            self._is_confirming = True
            self._tasks.create_task(self._grant_confirmed(), name="lease-grants")

    async def _grant_confirmed(self) -> None:
        """Prove, after the requests came, that this node still leads; then grant them."""
        try:
            while self._lease_requests and self.group is not None:
                requests, self._lease_requests = self._lease_requests, []
                term = self.group.term
                try:
                    await self.group.read_barrier()
                except RaftError:
                    continue
                if self._is_leading and self.group.is_leader and self.group.term == term:
                    for node, boot, number in requests:
                        self._grant(node, boot, number)
        finally:
            self._is_confirming = False

    def _grant(self, node: str, boot: str, number: int) -> None:
        if not self.catalogue.is_living(node, boot):
            return
        self.book.grant(node, boot, self._clock.monotonic_ms())
        if node == self._links.node:
            if boot == self._links.boot:
                self.lease.granted(number, self.applied_index)
            return
        payload = payload_types.encode(payload_types.LeaseGrant(number, self.applied_index))
        self._links.send(node, CONTROL, payload_types.LEASE_GRANT, payload)

    def _received_lease_grant(self, _node: str, _boot: str, payload: bytes | memoryview) -> None:
        grant = payload_types.decode_lease_grant(payload)
        if self._lives.is_set():
            self.lease.granted(grant.number, grant.index)


def _settle(
    waiting: list[tuple[int, asyncio.Future[None]]], applied: int, lowest: int | None
) -> list[tuple[int, asyncio.Future[None]]]:
    """Answer those that wait for an index of at most min(applied, lowest); return the others."""
    bound = applied if lowest is None else min(applied, lowest)
    for index, future in waiting:
        if index <= bound and not future.done():
            future.set_result(None)
    return [each for each in waiting if not each[1].done()]
