"""Each forged history raises exactly its own finding in the checkers."""

from __future__ import annotations

import msgspec
import pytest

from chaos.checkers import facts, verdict
from tests.unit.chaos import forge


def test_clean_history_has_no_finding():
    found = verdict.judge(forge.clean(), forge.OPTIONS)
    assert found.findings == []
    assert found.valid is True
    assert found.counts["unknown"] == 2
    assert found.counts["faults"] == 1
    assert found.recoveries[0].silence_ms == 3_010


@pytest.mark.parametrize("name", forge.MUTATIONS)
def test_mutation_raises_exactly_its_finding(name):
    mutate, expected = forge.MUTATIONS[name]
    found = verdict.judge(mutate(forge.clean()), forge.OPTIONS)
    assert [(item.kind, item.subject) for item in found.findings] == [expected]
    assert found.valid == verdict.SEVERITIES[expected[0]]


def test_clean_history_of_a_stream_has_no_finding():
    found = verdict.judge(forge.clean_stream(), forge.STREAM_OPTIONS)
    assert (found.findings, found.valid) == ([], True)


@pytest.mark.parametrize("name", forge.STREAM_MUTATIONS)
def test_mutation_of_a_stream_raises_exactly_its_finding(name):
    mutate, expected = forge.STREAM_MUTATIONS[name]
    found = verdict.judge(mutate(forge.clean_stream()), forge.STREAM_OPTIONS)
    assert [(item.kind, item.subject) for item in found.findings] == [expected]
    assert found.valid is False


def test_spoilt_messages_do_not_hide_each_other():
    found = verdict.judge(forge.spoiled(forge.clean()), forge.OPTIONS)
    about_messages = set(verdict.SEVERITIES) - {
        "crash", "history", "undrained", "vacuous", "recovery", "storm", "starved",
        "hole", "stored-twice", "differs",
    }  # fmt: skip
    kinds = [item.kind for item in found.findings]
    in_more_ways = ["lost", "lost", "unanswered"]
    assert sorted(kinds) == sorted([*about_messages, *in_more_ways])


def test_every_kind_of_finding_is_forged():
    mutations = [*forge.MUTATIONS.values(), *forge.STREAM_MUTATIONS.values()]
    forged = {kind for _, (kind, _) in mutations}
    assert forged == set(verdict.SEVERITIES) - {"crash"}


def test_a_queue_that_loses_whatever_is_given_back_loses_everything():
    given_back = [
        msgspec.structs.replace(e, op="requeue") if e.op == "ack" else e for e in forge.clean()
    ]
    found = verdict.judge(given_back, forge.OPTIONS)
    assert [item.kind for item in found.findings] == ["lost"] * found.counts["confirmed"]


def test_an_ack_that_may_have_reached_the_broker_settles():
    events = forge.clean()
    ack = forge.find(events, "ack", "p1.1|5")
    close = msgspec.structs.replace(
        ack, op="close", type="info", ts_us=ack.ts_us + 1, msg_id="", queue=""
    )
    found = verdict.judge(forge.renumbered([*events, close]), forge.OPTIONS)
    assert found.findings == []


def test_no_answer_is_excused_beside_a_fault_in_a_standstill_and_after_a_short_wait():
    near = forge.forgotten(forge.clean(), forge.HEAL_US + 9_900_000)
    forgotten = forge.forgotten(forge.clean())
    stood_still = forge.renumbered(e for e in forgotten if (e.op, e.seq) != ("confirm", 2))
    waiting = forge.find(forgotten, "unknown", "p3.1|1")
    cut_short = forge.changed(forgotten, waiting, ts_us=waiting.ts_us - 200_000)
    for events in (near, stood_still, cut_short):
        assert verdict.judge(events, forge.OPTIONS).findings == []


def test_one_node_alone_is_drained_and_measured_alone():
    alone = [
        msgspec.structs.replace(e, node="n1" if e.node else "") for e in forge.drained_once(
            [e for e in forge.clean() if e.op != "depth" or e.node == "n1"]
        )
    ]  # fmt: skip
    undrained = [f for f in verdict.judge(alone, forge.OPTIONS).findings if f.kind == "undrained"]
    assert undrained == []


def test_unknown_publish_is_neither_lost_nor_required():
    events = forge.clean()
    landed = [e for e in events if e.msg_id == "p1.1|40" and e.op == "deliver"]
    missing = [e for e in events if e.msg_id == "p2.1|40" and e.op == "deliver"]
    assert (len(landed), len(missing)) == (1, 0)
    assert verdict.judge(events, forge.OPTIONS).valid is True


CHANGED_US = forge.FAULT_US + forge.OUTAGE_US - 500_000
"""When the other leader is seen in a clean history."""


@pytest.mark.parametrize(
    ("node", "until_us"), [("n2", CHANGED_US + 2_000_000), ("n1", forge.HEAL_US)]
)
def test_an_ack_is_uncertain_near_the_fault_and_at_its_target_until_the_heal(node, until_us):
    events = [msgspec.structs.replace(e, node=node) if e.op == "ack" else e for e in forge.clean()]
    uncertain = facts.gather(events, forge.OPTIONS).is_ack_uncertain
    acks = [e for e in events if e.op == "ack" and e.recorder == "c1"]
    assert [uncertain(e) for e in acks] == [
        forge.FAULT_US - 2_000_000 <= e.ts_us <= until_us for e in acks
    ]


def test_a_duplicate_of_what_was_acked_to_the_next_leader_is_one():
    seq = (forge.FAULT_US + forge.OUTAGE_US + 4_000_000) // forge.STEP_US
    found = verdict.judge(forge.dup_after_change(forge.clean()), forge.OPTIONS)
    assert [(f.kind, f.subject) for f in found.findings] == [("duplicated", f"p1.1|{seq}")]


def test_ack_on_a_connection_that_broke_is_uncertain():
    events = forge.dup_after_ack(forge.clean())
    ack = forge.find(events, "ack", "p1.1|5")
    close = msgspec.structs.replace(
        ack, op="close", type="info", ts_us=ack.ts_us + 1, msg_id="", queue=""
    )
    assert verdict.judge(forge.renumbered([*events, close]), forge.OPTIONS).valid is True


def test_unavailable_queue_is_timed_from_its_heal():
    options = msgspec.structs.replace(forge.OPTIONS, queue="classic")
    found = verdict.judge(forge.clean(), options)
    assert found.valid is True
    assert found.recoveries[0].silence_ms == 10


def test_a_holder_whose_connection_ended_holds_no_more():
    events = forge.held_twice(forge.clean())
    held = forge.find(events, "deliver", "p1.1|5", "c1")
    close = msgspec.structs.replace(held, op="close", type="info", msg_id="", queue="")
    for late_us, is_valid in ((900_000, True), (1_100_000, False)):
        ended = msgspec.structs.replace(close, ts_us=held.ts_us + 90_000 + late_us)
        assert verdict.judge(forge.renumbered([*events, ended]), forge.OPTIONS).valid is is_valid


JOINED_US = forge.FAULT_US - 4_000_000
UNSYNCHRONISED = msgspec.structs.replace(forge.OPTIONS, queue="mirrored", ha_sync_mode="manual")


@pytest.mark.parametrize(
    ("role", "at_us", "on_failure", "is_allowed"),
    [
        ("joined", JOINED_US, "always", True),
        ("joined", JOINED_US, "when-synced", False),
        ("synchronised", JOINED_US, "always", False),
        ("joined", forge.STEP_US, "always", False),
    ],
)
def test_only_what_an_unsynchronised_mirror_never_had_may_be_lost(
    role, at_us, on_failure, is_allowed
):
    options = msgspec.structs.replace(UNSYNCHRONISED, promote_on_failure=on_failure)
    events = forge.joined(forge.drop_delivered(forge.clean(), 5), at_us, role)
    found = verdict.judge(events, options)
    assert found.valid is is_allowed
    assert found.counts["lost_allowed"] == int(is_allowed)
    assert {item.kind for item in found.findings} == (set() if is_allowed else {"lost"})


def test_no_confirm_after_the_fault_counts_until_the_end_of_the_load():
    events = forge.renumbered(
        e for e in forge.clean() if not (e.op == "confirm" and e.ts_us > forge.FAULT_US)
    )
    kinds = {(f.kind, f.subject) for f in verdict.judge(events, forge.OPTIONS).findings}
    assert ("recovery", "fault-1") in kinds


def test_crashing_checker_is_unknown():
    def broken(_facts):
        raise ZeroDivisionError("oops")

    found = verdict.judge(forge.clean(), forge.OPTIONS, {"broken": broken})
    assert found.valid == "unknown"
    assert found.findings[0].kind == "crash"


def test_empty_history_is_no_pass():
    assert verdict.judge([], forge.OPTIONS).valid == "unknown"


def test_false_beats_unknown_beats_true():
    assert verdict.merge([True, "unknown", False]) is False
    assert verdict.merge([True, "unknown"]) == "unknown"
    assert verdict.merge([True]) is True
    assert verdict.merge([]) is True
