"""Membership changes, one voter at a time (thesis chapter 4).

Bugs are the rows of docs/planted-bugs.md.
"""

from __future__ import annotations

from raft.core import membership
from raft.core.membership import ConfigChange, History
from raft.core.messages import CONFIG, Append, Configuration, Entry
from raft.core.ready import RefusalReason, Refused, Role
from tests.unit.raft.core.harness import GROUP, Member, Net


def changed(net: Net, leader: str, kind: membership.ChangeKind, node: str) -> int:
    if node not in net.members:
        net.members[node] = Member(node, ())
    index = net[leader].node.propose_change(ConfigChange(kind, node))
    assert isinstance(index, int), index
    net.run()
    return index


def with_learner(net: Net, leader: str, node: str) -> None:
    """A new member that has what the leader has."""
    changed(net, leader, "learner", node)
    net.tick(2)


def reason(answer: int | Refused) -> RefusalReason:
    assert isinstance(answer, Refused)
    return answer.reason


def test_new_configuration_is_used_as_soon_as_it_is_in_the_log() -> None:
    """Thesis 4.1: a server uses the latest configuration in its log, committed or not."""
    net = Net("a", "b", "c")
    net.elect("a")
    with_learner(net, "a", "d")
    net.isolate("a")
    net["a"].node.propose_change(ConfigChange("voter", "d"))
    assert net["a"].node.configuration.voters == ("a", "b", "c", "d")
    assert net["b"].node.configuration.voters == ("a", "b", "c")


def test_truncated_change_is_taken_back() -> None:
    """Thesis 4.1: if the entry is removed, the server falls back to the previous configuration."""
    member = Member("b", "abc")
    data = membership.encode(Configuration(("a", "b", "c", "d")))
    member.node.step(Append(GROUP, "a", "b", 1, 0, 0, 0, [Entry(1, 1, CONFIG, data)]))
    assert member.node.configuration.voters == ("a", "b", "c", "d")
    member.node.step(Append(GROUP, "c", "b", 2, 0, 0, 0, [Entry(1, 2, 2, b"")]))
    assert member.node.configuration.voters == ("a", "b", "c")


def test_change_survives_a_restart() -> None:
    """The configuration is found again in the log."""
    net = Net("a", "b", "c")
    net.elect("a")
    changed(net, "a", "learner", "d")
    net["b"].start()
    assert net["b"].node.configuration == Configuration(("a", "b", "c"), ("d",))


def test_one_change_at_a_time() -> None:
    """Thesis 4.1 (bug R7): no second change before the first is committed."""
    net = Net("a", "b", "c")
    net.elect("a")
    with_learner(net, "a", "d")
    net.isolate("a")
    assert isinstance(net["a"].node.propose_change(ConfigChange("voter", "d")), int)
    assert (
        reason(net["a"].node.propose_change(ConfigChange("learner", "e")))
        is RefusalReason.CHANGE_PENDING
    )


def test_no_change_before_an_entry_of_the_own_term_is_committed() -> None:
    """Ongaro, raft-dev 2015 (bug R6)."""
    net = Net("a", "b", "c")
    net.drop = lambda m: isinstance(m, Append)
    net.elect("a")
    answer = net["a"].node.propose_change(ConfigChange("remove", "c"))
    assert reason(answer) is RefusalReason.TERM_NOT_COMMITTED
    net.heal()
    net.tick(3)
    assert isinstance(net["a"].node.propose_change(ConfigChange("remove", "c")), int)


def test_change_needs_the_majority_of_the_new_configuration() -> None:
    """Thesis 4.1: commitment is decided by the configuration that the entry brings."""
    net = Net("a", "b")
    net.elect("a")
    with_learner(net, "a", "c")
    net.cut = {("a", "c"), ("a", "b")}
    index = net["a"].node.propose_change(ConfigChange("voter", "c"))
    net.run()
    assert net["a"].node.commit_index < index
    net.heal()
    net.tick(3)
    assert net["a"].node.commit_index >= index


def test_learner_catches_up_and_is_promoted() -> None:
    """Thesis 4.2.1: new servers first join as non-voting members."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.propose("a", b"x")
    changed(net, "a", "learner", "d")
    net.tick(2)
    assert net["d"].values() == [b"x"]
    changed(net, "a", "voter", "d")
    assert net["d"].node.configuration == Configuration(("a", "b", "c", "d"))


def test_nobody_votes_before_it_has_learned() -> None:
    """A node without a log may have had one: what it promised then, it has forgotten."""
    net = Net("a", "b", "c")
    net.elect("a")
    assert (
        reason(net["a"].node.propose_change(ConfigChange("voter", "d")))
        is RefusalReason.LEARNER_BEHIND
    )
    net.members["d"] = Member("d", ())
    net.isolate("d")
    changed(net, "a", "learner", "d")
    net.tick(2)
    assert (
        reason(net["a"].node.propose_change(ConfigChange("voter", "d")))
        is RefusalReason.LEARNER_BEHIND
    )
    net.heal()
    net.tick(2)
    assert isinstance(net["a"].node.propose_change(ConfigChange("voter", "d")), int)


def test_learner_that_lags_is_not_promoted() -> None:
    """Thesis 4.2.1: else the new majority may wait long for it."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.members["d"] = Member("d", ())
    net.isolate("d")
    changed(net, "a", "learner", "d")
    for _ in range(1100):
        net["a"].node.propose(b"x")
    net.run()
    assert (
        reason(net["a"].node.propose_change(ConfigChange("voter", "d")))
        is RefusalReason.LEARNER_BEHIND
    )


def test_learner_does_not_count_for_commitment() -> None:
    """Thesis 4.2.1."""
    net = Net("a", "b", "c", learners=["l"])
    net.elect("a")
    net.cut = {(x, y) for x in "abc" for y in "abc" if x != y}
    index = net.propose("a", b"x")
    assert net["l"].log.last_index() == index
    assert net["a"].node.commit_index < index


def test_removed_leader_steps_down_once_its_removal_is_committed() -> None:
    """Thesis 4.2.2: it leads, without counting itself, until then."""
    net = Net("a", "b", "c")
    net.elect("a")
    index = changed(net, "a", "remove", "a")
    assert net["a"].node.role is Role.FOLLOWER
    assert net["b"].node.commit_index == index
    net.tick(60)
    assert net.leader() in ("b", "c")
    assert net["a"].node.role is Role.FOLLOWER


def test_removed_server_that_returns_disturbs_nobody() -> None:
    """Thesis 4.2.3 (bug R9): it missed its removal and campaigns; pre-vote and lease refuse."""
    net = Net("a", "b", "c", "d", quiesce_after_ticks=0)
    net.elect("a")
    net.isolate("d")
    changed(net, "a", "remove", "d")
    net.tick(50)
    net.heal()
    net.tick(60)
    assert (net.leader(), net["a"].node.term) == ("a", 1)


def test_last_voter_cannot_be_removed() -> None:
    """A group without voters could never do anything again."""
    net = Net("a")
    net.elect("a")
    answer = net["a"].node.propose_change(ConfigChange("remove", "a"))
    assert reason(answer) is RefusalReason.INVALID_CHANGE


def test_history_knows_the_configuration_at_an_index() -> None:
    one, two = Configuration(("a",)), Configuration(("a", "b"))
    history = History(0, one)
    history.appended([Entry(5, 1, CONFIG, membership.encode(two))])
    assert [history.at(index) for index in (0, 4, 5, 9)] == [one, one, two, two]
    assert history.truncated(5)
    assert history.current == one


def test_a_learner_gets_small_appends_until_it_votes() -> None:
    """No commit waits for a learner, so what it lacks goes in small pieces between the others'."""
    net = Net("a", "b", "c", learner_append_bytes=200, learner_inflight_bytes=300)
    net.elect("a")
    with_learner(net, "a", "d")

    def flight() -> list[int]:
        """Entries of each append that is under way to it, where none is answered."""
        net.cut = {("d", "a")}
        for _ in range(8):
            net["a"].node.propose(b"x" * 84)  # 100 bytes, as it travels
        sent = net["a"].drain()
        net.heal()
        net.post(sent)
        net.run()
        return [len(m.entries) for m in sent if isinstance(m, Append) and m.to == "d"]

    assert flight() == [2, 2]
    net.tick(3)
    assert net["d"].node.last_index == net["a"].node.last_index
    changed(net, "a", "voter", "d")
    assert flight() == [8]
