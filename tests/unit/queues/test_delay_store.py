"""The store of an x-delayed-message exchange on several nodes: time, order, its leader's death.

The leader looks one millisecond after a message is due: then it is due on every clock.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp.content import Properties, build_message, decode_properties
from broker.amqp.frames import body_of
from broker.fifo.commands import Cancel, Discard, Get, Purge
from broker.message import Message
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.queues.delay_store import as_taken_by, due
from broker.session.publishing.delays import with_stores
from tests.unit.queues.rig import A, B, C, Channel, World

EXCHANGE = "later"


def delayed(body: bytes, delay_ms: int, key: str = "k", **more: Any) -> Message:
    """A message as the session gives it to the store."""
    headers = {"x-delay": delay_ms, **more.pop("headers", {})}
    made = build_message(EXCHANGE, key, Properties(headers=headers, **more), body)
    store = Queue(
        "/", f"amq.delayed.{EXCHANGE}", 1, "quorum", True, False, None,
        {"x-warren-delayed-exchange": EXCHANGE}, A, (A,),
    )  # fmt: skip
    ((copy, _),) = with_stores(made, headers, [(made, ())], [store])
    return copy


class Rig:
    """Three nodes, one exchange with a store led by the first, a classic queue bound to it."""

    def __init__(self, home: str = A) -> None:
        self.world = World(A, B, C, timers=True)
        self.exchange()
        found = self.world.catalogue.store("/", EXCHANGE)
        assert found is not None
        self.store = found
        self.queue = self.world.declare("q", home)
        self.bind("q")
        self.world.lead(self.store, A)
        self.world.settle()
        self.channel = Channel()
        self.numbers = itertools.count(1)

    def exchange(self) -> None:
        self.world.apply(
            commands.DeclareExchange(
                "/",
                EXCHANGE,
                "x-delayed-message",
                True,
                False,
                False,
                {"x-delayed-type": "direct"},
                A,
                (A, B, C),
            )
        )

    def bind(self, queue: str, key: str = "k") -> None:
        self.world.apply(commands.Bind("/", EXCHANGE, "queue", queue, key, {}))

    def publish(self, node: str, *messages: Message) -> list[int]:
        numbers = [next(self.numbers) for _ in messages]
        handle = self.world.nodes[node].registry.open(self.store)
        handle.publish(list(messages), numbers, self.channel)
        self.world.settle()
        return numbers

    def consumer(self, node: str = A) -> Channel:
        channel = Channel()
        there = self.world.nodes[node]
        spec = there.spec(no_ack=True)
        there.registry.open(self.queue).attach(spec, channel, lambda _: None)
        self.world.settle()
        return channel

    def kept(self) -> int:
        leader = self.world.leaders[self.store.uid]
        return self.world.replicas[self.store.uid][leader].stat().ready


def bodies(channel: Channel) -> list[bytes]:
    return [body_of(each.message) for each in channel.delivered]


def test_messages_leave_when_they_are_due_in_that_order() -> None:
    rig = Rig()
    got = rig.consumer(B)
    rig.publish(C, delayed(b"late", 500), delayed(b"soon", 100), delayed(b"soon too", 100))
    assert rig.channel.verdicts == [(1, True), (2, True), (3, True)]
    rig.world.advance(99)
    assert bodies(got) == []
    rig.world.advance(2)
    assert bodies(got) == [b"soon", b"soon too"]
    rig.world.advance(398)
    assert len(got.delivered) == 2
    rig.world.advance(2)
    assert bodies(got) == [b"soon", b"soon too", b"late"]
    assert rig.kept() == 0, "what has arrived is forgotten"


def test_what_leaves_is_what_was_sent_but_for_the_sign() -> None:
    rig = Rig()
    got = rig.consumer()
    rig.publish(A, delayed(b"x", 100, expiration="60000", headers={"other": 1}))
    rig.world.advance(101)
    (delivery,) = got.delivered
    found = decode_properties(delivery.message)
    assert found.headers == {"x-delay": -100, "other": 1}
    assert found.expiration == "60000"
    assert delivery.message.ttl_ms == 60_000
    assert delivery.delivery_count == 0


def test_an_expiration_counts_from_the_end_of_the_delay() -> None:
    rig = Rig()
    rig.publish(A, delayed(b"x", 5_000, expiration="1000"))
    rig.world.advance(5_900)
    got = rig.consumer()
    assert bodies(got) == [b"x"]
    rig.publish(A, delayed(b"y", 100, expiration="1000"))
    rig.world.nodes[A].registry.open(rig.queue).submit(
        Cancel(rig.world.nodes[A].channel_id(), "t"), lambda _: None
    )
    rig.world.advance(1_200)
    assert bodies(rig.consumer()) == []


def test_the_bindings_of_the_moment_count_and_no_binding_is_the_end() -> None:
    rig = Rig()
    rig.world.declare("r", B)
    rig.publish(A, delayed(b"1", 100, "new"), delayed(b"2", 300, "new"))
    rig.world.advance(200)
    assert rig.kept() == 1, "nobody was bound to the first"
    rig.bind("q", "new")
    rig.bind("r", "new")
    rig.world.advance(101)
    assert bodies(rig.consumer()) == [b"2"]
    assert rig.world.nodes[B].registry.served_here()
    assert rig.kept() == 0


def test_keys_of_cc_and_bcc_count_when_it_is_due() -> None:
    rig = Rig()
    copied = delayed(b"1", 100, "none", headers={"CC": ["k", 7]})
    hidden = delayed(b"2", 100, "none")
    rig.publish(A, copied, _replaced(hidden, bcc=("k",)), delayed(b"3", 100, "none"))
    rig.world.advance(101)
    assert bodies(rig.consumer()) == [b"1", b"2"]


def _replaced(message: Message, **changes: Any) -> Message:
    values = {name: getattr(message, name) for name in message.__struct_fields__}
    return Message(**{**values, **changes})


def test_a_new_leader_goes_on_and_sends_again_what_was_not_confirmed() -> None:
    rig = Rig(home=B)
    got = rig.consumer(B)
    rig.publish(C, delayed(b"1", 100), delayed(b"2", 5_000))
    rig.world.unsynced.add(B)  # the queue can't confirm
    rig.world.cut |= {(A, B), (B, A)}
    rig.world.advance(200)
    assert bodies(got) == []
    assert rig.kept() == 2, "it is held until it has arrived"
    rig.world.lead(rig.store, C)
    rig.world.unsynced.clear()
    rig.world.advance(101)
    assert bodies(got) == [b"1"]
    assert rig.kept() == 1
    rig.world.advance(5_000)
    assert bodies(got) == [b"1", b"2"]


def test_a_death_between_confirm_and_drop_brings_a_message_twice_not_never() -> None:
    rig = Rig(home=B)
    got = rig.consumer(B)
    rig.publish(C, delayed(b"1", 100))
    rig.world.is_dropping = False
    rig.world.cut |= {(B, A)}  # B gets it, and its confirm gets lost
    rig.world.advance(101)
    assert bodies(got) == [b"1"]
    assert rig.kept() == 1
    rig.world.lead(rig.store, C)
    rig.world.settle()
    assert bodies(got) == [b"1", b"1"]
    assert rig.kept() == 0


def test_a_queue_that_refuses_gets_it_later_and_holds_nobody_up() -> None:
    rig = Rig()
    full = rig.world.declare(
        "full", A, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    rig.bind("full", "full")
    rig.publish(A, *[delayed(b"%d" % n, 100, "full") for n in (1, 2)], delayed(b"3", 200))
    rig.world.advance(301)
    assert bodies(rig.consumer()) == [b"3"]
    assert rig.kept() == 1
    rig.world.nodes[A].registry.open(full).submit(Purge(), lambda _: None)
    rig.world.advance(10_000)
    assert rig.kept() == 0
    count: list[object] = []
    rig.world.nodes[A].registry.open(full).submit(Purge(), count.append)
    rig.world.settle()
    assert count == [1]


def test_a_queue_whose_node_is_down_gets_it_when_that_is_back() -> None:
    rig = Rig(home=B)
    rig.world.declare("up", A)
    rig.bind("up", "other")
    rig.publish(A, delayed(b"1", 100), delayed(b"2", 200, "other"))
    disk = rig.world.kill(B)
    rig.world.replicas[rig.store.uid].pop(B)
    rig.world.advance(20_000)
    assert rig.kept() == 1, "the other queue has its message"
    rig.world.boot(B, disk)
    rig.world.advance(10_000)
    assert bodies(rig.consumer(B)) == [b"1"]
    assert rig.kept() == 0


@pytest.mark.parametrize("node", [A, B])
def test_cancelled_messages_never_leave(node: str) -> None:
    rig = Rig()
    got = rig.consumer()
    rig.publish(A, *[delayed(b"%d" % n, 100 * n) for n in (1, 2, 3)])
    registry = rig.world.nodes[A].registry
    store = registry.quorum_here(rig.store.uid)
    assert store is not None
    listed = store.peek(0, 10)
    assert [body_of(each.message) for each in listed] == [b"1", b"2", b"3"]
    assert store.peek(1, 1) == listed[1:2]
    assert rig.world.nodes[B].registry.quorum_here(rig.store.uid) is None
    answers: list[object] = []
    cancel = rig.world.nodes[node].registry.cancel_delays
    cancel(rig.store, [listed[1].number, listed[1].number, 999], answers.append)
    rig.world.settle()
    assert answers == [1]
    rig.world.advance(200)
    assert bodies(got) == [b"1"]
    cancel(rig.store, None, answers.append)
    rig.world.settle()
    assert answers == [1, 1]
    rig.world.advance(1_000)
    assert bodies(got) == [b"1"]
    assert rig.kept() == 0


def test_without_its_lease_the_leader_lets_nothing_go() -> None:
    rig = Rig()
    got = rig.consumer(B)
    rig.publish(A, delayed(b"1", 100))
    rig.world.leaseless.add(A)
    rig.world.advance(1_000)
    assert bodies(got) == []
    rig.world.leaseless.clear()
    rig.world.nodes[A].registry.lease_back()
    rig.world.settle()
    assert bodies(got) == [b"1"]


def test_a_deleted_exchange_lets_nothing_go() -> None:
    rig = Rig()
    got = rig.consumer()
    rig.publish(A, delayed(b"1", 100))
    rig.world.apply(commands.DeleteExchange("/", EXCHANGE))
    rig.exchange()
    rig.bind("q")
    rig.world.advance(1_000)
    assert bodies(got) == []


def test_dead_letters_are_delayed_by_such_an_exchange() -> None:
    rig = Rig()
    arguments = {"x-dead-letter-exchange": EXCHANGE, "x-dead-letter-routing-key": "k"}
    dying = rig.world.declare("dying", B, arguments=arguments)
    got = rig.consumer()
    node = rig.world.nodes[B]
    sent = build_message("", "dying", Properties(headers={"x-delay": 2_000}), b"x")
    handle = node.registry.open(dying)
    handle.publish([sent], None, rig.channel)
    rig.world.settle()
    taken: list[Any] = []
    handle.submit(Get(node.channel_id(), False), taken.append)
    rig.world.settle()
    handle.submit(Discard(node.channel_id(), "", [taken[0].delivery.number]))
    rig.world.advance(1_999)
    assert bodies(got) == []
    rig.world.advance(2)
    (delivery,) = got.delivered
    headers = decode_properties(delivery.message).headers
    assert headers is not None
    assert headers["x-delay"] == -2_000
    assert headers["x-first-death-queue"] == "dying"


def test_each_queue_gets_its_copy() -> None:
    plain = Queue("/", "q", 1, "classic", True, False, None, {}, A, (A,))
    sent = build_message("x", "k", Properties(headers={"x-delay": 70, "id": "7"}), b"")
    assert as_taken_by(plain, sent) is sent
    arguments = {"x-message-deduplication": True, "x-deduplication-header": "id"}
    once = Queue("/", "o", 2, "classic", True, False, None, arguments, A, (A,))
    assert as_taken_by(once, sent).dedup == "7"
    store = Rig().store
    assert as_taken_by(store, sent).ttl_ms == 70


def test_a_message_is_due_by_the_exchange_that_kept_it() -> None:
    store = Rig().store
    sent = delayed(b"x", 5, headers={"CC": "no list"})
    asked: list[Any] = []

    def find(*found: Any) -> list[Queue]:
        asked.append(found)
        return []

    message, queues = due(store, _replaced(sent, exchange="up", bcc=("b",)), find)
    assert queues == []
    assert message.exchange == "up"
    ((vhost, exchange, routed, keys),) = asked
    assert (vhost, exchange, keys) == ("/", EXCHANGE, ["b"])
    assert routed is message


Step = tuple[str, str, Any]

_steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from([A, B, C]), st.integers(1, 3_000)),
        st.tuples(st.just("lead"), st.sampled_from([A, B, C]), st.just(0)),
        st.tuples(st.just("drop"), st.sampled_from([A, B]), st.just(0)),
        st.tuples(st.just("cut"), st.sampled_from([A, B, C]), st.sampled_from([A, B, C])),
        st.tuples(st.just("heal"), st.just(A), st.just(0)),
        st.tuples(st.just("kill"), st.sampled_from([A, B]), st.just(0)),
        st.tuples(st.just("cancel"), st.sampled_from([A, B, C]), st.integers(1, 20)),
        st.tuples(st.just("wait"), st.just(A), st.integers(1, 2_000)),
    ),
    max_size=40,
)


class Run:
    """Does random steps, and looks after each that nothing came early."""

    def __init__(self) -> None:
        self.rig = Rig(home=C)
        self.got = self.rig.consumer(C)
        self.due_ms: dict[bytes, int] = {}
        self.cancels = 0
        self.of_the_living: set[bytes] = set()  # published by the node that never dies
        self._seen = 0

    def do(self, step: Step) -> None:
        what, node, value = step
        getattr(self, what)(node, value)
        self.rig.world.settle()
        for each in self.got.delivered[self._seen :]:
            assert self.rig.world.clock.ms >= self.due_ms[body_of(each.message)]
        self._seen = len(self.got.delivered)

    def publish(self, node: str, delay_ms: int) -> None:
        body = b"%d" % (len(self.due_ms) + 1)
        self.due_ms[body] = self.rig.world.clock.ms + delay_ms
        handle = self.rig.world.nodes[node].registry.open(self.rig.store)
        handle.publish([delayed(body, delay_ms)], [int(body)], self.rig.channel)
        if node == C:
            self.of_the_living.add(body)

    def lead(self, node: str, _: object) -> None:
        self.rig.world.lead(self.rig.store, node)

    def kill(self, node: str, _: object) -> None:
        """The node dies with all that was on its way, and comes back with its replica's state."""
        world, uid = self.rig.world, self.rig.store.uid
        disk = world.kill(node)
        world.replicas[uid].pop(node)
        if world.leaders[uid] == node:
            world.lead(self.rig.store, C)
        world.settle()
        world.boot(node, disk)
        world.replicas[uid][node].restore(0, world.replicas[uid][C].snapshot())

    def drop(self, node: str, _: object) -> None:
        self.rig.world.is_dropping = node == A

    def cut(self, node: str, other: str) -> None:
        self.rig.world.cut.add((node, other))

    def heal(self, _node: str, _: object) -> None:
        world = self.rig.world
        world.cut.clear()
        for node in world.nodes.values():
            for other in world.nodes:
                node.registry.link_up(other)

    def cancel(self, node: str, number: int) -> None:
        self.cancels += 1
        registry = self.rig.world.nodes[node].registry
        registry.cancel_delays(self.rig.store, [number], lambda _: None)

    def wait(self, _node: str, ms: int) -> None:
        self.rig.world.advance(ms)


@settings(max_examples=150, deadline=None)
@given(_steps)
def test_whatever_happens_what_was_confirmed_arrives_and_never_early(steps: list[Step]) -> None:
    """Leaders change, nodes die, links are cut, entries are lost; then all is well for a while."""
    run = Run()
    for step in steps:
        run.do(step)
    run.drop(B, 0)
    run.heal(A, 0)
    run.rig.world.advance(60_000)
    confirmed = {b"%d" % number for number, ok in run.rig.channel.verdicts if ok}
    assert run.of_the_living <= confirmed, "every batch is made again until it is answered"
    got = bodies(run.got)
    assert len(confirmed - set(got)) <= run.cancels, "each cancel named one number"
    assert run.rig.kept() == 0
    if not any(what in {"lead", "cut", "kill"} for what, _, _ in steps):
        assert len(got) == len(set(got))
