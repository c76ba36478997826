"""The nodes on which a policy wants members (docs/rabbitmq-behaviour.md 1.13)."""

from __future__ import annotations

from broker.metadata import ring_commands as steps
from broker.metadata.mirroring.wanted import wanted_members
from tests.unit.metadata.ring_cluster import A, B, C, D, RingAsker, three_nodes

ASKER = "rabbit@asker"


def ringed(*others: str, **definition: object) -> RingAsker:
    """Queue "q" on A with mirrors on `others`, then the policy."""
    asker = three_nodes()
    asker.policy(ha_mode="nodes", ha_params=[A])
    asker.queue("q", home=A)
    for node in others:
        assert asker.lead(steps.RingJoined, asker.join(node))
    asker.policy(**definition)
    return asker


def wanted(asker: RingAsker) -> list[str]:
    queue = asker.record()
    policy = asker.machine.catalogue.ha_policy(queue)
    assert policy is not None
    return wanted_members(asker.machine.catalogue, queue, policy, queue.ring)


def test_all_is_every_running_node_master_first_mirrors_as_they_are():
    asker = ringed(C, ha_mode="all")
    assert wanted(asker)[:2] == [A, C]
    assert set(wanted(asker)) == {A, B, C, ASKER}
    asker.kill(B)
    assert set(wanted(asker)) == {A, C, ASKER}


def test_exactly_keeps_existing_mirrors_and_adds_where_there_is_least():
    asker = ringed(C, ha_mode="exactly", ha_params=3)
    asker.queue("other", home=ASKER)
    asker.queue("another", home=ASKER, arguments={"x-queue-type": "quorum"})
    assert asker.machine.catalogue.queue_count_on(B) < asker.machine.catalogue.queue_count_on(ASKER)
    assert wanted(asker) == [A, C, B]


def test_exactly_one_is_the_master_alone():
    assert wanted(ringed(B, C, ha_mode="exactly", ha_params=1)) == [A]


def test_exactly_fewer_keeps_the_oldest():
    assert wanted(ringed(C, B, ha_mode="exactly", ha_params=2)) == [A, C]


def test_exactly_more_than_there_are_is_all():
    assert set(wanted(ringed(ha_mode="exactly", ha_params=9))) == {A, B, C, ASKER}


def test_exactly_replaces_a_dead_mirror():
    asker = ringed(B, ha_mode="exactly", ha_params=2)
    asker.kill(B)
    assert wanted(asker)[0] == A
    assert len(wanted(asker)) == 2
    assert B not in wanted(asker)


def test_equal_nodes_are_taken_by_name_and_queues_spread():
    """Ten declares of two replicas each: every other node gets its share."""
    asker = three_nodes()
    asker.policy(ha_mode="exactly", ha_params=2)
    for number in range(9):
        asker.queue(f"q{number}", home=A)
    counts = [asker.machine.catalogue.queue_count_on(node) for node in (B, C, ASKER)]
    assert counts == [3, 3, 3]


def test_an_unlisted_master_is_kept_until_a_listed_mirror_is_synchronised():
    """[A B] and then policy [B C]: A stays until it can hand over."""
    asker = ringed(B, ha_mode="nodes", ha_params=[B, C])
    assert wanted(asker) == [A, B, C]
    assert asker.lead(steps.RingSynced, asker.on(B))
    assert wanted(asker) == [B, C]


def test_a_synchronised_mirror_that_is_not_listed_succeeds_an_unlisted_master():
    """RabbitMQ takes any synchronised one then; the listed follow."""
    asker = ringed(B, ha_mode="nodes", ha_params=[C])
    assert asker.lead(steps.RingSynced, asker.on(B))
    assert wanted(asker) == [B, C]


def test_listed_nodes_that_do_not_run_or_exist_are_passed_over():
    asker = ringed(ha_mode="nodes", ha_params=[A, "rabbit@nowhere", D, C])
    assert wanted(asker) == [A, C]
    asker.kill(C)
    assert wanted(asker) == [A]


def test_where_no_listed_node_runs_the_master_stays_alone():
    asker = ringed(B, ha_mode="nodes", ha_params=["rabbit@nowhere"])
    assert wanted(asker) == [A]
