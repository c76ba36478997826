"""One start of a node, up to where clients are served: links, group 0 here, lease, boots.

Follows `broker.cluster.membership`, `broker.cluster.metadata_group` and `broker.node` step by step,
on a virtual clock instead of asyncio; leases and failure detectors are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.cluster.detector import HEARTBEAT_MS, NEVER_MS, FailureDetector, PeerState
from broker.cluster.lease import RENEW_MS, LeaseBook, NodeLease
from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
from broker.metadata.machine import MetadataMachine
from broker.metadata.results import Changes
from broker.metadata.rings import is_expendable
from broker.ports import Done
from tests.sim.mirrored.disk import Journal
from tests.sim.mirrored.network import CONTROL, DATA
from tests.sim.mirrored.program import Program
from tests.sim.mirrored.serving import Serving

if TYPE_CHECKING:
    from tests.sim.mirrored.world import World

PULSE_MS: Final = 50
WATCH_MS: Final = 100
RETRY_MS: Final = 200
STALL_MS: Final = 500
PROPOSE_MS: Final = 5_000
END_BOOT_MS: Final = 2_000


class _Proposal:
    """A change of group 0 that this node waits for."""

    def __init__(self, data: bytes, boot: str, until_ms: int, done: Done) -> None:
        self.data, self.boot, self.until_ms, self.done = data, boot, until_ms, done
        self.asked_term = -1  # under which leader it was sent; again under each new one
        self.outcome: tuple[int, object] | None = None


class Process(Program):
    """A running node.

    Attributes:
        name: The node.
        boot: Its boot id now; another one once it learned that this one was ended.
        applied: Index of group 0 applied here.
        serving: What serves clients; None before the boot lives.
        door: What others reach here: there a little earlier than `serving`.
    """

    def __init__(self, world: World, name: str, applied: int) -> None:
        super().__init__(world.clock)
        self.world, self.name = world, name
        self.network = world.network
        self.boot = world.draw_boot()
        self.machine = MetadataMachine()
        self.catalogue = self.machine.catalogue
        self.applied = 0
        self.lease = NodeLease()
        self.book = LeaseBook()
        self.is_leading = False
        self.lives = False
        self.serving: Serving | None = None
        self.door: Serving | None = None
        self._starting: Serving | None = None
        self._is_stopping = False
        self._detectors: dict[str, FailureDetector] = {}
        self._hear: dict[str, frozenset[str]] = {}
        self._ended: set[tuple[str, str]] = set()
        self._proposals: list[_Proposal] = []
        self._numbers: dict[int, None] = {}
        self._next_number = 1
        self._awaiting_all: list[tuple[int, Callable[[], None]]] = []
        self._requested_ms = -RENEW_MS
        self._ending: set[str] = set()
        self._beat_ms = self.clock.now_ms
        self.journal = Journal(self, world.disks[name])
        self.store = world.new_store(self.journal)
        self._recover(applied)
        for other in world.others(name):
            self._detectors[other] = FailureDetector(other, self.clock.now_ms)

    # The end

    def die(self) -> None:
        """Kill -9: what the disk had not synced may be lost, all else is."""
        self.is_dead = True
        for serving in (self.serving, self.door):
            if serving is not None:
                serving.die()
        self.journal.die(self.world.rng)

    # Membership

    def begin(self) -> None:
        """Listen, dial, and get this boot to live."""
        self.network.started(self, self.world.others(self.name))
        self._commit_boot()
        self._pulse()
        self._watch()
        self._beat()

    def _commit_boot(self) -> None:
        boot = self.boot
        data = commands.encode_request(boot, 1, 1, commands.BootNode(self.name, boot, self.name))

        def done(result: object) -> None:
            if boot != self.boot:
                return
            if isinstance(result, Refusal):
                record = self.catalogue.node(self.name)
                if record is not None and boot in record.ended_boots:
                    self._draw_boot()
                self.after(RETRY_MS, self._commit_boot)
                return
            self.lives = True
            self._request_lease()
            self._begin_serving()

        self._submit(data, boot, done)

    def _begin_serving(self) -> None:
        """As `broker.node.Node.start_app`, one at a time: the node hears of it when it is done."""
        if self._starting is None and self.lives and not self._is_stopping:
            self._starting = Serving(self)

    def served(self, serving: Serving) -> None:
        """A serving has started; what it missed meanwhile it must hear of now."""
        self._starting = None
        if serving.boot != self.boot:
            serving.drop_boot()
            self.soon(serving.stopped)
            self.soon(self._begin_serving)
            return
        self.serving = serving
        serving.applied(Changes(restored=True))

    def _draw_boot(self) -> None:
        """This boot is over: go on under a new one (P1)."""
        world = self.world
        world.note(f"{self.name} learns that boot {self.boot[-3:]} has ended")
        world.counts["boot.redrawn"] += 1
        self.boot = world.draw_boot()
        self.lives = False
        self.lease.drop()
        self._next_number = 1
        self._numbers.clear()
        for other in world.others(self.name):
            self.network.reset(self.name, other)
        self.book.seen_as(self.name, self.boot)
        serving, self.serving = self.serving, None
        if serving is not None:
            serving.drop_boot()
            self.soon(serving.stopped)

    def _reboot(self) -> None:
        if self.lives and not self._is_stopping:
            self._draw_boot()
            self._commit_boot()

    def boot_refused(self, boot: str) -> None:
        """A peer says that this boot was ended."""
        if boot == self.boot:
            self._reboot()

    def has_ended(self, node: str, boot: str) -> bool:
        """Whether a peer's boot is refused here (P1)."""
        return (node, boot) in self._ended

    def _watch(self) -> None:
        """As the leader: end the boots of the dead, and memberships of the silent (P2, P7)."""
        self.after(WATCH_MS, self._watch)
        if not self.is_leading:
            return
        silent_ms = self.world.options.silent_ms
        for record in self.catalogue.nodes():
            node, boot = record.name, record.boot
            if boot is None or node == self.name or node in self._ending:
                continue
            if self._is_dead_node(node, boot, silent_ms):
                self._end(node, commands.EndBoot(node, boot))
            elif self.verdict(node) is PeerState.SUSPECTED and self._may_do_without(node):
                self._end(node, commands.EndMemberships(node, boot))

    def _may_do_without(self, node: str) -> bool:
        rings = [queue.ring for queue in self.catalogue.rings()]
        return any(ring is not None and is_expendable(ring, node) for ring in rings)

    def _end(self, node: str, command: commands.AnyCommand) -> None:
        self._ending.add(node)
        self.propose(command, lambda _result: self._ending.discard(node))

    def _is_dead_node(self, node: str, boot: str, silent_ms: int) -> bool:
        detector = self._detectors[node]
        if detector.verdict is PeerState.GONE:
            return detector.boot in {"", boot} or detector.is_former(boot)
        is_suspected = detector.verdict is PeerState.SUSPECTED
        return is_suspected and detector.silence_ms(self.clock.now_ms) >= silent_ms

    def verdict(self, node: str) -> PeerState:
        return self._detectors[node].verdict

    def silence_ms(self, node: str) -> int:
        """How long a node has not been heard."""
        return self._detectors[node].silence_ms(self.clock.now_ms)

    def is_gone(self, node: str) -> bool:
        """Is a node's process proven dead?"""
        return self.verdict(node) is PeerState.GONE

    def is_linked(self, node: str, other: str) -> bool:
        """Do two nodes hear each other, as far as is known here (`broker.cluster.peers`)?"""
        if node == other:
            return True
        if self.name in {node, other}:
            return self.verdict(other if node == self.name else node) is PeerState.UP
        both_up = self.verdict(node) is PeerState.UP and self.verdict(other) is PeerState.UP
        return both_up and other in self._hear.get(node, ()) and node in self._hear.get(other, ())

    def up(self) -> list[str]:
        return [node for node, each in self._detectors.items() if each.verdict is PeerState.UP]

    def _beat(self) -> None:
        self.after(HEARTBEAT_MS, self._beat)
        now_ms = self.clock.now_ms
        late_ms, self._beat_ms = now_ms - self._beat_ms - HEARTBEAT_MS, now_ms
        for detector in self._detectors.values():
            if late_ms > STALL_MS:
                detector.excuse(late_ms)
            self._send_beat(detector)
        for detector in list(self._detectors.values()):
            self._judged(detector.tick(now_ms))

    def _send_beat(self, detector: FailureDetector) -> None:
        silence_ms = min(detector.silence_ms(self.clock.now_ms), NEVER_MS)
        me, boot, heard, applied = self.name, self.boot, detector.boot, self.applied
        up = frozenset(self.up())
        self.network.send(
            me,
            detector.node,
            CONTROL,
            lambda far: far.heard(me, boot, heard, silence_ms, applied, up),
        )

    def heard(
        self,
        node: str,
        boot: str,
        heard: str,
        silence_ms: int,
        applied: int,
        up: frozenset[str],
    ) -> None:
        """A heartbeat came."""
        detector = self._detectors[node]
        was_heard = detector.boot == boot
        silence_ms = silence_ms if heard == self.boot else NEVER_MS
        self._judged(detector.heard(boot, silence_ms, self.clock.now_ms))
        if not was_heard:
            self._send_beat(detector)
        self._hear[node] = up
        self.reported(node, boot, applied)

    def _judged(self, events: list[Any]) -> None:
        for event in events:
            if event.verdict is PeerState.UP:
                self.book.seen_as(event.node, event.boot)
            elif event.verdict is PeerState.GONE:
                gone = event.boot or self.book.holders().get(event.node, "")
                self.book.proven_dead(event.node, gone)
        if events and self.serving is not None:
            self.serving.peers_changed()

    def stop(self) -> None:
        """SIGTERM: clients are told, then the boot ends in good order."""
        if self._is_stopping:
            return
        self._is_stopping = True
        serving, self.serving = self.serving, None
        if serving is not None:
            serving.leave(self._leave)
        else:
            self._leave()

    def _leave(self) -> None:
        """The boot ends in good order, and everything is written; then the process is over."""

        def over(_result: object = None) -> None:
            self.journal.close()
            self.world.kill(self.name)

        self.propose(commands.EndBoot(self.name, self.boot), over)
        self.after(END_BOOT_MS, over)

    # Links

    def stream_up(self, node: str, boot: str, kind: int) -> None:
        """A stream that this node dialled carries."""
        if kind == DATA and self.door is not None:
            self.door.link_up(node, outgoing=True)

    def stream_down(self, node: str, kind: int) -> None:
        """A stream that this node dialled is broken."""
        if kind == CONTROL:
            for proposal in self._proposals:
                proposal.asked_term = -1

    def stream_accepted(self, node: str, boot: str, kind: int) -> None:
        """A node has dialled this one."""
        if kind == DATA and self.door is not None:
            self.door.link_up(node, outgoing=False)
        detector = self._detectors[node]
        if detector.boot != boot:
            self.soon(lambda: self._judged(detector.heard(boot, NEVER_MS, self.clock.now_ms)))

    def refused(self, node: str) -> None:
        self._judged(self._detectors[node].refused(self.clock.now_ms))

    # Group 0 on this node

    def _recover(self, applied: int) -> None:
        """What a start finds: a snapshot, and the entries behind it up to some index."""
        point = self.world.group0.restore_point(applied)
        if point is not None:
            self.machine.restore(*point)
            self.applied = point[0]
        for index in range(self.applied + 1, applied + 1):
            self.machine.apply(index, self.world.group0.entries[index - 1])
        self.applied = applied
        self.machine.take_changes()
        for record in self.catalogue.nodes():
            self._ended.update((record.name, boot) for boot in record.ended_boots)

    def apply_upto(self, index: int) -> None:
        """Apply what is committed, up to an index."""
        entries = self.world.group0.entries
        while self.applied < index:
            self.machine.apply(self.applied + 1, entries[self.applied])
            self._advanced(self.applied + 1)

    def install(self, index: int, parts: list[bytes]) -> None:
        """Take a snapshot."""
        if index > self.applied:
            self.machine.restore(index, parts)
            self._advanced(index)

    def _advanced(self, index: int) -> None:
        self.applied = index
        changes = self.machine.take_changes()
        for node, _boot in changes.boots_ended:
            record = self.catalogue.node(node)
            if record is not None and record.boot is not None:
                self.book.seen_as(node, record.boot)
        self._follow(changes)
        if self.serving is not None:
            self.serving.applied(changes)
        self.lease.applied(index)
        for proposal in list(self._proposals):
            self._finish(proposal)
        self._report()

    def _follow(self, changes: Changes) -> None:
        if not (changes.nodes_changed or changes.boots_ended or changes.restored):
            return
        for record in self.catalogue.nodes():
            if record.name == self.name:
                if self.boot in record.ended_boots:
                    self.lease.drop()
                    self._reboot()
                continue
            for boot in record.ended_boots:
                if (record.name, boot) in self._ended:
                    continue
                self._ended.add((record.name, boot))
                for kind in (CONTROL, DATA):
                    stream = self.network.stream(record.name, self.name, kind)
                    if stream.is_up and stream.boot == boot:
                        stream.break_off()

    def _report(self) -> None:
        leader = self.world.group0.leader
        me, boot, applied = self.name, self.boot, self.applied
        if self.is_leading:
            self.reported(me, boot, applied)
        elif leader is not None and leader != me:
            self.network.send(me, leader, CONTROL, lambda far: far.reported(me, boot, applied))

    # Proposals

    def propose(self, command: commands.AnyCommand, done: Done) -> None:
        """Change group 0: `done` gets the result, or a refusal after 5 s (P3)."""
        until_ms = self.clock.now_ms + PROPOSE_MS
        self._when_living(command, until_ms, done)

    def _when_living(self, command: commands.AnyCommand, until_ms: int, done: Done) -> None:
        if not self.lives:
            if self.clock.now_ms >= until_ms:
                done(_disagreed())
            else:
                self.after(PULSE_MS, self._when_living, command, until_ms, done)
            return
        number, boot = self._next_number, self.boot
        self._next_number += 1
        self._numbers[number] = None
        lowest = next(iter(self._numbers))

        def ended(result: object) -> None:
            if boot == self.boot:
                self._numbers.pop(number, None)
            done(result)

        data = commands.encode_request(boot, number, lowest, command)
        self._submit(data, boot, ended, until_ms)

    def _submit(self, data: bytes, boot: str, done: Done, until_ms: int | None = None) -> None:
        until_ms = self.clock.now_ms + PROPOSE_MS if until_ms is None else until_ms
        self._proposals.append(_Proposal(data, boot, until_ms, done))
        self.soon(self._push)

    def _push(self) -> None:
        """Send what the present leader has not been asked yet; give up what is too old."""
        group0, now_ms = self.world.group0, self.clock.now_ms
        leader, term = group0.leader, group0.term
        for proposal in list(self._proposals):
            if proposal.boot != self.boot:
                text = "this node was declared dead"
                self._settle(proposal, Refusal(ReplyCode.INTERNAL_ERROR, text))
            elif now_ms >= proposal.until_ms:
                self.world.counts["group0.unknown"] += 1
                self._settle(proposal, _disagreed())
            elif leader is not None and proposal.asked_term != term and proposal.outcome is None:
                self._ask(proposal, leader, term)

    def _ask(self, proposal: _Proposal, leader: str, term: int) -> None:
        me, data = self.name, proposal.data

        def answered(index: int, result: object) -> None:
            if proposal.outcome is None:
                proposal.outcome = (index, result)
                self._finish(proposal)

        if leader == me:
            if self.is_leading:
                proposal.asked_term = term
                self.lead(data, answered)
            return

        def reply(far: Process, index: int, result: object) -> None:
            if self.world.rng.random() < self.world.lost_answer:
                self.world.counts["group0.answer_lost"] += 1
                return
            self.network.send(far.name, me, CONTROL, lambda _near: answered(index, result))

        def ask(far: Process) -> None:
            far.lead(data, lambda index, result: reply(far, index, result))

        if self.network.send(me, leader, CONTROL, ask):
            proposal.asked_term = term

    def _finish(self, proposal: _Proposal) -> None:
        if proposal.outcome is not None and proposal.outcome[0] <= self.applied:
            self._settle(proposal, proposal.outcome[1])

    def _settle(self, proposal: _Proposal, result: object) -> None:
        if proposal in self._proposals:
            self._proposals.remove(proposal)
            self.soon(lambda: proposal.done(result))

    # Leading group 0

    def leader(self) -> str | None:
        """Who leads it, as a node knows it that has followed it to its end."""
        leader = self.world.group0.leader
        return None if leader == self.name and not self.is_leading else leader

    def lead(self, data: bytes, reply: Callable[[int, object], None]) -> None:
        """Commit an entry, and answer when all who may hold a lease have applied it (P4)."""
        if not self.is_leading:
            return
        request = commands.decode_request(data)

        def committed(index: int) -> None:
            known = self.machine.answer(request.boot, request.number)
            result = known[0] if known is not None else self._unremembered(request)
            self._awaiting_all.append((index, lambda: reply(index, result)))
            self._answer_applied()

        self.world.group0.propose(data, committed)

    def _unremembered(self, request: commands.Request) -> object:
        """What BootNode answers, which is never remembered, or a boot that has ended."""
        record = self.catalogue.node(getattr(request.command, "node", ""))
        command = request.command
        if isinstance(command, commands.BootNode) and record and command.boot == record.boot:
            return None
        return Refusal(ReplyCode.INTERNAL_ERROR, f"boot {request.boot} does not live")

    def leads(self) -> None:
        """This node leads group 0 and has applied all of it."""
        self.is_leading = True
        latest = [
            (record.name, record.boot or record.ended_boots[-1])
            for record in self.catalogue.nodes()
            if (record.boot or record.ended_boots)
            and (record.name == self.name or self.verdict(record.name) is not PeerState.GONE)
        ]
        self.book.began(latest, self.clock.now_ms)
        self._report()
        self._push()

    def leads_no_more(self) -> None:
        self.is_leading = False
        self._awaiting_all.clear()

    def reported(self, node: str, boot: str, index: int) -> None:
        """A node told what it has applied."""
        self.book.reported(node, boot, index)
        self._answer_applied()

    def _answer_applied(self) -> None:
        if not self._awaiting_all or not self.is_leading:
            return
        lowest = self.book.applied_by_all(self.clock.now_ms)
        bound = self.applied if lowest is None else min(self.applied, lowest)
        ready = [reply for index, reply in self._awaiting_all if index <= bound]
        self._awaiting_all = [each for each in self._awaiting_all if each[0] > bound]
        for reply in ready:
            reply()

    # The lease

    def _pulse(self) -> None:
        self.after(PULSE_MS, self._pulse)
        now_ms = self.clock.now_ms
        wait_ms = RENEW_MS if self.lease.is_held(now_ms) else RENEW_MS // 5
        if self.lives and now_ms - self._requested_ms >= wait_ms:
            self._request_lease()
        self._answer_applied()
        self._push()

    def _request_lease(self) -> None:
        leader = self.world.group0.leader
        if leader is None:
            return
        now_ms = self._requested_ms = self.clock.now_ms
        number, me, boot = self.lease.request(now_ms), self.name, self.boot
        if leader == me:
            self.lease_asked(me, boot, number)
        else:
            self.network.send(me, leader, CONTROL, lambda far: far.lease_asked(me, boot, number))

    def lease_asked(self, node: str, boot: str, number: int) -> None:
        """As the leader: prove that this node still leads, then grant."""
        if not self.is_leading or not self.catalogue.is_living(node, boot):
            return
        term = self.world.group0.term
        self.after(2 * self.network.delay_ms(), self._grant, node, boot, number, term)

    def _grant(self, node: str, boot: str, number: int, term: int) -> None:
        group0 = self.world.group0
        is_leader = self.is_leading and group0.leader == self.name and group0.term == term
        if not is_leader or not group0.has_quorum(self.name):
            return
        if not self.catalogue.is_living(node, boot):
            return
        self.book.grant(node, boot, self.clock.now_ms)
        index = self.applied
        if node == self.name:
            self.granted(boot, number, index)
        else:
            self.network.send(
                self.name, node, CONTROL, lambda far: far.granted(boot, number, index)
            )

    def granted(self, boot: str, number: int, index: int) -> None:
        """The leader granted a request."""
        if self.lives and boot == self.boot:
            self.lease.granted(number, index)

    def has_lease(self) -> bool:
        """May this node serve now (P4)?"""
        return self.lives and self.lease.is_held(self.clock.now_ms)


def _disagreed() -> Refusal:
    return Refusal(ReplyCode.INTERNAL_ERROR, "the cluster did not agree on the change in 5 s")
