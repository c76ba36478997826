from __future__ import annotations

import pytest

from chaos import options
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


def test_command_repeats_the_run(tmp_path):
    asked = options.with_defaults("classic", "kill-all", 9, rate=100)
    options.save(tmp_path, asked)
    assert options.load(tmp_path) == asked
    assert options.command(asked) == (
        "python -m chaos.run --queue classic --fault kill-all --seed 9 --seconds 40"
        " --rate 100 --cycles 2"
    )


def test_only_a_quorum_queue_serves_during_a_fault():
    def is_available(queue, fault):
        return options.with_defaults(queue, fault, 1).is_available

    assert is_available("quorum", "kill-leader")
    assert is_available("quorum", "pause-leader")
    assert not is_available("quorum", "kill-all")
    assert not is_available("classic", "kill-leader")
