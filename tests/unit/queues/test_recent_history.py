"""Replays of x-recent-history: to a queue that was bound, or through an exchange."""

from __future__ import annotations

import msgspec
import pytest

from broker.amqp.content import Properties, build_message
from broker.message import Delivery, Message
from broker.metadata import commands
from broker.metadata.records import Binding, Queue
from broker.queues import recent_history
from broker.queues.recent_history import BATCH_MESSAGES_MAX, RecentHistoryReplayer
from tests.unit.metadata.cluster import Asker, founded
from tests.unit.queues import rig


class Place:
    """A catalogue, a store's messages, and what reaches the queues."""

    def __init__(self, kept: list[Message], *, is_led_here: bool = True) -> None:
        self.asker: Asker = founded()
        self.asker.exchange("h", "x-recent-history")
        self.kept = kept
        self.is_led_here = is_led_here
        self.has_no_leader = False
        self.has_lease = True
        self.got: dict[str, list[Message]] = {}
        catalogue = self.asker.machine.catalogue
        context = rig.bare_context(catalogue, rig.Clock(), print, has_lease=lambda: self.has_lease)
        self.replayer = RecentHistoryReplayer(context, self, self)  # type: ignore[arg-type]

    def is_leaderless(self, uid: int) -> bool:
        return self.has_no_leader

    def quorum_here(self, uid: int) -> Place | None:
        store = self.asker.machine.catalogue.store("/", "h")
        assert store is not None
        assert uid == store.uid
        return self if self.is_led_here else None

    def peek(self, first: int, count: int) -> list[Delivery]:
        some = self.kept[first : first + count]
        return [Delivery(number, 0, message) for number, message in enumerate(some, first)]

    def replay(self, queue: Queue, messages: list[Message]) -> None:
        self.got.setdefault(queue.name, []).extend(messages)

    def bind(self, destination: str, kind: str = "queue") -> None:
        self.asker.bind("h", destination, kind=kind)
        self.replayer.replay(Binding("/", "h", kind, destination, "", {}))

    def bodies(self, queue: str) -> list[str]:
        return [message.routing_key for message in self.got.get(queue, [])]


def message(key: str, **properties: object) -> Message:
    return build_message("h", key, Properties(**properties), b"")


def test_a_queue_gets_all_of_it_oldest_first():
    place = Place([message(str(n)) for n in range(BATCH_MESSAGES_MAX + 5)])
    place.asker.queue("q")
    place.bind("q")
    assert place.bodies("q") == [str(n) for n in range(BATCH_MESSAGES_MAX + 5)]


def test_an_exchange_routes_it_on():
    place = Place([message("a"), message("b")])
    place.asker.exchange("x", "direct")
    for queue in ("q1", "q2"):
        place.asker.queue(queue)
    place.asker.bind("x", "q1", "a")
    place.asker.bind("x", "q2", "b")
    place.bind("x", "exchange")
    assert (place.bodies("q1"), place.bodies("q2")) == (["a"], ["b"])


def test_time_to_live_begins_anew():
    kept = msgspec.structs.replace(message("k", expiration="500"), ttl_ms=-1, expires_ms=7)
    place = Place([kept])
    place.asker.queue("q")
    place.bind("q")
    (found,) = place.got["q"]
    assert (found.ttl_ms, found.expires_ms) == (500, 0)


def test_nothing_is_told_where_the_store_is_led_by_another_node():
    place = Place([message("k")], is_led_here=False)
    place.asker.queue("q")
    place.bind("q")
    place.is_led_here = True
    place.replayer.try_again()
    assert place.got == {}


def test_a_binding_waits_for_the_lease():
    place = Place([message("k")])
    place.has_lease = False
    place.asker.queue("q")
    place.bind("q")
    place.replayer.try_again()
    assert place.got == {}
    place.has_lease = True
    place.replayer.try_again()
    place.replayer.try_again()
    assert place.bodies("q") == ["k"]


def test_a_binding_waits_for_a_leader_and_only_the_leader_tells():
    places = [Place([message("k")], is_led_here=False) for _ in range(2)]
    for place in places:
        place.has_no_leader = True
        place.asker.queue("q")
        place.bind("q")
        place.replayer.try_again()
        assert place.got == {}
        place.has_no_leader = False
    places[0].is_led_here = True
    for place in places:
        place.replayer.try_again()
    places[1].is_led_here = True  # it leads later
    places[1].replayer.try_again()
    assert (places[0].bodies("q"), places[1].bodies("q")) == (["k"], [])


def test_what_was_unbound_while_it_waited_gets_nothing():
    place = Place([message("k")])
    place.has_no_leader = True
    place.asker.queue("q")
    place.bind("q")
    place.asker.unbind("h", "q")
    place.has_no_leader = False
    place.replayer.try_again()
    assert place.got == {}


def test_what_is_gone_meanwhile_gets_nothing():
    place = Place([message("k")])
    place.replayer.replay(Binding("/", "h", "queue", "gone", "", {}))
    place.replayer.replay(Binding("/", "h", "exchange", "gone", "", {}))
    place.replayer.replay(Binding("/", "gone", "queue", "q", "", {}))
    assert place.got == {}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_all_of_a_history_larger_than_a_node_may_hold_comes_to_a_queue_elsewhere(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P12: what is more than 16 MiB at once would be refused, and so gone."""
    monkeypatch.setattr(recent_history, "BATCH_MESSAGES_MAX", 10)
    world = rig.World(rig.A, rig.B)
    length: dict[str, object] = {"x-recent-history-length": 20}
    exchange = ("/", "h", "x-recent-history", True, False, False, length)
    world.apply(commands.DeclareExchange(*exchange, rig.A, (rig.A, rig.B)))
    store = world.catalogue.store("/", "h")
    assert store is not None
    world.lead(store, rig.A)
    world.settle()
    for _ in range(20):
        handle = world.nodes[rig.A].registry.open(store)
        handle.publish([rig.message(bytes(1 << 20))], None, rig.Channel())
        world.settle()
    queue = world.declare("t", rig.B) if kind == "classic" else world.declare_quorum("t", rig.B)
    if kind == "quorum":
        world.lead(queue, rig.B)
    world.apply(commands.Bind("/", "h", "queue", "t", "", {}, queue.uid, ""))
    world.settle()
    stats: list[object] = []
    world.nodes[rig.B].registry.stat_here(queue.uid, stats.append)
    assert getattr(stats[0], "ready", None) == 20
