"""Rings of mirrored queues through random deaths, boots, and timely, late and wrong steps."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.metadata import commands
from broker.metadata import ring_commands as steps
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import Queue
from broker.metadata.results import encode_result
from broker.metadata.rings import Ring, RingMember, candidate
from tests.model.ring_model import RingModel

ASKER = ("rabbit@asker", "asking")
NODES = ("rabbit@a", "rabbit@b", "rabbit@c", "rabbit@d")
BY_MASTER = {
    "joined": steps.RingJoined,
    "synced": steps.RingSynced,
    "drop": steps.RingDrop,
    "hand_over": steps.RingHandOver,
    "stopped": steps.RingStopped,
    "dissolve": steps.RingDissolve,
}
OFTEN = ("join", "joined", "promoted", "recover", "erase", "designate")
KINDS = [*OFTEN * 3, *BY_MASTER, "leave", "found"]


def draws(*more: str) -> st.SearchStrategy[tuple[str, int, int, str, int]]:
    """What is to be done, to which queue, with which member, at which node; 0 is a late step."""
    kinds = st.sampled_from([*KINDS, *more])
    numbers = st.integers(0, 7)
    return st.tuples(kinds, st.integers(0, 2), numbers, st.sampled_from(NODES), numbers)


DRAWS = draws()
DRAWS_ALL = draws("lost", "lost")


def mirrored(founders: int) -> dict[str, object]:
    """A policy under which so many found a ring; others may join all the same."""
    return {"ha-mode": "nodes", "ha-params": list(NODES[:founders])}


class Pair:
    """Two machines that apply the same log; one goes through a snapshot now and then."""

    def __init__(self) -> None:
        self.machine, self.other = MetadataMachine(), MetadataMachine()
        self.index = 0
        self.boots = 0
        every = (ASKER[0], *NODES)
        self.ask(commands.Bootstrap("c", "c", tuple((each, f"{each}:1") for each in every)))
        self.ask(commands.BootNode(*ASKER, "h:0"))

    @property
    def catalogue(self):
        return self.machine.catalogue

    def ask(self, command: commands.AnyCommand) -> object:
        self.index += 1
        data = commands.encode_request(ASKER[1], self.index, self.index, command)
        result = self.machine.apply(self.index, data)
        assert encode_result(self.other.apply(self.index, data)) == encode_result(result)
        return result

    def boot(self, node: str) -> str:
        self.boots += 1
        boot = f"boot{self.boots}"
        self.ask(commands.BootNode(node, boot, "h:1"))
        return boot

    def kill(self, node: str) -> str | None:
        """The node's living boot, which has ended now."""
        record = self.catalogue.node(node)
        boot = None if record is None else record.boot
        if boot is not None:
            assert self.ask(commands.EndBoot(node, boot)) is True
        return boot

    def replace_by_snapshot(self) -> None:
        parts = self.other.snapshot()
        self.other = MetadataMachine()
        self.other.restore(self.index, parts)

    def check_equal(self) -> None:
        assert self.other.snapshot() == self.machine.snapshot()


class Steps:
    """Makes steps that are mostly possible, from what the catalogue holds and has held."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.seen: dict[int, list[RingMember]] = {}

    def note(self) -> None:
        for queue in self.pair.catalogue.rings():
            assert queue.ring is not None
            seen = self.seen.setdefault(queue.uid, [])
            seen += [each for each in queue.ring.alive() if each not in seen]

    def make(self, queue: Queue, kind: str, pick: int, node: str, late: int) -> steps.RingStep:
        living = self.pair.catalogue.node(node)
        boot = "boot1" if late == 0 or living is None else living.boot or "boot1"
        ring = queue.ring
        nobody = RingMember(node, boot, 0)
        seen = self.seen.get(queue.uid, [nobody])
        if kind == "found" or ring is None:
            return steps.RingFound(queue.uid, queue.home if late else node, self.boot_at(queue))
        epoch = ring.epoch - (late == 0)
        master = seen[pick % len(seen)] if late == 0 else ring.master or nobody
        fitting = self.fitting(ring, kind)
        member = (
            seen[pick % len(seen)] if late == 0 or not fitting else fitting[pick % len(fitting)]
        )
        if kind == "join":
            return steps.RingJoin(queue.uid, master, epoch, node, boot)
        if kind == "stopped" and pick > 1:
            kind = "joined"  # a stop is seldom, and much that follows is refused
        if kind in {"stopped", "dissolve"}:
            return BY_MASTER[kind](queue.uid, master, epoch)
        if kind in BY_MASTER:
            return BY_MASTER[kind](queue.uid, master, epoch, member)
        if kind in {"recover", "lost"}:
            at = node if late == 0 or ring.last is None else ring.last.node
            record = self.pair.catalogue.node(at)
            boot = (record and record.boot) or boot
            if kind == "lost":
                return steps.RingLost(queue.uid, at, boot)
            return steps.RingRecover(queue.uid, at, boot, member)
        if kind == "leave":
            return steps.RingLeave(queue.uid, member, seen[-1 - pick % len(seen)])
        simple = {"erase": steps.RingErase, "promoted": steps.RingPromoted}
        return simple.get(kind, steps.RingDesignate)(queue.uid, member)

    def boot_at(self, queue: Queue) -> str:
        home = self.pair.catalogue.node(queue.home)
        return "boot1" if home is None or home.boot is None else home.boot

    def fitting(self, ring: Ring, kind: str) -> list[RingMember]:
        if kind == "erase":
            return [member for member, is_alive in ring.slots if not is_alive]
        if kind == "promoted":
            return [*ring.alive(), *([] if ring.successor is None else [ring.successor] * 2)]
        if kind == "recover":
            return list(ring.copies)
        done = {"joined": ring.joined, "synced": ring.synced}.get(kind, ())
        return [each for each in ring.alive() if each not in done] or list(ring.alive())


class RingLives(RuleBasedStateMachine):
    """Three queues, all policies, nodes that come, go and are forgotten: the invariants hold."""

    @initialize(founders=st.integers(1, 3))
    def start(self, founders):
        self.pair = Pair()
        self.steps = Steps(self.pair)
        self.masters: dict[tuple[int, int], RingMember] = {}
        self.rings: dict[int, Ring] = {}
        self.high: dict[int, tuple[int, int]] = {}
        self.ended: dict[int, set[RingMember]] = {}
        for node in NODES[:3]:
            self.pair.boot(node)
        self.pair.ask(commands.SetPolicy("/", "p", "^q", mirrored(founders)))
        for name, durable, home in (("q1", True, 0), ("q2", False, 1), ("r", True, 2)):
            self.declare(name, durable, NODES[home])

    def declare(self, name: str, durable: bool, home: str) -> None:
        self.pair.ask(commands.DeclareQueue("/", name, durable, False, None, {}, home))

    def queues(self) -> list[Queue]:
        return sorted(self.pair.catalogue.queues(), key=lambda each: each.uid)

    @rule(draws=st.lists(DRAWS_ALL, min_size=1, max_size=8))
    def batch(self, draws):
        queues = self.queues()
        if queues:
            made = tuple(
                self.steps.make(queues[which % len(queues)], kind, *rest)
                for kind, which, *rest in draws
            )
            outcomes = self.pair.ask(commands.ChangeRings(made))
            assert isinstance(outcomes, tuple)
            assert len(outcomes) == len(made)

    @rule(draw=DRAWS_ALL)
    def single(self, draw):
        queues = self.queues()
        if not queues:
            return
        kind, which, *rest = draw
        queue = queues[which % len(queues)]
        made = self.steps.make(queue, kind, *rest)
        is_done = self.pair.ask(commands.ChangeRings((made,))) == (True,)
        after = self.pair.catalogue.queue_by_uid(queue.uid)
        assert is_done or after == queue, "a refused step changes nothing"
        if is_done and isinstance(made, steps.RingPromoted):
            assert queue.ring is not None
            assert after is not None
            assert after.ring is not None
            assert queue.ring.successor == made.member == after.ring.master

    @rule(node=st.sampled_from(NODES))
    def boot(self, node):
        self.pair.boot(node)

    @rule(node=st.sampled_from(NODES))
    def kill(self, node):
        before = {queue.uid: queue for queue in self.pair.catalogue.rings()}
        self.pair.kill(node)
        for queue in self.pair.catalogue.rings():
            was, now = before[queue.uid].ring, queue.ring
            policy = self.pair.catalogue.ha_policy(queue)
            if was is None or now is None or was == now or policy is None:
                continue
            heirs = [each for each in was.synced if each.node != node]
            if was.master is not None and was.master.node == node and heirs:
                assert now.successor is not None, "a synchronised mirror succeeds at once (P23)"
                assert policy.promote == "oldest" or now.successor in heirs

    @rule(node=st.sampled_from(NODES))
    def silent(self, node):
        """P7: its memberships end where somebody else has all it has; its boot does not."""
        record = self.pair.catalogue.node(node)
        if record is not None and record.boot is not None:
            before = [queue.ring for queue in self.pair.catalogue.rings()]
            left = self.pair.ask(commands.EndMemberships(node, record.boot))
            after = [queue.ring for queue in self.pair.catalogue.rings()]
            assert left == sum(one != two for one, two in zip(before, after, strict=True))
            assert not any(
                two.is_down and not one.is_down
                for one, two in zip(before, after, strict=True)
                if one is not None and two is not None
            )

    @rule(node=st.sampled_from(NODES))
    def forget_and_return(self, node):
        self.pair.ask(commands.ForgetNode(node))
        self.pair.ask(commands.JoinNode(node, "h:2"))

    @rule(
        mode=st.sampled_from(["all", "exactly", "nodes", "nodes"]),
        promote=st.sampled_from(["synchronised", "oldest"]),
        failure=st.sampled_from(["always", "always", "when-synced"]),
        shutdown=st.sampled_from(["always", "when-synced"]),
    )
    def change_policy(self, mode, promote, failure, shutdown):
        params = {"exactly": 2, "nodes": list(NODES)}
        definition = {
            "ha-mode": mode,
            "ha-params": params.get(mode),
            "warren-promote": promote,
            "ha-promote-on-failure": failure,
            "ha-promote-on-shutdown": shutdown,
        }
        self.pair.ask(commands.SetPolicy("/", "p", ".*", definition))

    @rule()
    def clear_policy(self):
        self.pair.ask(commands.ClearPolicy("/", "p"))

    @rule(node=st.sampled_from(NODES), durable=st.booleans())
    def declare_anew(self, node, durable):
        if len(self.queues()) < 4:
            self.declare(f"q{self.pair.index}", durable, node)

    @rule()
    def install_snapshot(self):
        self.pair.replace_by_snapshot()

    @invariant()
    def all_is_well(self):
        self.pair.check_equal()
        self.steps.note()
        self.check_look_ups()
        catalogue = self.pair.catalogue
        for queue in catalogue.rings():
            ring = queue.ring
            assert ring is not None
            self.check_members(ring)
            self.check_history(queue, ring)
            assert queue.type == "classic"
            assert queue.members == (queue.home,)
            assert ring.master is None or queue.home == ring.master.node
            assert not (ring.is_down and not queue.durable) or candidate(ring) is not None
            assert all(catalogue.is_living(each.node, each.boot) for each in ring.alive())

    def check_members(self, ring: Ring) -> None:
        alive = ring.alive()
        members = [member for member, _is_alive in ring.slots]
        assert len(set(members)) == len(members)
        assert len({member.node for member in alive}) == len(alive)
        assert set(ring.synced) <= set(ring.joined) <= set(alive)
        assert ring.master is None or ring.master in ring.synced
        assert ring.master is None or ring.successor is None
        assert ring.successor is None or ring.successor in ring.joined
        assert ring.slots == () or alive
        assert not ring.stopped or not alive
        assert len(ring.copies) <= 2
        assert ring.last is not None or ring.successor is not None
        last = set() if ring.last is None else {ring.last.node}
        assert {copy.node for copy in ring.copies} == last
        mirrors = {member.node for member in ring.mirrors()}
        assert mirrors <= set(ring.recoverable)
        assert [each.node for each in ring.left] == [
            node for node in ring.recoverable if node not in mirrors
        ]

    def check_history(self, queue: Queue, ring: Ring) -> None:
        uid = queue.uid
        if ring.master is not None:
            known = self.masters.setdefault((uid, ring.epoch), ring.master)
            assert known == ring.master, "one master in an epoch"
        high = self.high.get(uid, (0, 0))
        assert (ring.epoch, ring.version) >= high
        assert ring.version >= high[1]
        before = self.rings.get(uid)
        if before is not None and (before.slots, before.master) != (ring.slots, ring.master):
            assert ring.version > before.version, "a view has a version of its own"
        ended = self.ended.setdefault(uid, set())
        assert ended.isdisjoint(ring.alive()), "what has ended stays ended"
        if before is not None:
            ended |= set(before.alive()) - set(ring.alive())
        self.rings[uid], self.high[uid] = ring, (ring.epoch, ring.version)

    def check_look_ups(self) -> None:
        catalogue = self.pair.catalogue
        queues = self.queues()
        assert catalogue.rings() == [queue for queue in queues if queue.ring is not None]
        for node in NODES:
            there = [queue for queue in queues if node in nodes_of(queue)]
            assert catalogue.queues_on(node) == there
            assert catalogue.queue_count_on(node) == len(there)


def nodes_of(queue: Queue) -> set[str]:
    alive: Iterable[RingMember] = () if queue.ring is None else queue.ring.alive()
    return {queue.home, *queue.members, *(each.node for each in alive)}


class RingAgainstModel(RuleBasedStateMachine):
    """One queue, one policy: every step has the outcome that the rules say."""

    @initialize(
        oldest=st.booleans(), when_synced=st.booleans(), founders=st.sampled_from([1, 1, 2, 3])
    )
    def start(self, oldest, when_synced, founders):
        self.pair = Pair()
        self.steps = Steps(self.pair)
        self.model = RingModel(oldest=oldest, when_synced=when_synced)
        for node in NODES[:3]:
            self.model.boot(node, self.pair.boot(node))
        definition = {
            **mirrored(founders),
            "warren-promote": "oldest" if oldest else "synchronised",
            "ha-promote-on-failure": "when-synced" if when_synced else "always",
        }
        self.pair.ask(commands.SetPolicy("/", "p", "^q$", definition))
        self.pair.ask(commands.DeclareQueue("/", "q", True, False, None, {}, NODES[0]))
        self.model.found([member.node for member in self.ring().alive()])

    def queue(self) -> Queue:
        (queue,) = self.pair.catalogue.rings()
        return queue

    def ring(self) -> Ring:
        ring = self.queue().ring
        assert ring is not None
        return ring

    @rule(node=st.sampled_from(NODES))
    def boot(self, node):
        self.model.boot(node, self.pair.boot(node))

    @rule(node=st.sampled_from(NODES))
    def kill(self, node):
        if self.pair.kill(node) is not None:
            self.model.death(node)

    @rule(draw=DRAWS)
    def single(self, draw):
        kind, _which, *rest = draw
        self.check(self.steps.make(self.queue(), kind, *rest))

    @rule(draws=st.lists(DRAWS, min_size=2, max_size=5))
    def batch(self, draws):
        queue = self.queue()
        made = tuple(self.steps.make(queue, kind, *rest) for kind, _which, *rest in draws)
        outcomes = self.pair.ask(commands.ChangeRings(made))
        assert outcomes == tuple(map(self.expected, made))

    @rule(
        mirrors=st.lists(
            st.tuples(st.sampled_from(NODES[1:]), st.booleans()), min_size=2, max_size=3
        )
    )
    def join_fully(self, mirrors):
        """Members that are at least joined, so that successions have somebody to choose."""
        for node, is_synced in mirrors:
            ring, record = self.ring(), self.pair.catalogue.node(node)
            if ring.master is None or record is None or record.boot is None:
                return
            by = (self.queue().uid, ring.master, ring.epoch)
            self.check(steps.RingJoin(*by, node, record.boot))
            member = self.ring().member_on(node)
            assert member is not None
            self.check(steps.RingJoined(*by, member))
            if is_synced:
                self.check(steps.RingSynced(*by, member))

    @rule()
    def last_master_returns(self):
        ring = self.ring()
        if ring.is_down and ring.last is not None:
            boot = self.pair.boot(ring.last.node)
            self.model.boot(ring.last.node, boot)
            copy = self.ring().copies[0]
            self.check(steps.RingRecover(self.queue().uid, ring.last.node, boot, copy))

    @rule(is_back=st.booleans())
    def master_dies(self, is_back):
        """It may return at once and recover, whoever else is alive."""
        ring = self.ring()
        if ring.master is None:
            return
        node, boot = ring.master.node, ""
        if is_back:
            boot = self.pair.boot(node)
            self.model.boot(node, boot)
        else:
            self.pair.kill(node)
            self.model.death(node)
        uid, ring = self.queue().uid, self.ring()
        if ring.successor is not None:
            self.check(steps.RingPromoted(uid, ring.successor))
        else:
            self.check(steps.RingRecover(uid, node, boot, ring.copies[-1]))

    def check(self, made: steps.RingStep) -> None:
        assert self.pair.ask(commands.ChangeRings((made,))) == (self.expected(made),), made

    def expected(self, made: steps.RingStep) -> bool:
        by_name = {
            steps.RingJoin: self.model.join,
            steps.RingJoined: self.model.note_joined,
            steps.RingSynced: self.model.note_synced,
            steps.RingLeave: self.model.leave,
            steps.RingDrop: self.model.drop,
            steps.RingErase: self.model.erase,
            steps.RingDesignate: self.model.designate,
            steps.RingPromoted: self.model.promoted,
            steps.RingRecover: self.model.recover,
            steps.RingHandOver: self.model.hand_over,
            steps.RingStopped: self.model.stop,
        }
        if type(made) not in by_name:
            return False  # founded already, and the policy still asks for mirrors
        arguments = [getattr(made, name) for name in made.__struct_fields__[1:]]
        plain = [plain_of(each) if isinstance(each, RingMember) else each for each in arguments]
        return by_name[type(made)](*plain)

    @invariant()
    def the_record_is_the_model_s(self):
        self.steps.note()
        self.pair.check_equal()
        ring, model = self.ring(), self.model
        assert [(plain_of(member), is_alive) for member, is_alive in ring.slots] == [
            (member, member not in model.dead) for member in model.order
        ]
        assert set(map(plain_of, ring.synced)) == model.synced
        assert set(map(plain_of, ring.joined)) == model.joined
        assert set(map(plain_of, ring.copies)) == model.copies
        assert [ring.master and plain_of(ring.master), ring.epoch] == [model.master, model.epoch]
        assert (ring.successor and plain_of(ring.successor)) == model.successor
        assert (ring.last and plain_of(ring.last)) == model.last
        assert (ring.version, ring.stopped, ring.lossy) == (
            model.version,
            model.stopped,
            model.lossy,
        )


def plain_of(member: RingMember) -> tuple[str, str, int]:
    return (member.node, member.boot, member.version)


TestRingLives = RingLives.TestCase
TestRingLives.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestRingAgainstModel = RingAgainstModel.TestCase
TestRingAgainstModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
