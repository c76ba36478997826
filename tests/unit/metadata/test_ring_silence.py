"""A node that is silent, not dead: mirrored queues go on without it where they can (P7, P27)."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from broker.metadata import ring_commands as steps
from tests.unit.metadata.ring_cluster import A, B, C, RingAsker, mirrored, three_nodes


def silence(asker: RingAsker, node: str) -> object:
    return asker.ask(commands.EndMemberships(node, asker.boot_of(node)))


def test_a_silent_master_is_succeeded_and_its_boot_lives():
    asker = mirrored()
    boot = asker.boot_of(A)
    assert silence(asker, A) == 1
    assert asker.ring().master is None
    assert asker.ring().successor == asker.on(B)
    assert asker.boot_of(A) == boot
    assert asker.record().home == A


@pytest.mark.parametrize("node", [B, C])
def test_a_silent_mirror_leaves(node: str):
    asker = mirrored()
    assert silence(asker, node) == 1
    assert asker.ring().member_on(node) is None
    assert asker.ring().master == asker.on(A)


def test_a_master_that_nobody_can_replace_is_waited_for():
    asker = three_nodes()
    asker.policy(ha_mode="nodes", ha_params=[A])
    asker.queue("q", home=A)
    assert asker.lead(steps.RingJoined, asker.join(B))
    assert silence(asker, A) == 0
    assert asker.ring().master == asker.on(A)


def test_a_boot_that_has_ended_loses_nothing_more():
    asker = mirrored()
    boot = asker.boot_of(C)
    asker.start(C)
    member = asker.join(C)
    assert asker.ask(commands.EndMemberships(C, boot)) == 0
    assert asker.on(C) == member


def test_it_joins_again_when_it_is_heard():
    asker = mirrored()
    before = asker.on(C)
    silence(asker, C)
    assert asker.join(C) != before
