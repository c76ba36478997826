"""Snapshots and compaction (Raft 7), reads (thesis 6.4), quiesced groups (rule P31), traces.

Bugs are the rows of docs/planted-bugs.md.
"""

from __future__ import annotations

import msgspec

from raft.core.membership import ConfigChange
from raft.core.messages import (
    Append,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    PreVote,
)
from raft.core.ready import Refused, Role
from raft.core.trace import TraceRecord, as_line
from tests.unit.raft.core.harness import GROUP, Member, Net


def lagging() -> Net:
    """c misses ten entries that the leader has compacted."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.isolate("c")
    for number in range(10):
        net.propose("a", b"%d" % number)
    for name in "ab":
        net[name].save_snapshot(9, (b"one", b"two", b"three"))
    net.heal()
    return net


def test_follower_far_behind_gets_a_snapshot_and_the_rest() -> None:
    """Raft 7: the leader sends a snapshot when the next entry was discarded."""
    net = lagging()
    net.tick(3)
    assert [snapshot.parts for snapshot in net["c"].restored] == [(b"one", b"two", b"three")]
    assert net["c"].values() == [b"8", b"9"]
    assert net["c"].node.commit_index == net["a"].node.commit_index


def test_snapshot_travels_in_parts_in_order() -> None:
    """Raft 7, figure 13: offset, data, done."""
    net = lagging()
    net.tick(3)
    parts = [m for m in net.sent if isinstance(m, InstallSnapshot)]
    assert [(m.part, m.data, m.done) for m in parts] == [
        (0, b"one", False),
        (1, b"two", False),
        (2, b"three", True),
    ]


def test_lost_part_is_sent_again() -> None:
    """Bug R12: a transfer does not hang when a part is lost."""
    net = lagging()
    lost: list[Message] = []

    def drop(message: Message) -> bool:
        if isinstance(message, InstallSnapshot) and message.part == 1 and not lost:
            lost.append(message)
            return True
        return False

    net.drop = drop
    net.tick(15)
    assert lost
    assert len(net["c"].restored) == 1


def test_follower_that_restarts_in_the_middle_begins_again() -> None:
    """Parts are only in memory until the last one is there."""
    net = lagging()
    net.drop = lambda m: isinstance(m, InstallSnapshot) and m.part == 2
    net.tick(3)
    net["c"].start()
    net.heal()
    net.tick(15)
    assert len(net["c"].restored) == 1
    assert net["c"].node.commit_index == net["a"].node.commit_index


def test_snapshot_is_acknowledged_only_after_its_sync() -> None:
    """Rule P28: acknowledged only when all of it is durable; and no campaign before that."""
    net = lagging()
    net.drop = lambda m: isinstance(m, InstallSnapshot) and m.part == 2
    net.tick(3)
    net.heal()
    net["c"].hold_sync = True
    net.tick(6)
    assert net["c"].restored
    assert net["a"].node.matches()["c"] < 9
    net["c"].node.campaign()
    assert net["c"].node.role is Role.FOLLOWER
    net.post(net["c"].sync())
    net["c"].hold_sync = False
    net.run()
    assert net["a"].node.matches()["c"] >= 9


def test_snapshot_of_what_is_already_there_changes_nothing() -> None:
    """Raft 7: if existing entry has same index and term, retain the entries following it."""
    net = Net("a", "b")
    net.elect("a")
    for number in range(5):
        net.propose("a", b"%d" % number)
    meta = net["a"].node.snapshot_meta(3)
    net["b"].node.step(InstallSnapshot(GROUP, "a", "b", 1, meta, 0, True, b"old"))
    net.run()
    assert net["b"].restored == []
    assert net["b"].node.last_index == 6


def test_snapshot_brings_the_configuration() -> None:
    """Raft 7: the snapshot includes the latest configuration as of its last index."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.isolate("c")
    net["a"].node.propose_change(ConfigChange("learner", "z"))
    net.run()
    net["a"].save_snapshot(net["a"].node.applied_index)
    net.heal()
    net.tick(3)
    assert net["c"].restored
    assert net["c"].node.configuration.learners == ("z",)


def test_restart_from_a_snapshot_and_the_log_behind_it() -> None:
    """Raft 7: state is snapshot plus the entries after it."""
    net = lagging()
    net["b"].start()
    node = net["b"].node
    assert (node.first_index, node.applied_index, node.last_index) == (10, 9, 11)


def test_replaced_snapshot_starts_again_from_the_newer_one() -> None:
    """Bug R12: the leader compacts again while parts are under way."""
    net = lagging()
    net.drop = lambda m: isinstance(m, InstallSnapshotReply)
    net.tick(2)
    net.heal()
    net["a"].save_snapshot(11, (b"newer",))
    net.tick(15)
    assert net["c"].restored[-1].parts == (b"newer",)


# Reads


def test_read_is_served_after_a_round_of_heartbeats() -> None:
    """Thesis 6.4: the leader must prove that it still leads."""
    net = Net("a", "b", "c")
    net.elect("a")
    index = net.propose("a", b"x")
    assert net["a"].node.read_index(41) is None
    assert net["a"].drain()
    assert net["a"].reads == []
    net["a"].node.read_index(42)
    net.run()
    assert (42, index) in net["a"].reads


def test_deposed_leader_serves_no_read() -> None:
    """Thesis 6.4 (bug R16): stale reads of a paused or cut-off leader."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.isolate("a")
    net["a"].node.read_index(1)
    net.run()
    net.elect("b")
    net.propose("b", b"x")
    net.heal()
    net.tick(30)
    assert net["a"].reads == []


def test_read_waits_for_the_first_commit_of_the_term() -> None:
    """Thesis 6.4, step 1: until then the leader does not know the newest commit index."""
    net = Net("a", "b", "c")
    net.drop = lambda m: isinstance(m, Append)
    net.elect("a")
    net["a"].node.read_index(1)
    net.run()
    assert net["a"].reads == []
    net.heal()
    net.tick(3)
    assert net["a"].reads == [(1, 1)]


def test_follower_asks_the_leader() -> None:
    """Thesis 6.4: followers can serve reads with the leader's index."""
    net = Net("a", "b", "c")
    net.elect("a")
    index = net.propose("a", b"x")
    net["c"].node.read_index(7)
    net.run()
    assert net["c"].reads == [(7, index)]
    lone = Member("x", "xyz")
    assert isinstance(lone.node.read_index(1), Refused)


# Quiesced groups


def quiesce() -> Net:
    net = Net("a", "b", "c", quiesce_after_ticks=3)
    net.elect("a")
    net.propose("a", b"x")
    net.tick(6)
    assert all(member.node.is_quiesced for member in net.members.values())
    return net


def test_idle_group_quiesces_and_nobody_campaigns() -> None:
    """Rule P31: no heartbeats, no election timers."""
    net = quiesce()
    net.sent.clear()
    net.tick(100)
    assert net.sent == []
    assert net.leader() == "a"


def test_group_is_not_quiesced_while_a_voter_lags() -> None:
    """Rule P31: quiesced only while all voters match the leader."""
    net = Net("a", "b", "c", quiesce_after_ticks=3)
    net.elect("a")
    net.isolate("c")
    net.propose("a", b"x")
    net.tick(30)
    assert not net["a"].node.is_quiesced


def test_group_is_not_quiesced_while_a_voter_that_answers_lags() -> None:
    """It hears heartbeats and would agree, for it has all it was told is committed."""
    net = Net("a", "b", "c", quiesce_after_ticks=3)
    net.elect("a")
    net.drop = lambda m: isinstance(m, Append) and m.to == "c"
    net.propose("a", b"x")
    net.tick(30)
    assert not net["a"].node.is_quiesced
    net.heal()
    net.tick(3)
    assert net["c"].values() == [b"x"]


def test_proposal_wakes_the_group() -> None:
    """And its heartbeats come back with it."""
    net = quiesce()
    net.propose("a", b"y")
    assert not any(member.node.is_quiesced for member in net.members.values())
    assert net["c"].values() == [b"x", b"y"]


def test_suspected_leader_of_a_quiesced_group_is_replaced() -> None:
    """Rule P7: a suspected peer wakes every quiesced group that it led."""
    net = quiesce()
    net.isolate("a")
    for name in "bc":
        net[name].node.peer_suspected("a")
    net.tick(30, only=["b", "c"])
    assert net.leader() in ("b", "c")


def test_restarted_follower_finds_its_quiesced_leader() -> None:
    """Its pre-vote wakes the leader, which answers with heartbeats; the term stays."""
    net = quiesce()
    net["c"].start()
    net.tick(40)
    assert net["c"].node.leader == "a"
    assert net["a"].node.term == 1
    assert any(isinstance(message, PreVote) for message in net.sent)


def test_follower_does_not_quiesce_for_a_suspected_leader() -> None:
    """A late heartbeat of a dead leader must not stop the timer for ever."""
    net = Net("a", "b", "c")
    net.elect("a")
    follower = net["b"]
    follower.node.peer_suspected("a")
    follower.node.step(Heartbeat(GROUP, "a", "b", 1, 1, quiesce=True))
    assert not follower.node.is_quiesced
    follower.node.peer_back("a")
    follower.node.step(Heartbeat(GROUP, "a", "b", 1, 1, quiesce=True))
    assert follower.node.is_quiesced


def test_follower_that_misses_entries_does_not_agree_to_quiescence() -> None:
    net = Net("a", "b", "c")
    net.elect("a")
    net["b"].node.step(Heartbeat(GROUP, "a", "b", 1, 9, quiesce=True))
    replies = [m for m in net["b"].drain() if isinstance(m, HeartbeatReply)]
    assert [m.quiesce for m in replies] == [False]


def test_group_of_one_is_quiesced_too() -> None:
    net = Net("a", quiesce_after_ticks=3)
    net.elect("a")
    net.tick(5)
    assert net["a"].node.is_quiesced
    net.propose("a", b"x")
    assert net["a"].values() == [b"x"]


# Traces and records


def test_transitions_are_traced() -> None:
    net = Net("a", "b", "c")
    records: list[TraceRecord] = []
    net["a"].node.set_tracer(records.append)
    net.elect("a")
    names = [record.name for record in records]
    assert names[:4] == ["candidate", "leader", "append", "commit"]
    assert msgspec.json.decode(as_line(records[1]))["event"]["role"] == "leader"


def test_messages_survive_the_wire() -> None:
    """All of them are msgpack arrays told apart by a number."""
    net = lagging()
    net["b"].node.read_index(1)
    net.tick(3)
    decoder = msgspec.msgpack.Decoder(Message)
    for message in net.sent:
        assert decoder.decode(msgspec.msgpack.encode(message)) == message
