"""What a node of 0.2.0 can't decode has a feature flag (decision 0060)."""

from __future__ import annotations

import msgspec
import pytest

from broker import feature_flags
from broker.metadata import commands, records, snapshot
from broker.metadata.machine import MetadataMachine
from tests.unit.metadata.cluster import ONE, founded

FIELDS_OF_0_2_0 = {
    "AddUser": 5, "AddVhost": 5, "Bind": 8, "BootNode": 4, "Bootstrap": 9, "ChangePassword": 3,
    "ChangeRings": 1, "ClearParameter": 3, "ClearPermissions": 2, "ClearPolicy": 3,
    "ClearTopicPermissions": 3, "DeclareExchange": 9, "DeclareQueue": 10, "DeleteExchange": 3,
    "DeleteQueue": 1, "DeleteUser": 1, "DeleteVhost": 1, "EndBoot": 2, "EndConnection": 1,
    "EndMemberships": 2, "ForgetNode": 1, "JoinNode": 2, "MoveBindings": 2, "MoveMembers": 4,
    "NoteLeader": 1, "SetClusterName": 1, "SetParameter": 4, "SetPermissions": 5, "SetPolicy": 7,
    "SetTopicPermissions": 5, "SetUserLimits": 4, "SetUserTags": 2, "Unbind": 8,
}  # fmt: skip
"""Commands of 0.2.0 and how many fields each had."""

UNDERSTOOD_WITHOUT = {"Bootstrap": {"features"}, "JoinNode": {"features"}}
"""Later fields that an older node may ignore: it joins no cluster that has flags, and a node that
names none is one of 0.2.0."""

ALL = {each.__name__: each for each in commands.Command.__subclasses__()}


@pytest.mark.parametrize("name", sorted(ALL))
def test_what_0_2_0_does_not_know_needs_a_flag(name: str) -> None:
    command = ALL[name]
    if name not in FIELDS_OF_0_2_0:
        is_enabling = command is commands.EnableFeatures  # asks all members itself
        assert is_enabling or command.flag in feature_flags.KNOWN
        return
    later = command.__struct_fields__[FIELDS_OF_0_2_0[name] :]
    assert set(later) == UNDERSTOOD_WITHOUT.get(name, set())


def test_0_2_0_s_commands_are_all_there() -> None:
    assert set(FIELDS_OF_0_2_0) <= set(ALL)


def test_a_record_with_a_later_field_is_read_without_it() -> None:
    """As a node of 0.2.0 reads the record of a node: fields are only appended."""

    class NodeOf020(msgspec.Struct, array_like=True):
        name: str
        boot: str | None
        alive: bool
        address: str
        booted_at: int = 0
        ended_boots: tuple[str, ...] = ()

    record = records.Node("n", "b", True, "h:1", 7, ("a",), being_drained=False)
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=NodeOf020)
    assert (read.name, read.booted_at, read.ended_boots) == ("n", 7, ("a",))


def test_a_command_whose_flag_is_not_enabled_is_refused_with_what_to_do() -> None:
    flag = commands.SetMaintenance.flag
    refusal = feature_flags.refusal(flag, ())
    assert refusal is not None
    assert "enable_feature_flag maintenance_mode_status" in refusal.text
    assert feature_flags.refusal(flag, {feature_flags.MAINTENANCE}) is None


def test_enabled_flags_and_maintenance_are_in_snapshots() -> None:
    asker = founded()
    assert asker.ask(commands.EnableFeatures((feature_flags.MAINTENANCE,))) is True
    assert asker.ask(commands.EnableFeatures((feature_flags.MAINTENANCE,))) is False
    assert asker.ask(commands.SetMaintenance(ONE, True)) is True
    other = MetadataMachine()
    other.restore(asker.machine.catalogue.index, asker.machine.snapshot())
    assert other.catalogue.features == {feature_flags.MAINTENANCE}
    assert other.catalogue.drained() == {ONE}
    assert other.snapshot() == asker.machine.snapshot()


def test_a_snapshot_of_0_2_0_has_no_flags() -> None:
    """Its head has four fields."""
    asker = founded()
    [part] = asker.machine.snapshot()
    size = int.from_bytes(part[:4], "big")
    kind, head = msgspec.msgpack.decode(part[4 : 4 + size])
    old = msgspec.msgpack.encode((kind, head[:4]))
    machine = MetadataMachine()
    machine.restore(head[1], [len(old).to_bytes(4, "big") + old + part[4 + size :]])
    assert machine.catalogue.features == frozenset()
    assert machine.catalogue.node(ONE) == asker.machine.catalogue.node(ONE)
    assert head[0] == snapshot.SNAPSHOT_VERSION


def test_a_boot_ends_maintenance() -> None:
    """As in RabbitMQ, where a node that restarts takes part again."""
    asker = founded()
    asker.ask(commands.SetMaintenance(ONE, True))
    asker.ask(commands.BootNode(ONE, "7" * 16, "h:1"))
    assert asker.machine.catalogue.drained() == frozenset()


def test_only_members_are_put_into_maintenance() -> None:
    refusal = founded().ask(commands.SetMaintenance("rabbit@stranger", True))
    assert "is not a member" in str(refusal)
