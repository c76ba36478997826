"""The machine as Raft sees it: deterministic, and the same through a snapshot at any point."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Refusal
from broker.metadata import commands, ring_commands
from broker.metadata.commands import AnyCommand
from broker.metadata.machine import _HANDLERS, MetadataMachine
from broker.metadata.results import Declared, decode_result, encode_result
from broker.metadata.rings import RingMember
from tests.unit.metadata.cluster import ONE, TWO, founded

NODES = st.sampled_from([ONE] * 5 + [TWO] * 3 + ["rabbit@node3"])
BOOTS = st.sampled_from(["1" * 16] * 3 + ["2" * 16] * 2 + ["3" * 16, "4" * 16])
VHOSTS = st.sampled_from(["/"] * 9 + ["v"])
QUEUES = st.sampled_from(["q1", "q2", "q3"])
EXCHANGES = st.sampled_from(["x1", "x2", "amq.topic", "amq.headers", ""])
KEYS = st.sampled_from(["", "a", "a.b", "#.a", "*.b", "#.#.#"])
ARGUMENTS = st.sampled_from(
    [
        {},
        {"x-queue-type": "quorum"},
        {"x-max-length": 3},
        {"x-max-priority": 999},
        {"x-match": "any", "h": 1, "x-h": b"\xff"},
        {"alternate-exchange": "x2"},
        {"x-foo": [1, {"a": None}]},
    ]
)
OWNERS = st.sampled_from([None, None, None, f"{ONE}/{'1' * 16}/1", f"{TWO}/{'2' * 16}/1"])
BINDING = {
    "vhost": VHOSTS,
    "source": EXCHANGES,
    "kind": st.sampled_from(["queue", "exchange"]),
    "destination": st.one_of(QUEUES, EXCHANGES),
    "routing_key": KEYS,
    "arguments": ARGUMENTS,
    "connection": OWNERS.map(lambda owner: owner or ""),
}
BUILDING: st.SearchStrategy[AnyCommand] = st.one_of(
    st.builds(
        commands.DeclareQueue,
        vhost=VHOSTS,
        name=QUEUES,
        durable=st.booleans(),
        auto_delete=st.booleans(),
        exclusive_owner=OWNERS,
        arguments=ARGUMENTS,
        home=NODES,
        members=st.sampled_from([(), (ONE, TWO)]),
    ),
    st.builds(
        commands.DeclareExchange,
        vhost=VHOSTS,
        name=EXCHANGES,
        type=st.sampled_from(["direct", "fanout", "topic", "headers", "bogus"]),
        durable=st.booleans(),
        auto_delete=st.booleans(),
        internal=st.just(False),
        arguments=ARGUMENTS,
    ),
    st.builds(commands.Bind, **BINDING),
)
REST: st.SearchStrategy[AnyCommand] = st.one_of(
    st.builds(commands.Unbind, **BINDING),
    st.builds(commands.MoveBindings, st.integers(1, 40), st.integers(1, 40)),
    st.builds(commands.DeleteQueue, st.integers(1, 40)),
    st.builds(commands.DeleteExchange, VHOSTS, EXCHANGES, st.booleans()),
    st.builds(commands.EndConnection, OWNERS.map(lambda owner: owner or "x/y/1")),
    st.builds(commands.BootNode, NODES, BOOTS, st.just("h:1")),
    st.builds(commands.EndBoot, NODES, BOOTS),
    st.builds(commands.JoinNode, NODES, st.just("h:1")),
    st.builds(commands.ForgetNode, NODES),
    st.builds(commands.NoteLeader, st.just(((5, ONE), (6, TWO), (7, TWO)))),
    st.builds(commands.MoveMembers, st.integers(1, 20), st.just((TWO,))),
    st.builds(
        commands.AddVhost, st.just("v"), default_queue_type=st.sampled_from([None, "quorum"])
    ),
    st.builds(commands.DeleteVhost, st.just("v")),
    st.builds(commands.AddUser, st.just("u"), st.just("hash")),
    st.builds(commands.DeleteUser, st.just("u")),
    st.builds(
        commands.SetPermissions, st.just("u"), VHOSTS, st.just(""), st.just("a"), st.just("b")
    ),
    st.builds(
        commands.SetTopicPermissions, st.just("u"), VHOSTS, EXCHANGES, st.just("w"), st.just("r")
    ),
    st.builds(
        commands.SetParameter,
        VHOSTS,
        st.just("vhost-limits"),
        st.just("limits"),
        st.just({"max-queues": 2}),
    ),
    st.builds(commands.SetClusterName, st.sampled_from(["a", "b"])),
    st.builds(
        commands.SetPolicy,
        VHOSTS,
        st.sampled_from(["p1", "p2"]),
        st.sampled_from([".*", "^x1", "q[12]", "(?=a)"]),
        st.sampled_from(
            [{"alternate-exchange": "amq.headers"}, {"max-length": "bad"}, {"ha-mode": "all"}]
        ),
        st.sampled_from([0, 1, 0.5]),
        st.sampled_from(["all", "exchanges", "classic_queues"]),
        st.booleans(),
    ),
    st.builds(commands.ClearPolicy, VHOSTS, st.sampled_from(["p1", "p2"]), st.booleans()),
)
MEMBERS = st.builds(
    RingMember,
    st.sampled_from([ONE, TWO]),
    st.sampled_from(["1" * 16, "2" * 16]),
    st.integers(1, 4),
)
UIDS, EPOCHS = st.integers(5, 14), st.sampled_from([1, 1, 1, 2, 3])
RING_STEPS: st.SearchStrategy[ring_commands.RingStep] = st.one_of(
    st.builds(ring_commands.RingFound, UIDS, NODES, BOOTS),
    st.builds(ring_commands.RingJoin, UIDS, MEMBERS, EPOCHS, NODES, BOOTS),
    *(
        st.builds(kind, UIDS, MEMBERS, EPOCHS, MEMBERS)
        for kind in (
            ring_commands.RingJoined,
            ring_commands.RingSynced,
            ring_commands.RingDrop,
            ring_commands.RingHandOver,
        )
    ),
    *(
        st.builds(kind, UIDS, MEMBERS)
        for kind in (
            ring_commands.RingErase,
            ring_commands.RingDesignate,
            ring_commands.RingPromoted,
        )
    ),
    *(
        st.builds(kind, UIDS, MEMBERS, EPOCHS)
        for kind in (ring_commands.RingStopped, ring_commands.RingDissolve)
    ),
    st.builds(ring_commands.RingLost, UIDS, NODES, BOOTS),
    st.builds(ring_commands.RingLeave, UIDS, MEMBERS, MEMBERS),
    st.builds(ring_commands.RingRecover, UIDS, NODES, BOOTS, MEMBERS),
)
RINGS = st.builds(commands.ChangeRings, st.lists(RING_STEPS, min_size=1, max_size=9).map(tuple))
COMMANDS = st.one_of(BUILDING, BUILDING, REST, RINGS)
BOOTS_ASKING = st.sampled_from(["1" * 16] * 8 + ["2" * 16] * 3 + ["3" * 16])
LOGS = st.lists(
    st.tuples(COMMANDS, BOOTS_ASKING, st.sampled_from([0] * 9 + [1, 2, 20])),
    min_size=5,
    max_size=40,
)


def encoded(log) -> list[bytes]:
    """Number the requests 1, 2, ...; a few go back by some numbers, as repetitions do."""
    return [
        commands.encode_request(boot, max(1, count - back), max(1, count - 10), command)
        for count, (command, boot, back) in enumerate(log, 1)
    ]


def comparable(result: object) -> object:
    return (result.code, result.text) if isinstance(result, Refusal) else result


def listing(machine: MetadataMachine) -> tuple[object, ...]:
    """What readers see, and what routing finds, in a fixed order."""
    catalogue = machine.catalogue
    routes = []
    for vhost in ("/", "v"):
        for exchange in ("", "x1", "x2", "amq.topic", "amq.headers"):
            for key in ("q1", "", "a", "a.b"):
                route = catalogue.route(vhost, exchange, key, {"h": 1})
                names = None if route is None else sorted(each.name for each in route.queues)
                routes.append((vhost, exchange, key, names))
            routes.append(catalogue.looks_inside(vhost, exchange))
    owned = [len(catalogue.queues_of(each.exclusive_owner or "")) for each in catalogue.queues()]
    policies = [
        (queue.name, catalogue.policy_of(queue), dict(catalogue.effective_policy(queue)))
        for queue in sorted(catalogue.queues(), key=lambda each: (each.vhost, each.name))
    ]
    return (*routes, sorted(owned), policies, catalogue.index)


@given(log=LOGS, cut=st.integers(0, 30))
def test_snapshot_and_rest_equal_the_whole_log(log, cut):
    entries = encoded(log)
    whole, first, second = founded().machine, founded().machine, MetadataMachine()
    results = [comparable(whole.apply(index, data)) for index, data in enumerate(entries, 4)]
    for index, data in enumerate(entries[:cut], 4):
        first.apply(index, data)
    second.restore(first.catalogue.index, first.snapshot())
    tail = [
        comparable(second.apply(index, data))
        for index, data in enumerate(entries[cut:], 4 + len(entries[:cut]))
    ]
    assert tail == results[cut:]
    assert second.snapshot() == whole.snapshot()
    assert listing(second) == listing(whole)


@given(log=LOGS)
def test_refused_commands_change_nothing_but_what_is_remembered(log):
    machine = founded().machine
    for index, data in enumerate(encoded(log), 4):
        before, version = listing(machine)[:-1], machine.catalogue.version
        if isinstance(machine.apply(index, data), Refusal):
            assert listing(machine)[:-1] == before
            assert machine.catalogue.version == version


@given(log=LOGS)
def test_every_result_travels(log):
    machine = founded().machine
    for index, data in enumerate(encoded(log), 4):
        result = machine.apply(index, data)
        assert comparable(decode_result(encode_result(result))) == comparable(result)


@given(batches=st.lists(RINGS, min_size=1, max_size=12), cut=st.integers(0, 12))
def test_batches_on_rings_end_alike_on_a_machine_that_went_through_a_snapshot(batches, cut):
    """Two mirrored queues, one transient; the outcomes are the same, step by step."""
    log: list[tuple[AnyCommand, str, int]] = [
        (commands.SetPolicy("/", "p", "q", {"ha-mode": "all"}), "1" * 16, 0),
        *(
            (
                commands.DeclareQueue("/", f"q{home}", home == ONE, False, None, {}, home),
                "1" * 16,
                0,
            )
            for home in (ONE, TWO)
        ),
        *((batch, "1" * 16, 0) for batch in batches),
    ]
    whole, first, second = founded().machine, founded().machine, MetadataMachine()
    entries = list(enumerate(encoded(log), 4))
    outcomes = [whole.apply(index, data) for index, data in entries]
    head, tail = entries[: 3 + cut], entries[3 + cut :]
    assert [first.apply(index, data) for index, data in head][3:] == outcomes[3 : 3 + cut]
    second.restore(first.catalogue.index, first.snapshot())
    assert [second.apply(index, data) for index, data in tail] == outcomes[3 + cut :]
    assert second.snapshot() == whole.snapshot()
    assert second.catalogue.rings() == whole.catalogue.rings()


@given(command=COMMANDS)
def test_every_command_travels(command):
    assert commands.decode_request(commands.encode_request("b", 1, 1, command)).command == command


def test_every_command_has_a_handler_and_a_number_of_its_own():
    every = commands.AnyCommand.__args__
    assert set(_HANDLERS) == set(every)
    assert len({each.__struct_config__.tag for each in every}) == len(every)


def test_changes_are_taken_once():
    asker = founded()
    asker.queue("q")
    changes = asker.machine.take_changes()
    assert [queue.name for queue in changes.queues_added] == ["q"]
    assert changes.routing_changed
    assert asker.machine.take_changes().queues_added == []


def test_restore_keeps_the_catalogue_object_and_moves_its_version():
    asker = founded()
    asker.queue("q")
    catalogue, version = asker.machine.catalogue, asker.machine.catalogue.version
    asker.machine.restore(asker.index, asker.machine.snapshot())
    assert asker.machine.catalogue is catalogue
    assert catalogue.version > version
    assert asker.machine.take_changes().restored


def test_garbage_is_no_request():
    with pytest.raises(msgspec.DecodeError):
        MetadataMachine().apply(1, b"\x93\x01")


def test_declared_is_a_value():
    asker = founded()
    result = asker.queue("q")
    assert isinstance(result, Declared)
    assert decode_result(encode_result(result)) == result
    with pytest.raises(TypeError):
        encode_result("text")
