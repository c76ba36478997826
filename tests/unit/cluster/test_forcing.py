"""The cluster that remains when nodes are lost for good (docs/protocol-rules.md P8)."""

from __future__ import annotations

import msgspec
import pytest

from broker.cluster.recovery import advice, forcing
from broker.cluster.recovery.forcing import Conclusion, ForcingRefused
from broker.metadata import commands
from tests.unit.metadata.cluster import BOOT_ONE, BOOT_TWO, ONE, TWO, Asker, founded

THREE = "rabbit@node3"
QUORUM = {"x-queue-type": "quorum"}


def asker() -> Asker:
    found = founded()
    found.ask(commands.JoinNode(THREE, "127.0.0.1:3"))
    found.ask(commands.BootNode(THREE, "3" * 16, "127.0.0.1:3"))
    found.queue("classic one")
    found.queue("classic two", home=TWO)
    found.queue("all", arguments=QUORUM, members=(ONE, TWO, THREE))
    found.queue("others", arguments=QUORUM, members=(TWO, THREE), home=TWO)
    found.queue("mine", arguments=QUORUM, members=(ONE,))
    return found


def test_one_is_left() -> None:
    catalogue = asker().machine.catalogue
    left = forcing.conclude(ONE, catalogue, {TWO, THREE})
    assert left.survivors == (ONE,)
    assert left.lost == (TWO, THREE)
    assert sorted(left.replicas.values()) == [(ONE,), (ONE,)]
    went = forcing.losses(catalogue, left.lost)
    assert [queue.name for queue in went.deleted] == ["classic two", "others"]
    assert [queue.name for queue in went.shrunk] == ["all"]


def test_a_mirrored_queue_goes_on_where_a_mirror_is_left() -> None:
    found = founded()
    found.ask(commands.SetPolicy("/", "p", "^m", {"ha-mode": "all"}))
    found.queue("m1", home=TWO)
    found.queue("m2", home=ONE)
    found.ask(commands.EndBoot(ONE, BOOT_ONE))
    found.ask(commands.BootNode(ONE, "9" * 16, "127.0.0.1:1"))
    catalogue = found.machine.catalogue
    went = forcing.losses(catalogue, {TWO})
    assert [queue.name for queue in went.shrunk] == ["m1"], (
        "m2's successor is lost, its copy is not"
    )
    assert went.deleted == ()
    assert [queue.name for queue in forcing.losses(catalogue, {ONE, TWO}).deleted] == ["m1", "m2"]


@pytest.mark.parametrize(
    ("node", "lost", "text"),
    [
        ("rabbit@node9", {TWO}, "no member"),
        (ONE, {ONE}, "wipe it instead"),
        (ONE, {"rabbit@node9"}, "no node rabbit@node9 in this cluster; there are rabbit@node1"),
    ],
)
def test_what_makes_no_sense(node: str, lost: set[str], text: str) -> None:
    with pytest.raises(ForcingRefused, match=text):
        forcing.conclude(node, asker().machine.catalogue, lost)


def never() -> str:
    raise AssertionError("several survivors can't draw")


def test_several_survivors_come_to_one_id_and_only_if_they_agree() -> None:
    catalogue = asker().machine.catalogue
    one = forcing.conclude(ONE, catalogue, {THREE})
    two = forcing.conclude(TWO, catalogue, {THREE})
    assert one == two
    ids = {forcing.new_cluster_id("old", left, never) for left in (one, two)}
    assert len(ids) == 1
    other = Conclusion(one.survivors, one.lost, {**one.replicas, 999: (ONE,)})
    ids.add(forcing.new_cluster_id("old", other, never))
    ids.add(forcing.new_cluster_id("older", one, never))
    assert len(ids) == 3


def test_one_survivor_draws_its_id() -> None:
    alone = forcing.conclude(ONE, asker().machine.catalogue, {TWO, THREE})
    assert forcing.new_cluster_id("old", alone, lambda: "drawn") == "drawn"


def test_a_new_node_of_a_lost_ones_name_is_not_lost() -> None:
    found = asker()
    node_of = found.machine.catalogue.node
    before = node_of(TWO)
    assert before is not None
    mark = forcing.mark(before)
    assert mark == BOOT_TWO
    found.ask(commands.EndBoot(TWO, BOOT_TWO))
    assert forcing.is_marked(node_of(TWO), mark)
    found.ask(commands.ForgetNode(TWO))
    assert not forcing.is_marked(node_of(TWO), mark)
    found.ask(commands.JoinNode(TWO, "127.0.0.1:2"))
    assert not forcing.is_marked(node_of(TWO), mark), "wiped, it joined again"
    found.ask(commands.BootNode(TWO, "f" * 16, "127.0.0.1:2"))
    assert not forcing.is_marked(node_of(TWO), mark)


def test_a_member_that_never_booted_has_no_mark() -> None:
    found = founded()
    found.ask(commands.JoinNode(THREE, "127.0.0.1:3"))
    record = found.machine.catalogue.node(THREE)
    assert record is not None
    assert forcing.mark(record) == ""
    assert forcing.is_marked(record, "")
    assert not forcing.is_marked(msgspec.structs.replace(record, boot="b"), "")


def waiting(**changes: object) -> str:
    known: dict[str, object] = {
        "folder": "/data",
        "peers": [TWO, ONE],
        "reached": [],
        "foreign": set(),
        "has_cluster": True,
        "is_data_lost": False,
    }
    return advice.while_waiting(**{**known, **changes})  # type: ignore[arg-type]


def test_who_waits_says_what_can_be_done() -> None:
    assert "warrenmq ctl force_boot --data-dir /data" in waiting()
    assert "peers rabbit@node1, rabbit@node2, of these reached: none" in waiting()
    assert "force_boot" not in waiting(has_cluster=False)
    assert "reset it (remove /data)" in waiting(is_data_lost=True)
    refused = waiting(foreign={TWO}, is_data_lost=True)
    assert "the cluster id of rabbit@node2 is not its own" in refused
    assert "remove /data and start it" in refused
