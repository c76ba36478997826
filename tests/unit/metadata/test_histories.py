"""The hidden store of an x-recent-history exchange is made and deleted with it."""

from __future__ import annotations

from broker.metadata import commands
from broker.metadata.machine import MetadataMachine
from tests.unit.metadata.cluster import ONE, TWO, Asker, founded

NO_STORE = {"x-recent-history-no-store": True}


def founded_with_history(**arguments: object) -> Asker:
    asker = founded()
    asker.exchange("h", "x-recent-history", arguments=arguments)
    return asker


def test_store_is_a_quorum_queue_as_long_as_the_exchange_says():
    asker = founded_with_history(**{"x-recent-history-length": 3})
    store = asker.machine.catalogue.store("/", "h")
    assert store is not None
    assert (store.type, store.members, store.keeps_for) == ("quorum", (ONE, TWO), "h")
    assert store.delays_for is None
    assert store.arguments["x-max-length"] == 3
    assert founded_with_history().machine.catalogue.store("/", "h").arguments["x-max-length"] == 20


def test_no_client_meets_the_store():
    asker = founded_with_history()
    catalogue = asker.machine.catalogue
    assert catalogue.queues() == []
    assert catalogue.queue("/", "amq.history.h") is None
    assert catalogue.route("/", "", "amq.history.h").queues == ()
    asker.ask(commands.SetPolicy("/", "p", ".*", {"max-length": 1}, 0, "all"))
    assert catalogue.effective_policy(catalogue.store("/", "h")) == {}


def test_messages_go_to_the_store_beside_the_queues_unless_they_say_no():
    asker = founded_with_history()
    asker.queue("q")
    asker.bind("h", "q")
    asker.exchange("front", "fanout")
    asker.bind("front", "h", kind="exchange")
    catalogue = asker.machine.catalogue
    for exchange in ("h", "front"):
        assert catalogue.looks_inside("/", exchange)
        route = catalogue.route("/", exchange, "k", {})
        assert [queue.name for queue in route.queues] == ["q"]
        assert route.stores == (catalogue.store("/", "h"),)
        assert catalogue.route("/", exchange, "k", NO_STORE).stores == ()


def test_only_new_bindings_are_told_of():
    asker = founded_with_history()
    asker.queue("q")
    asker.machine.take_changes()
    asker.bind("h", "q")
    asker.bind("h", "q")
    asker.bind("amq.fanout", "q")
    (binding,) = asker.machine.take_changes().history_bindings
    assert (binding.source, binding.destination) == ("h", "q")


def test_store_goes_with_its_exchange_and_survives_a_snapshot():
    asker = founded_with_history()
    restored = MetadataMachine()
    restored.restore(asker.index, asker.machine.snapshot())
    assert restored.snapshot() == asker.machine.snapshot()
    store = restored.catalogue.store("/", "h")
    assert restored.catalogue.route("/", "h", "k", {}).stores == (store,)
    asker.machine.take_changes()
    asker.ask(commands.DeleteExchange("/", "h", False))
    assert asker.machine.take_changes().queues_removed == [store]
    assert asker.machine.catalogue.all_queues() == []
