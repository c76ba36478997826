"""Queues that a rebalance may move, by the nodes' reports and group 0."""

from __future__ import annotations

from broker.feature_flags import STREAM_QUEUE
from broker.management.operations.balance import Movable
from broker.management.operations.rebalance import Selection, movable, served_by
from broker.management.report import Report, Served
from broker.metadata import commands
from broker.metadata import ring_commands as steps
from broker.ports import QueueStat
from tests.unit.metadata.cluster import BOOT_TWO, ONE, TWO, Asker, founded

QUORUM = {"x-queue-type": "quorum"}


def policy(asker: Asker, **definition: object) -> None:
    named = {key.replace("_", "-"): value for key, value in definition.items()}
    asker.ask(commands.SetPolicy("/", "ha", "^m", named))


def served(asker: Asker, name: str, messages: int, term: int = 1) -> Served:
    uid = asker.machine.catalogue.queue("/", name).uid
    return Served(uid, term, QueueStat(messages, 0, 0, 0, 0, "running"))


def found(asker: Asker, reports: dict[str, Report], **selection: str) -> list[Movable]:
    return movable(asker.machine.catalogue, reports, Selection(**selection))


def test_mirrored_and_quorum_queues_move_and_plain_ones_do_not():
    asker = founded()
    policy(asker, ha_mode="all")
    asker.queue("mirrored")
    asker.queue("plain")
    asker.queue("quorum", arguments=QUORUM, members=(ONE, TWO))
    uid = {each.name: each.uid for each in asker.machine.catalogue.queues()}
    reports = {
        ONE: Report(
            served=[served(asker, "mirrored", 4), served(asker, "plain", 1)],
            replicas=[uid["quorum"]],
        ),
        TWO: Report(served=[served(asker, "quorum", 7)], replicas=[uid["quorum"]]),
    }
    mirrored = Movable(uid["mirrored"], ONE, 4, (TWO,))
    quorum = Movable(uid["quorum"], TWO, 7, (ONE, TWO))
    assert found(asker, reports) == [mirrored, quorum]
    assert found(asker, reports, type="classic") == [mirrored]
    assert found(asker, reports, type="quorum") == [quorum]
    assert found(asker, reports, queue_pattern="^q") == [quorum]
    assert found(asker, reports, vhost_pattern="other") == []
    assert served_by(asker.machine.catalogue, [mirrored, quorum], [ONE, TWO]) == [
        {"node": ONE, "quorum": 0, "classic": 1, "stream": 0},
        {"node": TWO, "quorum": 1, "classic": 0, "stream": 0},
    ]


def test_streams_move_as_quorum_queues_do():
    asker = founded()
    asker.ask(commands.EnableFeatures((STREAM_QUEUE,)))
    asker.queue("quorum", arguments=QUORUM, members=(ONE, TWO))
    asker.queue("stream", arguments={"x-queue-type": "stream"}, members=(ONE, TWO))
    uid = {each.name: each.uid for each in asker.machine.catalogue.queues()}
    names = ("quorum", "stream")
    reports = {
        ONE: Report(served=[served(asker, name, 3) for name in names], replicas=list(uid.values())),
        TWO: Report(replicas=list(uid.values())),
    }
    quorum, stream = (Movable(uid[name], ONE, 3, (ONE, TWO)) for name in names)
    assert found(asker, reports) == [quorum, stream]
    assert found(asker, reports, type="quorum") == [quorum]
    assert found(asker, reports, type="stream") == [stream]
    assert found(asker, reports, type="classic") == []
    assert served_by(asker.machine.catalogue, [quorum, stream], [ONE]) == [
        {"node": ONE, "quorum": 1, "classic": 0, "stream": 1}
    ]


def test_of_two_who_say_they_serve_the_later_one_does():
    asker = founded()
    asker.queue("quorum", arguments=QUORUM, members=(ONE, TWO))
    reports = {
        ONE: Report(served=[served(asker, "quorum", 9, term=3)]),
        TWO: Report(served=[served(asker, "quorum", 2, term=4)]),
    }
    (queue,) = found(asker, reports)
    assert (queue.node, queue.messages) == (TWO, 2)


def test_a_mirror_that_lacks_messages_has_to_be_filled_first():
    asker = founded()
    policy(asker, ha_mode="all")
    asker.queue("m")
    queue = asker.machine.catalogue.queue("/", "m")
    ring = queue.ring
    asker.ask(
        commands.ChangeRings(
            (
                steps.RingDrop(queue.uid, ring.master, ring.epoch, ring.member_on(TWO)),
                steps.RingJoin(queue.uid, ring.master, ring.epoch, TWO, BOOT_TWO),
            )
        )
    )
    reports = {ONE: Report(served=[served(asker, "m", 1)]), TWO: Report()}
    (found_queue,) = found(asker, reports)
    assert (found_queue.ready, found_queue.others) == ((), (TWO,))
    assert found(asker, {ONE: reports[ONE]})[0].others == (), "who does not answer gets nothing"


def test_where_the_policy_would_keep_a_queue():
    asker = founded()
    policy(asker, ha_mode="exactly", ha_params=1)
    asker.queue("m")
    reports = {ONE: Report(served=[served(asker, "m", 1)]), TWO: Report()}
    (queue,) = found(asker, reports)
    assert (queue.ready, queue.others) == ((), (TWO,)), "exactly: any node would do"
    policy(asker, ha_mode="nodes", ha_params=[ONE])
    (queue,) = found(asker, reports)
    assert (queue.ready, queue.others) == ((), ()), "nodes: none but those named"
