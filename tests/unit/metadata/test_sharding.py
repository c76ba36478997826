"""Sharded exchanges: queues on every living node, made in the entry that asks for them."""

from __future__ import annotations

import pytest

from broker.errors import Refusal
from broker.metadata import commands
from broker.metadata.applying import sharding
from broker.metadata.machine import MetadataMachine
from tests.unit.metadata.cluster import BOOT_ONE, BOOT_TWO, ONE, TWO, Asker, founded


def shard(asker: Asker, definition: dict[str, object], name: str = "sharded") -> object:
    command = commands.SetPolicy("/", name, r"^shard\.", definition, 0, "exchanges")
    return asker.ask(command)


TWO_EACH = {"shards-per-node": 2, "routing-key": "1234"}


def shards(asker: Asker, exchange: str = "shard.a") -> list[str]:
    return [each.name for each in asker.machine.catalogue.shards("/", exchange)]


def all_shards(*nodes: str, count: int = 2) -> list[str]:
    return [sharding.shard_name("shard.a", node, n) for node in nodes for n in range(count)]


@pytest.mark.parametrize("is_policy_first", [True, False])
def test_policy_and_exchange_in_any_order_give_queues_on_all_nodes(is_policy_first):
    asker = founded()
    for is_policy in (is_policy_first, not is_policy_first):
        if is_policy:
            shard(asker, TWO_EACH)
        else:
            asker.exchange("shard.a", "x-modulus-hash")
    assert shards(asker) == all_shards(ONE, TWO)
    found = asker.machine.catalogue.shards("/", "shard.a")
    assert [queue.home for queue in found] == [ONE, ONE, TWO, TWO]
    assert len({queue.uid for queue in found}) == 4
    assert all(queue.durable and queue.type == "classic" for queue in found)
    assert {each.routing_key for each in asker.machine.catalogue.bindings("/")} == {"1234"}
    assert {queue.name for queue in asker.machine.take_changes().queues_added} >= set(shards(asker))


def test_a_node_that_boots_gets_its_shards():
    asker = founded()
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    shard(asker, TWO_EACH)
    asker.exchange("shard.a", "x-modulus-hash")
    assert shards(asker) == all_shards(ONE)
    asker.ask(commands.BootNode(TWO, "3" * 16, "two:1"))
    assert shards(asker) == all_shards(ONE, TWO)


def test_each_message_goes_to_one_shard_and_all_shards_get_some():
    asker = founded()
    shard(asker, TWO_EACH)
    asker.exchange("shard.a", "x-modulus-hash")
    catalogue = asker.machine.catalogue
    seen = set()
    for number in range(100):
        route = catalogue.route("/", "shard.a", str(number))
        assert route is not None
        assert len(route.queues) == 1
        seen.add(route.queues[0].name)
    assert seen == set(shards(asker))


def test_more_shards_are_added_and_fewer_take_none_away():
    asker = founded()
    asker.exchange("shard.a", "x-modulus-hash")
    shard(asker, {"shards-per-node": 1})
    assert shards(asker) == all_shards(ONE, TWO, count=1)
    shard(asker, {"shards-per-node": 3})
    assert shards(asker) == all_shards(ONE, TWO, count=3)
    shard(asker, {"shards-per-node": 1})
    assert shards(asker) == all_shards(ONE, TWO, count=3)


def test_another_routing_key_binds_anew_and_no_policy_unbinds():
    asker = founded()
    catalogue = asker.machine.catalogue
    asker.exchange("shard.a", "x-modulus-hash", auto_delete=True)
    shard(asker, TWO_EACH)
    shard(asker, {**TWO_EACH, "routing-key": "new"})
    assert {each.routing_key for each in catalogue.bindings("/")} == {"new"}
    assert len(shards(asker)) == 4
    asker.ask(commands.ClearPolicy("/", "sharded"))
    assert catalogue.bindings("/") == []
    assert catalogue.exchange("/", "shard.a") is None  # auto_delete
    assert catalogue.queue("/", all_shards(ONE)[0]) is not None


def test_shards_outlive_their_exchange_and_are_bound_to_its_next():
    asker = founded()
    catalogue = asker.machine.catalogue
    shard(asker, TWO_EACH)
    asker.exchange("shard.a", "x-modulus-hash")
    before = {queue.uid for queue in catalogue.shards("/", "shard.a")}
    asker.ask(commands.DeleteExchange("/", "shard.a", False))
    assert shards(asker) == []
    asker.exchange("shard.a", "x-modulus-hash")
    assert {queue.uid for queue in catalogue.shards("/", "shard.a")} == before


def test_exchanges_of_the_server_are_never_sharded():
    asker = founded()
    command = commands.SetPolicy("/", "all", ".*", {"shards-per-node": 1}, 0, "all")
    asker.ask(command)
    assert asker.machine.catalogue.queues() == []


def test_what_can_not_be_made_is_left_out():
    """The limit on queues, a name that is too long, a key the exchange's type does not take."""
    asker = founded()
    asker.ask(commands.SetParameter("/", "vhost-limits", "limits", {"max-queues": 3}))
    shard(asker, TWO_EACH)
    asker.exchange("shard.a", "x-modulus-hash")
    asker.exchange("shard." + "a" * 240, "x-modulus-hash")
    assert len(asker.machine.catalogue.queues()) == 3
    asker.ask(commands.SetParameter("/", "vhost-limits", "limits", {}))
    shard(asker, {"shards-per-node": 1, "routing-key": "no number"})
    asker.exchange("shard.hash", "x-consistent-hash")
    assert shards(asker, "shard.hash") == []
    asker.exchange("shard.long." + "a" * 230, "x-modulus-hash")
    assert shards(asker, "shard.long." + "a" * 230) == []


def test_a_restored_machine_goes_on_alike():
    asker = founded()
    shard(asker, TWO_EACH)
    asker.exchange("shard.a", "x-modulus-hash")
    restored = MetadataMachine()
    restored.restore(asker.index, asker.machine.snapshot())
    assert restored.catalogue.sharded() == asker.machine.catalogue.sharded()
    for machine in (asker.machine, restored):
        other = Asker(machine, BOOT_ONE, index=asker.index)
        other.number = asker.number
        shard(other, {"shards-per-node": 3, "routing-key": "k"})
    assert restored.snapshot() == asker.machine.snapshot()
    for key in map(str, range(50)):
        assert restored.catalogue.route("/", "shard.a", key) == asker.machine.catalogue.route(
            "/", "shard.a", key
        )


def test_a_consumer_gets_the_shard_with_the_fewest_and_rather_one_nearby():
    asker = founded()
    shard(asker, TWO_EACH)
    asker.exchange("shard.a", "x-modulus-hash")
    found = asker.machine.catalogue.shards("/", "shard.a")
    counts = dict.fromkeys((queue.uid for queue in found), 0)
    picked = []
    for _ in range(5):
        queue = sharding.pick(found, TWO, counts.__getitem__)
        counts[queue.uid] += 1
        picked.append(queue.name)
    assert picked == [*all_shards(TWO), *all_shards(ONE), all_shards(TWO)[0]]


def test_refusal_is_the_plugins():
    found = sharding.refusal("purge", "shard.a")
    assert isinstance(found, Refusal)
    assert found.text == 'Can\'t purge sharded queue: <<"shard.a">>'
