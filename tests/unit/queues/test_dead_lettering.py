"""Dead messages on their way through a node's queues: classic, mirrored and quorum."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp.content import decode_properties
from broker.fifo.commands import Discard, Get, Purge
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.queues import dead_letters
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel, World, message
from tests.unit.queues.test_rules import publish, ready, world_with

AT_LEAST_ONCE: dict[str, object] = {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "dlx",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def dead_letter(key: str, exchange: str = "") -> dict[str, object]:
    """Arguments that send the dead to a queue by its name."""
    return {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key}


def contents(world: World, queue: Queue, node: str = A) -> list[tuple[bytes, dict[str, Any]]]:
    """Take all messages out of a queue: body and headers."""
    found: list[tuple[bytes, dict[str, Any]]] = []
    while True:
        got: list[Any] = []
        handle = world.nodes[node].registry.open(queue)
        handle.submit(Get(world.nodes[node].channel_id(), True), got.append)
        world.settle()
        (result,) = got
        if result.delivery is None:
            return found
        taken = result.delivery.message
        headers: dict[str, Any] = decode_properties(taken).headers or {}
        found.append((bytes(taken.content[-1 - taken.body_size : -1]), headers))


def reject(world: World, queue: Queue, node: str = A) -> None:
    """Get one message and reject it."""
    handle, channel_id = world.nodes[node].registry.open(queue), world.nodes[node].channel_id()
    got: list[Any] = []
    handle.submit(Get(channel_id, False), got.append)
    world.settle()
    handle.submit(Discard(channel_id, "", [got[0].delivery.number]))
    world.settle()


@pytest.mark.parametrize("home", [A, B])
def test_each_reason_is_told(home: str) -> None:
    """Rows: 1.5 Triggers; 1.5 `x-death`"""
    world = World(A, B, timers=True)
    target = world.declare("dead", home)
    limits: dict[str, object] = {"x-message-ttl": 100, "x-max-length": 2}
    queue = world.declare("q", A, arguments=dead_letter("dead") | limits)
    publish(world, queue, 1, 2, 3)
    world.settle()
    reject(world, queue)
    world.advance(200)
    told = contents(world, target)
    assert [(body, headers["x-death"][0]["reason"]) for body, headers in told] == [
        (b"1", "maxlen"),
        (b"2", "rejected"),
        (b"3", "expired"),
    ]
    assert {headers["x-first-death-queue"] for _, headers in told} == {"q"}


def test_what_is_refused_may_be_dead_lettered_too() -> None:
    """Rows: 1.6 reject-publish-dlx"""
    world = World(timers=True)
    target = world.declare("dead")
    full: dict[str, object] = {"x-max-length": 1, "x-overflow": "reject-publish-dlx"}
    queue = world.declare("q", arguments=dead_letter("dead") | full)
    channel = publish(world, queue, 1, 2)
    world.settle()
    assert sorted(channel.verdicts) == [(1, True), (2, False)]
    ((body, headers),) = contents(world, target)
    assert (body, headers["x-death"][0]["reason"]) == (b"2", "maxlen")


def test_without_an_exchange_or_a_route_the_dead_are_gone() -> None:
    """Rows: 1.5 Config"""
    world = World(timers=True)
    queues = [
        world.declare(name, arguments=dead_letter(name, exchange) | {"x-message-ttl": 10})
        for name, exchange in (("a", "missing"), ("b", "amq.direct"))
    ]
    for queue in queues:
        publish(world, queue, 1)
    world.advance(100)
    assert [ready(world, queue) for queue in queues] == [0, 0]


def test_purge_and_delete_kill_nobody() -> None:
    """Rows: 1.5 Triggers; 1.3 queue.purge"""
    world = World(timers=True)
    target = world.declare("dead")
    queue = world.declare("q", arguments=dead_letter("dead"))
    publish(world, queue, 1)
    world.nodes[A].registry.open(queue).submit(Purge(), _ignore)
    publish(world, queue, 2)
    world.nodes[A].registry.delete(queue, _ignore, if_unused=False, if_empty=False)
    world.settle()
    assert ready(world, target) == 0


def test_a_queue_that_dead_letters_to_itself_drops_and_ends() -> None:
    """The cycle rule: without a client's rejection a message does not circle.

    Rows: 1.5 Cycle detection; 1.5 Order vs confirm
    """
    world, queue = world_with(
        x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=100, x_max_length=5
    )
    publish(world, queue, *range(1, 20))
    world.settle()
    assert ready(world, queue) == 5
    world.advance(1_000)
    assert ready(world, queue) == 0


def test_two_queues_that_dead_letter_to_each_other_end() -> None:
    """Rows: 1.5 Cycle detection"""
    world = World(timers=True)
    ttl: dict[str, object] = {"x-message-ttl": 100}
    first = world.declare("a", arguments=dead_letter("b") | ttl)
    second = world.declare("b", arguments=dead_letter("a") | ttl)
    publish(world, first, 1)
    world.advance(150)
    assert (ready(world, first), ready(world, second)) == (0, 1)
    world.advance(1_000)
    assert (ready(world, first), ready(world, second)) == (0, 0)


def test_a_rejected_message_may_come_back_as_often_as_clients_like() -> None:
    """Retry by TTL: work -> wait -> work, counted.

    Rows: 1.5 Cycle detection; 1.5 `x-death`
    """
    world = World(timers=True)
    work = world.declare("work", arguments=dead_letter("wait"))
    wait = world.declare("wait", arguments=dead_letter("work") | {"x-message-ttl": 100})
    publish(world, work, 1)
    world.settle()
    for _ in range(3):
        reject(world, work)
        assert (ready(world, work), ready(world, wait)) == (0, 1)
        world.advance(150)
    ((_, headers),) = contents(world, work)
    deaths = {(each["queue"], each["reason"]): each["count"] for each in headers["x-death"]}
    assert deaths == {("work", "rejected"): 3, ("wait", "expired"): 3}


def test_without_the_lease_the_dead_wait() -> None:
    """P4: a node that may not route does not route them either."""
    world = World(timers=True)
    target = world.declare("dead")
    queue = world.declare("q", arguments=dead_letter("dead") | {"x-message-ttl": 100})
    publish(world, queue, 1)
    world.settle()
    world.leaseless.add(A)
    world.advance(500)
    assert ready(world, target) == 0
    world.leaseless.clear()
    world.nodes[A].registry.lease_back()
    world.settle()
    assert ready(world, target) == 1


# Mirrored queues.


def trio(**arguments: object) -> tuple[Trio, Queue, Queue]:
    """A mirrored queue "q" that dead-letters to the plain queue "dead" on C; all by arguments."""
    world = Trio(is_declared=False, timers=True)
    world.apply(commands.SetPolicy("/", "p", "^q$", {"ha-mode": "all"}))
    named: dict[str, object] = {key.replace("_", "-"): value for key, value in arguments.items()}
    world.uid = world.declare("q", A, arguments=dead_letter("dead") | named).uid
    target = world.declare("dead", C)
    world.advance(100)
    return world, world.queue, target


def test_a_mirrored_queues_dead_wait_until_its_mirrors_know() -> None:
    """Else its next master would dead-letter the same messages again."""
    world, queue, target = trio(x_message_ttl=100)
    publish(world, queue, 1, 2)
    world.settle()
    assert world.depth(B) == 2
    world.cut |= {(A, B), (A, C)}
    world.advance(200)
    assert ready(world, target, C) == 0
    world.cut.clear()
    for node in (B, C):
        world.nodes[node].registry.ring_link_up(A)
        world.nodes[A].registry.ring_link_up(node)
    world.advance(3_000)
    assert ready(world, target, C) == 2
    assert len(world.digests()) == 1


def test_after_a_failover_the_times_go_on_and_nothing_dies_twice() -> None:
    """T1, T3.

    Rows: 1.4 per-queue TTL; 1.5 Delivery guarantee
    """
    world, queue, target = trio(x_message_ttl=1_000, x_max_length=3)
    publish(world, queue, 1, 2, 3, 4)
    world.advance(600)
    assert ready(world, target, C) == 1
    world.kill(A)
    world.advance(300)
    assert world.master == B
    assert ready(world, queue, B) == 3
    assert ready(world, target, C) == 1
    world.advance(300)
    assert ready(world, queue, B) == 0
    told = [(body, headers["x-death"][0]["reason"]) for body, headers in contents(world, target, C)]
    assert told == [(b"1", "maxlen"), (b"2", "expired"), (b"3", "expired"), (b"4", "expired")]


def test_a_new_master_keeps_the_limits() -> None:
    world, queue, _ = trio(x_max_length=2, x_overflow="reject-publish")
    publish(world, queue, 1, 2)
    world.settle()
    world.kill(A)
    world.advance(100)
    channel = publish(world, world.queue, 3, node=B)
    world.settle()
    assert channel.verdicts == [(3, False)]


# Quorum queues.


def quorum(
    *nodes: str, exchange: str = "amq.direct", **arguments: object
) -> tuple[World, Queue, Queue]:
    """A quorum queue "q" led by A whose dead go by `exchange` to the classic queue "dead" on B."""
    world = World(*(nodes or (A, B, C)), timers=True)
    named: dict[str, object] = {key.replace("_", "-"): value for key, value in arguments.items()}
    kind = AT_LEAST_ONCE | {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "k"}
    queue = world.declare("q", arguments=kind | named, members=tuple(world.nodes))
    target = world.declare("dead", B)
    world.lead(queue, A)
    world.settle()
    return world, queue, target


def bind(world: World, target: Queue, exchange: str = "amq.direct") -> None:
    world.apply(commands.Bind("/", exchange, "queue", target.name, "k", {}, target.uid, ""))
    world.settle()


def held(world: World, queue: Queue, node: str = A) -> int:
    return world.replicas[queue.uid][node].stat().ready


def test_every_replica_lets_a_message_expire_by_the_leaders_clock() -> None:
    """Rows: 1.16 TTL"""
    world, queue, target = quorum(x_message_ttl=200, x_dead_letter_strategy="at-most-once")
    bind(world, target)
    publish(world, queue, 1, 2)
    world.advance(190)
    assert [held(world, queue, node) for node in (A, B, C)] == [2, 2, 2]
    world.advance(30)
    assert [held(world, queue, node) for node in (A, B, C)] == [0, 0, 0]
    assert ready(world, target) == 2, "one leader publishes, not every replica"


def test_at_least_once_holds_a_message_until_its_target_has_it() -> None:
    """Rows: 1.18 worker; 1.18 reasons"""
    world, queue, target = quorum(x_message_ttl=100)
    bind(world, target)
    publish(world, queue, 1, 2)
    world.settle()
    world.cut |= {(A, B)}
    world.advance(500)
    assert held(world, queue) == 2, "they count while they are on their way"
    world.cut.clear()
    world.nodes[A].registry.link_up(B)
    world.advance(2_000)
    assert held(world, queue) == 0
    assert [body for body, _ in contents(world, target, B)] == [b"1", b"2"]


def test_what_has_no_route_is_kept_and_goes_when_there_is_one() -> None:
    """Rows: 1.18 worker"""
    world, queue, target = quorum(x_message_ttl=100)
    publish(world, queue, 1)
    world.advance(30_000)
    assert held(world, queue) == 1
    bind(world, target)
    world.advance(2_000)
    assert held(world, queue) == 0
    assert ready(world, target, B) == 1


def test_what_a_target_refuses_is_tried_again() -> None:
    """Rows: 1.18 worker"""
    world, queue, _ = quorum(x_message_ttl=100)
    full = world.declare("full", B, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    bind(world, full)
    publish(world, queue, 1, 2)
    world.advance(1_000)
    assert (held(world, queue), ready(world, full, B)) == (1, 1)
    assert [body for body, _ in contents(world, full, B)] == [b"1"]
    world.advance(10_000)
    assert held(world, queue) == 0
    assert [body for body, _ in contents(world, full, B)] == [b"2"]


def test_of_two_targets_only_the_one_that_refused_gets_it_again() -> None:
    world, queue, target = quorum(x_message_ttl=100)
    full = world.declare("full", B, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    bind(world, full)
    bind(world, target)
    publish(world, queue, 1)
    world.advance(20_000)
    assert (held(world, queue), ready(world, target, B)) == (1, 1)


def test_the_next_leader_goes_on_with_what_was_held() -> None:
    """T4: at least once, and a double only where a fault came between.

    Rows: 1.18 cycle
    """
    world, queue, target = quorum(x_message_ttl=100)
    publish(world, queue, 1, 2)
    world.advance(500)
    assert held(world, queue) == 2
    world.kill(A)
    bind(world, target)
    world.lead(queue, C)
    world.advance(2_000)
    assert held(world, queue, C) == 0
    assert [body for body, _ in contents(world, target, B)] == [b"1", b"2"]


def test_a_held_message_that_would_circle_is_let_go() -> None:
    """Rows: 1.18 cycle"""
    world, queue, _ = quorum(x_message_ttl=100)
    bind(world, queue)
    publish(world, queue, 1)
    world.advance(5_000)
    assert held(world, queue) == 0


KEPT: dict[str, object] = {
    "dead-letter-strategy": "at-least-once",
    "overflow": "reject-publish",
}
"""What of a policy makes a quorum queue hold what it can't hand on."""


def held_under(policy: dict[str, object]) -> tuple[World, Queue]:
    """A queue on three nodes that holds one expired message, by a policy that can be changed."""
    world = World(A, B, C, timers=True)
    arguments: dict[str, object] = {"x-queue-type": "quorum", "x-message-ttl": 100}
    queue = world.declare("q", arguments=arguments, members=(A, B, C))
    world.lead(queue, A)
    world.apply(commands.SetPolicy("/", "p", "^q$", policy))
    world.settle()
    publish(world, queue, 1)
    world.advance(500)
    assert held(world, queue) == 1
    return world, queue


def test_another_strategy_lets_go_what_is_held() -> None:
    """Rows: 1.18 change strategy"""
    once: dict[str, object] = {"dead-letter-exchange": "amq.direct"}
    world, queue = held_under(once | KEPT)
    world.apply(commands.SetPolicy("/", "p", "^q$", once))
    world.advance(100)
    assert [held(world, queue, node) for node in (A, B, C)] == [0, 0, 0]


def test_a_policy_reaches_every_replica_through_the_log() -> None:
    """Also where its entry was lost with the leader: the next one looks again."""
    world = World(A, B, C, timers=True)
    queue = world.declare_quorum()
    world.lead(queue, A)
    publish(world, queue, 1, 2, 3)
    world.settle()
    world.is_dropping = True
    world.apply(commands.SetPolicy("/", "p", "^q$", {"max-length": 1}))
    world.settle()
    assert held(world, queue) == 3
    world.is_dropping = False
    world.lead(queue, B)
    world.settle()
    assert [held(world, queue, node) for node in (A, B, C)] == [1, 1, 1]


def _ignore(result: object) -> None:
    pass


def test_messages_of_rejected_publishes_keep_their_body() -> None:
    """A message that never got in has no number; it goes its way all the same."""
    world = World(timers=True)
    target = world.declare("dead")
    full: dict[str, object] = {"x-max-length": 0, "x-overflow": "reject-publish-dlx"}
    queue = world.declare("q", arguments=dead_letter("dead") | full)
    world.nodes[A].registry.open(queue).publish([message(b"body")], None, Channel())
    world.settle()
    assert [body for body, _ in contents(world, target)] == [b"body"]


def test_a_lost_drop_of_dead_letters_is_proposed_again() -> None:
    """A leader refuses proposals when it has too many, or is about to hand over and then does not.

    Rows: 1.18 worker
    """
    world, queue, target = quorum(x_message_ttl=100)
    bind(world, target)
    world.cut |= {(B, A)}
    publish(world, queue, 1, 2)
    world.advance(500)
    assert (held(world, queue), ready(world, target, B)) == (2, 2)
    world.is_dropping = True
    world.cut.clear()
    world.nodes[A].registry.link_up(B)
    world.advance(5_000)
    assert held(world, queue) == 2
    world.is_dropping = False
    world.advance(3_000)
    assert [held(world, queue, node) for node in (A, B, C)] == [0, 0, 0]
    assert ready(world, target, B) == 2, "nothing is published again for that"


def test_what_was_let_go_is_not_published_later() -> None:
    """Rows: 1.18 change strategy"""
    once: dict[str, object] = {
        "dead-letter-exchange": "amq.direct",
        "dead-letter-routing-key": "k",
    }
    world, queue = held_under(once | KEPT)
    target = world.declare("dead", B)
    world.apply(commands.SetPolicy("/", "p", "^q$", once))
    world.advance(100)
    bind(world, target)
    world.advance(5_000)
    assert (held(world, queue), ready(world, target, B)) == (0, 0)


def test_what_is_held_goes_by_the_exchange_of_now() -> None:
    """Rows: 1.18 worker"""
    policy = KEPT | {"dead-letter-exchange": "missing", "dead-letter-routing-key": "dead"}
    world, queue = held_under(policy)
    target = world.declare("dead", B)
    world.apply(commands.SetPolicy("/", "p", "^q$", policy | {"dead-letter-exchange": ""}))
    world.advance(100)
    assert (held(world, queue), ready(world, target, B)) == (0, 1)


def test_of_many_that_wait_for_a_route_those_that_have_one_go() -> None:
    """A few are tried after each declare, all of them once one has found a way."""
    world, queue, target = quorum(x_message_ttl=100)
    publish(world, queue, *range(1, 1_501))
    world.advance(500)
    assert held(world, queue) == 1_500
    bind(world, target)
    world.advance(5_000)
    assert (held(world, queue), ready(world, target, B)) == (0, 1_500)


def test_a_node_that_serves_no_more_does_nothing_by_itself() -> None:
    """Its boot was ended: another life of it serves, and the old one's timers must not act."""
    world, queue = world_with(x_message_ttl=100, x_expires=500)
    publish(world, queue, 1)
    world.settle()
    world.nodes[A].registry.stop()
    assert [each for each in world.nodes[A].timers if not each.is_cancelled] == []


@pytest.mark.parametrize("sizes_mib", [(12, 5), (5, 12), (7, 10, 7, 10)])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_large_ones_that_die_together_all_come_to_a_queue_elsewhere(
    kind: str, sizes_mib: tuple[int, ...]
) -> None:
    """P12: what is more than 16 MiB at once would be refused; they are published at most once."""
    world = World(A, B, timers=True)
    queue = world.declare("q", A, arguments=dead_letter("t"))
    target = world.declare("t", B) if kind == "classic" else world.declare_quorum("t", B)
    if kind == "quorum":
        world.lead(target, B)
    handle, channel = world.nodes[A].registry.open(queue), Channel()
    handle.attach(world.nodes[A].spec("c"), channel, lambda _: None)
    for size_mib in sizes_mib:
        handle.publish([message(bytes(size_mib << 20))], None, channel)
    world.settle()
    numbers = [each.number for each in channel.delivered]
    handle.submit(Discard(world.nodes[A].channel_id(), "c", numbers))
    world.settle()
    assert ready(world, target, B) == len(sizes_mib)


def test_a_chain_of_queues_that_dead_letter_drains_however_much_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Publishers to them wait while much waits; what waits must not wait for itself."""
    monkeypatch.setattr(dead_letters, "BEHIND_BYTES", 100)
    world = World(timers=True)
    last = world.declare("c")
    middle = world.declare("b", arguments=dead_letter("c") | {"x-max-length": 1})
    first = world.declare("a", arguments=dead_letter("b") | {"x-max-length": 0})
    publish(world, first, *range(1, 2_500))
    assert world.nodes[A].registry.open(first).is_congested
    world.advance(100)
    assert not world.nodes[A].registry.open(first).is_congested
    assert (ready(world, middle), ready(world, last)) == (1, 2_498)
