"""Boots and deaths of nodes (docs/protocol-rules.md P1, P2)."""

from __future__ import annotations

from broker.metadata import commands
from broker.metadata.machine import MetadataMachine
from tests.unit.metadata.cluster import BOOT_ONE, BOOT_TWO, ONE, TWO, Asker, founded, refusal


def test_a_boot_ends_all_that_lived_by_the_earlier_one():
    """P1: exclusive and transient queues go; durable and others' ones stay."""
    asker = founded()
    asker.queue("exclusive", exclusive_owner=f"{TWO}/{BOOT_TWO}/1", home=TWO)
    asker.queue("transient", durable=False, home=TWO)
    asker.queue("durable", home=TWO)
    asker.queue("elsewhere", durable=False, home=ONE)
    asker.bind("amq.fanout", "transient")
    asker.machine.take_changes()
    asker.ask(commands.BootNode(TWO, "3" * 16, "127.0.0.1:3"), boot="3" * 16)
    changes = asker.machine.take_changes()
    assert {queue.name for queue in changes.queues_removed} == {"exclusive", "transient"}
    assert changes.boots_ended == [(TWO, BOOT_TWO)]
    node = asker.machine.catalogue.node(TWO)
    assert node is not None
    assert (node.boot, node.alive, node.address) == ("3" * 16, True, "127.0.0.1:3")


def test_death_is_one_command_and_a_stale_one_does_nothing():
    """P2, and the death of a boot that has been followed by another."""
    asker = founded()
    asker.queue("transient", durable=False, home=TWO)
    assert asker.ask(commands.EndBoot(TWO, "9" * 16)) is False
    assert asker.ask(commands.EndBoot(TWO, BOOT_TWO)) is True
    assert asker.ask(commands.EndBoot(TWO, BOOT_TWO)) is False
    node = asker.machine.catalogue.node(TWO)
    assert node is not None
    assert (node.boot, node.alive) == (None, False)
    assert asker.machine.catalogue.queue("/", "transient") is None


def test_durable_queue_of_a_dead_node_is_unreachable():
    asker = founded()
    asker.queue("q", home=TWO)
    asker.queue("r", home=TWO, members=(ONE, TWO), arguments={"x-queue-type": "quorum"})
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    catalogue = asker.machine.catalogue
    assert [catalogue.is_reachable(queue) for queue in catalogue.queues()] == [False, True]


def test_an_ended_boot_can_not_begin_again():
    """A late copy of BootNode must not end the boot that followed."""
    asker = founded()
    asker.ask(commands.BootNode(TWO, "3" * 16, "h:3"))
    assert refusal(asker.ask(commands.BootNode(TWO, BOOT_TWO, "h:2")))[0] == 541
    assert asker.machine.catalogue.is_living(TWO, "3" * 16)


def test_the_same_boot_twice_changes_nothing():
    asker = founded()
    asker.queue("q", durable=False)
    before = asker.machine.catalogue.nodes()
    assert asker.ask(commands.BootNode(ONE, BOOT_ONE, "127.0.0.1:1")) is None
    assert asker.machine.catalogue.nodes() == before
    assert asker.machine.catalogue.queue("/", "q") is not None


def test_requests_of_an_ended_boot_are_refused():
    asker = founded()
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    assert refusal(asker.ask(commands.AddVhost("v"), boot=BOOT_TWO))[0] == 541
    assert asker.machine.catalogue.vhost("v") is None


def test_transient_exchanges_go_when_the_whole_cluster_had_stopped():
    asker = founded()
    asker.exchange("t", durable=False)
    asker.queue("q")
    asker.bind("t", "q")
    asker.ask(commands.BootNode(TWO, "3" * 16, "h:3"))
    assert asker.machine.catalogue.exchange("/", "t") is not None
    asker.ask(commands.EndBoot(TWO, "3" * 16))
    asker.ask(commands.BootNode(ONE, "4" * 16, "h:4"))
    assert asker.machine.catalogue.exchange("/", "t") is None
    assert asker.machine.catalogue.bindings("/") == []


def test_the_last_node_of_a_stop_cannot_say_that_it_stops():
    """Whichever of three boots first, the record says that the last one to stop still lives.

    Rows: 1.10 durability
    """
    three, boots = "rabbit@node3", ("3" * 16, "4" * 16)
    for first in (ONE, TWO, three):
        asker = founded()
        asker.ask(commands.JoinNode(three, "h:3"))
        asker.exchange("begun", durable=False)
        asker.ask(commands.BootNode(three, boots[0], "h:3"))
        assert asker.machine.catalogue.exchange("/", "begun") is not None, "one more is no stop"
        for node, boot in ((ONE, BOOT_ONE), (TWO, BOOT_TWO)):
            assert asker.ask(commands.EndBoot(node, boot), boot=boots[0]) is True
        asker.ask(commands.BootNode(first, boots[1], "h:4"), boot=boots[1])
        assert asker.machine.catalogue.exchange("/", "begun") is None


def test_a_rolling_restart_keeps_transient_exchanges():
    asker = founded()
    asker.ask(commands.JoinNode("rabbit@node3", "h:3"))
    asker.ask(commands.BootNode("rabbit@node3", "3" * 16, "h:3"))
    asker.exchange("t", durable=False)
    for number, node in enumerate((ONE, TWO, "rabbit@node3"), 4):
        boot = f"{number}" * 16
        asker.ask(commands.BootNode(node, boot, "h:4"), boot=boot)
    assert asker.machine.catalogue.exchange("/", "t") is not None


def test_the_leader_knows_better_than_the_records_whether_all_had_stopped():
    """P1: the entry says it, so every replica does the same, and an earlier entry as ever."""
    three = "rabbit@node3"
    asker = founded()
    asker.ask(commands.JoinNode(three, "h:3"))
    asker.exchange("t", durable=False)
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    asker.ask(commands.BootNode(three, "3" * 16, "h:3", is_first=False))
    assert asker.machine.catalogue.exchange("/", "t") is not None, "one of two others served"
    asker.ask(commands.BootNode(TWO, "4" * 16, "h:2", is_first=True))
    assert asker.machine.catalogue.exchange("/", "t") is None, "two others were killed unheard"


def test_a_boot_that_was_the_first_is_so_once():
    """P3: a retry is in the log twice, and may come late."""
    asker = founded()
    begin = commands.BootNode(TWO, "3" * 16, "h:2", is_first=True)
    asker.ask(begin)
    asker.exchange("t", durable=False)
    asker.ask(begin)
    asker.ask(commands.BootNode(TWO, "4" * 16, "h:2", is_first=False))
    assert refusal(asker.ask(begin))[0] == 541
    assert asker.machine.catalogue.exchange("/", "t") is not None


def test_join_forget_and_strangers():
    asker = founded()
    three = "rabbit@node3"
    assert refusal(asker.ask(commands.BootNode(three, "5" * 16, "h:5")))[0] == 530
    assert asker.ask(commands.JoinNode(three, "h:5")) is True
    assert asker.ask(commands.JoinNode(three, "h:5")) is False
    assert asker.ask(commands.BootNode(three, "5" * 16, "h:5")) is None
    asker.queue("classic", home=three)
    asker.queue("quorum", home=three, members=(three, ONE), arguments={"x-queue-type": "quorum"})
    asker.queue("mine")
    assert refusal(asker.ask(commands.ForgetNode(three)))[0] == 406
    asker.ask(commands.EndBoot(three, "5" * 16))
    assert asker.ask(commands.ForgetNode(three)) is True
    assert asker.ask(commands.ForgetNode(three)) is False
    left = {queue.name: (queue.home, queue.members) for queue in asker.machine.catalogue.queues()}
    assert left == {"quorum": (ONE, (ONE,)), "mine": (ONE, (ONE,))}


def test_bootstrap_happens_once():
    asker = Asker(MetadataMachine())
    found = commands.Bootstrap("id", "name", ((ONE, "h:1"),))
    assert asker.ask(found) is None
    assert asker.ask(found) is None
    other = commands.Bootstrap("other", "name", ((TWO, "h:2"),))
    assert refusal(asker.ask(other))[0] == 406
    catalogue = asker.machine.catalogue
    assert catalogue.cluster_id == "id"
    assert [node.name for node in catalogue.nodes()] == [ONE]
    assert catalogue.permission("guest", "/") is not None
