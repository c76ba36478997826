"""x-delayed-message exchanges in group 0: what they need, and the store that lives with them."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import STORE_ARGUMENT, Queue
from broker.metadata.results import Declared
from tests.unit.metadata.cluster import BOOT_ONE, BOOT_TWO, ONE, TWO, Asker, founded, refusal

TYPE = "x-delayed-message"
DIRECT = {"x-delayed-type": "direct"}


def declared(asker: Asker, name: str = "later", **changes: object) -> Queue:
    assert asker.exchange(name, TYPE, arguments=DIRECT, **changes) is True
    store = asker.machine.catalogue.store("/", name)
    assert store is not None
    return store


def test_the_store_is_a_quorum_queue_at_the_members_the_proposer_chose():
    asker = founded()
    store = declared(asker, home=TWO, members=(ONE, TWO))
    assert (store.type, store.durable, store.home, store.members) == (
        "quorum", True, TWO, (ONE, TWO)
    )  # fmt: skip
    assert store.uid == asker.index
    assert store.delays_for == "later"
    assert asker.machine.take_changes().queues_added == [store]


@pytest.mark.parametrize("members", [(), ("rabbit@stranger", ONE)])
def test_without_a_valid_choice_the_store_goes_to_the_living(members):
    asker = founded()
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    assert declared(asker, home="rabbit@stranger", members=members).members == (ONE,)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        (
            {"x-delayed-type": 7},
            "Invalid argument, 'x-delayed-type' must be an existing exchange type",
        ),
        ({"x-delayed-type": "x-not-valid-type"}, "unknown exchange type 'x-not-valid-type'"),
        (
            {"x-delayed-type": TYPE},
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
    ],
)
def test_a_wrong_inner_type_is_406_in_the_plugins_words(arguments, text):
    """Row by row what rabbit_exchange_type_delayed_message:validate/1 says."""
    asker = founded()
    assert refusal(asker.exchange("later", TYPE, arguments=arguments)) == (406, text)
    assert asker.machine.catalogue.exchange("/", "later") is None
    assert asker.machine.catalogue.all_queues() == []


def test_a_second_declare_makes_no_second_store():
    asker = founded()
    store = declared(asker)
    assert asker.exchange("later", TYPE, arguments=DIRECT) is False
    assert asker.machine.catalogue.all_queues() == [store]


def test_no_name_leads_to_the_store_and_nothing_counts_it():
    asker = founded()
    store = declared(asker)
    catalogue = asker.machine.catalogue
    assert catalogue.queue("/", store.name) is None
    assert catalogue.queues() == []
    assert catalogue.queue_count("/") == 0
    assert catalogue.queue_by_uid(store.uid) == store
    assert catalogue.queues_on(store.home) == [store]
    route = catalogue.route("/", "", store.name, {})
    assert route is not None
    assert route.queues == ()
    assert refusal(asker.bind("amq.fanout", store.name)) == (
        404, "no queue 'amq.delayed.later' in vhost '/'"
    )  # fmt: skip
    assert refusal(asker.queue(store.name)) == (
        403, "queue name 'amq.delayed.later' contains reserved prefix 'amq.*'"
    )  # fmt: skip


def test_a_queue_limit_does_not_count_stores():
    asker = founded()
    asker.ask(commands.SetParameter("/", "vhost-limits", "limits", {"max-queues": 1}))
    declared(asker)
    assert isinstance(asker.queue("q", queue_limit=1), Declared)
    assert len(asker.machine.catalogue.all_queues()) == 2


def test_a_client_cannot_declare_a_store_by_its_argument():
    asker = founded()
    asker.queue("q", arguments={STORE_ARGUMENT: "amq.fanout"})
    found = asker.machine.catalogue.queue("/", "q")
    assert found is not None
    assert found.delays_for is None


def test_policies_for_everything_do_not_reach_the_store():
    asker = founded()
    before = declared(asker, "before")
    definition = {"message-ttl": 1, "max-length": 1}
    for operator in (False, True):
        policy = commands.SetPolicy("/", "all", ".*", definition, 0, "all", operator)
        asker.machine.take_changes()
        asker.ask(policy)
        assert asker.machine.take_changes().policy_queues == []
    for store in (before, declared(asker, "after")):
        assert asker.machine.catalogue.effective_policy(store) == {}


def delete(asker: Asker) -> None:
    asker.ask(commands.DeleteExchange("/", "later"))


def delete_vhost(asker: Asker) -> None:
    asker.ask(commands.DeleteVhost("/"))


def unbind_the_last(asker: Asker) -> None:
    asker.unbind("later", "q")


def stop_all(asker: Asker) -> None:
    asker.ask(commands.EndBoot(ONE, BOOT_ONE))
    asker.ask(commands.EndBoot(TWO, BOOT_TWO), boot=BOOT_TWO)
    asker.ask(commands.BootNode(ONE, "3" * 16, "127.0.0.1:1"))


@pytest.mark.parametrize("end", [delete, delete_vhost, unbind_the_last, stop_all])
def test_the_store_goes_with_its_exchange_whichever_way_that_goes(end):
    asker = founded()
    store = declared(asker, durable=False, auto_delete=True)
    asker.queue("q")
    asker.bind("later", "q")
    asker.machine.take_changes()
    end(asker)
    catalogue = asker.machine.catalogue
    assert catalogue.exchange("/", "later") is None
    assert catalogue.queue_by_uid(store.uid) is None
    assert store in asker.machine.take_changes().queues_removed
    assert store.uid not in [each.uid for each in catalogue.queues_on(ONE)]


def test_a_deleted_queue_of_clients_leaves_the_store_alone():
    asker = founded()
    store = declared(asker, auto_delete=False)
    asker.queue("q")
    asker.bind("later", "q")
    queue = asker.machine.catalogue.queue("/", "q")
    assert queue is not None
    asker.ask(commands.DeleteQueue(queue.uid))
    assert asker.machine.catalogue.all_queues() == [store]


def test_a_store_whose_only_node_was_forgotten_comes_back_empty_with_the_next_declare():
    asker = founded()
    store = declared(asker, home=TWO, members=(TWO,))
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    assert asker.ask(commands.ForgetNode(TWO)) is True
    catalogue = asker.machine.catalogue
    assert catalogue.store("/", "later") is None
    assert catalogue.exchange("/", "later") is not None
    assert asker.exchange("later", TYPE, arguments=DIRECT) is False
    found = catalogue.store("/", "later")
    assert found is not None
    assert found.uid > store.uid
    assert found.members == (ONE,)


def test_a_store_gives_up_a_forgotten_member():
    asker = founded()
    declared(asker, home=TWO, members=(ONE, TWO))
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    asker.ask(commands.ForgetNode(TWO))
    found = asker.machine.catalogue.store("/", "later")
    assert found is not None
    assert (found.home, found.members) == (ONE, (ONE,))


def test_a_snapshot_carries_stores():
    asker = founded()
    store = declared(asker)
    other = MetadataMachine()
    other.restore(asker.index, asker.machine.snapshot())
    assert other.catalogue.store("/", "later") == store
    assert other.catalogue.queues() == []
    assert other.snapshot() == asker.machine.snapshot()


def test_commands_from_before_the_store_still_read():
    old = commands.encode_request(
        "b", 1, 1, commands.DeclareExchange("/", "x", "fanout", True, False, False, {})
    )
    command = commands.decode_request(old).command
    assert isinstance(command, commands.DeclareExchange)
    assert (command.home, command.members) == ("", ())
