from __future__ import annotations

import re

import pytest

from chaos import mirroring, options, run
from chaos.faults import schedule


@pytest.mark.parametrize("fault", [f for f in options.FAULTS if f != "none"])
def test_plan_has_the_cycles_in_order_after_the_warm_up(fault):
    asked = options.with_defaults("quorum", fault, 5, cycles=3, seconds=60)
    plan = schedule.plan(asked)
    assert [item.number for item in plan] == [1, 2, 3]
    moments = [item.at_s for item in plan]
    assert moments == sorted(moments)
    assert moments[0] >= schedule.WARM_UP_S
    assert moments[-1] < asked.seconds
    assert all(item.kind == fault for item in plan)


def test_seed_decides():
    plans = [
        schedule.plan(options.with_defaults("quorum", "kill-leader", seed)) for seed in (1, 1, 2)
    ]
    assert plans[0] == plans[1] != plans[2]


def test_no_fault_plans_nothing():
    assert schedule.plan(options.with_defaults("quorum", "none", 1)) == []


def test_pause_lasts_fifteen_seconds():
    plan = schedule.plan(options.with_defaults("quorum", "pause-leader", 1))
    assert [item.down_s for item in plan] == [15.0]


@pytest.mark.parametrize(
    ("queue", "fault", "others"),
    [
        ("classic", "kill-all", {"rate": 100}),
        ("quorum", "kill-all", {"backlog": 20_000}),
        ("quorum", "cut-leader-one-way", {"direction": "in", "when_synchronised": True}),
        ("mirrored", "kill-leader", {"cycles": 5, "when_synchronised": False}),
        ("mirrored", "stop-leader", {"ha_mode": "nodes", "ha_params": "rabbit@node1,rabbit@node3"}),
        ("mirrored", "kill-leader-unsynchronised", {"promote_on_failure": "when-synced"}),
    ],
)
def test_command_repeats_the_run(tmp_path, queue, fault, others):
    asked = options.with_defaults(queue, fault, 9, **others)
    options.save(tmp_path, asked)
    assert options.load(tmp_path) == asked
    words = options.command(asked).split()
    assert words[:3] == ["python", "-m", "chaos.run"]
    assert run.options_of(words[3:]) == asked


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("kill-master", "kill-leader"), ("stop-master", "stop-leader"),
        ("cut-master-one-way", "cut-leader-one-way"), ("kill-follower", "kill-mirror"),
        ("kill-master-unsynchronised", "kill-leader-unsynchronised"),
    ],
)  # fmt: skip
def test_a_leader_is_a_master_too(said, meant):
    assert options.fault_named(said) == meant


def test_unknown_fault_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="no fault 'kill-boss'; there are none, kill-leader"):
        options.fault_named("kill-boss")


def test_which_queue_serves_during_which_fault():
    def is_available(queue, fault, **others):
        return options.with_defaults(queue, fault, 1, **others).is_available

    for queue in ("quorum", "mirrored"):
        for fault in ("kill-leader", "pause-leader", "stop-leader", "cut-leader-from-all"):
            assert is_available(queue, fault)
        assert not is_available(queue, "kill-all")
    assert not is_available("classic", "kill-leader")
    assert is_available("classic", "kill-mirror")
    late = "kill-leader-unsynchronised"
    assert is_available("mirrored", late, promote_on_failure="always")
    assert not is_available("mirrored", late, promote_on_failure="when-synced")


def test_a_policy_matches_its_queue_alone():
    asked = options.with_defaults("mirrored", "none", 1, ha_mode="exactly", ha_params="2")
    made = mirroring.policy(asked, "chaos.run-1")
    assert made["definition"] == {
        "ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic",
        "ha-promote-on-failure": "always", "ha-promote-on-shutdown": "when-synced",
    }  # fmt: skip
    assert re.search(made["pattern"], "chaos.run-1")
    assert not re.search(made["pattern"], "chaosXrun-1")
    assert not re.search(made["pattern"], "chaos.run-12")
