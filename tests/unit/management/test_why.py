"""What is said of a queue, for each state of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from broker.management.operations.redriving.tally import Group
from broker.management.report import Holder, Report, Served
from broker.management.resources.diagnosis.reasons import QueueView, Rates, Reason, reasons
from broker.management.resources.diagnosis.words import amount, joined, lasting, per_second
from broker.management.resources.queues import QueueStates
from broker.metadata.queue_settings import QueueSettings
from broker.metadata.records import Queue
from broker.metadata.rings import Ring, RingMember
from broker.ports import QueueDetails, QueueStat, StreamFacts

ONE, TWO, THREE = "rabbit@one", "rabbit@two", "rabbit@three"


def queue(kind: str = "classic", members: tuple[str, ...] = (ONE,)) -> Queue:
    return Queue(
        vhost="/",
        name="a/b",
        durable=True,
        auto_delete=False,
        exclusive_owner=None,
        arguments={"x-queue-type": kind},
        type=kind,
        uid=7,
        home=ONE,
        members=members,
    )


def holder(tag: str = "t", held: int = 2, ms: int = 5_000, prefetch: int = 2) -> Holder:
    return Holder(
        queue_uid=7,
        connection=f"c-{tag}",
        client=f"worker {tag}",
        user="guest",
        node=ONE,
        channel=1,
        tag=tag,
        held=held,
        oldest_ms=ms,
        newest_ms=ms,
        prefetch=prefetch,
        no_ack=False,
        channel_prefetch=0,
        channel_held=held,
        is_attached=True,
        unsent_bytes=0,
    )


def stat(ready: int = 0, unacked: int = 0, consumers: int = 0, state: str = "running") -> QueueStat:
    return QueueStat(ready, unacked, consumers, 0, 0, state)


def view(
    counted: QueueStat | None,
    *holders: Holder,
    of: Queue | None = None,
    rates: Rates | None = None,
    alarms: tuple[str, ...] = (),
    settings: QueueSettings | None = None,
    details: QueueDetails | None = None,
    syncing: int | None = None,
    reports: dict[str, Report] | None = None,
) -> QueueView:
    served = [] if counted is None else [Served(7, 1, counted, syncing, details=details)]
    found = reports or {ONE: Report(served=served, replicas=[7])}
    return QueueView(
        of or queue(),
        settings or QueueSettings(),
        QueueStates(found),
        holders,
        set(found),
        alarms,
        rates or Rates(),
    )


def first(of: QueueView) -> Reason:
    return reasons(of)[0]


def test_an_empty_queue_is_well() -> None:
    found = reasons(view(stat()))
    assert [(each.kind, each.is_well, each.text) for each in found] == [
        ("empty", True, "Well: it is empty.")
    ]
    assert found[0].proof == ("nothing comes in, nothing goes out",)


def test_messages_without_a_consumer() -> None:
    found = first(view(stat(ready=48_210), rates=Rates(415.4)))
    assert found.text == "Not draining: 48,210 messages wait, and there is no consumer."
    assert found.proof == ("415/s in, 0/s out, 0/s acknowledged",)
    (act,) = found.acts
    assert (act.method, act.path) == ("DELETE", "/api/queues/%2F/a%2Fb/contents")
    assert act.loses == "48,210 messages of 'a/b' for good"
    ttl = first(view(stat(ready=1), settings=QueueSettings(message_ttl_ms=90_000)))
    assert "each is dropped or dead-lettered after 1 min 30 s (message TTL)" in ttl.proof


def test_dead_letters_are_looked_at_and_sent_back_before_they_are_purged() -> None:
    letters = [
        Group("rejected", "orders", "shop", messages=4),
        Group("expired", "bills", None, messages=1),
    ]
    of = view(stat(ready=812))._replace(letters=letters, tags=("browser", "policymaker"))
    found = first(of)
    assert found.kind == "dead_letters"
    assert found.text == "812 messages wait, and the first are dead letters."
    assert found.proof[0] == (
        "among the first are 4 messages of queue 'orders': rejected and 1 message of queue "
        "'bills': expired"
    )
    assert [(each.label, each.method, each.path) for each in found.acts] == [
        ("Browse", "GET", "/api/queues/%2F/a%2Fb/browse"),
        ("Send back", "POST", "/api/queues/%2F/a%2Fb/redrive"),
        ("Purge", "DELETE", "/api/queues/%2F/a%2Fb/contents"),
    ]
    assert [each.label for each in first(of._replace(tags=())).acts] == ["Purge"]
    assert first(view(stat(1, 0, 1))._replace(letters=letters)).kind == "begins"


def test_consumers_that_hold_all_they_may() -> None:
    found = first(view(stat(9, 4, 2), holder("a", ms=192_000), holder("b", ms=3_000)))
    assert found.text == "Not draining: all 2 consumers have had the prefetch full for 3 s."
    assert found.proof[:2] == (
        "worker a (consumer a, channel 1) holds 2 of 2 messages, the oldest for 3 min 12 s",
        "worker b (consumer b, channel 1) holds 2 of 2 messages, the oldest for 3 s",
    )
    cancel, close = found.acts  # who has held the longest
    assert (cancel.path, cancel.body) == (
        "/api/queues/%2F/a%2Fb/holders/cancel",
        {"connection_name": "c-a", "channel": 1, "consumer_tag": "a", "give_back": True},
    )
    assert close.path == "/api/connections/c-a"


def test_one_consumer_with_room_is_enough() -> None:
    assert first(view(stat(9, 3, 2), holder("a"), holder("b", held=1))).is_well
    assert first(view(stat(9, 4, 2), holder("a"), holder("b", ms=300))).is_well  # it is at work
    no_limit = holder("a", held=5_000, prefetch=0)
    assert first(view(stat(9, 5_000, 1), no_limit)).kind == "begins"


def test_a_channels_limit_counts_too() -> None:
    held = replace(holder("a", held=1, prefetch=0), channel_prefetch=3, channel_held=3)
    assert first(view(stat(9, 1, 1), held)).kind == "prefetch_full"
    assert first(view(stat(9, 1, 1), replace(held, channel_held=2))).kind == "begins"
    assert first(view(stat(9, 1, 1), replace(held, no_ack=True))).kind == "begins"


def test_only_the_active_consumer_counts_where_one_is_active() -> None:
    counted = stat(9, 2, 2)._replace(active=("ch", "a"))
    waiting = holder("b", held=0)
    assert first(view(counted, holder("a"), waiting)).kind == "prefetch_full"
    assert first(view(stat(9, 2, 2), holder("a"), waiting)).kind == "begins"


def test_a_consumer_that_does_not_read() -> None:
    slow = replace(holder("a", held=0), unsent_bytes=4_200_000)
    found = first(view(stat(9, 0, 1), slow))
    assert found.text == "Not draining: the only consumer does not read the socket."
    assert found.proof[0] == "4.2 MB wait for worker a (consumer a, channel 1)"
    assert first(view(stat(9, 0, 1), slow, rates=Rates(0, 50))).kind == "draining"
    all_sent = replace(slow, held=9)
    assert first(view(stat(0, 9, 1), all_sent)).kind == "not_reading"
    assert first(view(stat(0, 9, 2), all_sent, holder("b"))).kind == "worked_on"


def test_rates_tell_whether_it_grows() -> None:
    working = holder("a", held=1)
    grows = first(view(stat(100, 1, 1), working, rates=Rates(400, 300, 300)))
    assert (grows.kind, grows.is_well) == ("consumers_slower", False)
    assert grows.text == "It grows: 400/s come in, consumers take 300/s."
    drains = first(view(stat(6_000, 1, 1), working, rates=Rates(0, 100, 100)))
    assert drains.text == "Well: it drains, and is empty in about 1 min."
    steady = first(view(stat(100, 1, 1), working, rates=Rates(300, 300, 300)))
    assert (steady.kind, steady.is_well) == ("steady", True)


def test_messages_that_nobody_acknowledges() -> None:
    young = first(view(stat(0, 2, 1), holder("a")))
    assert (young.kind, young.is_well) == ("worked_on", True)
    old = first(view(stat(0, 2, 1), holder("a", ms=61_000)))
    assert old.text == "2 messages are not acknowledged, the oldest for 1 min 1 s."
    taken = replace(holder("", held=1, ms=90_000, prefetch=0), is_attached=False)
    got = first(view(stat(0, 1), taken))
    assert got.text == "1 message is not acknowledged, the oldest for 1 min 30 s."
    assert "(basic.get, channel 1) holds 1 message" in got.proof[0]
    assert got.acts[0].path == "/api/queues/%2F/a%2Fb/holders/give_back"


def test_replicas_without_a_majority() -> None:
    of = queue("quorum", (ONE, TWO, THREE))
    alone = {ONE: Report(replicas=[7])}
    found = first(view(None, of=of, reports=alone))
    assert (found.kind, found.text) == ("no_majority", "Down: no majority, 1 of 3 replicas run.")
    assert found.proof[1] == "does not answer: rabbit@two and rabbit@three"
    damaged = {ONE: Report(damaged=[7]), TWO: Report(replicas=[7])}
    found = first(view(None, of=of, reports=damaged))
    assert found.text == "Down: the log of its replica on rabbit@one is damaged."
    assert "force_shrink_member_to_current_member on rabbit@two" in found.advice
    electing = {ONE: Report(replicas=[7]), TWO: Report(replicas=[7])}
    assert first(view(None, of=of, reports=electing)).kind == "no_leader"


def test_a_classic_queue_whose_node_is_away() -> None:
    away = {TWO: Report()}
    assert first(view(None, reports=away)).text == (
        "Down: its messages are on node rabbit@one, which does not run."
    )
    assert first(view(None, reports={ONE: Report()})).kind == "no_answer"
    last = RingMember(ONE, "boot", 1)
    ring = Ring(3, ((last, False),), None, 2, last=last, recoverable=(TWO,))
    found = first(view(None, of=replace(queue(), ring=ring), reports=away))
    assert found.text == (
        "Down: it waits for node rabbit@one, the last that had all of its messages."
    )
    assert found.proof == ("older copies are on rabbit@two",)
    other = RingMember(TWO, "boot", 2)
    taking = replace(ring, slots=((other, True),), successor=other)
    assert first(view(None, of=replace(queue(), ring=taking), reports=away)).kind == "promoting"


def test_what_stands_beside_the_reason() -> None:
    of = queue("quorum", (ONE, TWO))
    found = reasons(view(stat(ready=1), of=of, alarms=("disk alarm on node rabbit@two",)))
    assert [each.kind for each in found] == ["no_consumer", "alarm", "replica_away"]
    assert found[1].text == "Nothing can be published: disk alarm on node rabbit@two."
    assert found[2].text == "1 replica of 2 away: rabbit@two."
    dead = QueueDetails(dead=3, dead_bytes=1_500)
    settings = QueueSettings(dead_letter_exchange="dlx", is_at_least_once=True)
    of = queue("quorum")
    (blocked,) = reasons(view(stat(ready=3), of=of, details=dead, settings=settings))
    assert blocked.text.startswith("3 dead messages wait until the queues of exchange 'dlx' have")
    more = reasons(view(stat(ready=4), of=of, details=dead, settings=settings))
    assert more[0].text == "Not draining: 1 message waits, and there is no consumer."
    assert more[1:] == [blocked]
    assert first(view(stat(ready=1), syncing=40)).text == (
        "It waits until its mirrors are synchronised: 40 messages sent."
    )
    held = {ONE: Report(served=[Served(7, 1, stat(1, 0, 1))], held=[7])}
    assert [each.kind for each in reasons(view(None, reports=held))] == ["begins", "flow"]


def test_a_stream_is_well_whatever_it_holds() -> None:
    facts = StreamFacts(size_bytes=10_000_000_000)
    found = first(view(stat(ready=9), of=queue("stream"), details=QueueDetails(stream=facts)))
    assert found.text == "Well: a stream keeps what was read, 10 GB now, until retention."


@pytest.mark.parametrize(
    ("ms", "text"),
    [(-1, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (60_000, "1 min"), (90_061_000, "1 d 1 h")],
)
def test_durations(ms: int, text: str) -> None:
    assert lasting(ms) == text


def test_amounts_rates_and_lists() -> None:
    assert [amount(size) for size in (0, 999, 1_500, 52_000_000)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "52 MB",
    ]
    assert [per_second(rate) for rate in (0.0, 0.4, 1234.5)] == ["0/s", "0.4/s", "1,234/s"]
    assert [joined(names) for names in ([], ["a"], ["a", "b", "c"])] == ["", "a", "a, b and c"]
