"""The simulator of mirrored queues in CI: a few seeds, the kept ones, all planted bugs found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.mirrored import __main__ as sim
from tests.sim.mirrored.history import Content, History
from tests.sim.mirrored.options import FAULTS, draw
from tests.sim.mirrored.planted import BUGS, ONLY_DEATHS, RARE

CI_SEEDS = 16
BLOCKS = 4
SMALL = 6
# The first seed that found each planted bug. Any change to the broker or the simulator moves these,
# so a test looks at the next few seeds too; when it no longer finds the bug there, search again
# with `python -m tests.sim.mirrored --bugs --seeds 40` and write the seed down here.
FOUND_AT = {
    "P11r": 18, "P16": 1, "P18": 2, "P19": 44, "P19r": 9, "P20": 9, "P23": 50, "P25": 4, "P26": 49,
    "P4": 31, "durable": 2, "paged": 1, "policy": 27,
}  # fmt: skip
LOOK_AHEAD = 20
# What a correct ring must have done in some seeds for them to mean anything.
MUST_HAPPEN = (
    "ring promoted",
    "ring recovered",
    "ring joined",
    "ring synced",
    "ring erased",
    "gm takeovers_in_flight",
    "gm catchups_taken",
    "gm replayed",
    "fills begun (P26)",
    "sent again (P11)",
    "duplicates judged (P11)",
    "answers fenced off (P18)",
    "boot.redrawn",
    "promoted unread",
    "read by a master",
)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_is_found_in_the_first_seeds(block: int) -> None:
    size = CI_SEEDS // BLOCKS
    assert sim.run_many(list(range(block * size + 1, (block + 1) * size + 1)), {}) == 0


def test_nothing_is_found_in_the_kept_seeds() -> None:
    assert sim.run_many(sim.kept_seeds(), {}) == 0


def test_nothing_is_found_where_nodes_only_die() -> None:
    """At 66 mirrors left their dead master; at 161 a message stayed with a cancelled consumer."""
    assert sim.run_many([*range(1, 4), 66, 161], dict(ONLY_DEATHS)) == 0


def test_nothing_is_found_in_small_schedules() -> None:
    assert sim.run_small(SMALL, jobs=1) == 0


@pytest.mark.parametrize("bug", sorted(FOUND_AT))
def test_planted_bug_is_found(bug: str) -> None:
    first = FOUND_AT[bug]
    name, seed, _ = sim._search(bug, list(range(first, first + LOOK_AHEAD)), {})
    assert name == bug
    assert seed


def test_bugs_that_are_not_rare_have_a_recorded_seed() -> None:
    assert set(FOUND_AT) == set(BUGS) - RARE


def test_the_rules_really_act() -> None:
    totals: Counter[str] = Counter()
    for seed in range(60, 76):
        given = {"silent_ms": 2_500} if seed % 2 else {}  # a pause that ends the boot
        totals.update(sim.run_seed(seed, given).counts)
    assert [name for name in MUST_HAPPEN if not totals[name]] == []


def test_nothing_is_found_with_queues_that_are_not_mirrored() -> None:
    """The world itself: links, leases, boots and clients around a plain queue."""
    assert sim.run_many([1, 2, 3, 4], {"kind": "plain"}) == 0


def test_a_seed_gives_the_same_run_twice() -> None:
    one, other = sim.run_seed(7, {}), sim.run_seed(7, {})
    assert one.hashes == other.hashes
    assert one.counts == other.counts


def test_seeds_draw_different_worlds() -> None:
    options = [draw(seed) for seed in range(1, 300)]
    assert {each.nodes for each in options} == {3, 5}
    assert {each.ha_mode for each in options} == {"all", "exactly", "nodes"}
    assert {each.sync for each in options} == {"automatic", "manual"}
    assert {each.promote_on_failure for each in options} == {"always", "when-synced"}
    assert any(each.flap_p for each in options)
    assert any(each.stop_p for each in options)
    assert any(each.late_policy for each in options)
    assert {each.sync_style for each in options} == {"blocking", "online"}
    assert {each.page_bytes for each in options} > {-1, 0}
    assert len(set(FAULTS)) == 11


# A checker that was never seen failing is no checker: histories with one thing wrong each.


class Story:
    """A short history in which nothing is wrong: 1 and 2 confirmed, 1 delivered and settled."""

    def __init__(self) -> None:
        self.history = History()
        self.history.reigns("a/1", 10, 0)
        self.history.published(1, "p", 1, persistent=True)
        self.history.published(2, "p", 2, persistent=True)
        self.history.answered(1, "ok", 10, 3)
        self.history.answered(2, "ok", 10, 4)

    def deliver(
        self, ident: int, consumer: str = "c", epoch: int = 10, *, redelivered: bool = False
    ) -> None:
        self.history.delivered(ident, consumer, ident, epoch, 50, redelivered=redelivered)

    def ends(self, *idents: int) -> None:
        """Judge the end: these are in the queue."""
        contents = {ident: Content(ident, False) for ident in idents}
        self.history.judge_master(contents, 100)
        self.history.judge_answers(100)

    def found(self) -> list[str]:
        return [each.check for each in self.history.violations]


def test_a_good_history_has_no_faults() -> None:
    story = Story()
    story.deliver(1)
    story.history.acknowledged(1)
    story.history.let_go(1, "c")
    story.history.settled(1, 60)
    story.deliver(2)
    story.ends(2)
    assert story.found() == []


def test_a_confirmed_message_that_is_nowhere_is_lost() -> None:
    story = Story()
    story.ends(2)
    assert story.found() == ["LOST"]


def test_a_promotion_without_synchronised_mirrors_may_lose() -> None:
    story = Story()
    story.history.lossy.append(20)
    story.ends()
    assert story.found() == []


def test_what_was_confirmed_after_such_a_promotion_must_stay() -> None:
    story = Story()
    story.history.lossy.append(10)
    story.ends(2)
    assert story.found() == ["LOST"]


def test_only_transient_messages_go_with_memory() -> None:
    story = Story()
    story.history.published(3, "p", 5, persistent=False)
    story.history.answered(3, "ok", 10, 6)
    story.history.emptied.append(20)
    story.ends(1, 2)
    assert story.found() == []
    story = Story()
    story.history.emptied.append(20)
    story.ends(1)
    assert story.found() == ["LOST"]


def test_a_message_twice_in_the_queue() -> None:
    story = Story()
    story.history.judge_master(
        {1: Content(1, False), 2: Content(2, False), 3: Content(2, False)}, 9
    )
    assert story.found() == ["double-in-queue"]


def test_a_second_delivery_without_the_flag() -> None:
    story = Story()
    story.deliver(1)
    story.history.let_go(1, "c")
    story.deliver(1, "d")
    assert story.found() == ["redelivered-without-flag"]


def test_a_late_delivery_of_a_former_master_needs_no_flag() -> None:
    story = Story()
    story.deliver(1)
    story.history.reigns("b/2", 20, 55)
    story.deliver(1, "d", 10)
    assert "redelivered-without-flag" not in story.found()


def test_two_holders_in_one_epoch() -> None:
    story = Story()
    story.deliver(1)
    story.deliver(1, "d", redelivered=True)
    assert story.found() == ["two-holders"]


def test_first_deliveries_out_of_order() -> None:
    story = Story()
    story.deliver(2)
    story.deliver(1)
    assert story.found() == ["order"]


def test_a_settled_message_that_comes_back() -> None:
    story = Story()
    story.deliver(1)
    story.history.let_go(1, "c")
    story.history.settled(1, 60)
    story.deliver(1, "d", redelivered=True)
    assert story.found() == ["settled-came-back"]


@pytest.mark.parametrize(
    ("recovered_ms", "is_found"), [(60, False), (6_060, False), (6_061, True), (60_000, True)]
)
def test_only_what_was_settled_shortly_before_a_recovery_may_come_back(
    recovered_ms: int, is_found: bool
) -> None:
    story = Story()
    story.deliver(1)
    story.history.let_go(1, "c")
    story.history.settled(1, 60)
    story.history.recovered_ms.append(recovered_ms)
    story.deliver(1, "d", redelivered=True)
    assert story.found() == (["settled-came-back"] if is_found else [])


def test_a_message_that_nobody_published() -> None:
    story = Story()
    story.deliver(9)
    assert story.found() == ["invented"]


def test_a_publish_with_two_answers() -> None:
    story = Story()
    story.history.answered(1, "nack", 10, 5)
    assert story.found() == ["answered-twice"]


def test_a_publish_without_an_answer() -> None:
    story = Story()
    story.history.published(3, "p", 5, persistent=True)
    story.ends(1, 2)
    assert story.found() == ["live:unanswered"]


def test_no_confirm_after_healing() -> None:
    story = Story()
    story.history.heal_ms = 20
    story.ends(1, 2)
    assert story.found() == ["live:no-confirm-after-heal"]


def test_two_masters_confirm_in_one_epoch() -> None:
    story = Story()
    story.history.confirmed_by("a/1", 10, 5)
    story.history.confirmed_by("b/1", 10, 6)
    assert story.found() == ["two-masters-confirm"]


@pytest.mark.parametrize(("after_ms", "is_found"), [(2_900, False), (3_100, True)])
def test_a_former_master_may_deliver_until_its_lease_ends(after_ms: int, is_found: bool) -> None:
    story = Story()
    story.history.reigns("b/2", 20, 1_000)
    story.history.handed_out("a/1", 10, 1_000 + after_ms)
    assert bool(story.found()) is is_found


def test_an_epoch_that_falls() -> None:
    story = Story()
    story.history.reigns("b/2", 5, 1_000)
    assert story.found() == ["epoch-fell"]


def test_more_than_the_prefetch() -> None:
    story = Story()
    story.history.over_prefetch("c", 3, 2, 50)
    assert story.found() == ["prefetch"]


def test_mirrors_that_differ_from_their_master() -> None:
    master = {1: Content(11, False), 2: Content(12, False)}
    for mirror, check in (
        ({1: Content(11, False)}, "synced-flag-false"),
        ({**master, 3: Content(13, False)}, "mirror-keeps-settled"),
        ({1: Content(11, False), 2: Content(99, False)}, "mirror-differs"),
    ):
        story = Story()
        story.history.judge_mirror("b", master, mirror, 100)
        assert story.found() == [check]


def test_what_is_handed_out_and_held_by_nobody() -> None:
    story = Story()
    story.history.judge_taken({1: Content(1, True)}, [2], 100)
    assert story.found() == ["taken-for-ever"]
