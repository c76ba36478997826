"""Declaring and deleting queues: RabbitMQ's results and refusals."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from broker.metadata.results import Declared
from tests.unit.metadata.cluster import BOOT_ONE, BOOT_TWO, ONE, TWO, founded, refusal

OWNER = f"{ONE}/{BOOT_ONE}/7"
QUORUM = {"x-queue-type": "quorum"}
LOCKED = (
    405,
    "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the "
    "original declaration.",
)


def test_uid_is_the_index_of_the_declaring_entry():
    asker = founded()
    first = asker.queue("q")
    assert isinstance(first, Declared)
    assert first.created
    assert first.queue.uid == asker.index
    again = asker.queue("q")
    assert again == Declared(first.queue, created=False)


def test_delete_hits_one_incarnation_only():
    """P3: a late delete can't remove the redeclared namesake."""
    asker = founded()
    asker.queue("q")
    old = asker.index
    assert asker.ask(commands.DeleteQueue(old)) is True
    asker.queue("q")
    assert asker.ask(commands.DeleteQueue(old)) is False
    assert asker.machine.catalogue.queue("/", "q") is not None


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({}, {"durable": False}, "inequivalent arg 'durable' for queue 'q' in vhost '/': "
         "received 'false' but current is 'true'"),
        ({}, {"auto_delete": True}, "inequivalent arg 'auto_delete' for queue 'q' in vhost '/': "
         "received 'true' but current is 'false'"),
        ({"arguments": {"x-message-ttl": 60000}}, {},
         "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
         "received none but current is the value '60000' of type 'signedint'"),
        ({}, {"arguments": {"x-message-ttl": 60000}},
         "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
         "received the value '60000' of type 'signedint' but current is none"),
        ({"arguments": {"x-max-length": 5}}, {"arguments": {"x-max-length": 6}},
         "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': "
         "received '6' but current is '5'"),
        ({}, {"arguments": QUORUM},
         "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': "
         "received the value 'quorum' of type 'longstr' but current is none"),
        ({"arguments": {"x-overflow": "drop-head"}},
         {"arguments": {"x-overflow": "reject-publish"}},
         "inequivalent arg 'x-overflow' for queue 'q' in vhost '/': "
         "received 'reject-publish' but current is 'drop-head'"),
        *[({"arguments": {"x-message-ttl": 10}}, {"arguments": {"x-message-ttl": other}},
           "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
           f"received '{shown}' but current is '10'")
          for other, shown in [
              (10.0, "10.0"), (60_000.0, "6.0e4"), (True, "true"), ("10", "10"), (b"10", "10"),
              ([10], "[{signedint,10}]"), ({"a": ["b", 1.5]}, '[{<<"a">>,array,[{longstr,'
               '<<"b">>},{double,1.5}]}]'),
          ]],
        *[({"arguments": {key: 5}}, {"arguments": {key: 5.0}},
           f"inequivalent arg '{key}' for queue 'q' in vhost '/': "
           "received '5.0' but current is '5'")
          for key in ("x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority")],
        ({"arguments": {"x-single-active-consumer": True}},
         {"arguments": {"x-single-active-consumer": 1}},
         "inequivalent arg 'x-single-active-consumer' for queue 'q' in vhost '/': "
         "received '1' but current is 'true'"),
    ],
)  # fmt: skip
def test_redeclare_with_another_meaning_is_406(first, second, text):
    asker = founded()
    asker.queue("q", **first)
    assert refusal(asker.queue("q", **second)) == (406, text)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"arguments": {"x-queue-type": "classic"}}),
        ({"arguments": {"x-queue-type": "classic"}}, {}),
        ({}, {"arguments": {"x-unknown": 1}}),
        ({"arguments": {"x-queue-mode": "lazy"}}, {"arguments": {"x-queue-mode": "lazy"}}),
    ],
)
def test_redeclare_with_the_same_meaning_is_ok(first, second):
    asker = founded()
    asker.queue("q", **first)
    assert isinstance(asker.queue("q", **second), Declared)


def test_exclusive_queue_is_never_durable_and_belongs_to_one_connection():
    asker = founded()
    made = asker.queue("q", exclusive_owner=OWNER)
    assert isinstance(made, Declared)
    assert not made.queue.durable
    assert isinstance(asker.queue("q", exclusive_owner=OWNER), Declared)
    assert isinstance(asker.queue("q", exclusive_owner=OWNER, durable=False), Declared)
    assert refusal(asker.queue("q", exclusive_owner=f"{ONE}/{BOOT_ONE}/8")) == LOCKED
    assert refusal(asker.queue("q")) == LOCKED


def test_exclusive_redeclare_of_a_shared_queue_is_405():
    asker = founded()
    asker.queue("q")
    assert refusal(asker.queue("q", exclusive_owner=OWNER)) == LOCKED


def test_close_connection_deletes_its_exclusive_queues_with_their_bindings():
    asker = founded()
    asker.queue("mine", exclusive_owner=OWNER)
    asker.queue("other", exclusive_owner=f"{ONE}/{BOOT_ONE}/70")
    asker.bind("amq.fanout", "mine", connection=OWNER)
    asker.machine.take_changes()
    assert asker.ask(commands.EndConnection(OWNER)) == 1
    assert [queue.name for queue in asker.machine.take_changes().queues_removed] == ["mine"]
    assert asker.machine.catalogue.bindings("/") == []
    assert asker.ask(commands.EndConnection(OWNER)) == 0
    assert asker.machine.catalogue.queue("/", "other") is not None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"auto_delete": True, "exclusive_owner": OWNER, "durable": False}, "auto-delete"),
        ({"exclusive_owner": OWNER, "durable": False}, "exclusive-owner"),
        ({"durable": False}, "non-durable"),
    ],
)
def test_quorum_queue_refuses_properties_in_rabbitmqs_order(changes, word):
    result = founded().queue("q", arguments=QUORUM, **changes)
    assert refusal(result) == (406, f"invalid property '{word}' for queue 'q' in vhost '/'")


def test_server_named_quorum_queue_is_406_and_reserved_names_are_403():
    asker = founded()
    assert refusal(asker.queue("amq.gen-x", arguments=QUORUM, server_named=True)) == (
        406,
        "Cannot declare a server-named queue for type rabbit_quorum_queue",
    )
    assert refusal(asker.queue("amq.mine")) == (
        403,
        "queue name 'amq.mine' contains reserved prefix 'amq.*'",
    )
    assert isinstance(asker.queue("amq.gen-x", server_named=True), Declared)
    assert isinstance(asker.queue("amq.gen-x"), Declared)


def test_default_queue_type_is_filled_in_where_it_fits():
    asker = founded()
    asker.ask(commands.AddVhost("v", default_queue_type="quorum"))
    durable = asker.queue("d", vhost="v", members=(ONE, TWO))
    transient = asker.queue("t", vhost="v", durable=False)
    assert isinstance(durable, Declared)
    assert isinstance(transient, Declared)
    assert (durable.queue.type, durable.queue.arguments) == ("quorum", QUORUM)
    assert durable.queue.members == (ONE, TWO)
    assert transient.queue.type == "classic"
    assert isinstance(asker.queue("d", vhost="v"), Declared)


def test_vhost_queue_limit_counts_new_queues_only():
    asker = founded()
    asker.ask(commands.SetParameter("/", "vhost-limits", "limits", {"max-queues": 1}))
    asker.queue("q")
    assert isinstance(asker.queue("q"), Declared)
    assert refusal(asker.queue("r")) == (
        406,
        "cannot declare queue 'r': queue limit in vhost '/' (1) is reached",
    )
    asker.ask(commands.SetParameter("/", "vhost-limits", "limits", {"max-queues": -1}))
    assert isinstance(asker.queue("r"), Declared)


def test_the_limit_of_a_cluster_counts_the_queues_of_all_vhosts():
    asker = founded()
    asker.ask(commands.AddVhost("v"))
    asker.queue("q")
    asker.queue("r", vhost="v", queue_limit=2)
    assert isinstance(asker.queue("q", queue_limit=2), Declared)
    assert refusal(asker.queue("s", vhost="v", queue_limit=2)) == (
        406,
        "cannot declare queue 's': queue limit in cluster (2) is reached",
    )
    assert refusal(asker.queue("s", queue_limit=0))[0] == 406
    assert isinstance(asker.queue("s", queue_limit=3), Declared)
    assert isinstance(asker.queue("t"), Declared)


def test_the_limit_of_a_vhost_is_told_before_that_of_the_cluster():
    asker = founded()
    asker.ask(commands.SetParameter("/", "vhost-limits", "limits", {"max-queues": 0}))
    assert "limit in vhost" in refusal(asker.queue("q", queue_limit=0))[1]


def test_nothing_is_placed_on_a_dead_node_or_owned_by_a_dead_boot():
    asker = founded()
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    assert refusal(asker.queue("q", home=TWO))[0] == 541
    assert refusal(asker.queue("q", exclusive_owner=f"{TWO}/{BOOT_TWO}/1"))[0] == 541
    assert refusal(asker.queue("q", arguments=QUORUM, members=(ONE, "rabbit@x")))[0] == 541
    assert asker.machine.catalogue.queues() == []


def test_note_leader_and_move_members_name_the_incarnation():
    asker = founded()
    asker.queue("q", arguments=QUORUM, members=(ONE, TWO))
    uid = asker.index
    version = asker.machine.catalogue.version
    asker.machine.take_changes()
    asker.ask(commands.NoteLeader(((uid, TWO), (999, TWO), (uid, "rabbit@stranger"))))
    changed = asker.machine.take_changes().queues_changed
    assert [queue.home for queue in changed] == [TWO]
    assert asker.machine.catalogue.version > version
    assert asker.ask(commands.MoveMembers(uid, (TWO,))) is True
    assert asker.ask(commands.MoveMembers(999, (TWO,))) is False
    queue = asker.machine.catalogue.queue_by_uid(uid)
    assert queue is not None
    assert queue.members == (TWO,)


def test_replicas_are_changed_from_those_that_were_seen_alone():
    """Two that each add one: the second would undo the first."""
    asker = founded()
    asker.queue("q", arguments=QUORUM, members=(ONE,))
    uid = asker.index
    assert asker.ask(commands.MoveMembers(uid, (ONE, TWO), expected=(ONE,))) is True
    assert asker.ask(commands.MoveMembers(uid, (ONE,), expected=(ONE,))) is False
    assert asker.machine.catalogue.queue_by_uid(uid).members == (ONE, TWO)


def test_a_forgotten_node_gets_no_replica():
    """Not from a request that was made before it went, either: nobody would take it away again."""
    asker = founded()
    asker.queue("q", arguments=QUORUM, members=(ONE,))
    late = commands.MoveMembers(asker.index, (ONE, TWO), expected=(ONE,))
    asker.ask(commands.EndBoot(TWO, BOOT_TWO))
    asker.ask(commands.ForgetNode(TWO))
    assert asker.ask(late) is False
    assert asker.machine.catalogue.queue_by_uid(late.uid).members == (ONE,)


def test_missing_vhost_is_530():
    assert refusal(founded().queue("q", vhost="v")) == (530, "vhost v not found")
