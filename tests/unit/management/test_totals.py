"""Sums over all queues and clients: those of a sample are what a look at all of them finds."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.config import Settings
from broker.counters import MessageCounts
from broker.management.report import STATISTICS, TOTALS, Report, Wanted, report_of
from broker.management.statistics.collector import Collector
from broker.management.statistics.totals import EXACT_MAX, Sums, Totals
from broker.metadata import commands
from broker.ports import QueueStat
from tests.unit.management.rig import Control
from tests.unit.metadata.cluster import ONE

NAMES, VHOSTS, USERS = ("a", "b", "c"), ("/", "other"), ("guest", "mon")


def finished(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Crowd:
    """A node whose queues and clients come and go, and what it should say of them."""

    def __init__(self) -> None:
        self.control = Control(Settings(node_name=ONE))
        self.control.asker.ask(commands.AddVhost("other"))
        self.control.asker.ask(commands.AddVhost("empty"))
        self.queues: dict[tuple[str, str], QueueStat] = {}
        self.clients: dict[int, tuple[str, str, int]] = {}
        self.looks = 0
        queues = self.control.serving.queues
        count_here = queues.count_here

        def counted(uid: int) -> QueueStat | None:
            self.looks += 1
            return count_here(uid)

        queues.count_here = counted

    def declare(self, vhost: str, name: str, ready: int, unacked: int, consumers: int) -> None:
        """Declare a queue, or change what is in it."""
        catalogue = self.control.asker.machine.catalogue
        if (vhost, name) not in self.queues:
            self.control.asker.ask(
                commands.DeclareQueue(vhost, name, True, False, None, {}, ONE, (ONE,))
            )
        stat = self.queues[vhost, name] = QueueStat(ready, consumers, unacked, 0, 0, "running")
        self.control.serving.queues.stats[catalogue.queue(vhost, name).uid] = stat

    def delete(self, vhost: str, name: str) -> None:
        if self.queues.pop((vhost, name), None) is not None:
            uid = self.control.asker.machine.catalogue.queue(vhost, name).uid
            self.control.asker.ask(commands.DeleteQueue(uid))
            del self.control.serving.queues.stats[uid]

    def connect(self, number: int, vhost: str, user: str, channels: int) -> None:
        """Connect a client, or another one in its place; without a user it has not logged in."""
        session = SimpleNamespace(
            channel_count=channels,
            channel_counts=lambda: [(key, MessageCounts()) for key in range(channels)],
            channels=list,
        )
        info = SimpleNamespace(
            connection_id=number,
            name=f"client {number}",
            user=user,
            vhost=vhost if user else "",
            received_bytes=number,
            sent_bytes=2 * number,
        )
        self.control.serving.listener.connections[number] = SimpleNamespace(
            info=info, session=session if user else None
        )
        self.clients[number] = (vhost, user, channels)

    def disconnect(self, number: int) -> None:
        self.clients.pop(number, None)
        self.control.serving.listener.connections.pop(number, None)

    def model(self) -> Totals:
        """What is there, added up by what this test did."""
        found = Totals()
        for vhost in {vhost for vhost, _ in self.queues}:
            stats = [stat for (of, _), stat in self.queues.items() if of == vhost]
            found.queues[vhost] = Sums(
                len(stats),
                sum(stat.ready for stat in stats),
                sum(stat.unacked for stat in stats),
                sum(stat.consumers for stat in stats),
            )
        for user in {user for _, user, _ in self.clients.values() if user}:
            channels = [each for _, of, each in self.clients.values() if of == user]
            found.connections[user], found.channels[user] = len(channels), sum(channels)
        return found

    def octets(self) -> dict[str, tuple[int, int]]:
        """Bytes of the clients, by vhost."""
        found: dict[str, tuple[int, int]] = {}
        for number, (vhost, user, _) in self.clients.items():
            if user:
                received, sent = found.get(vhost, (0, 0))
                found[vhost] = received + number, sent + 2 * number
        return found

    def report(self, collector: Collector) -> Report:
        return finished(report_of(self.control, Wanted((TOTALS, STATISTICS)), collector))


_vhosts, _numbers = st.sampled_from(VHOSTS), st.integers(0, 5)
_changes = st.one_of(
    st.tuples(st.just("declare"), _vhosts, st.sampled_from(NAMES), _numbers, _numbers, _numbers),
    st.tuples(st.just("delete"), _vhosts, st.sampled_from(NAMES)),
    st.tuples(st.just("connect"), _numbers, _vhosts, st.sampled_from(("", *USERS)), _numbers),
    st.tuples(st.just("disconnect"), _numbers),
    st.tuples(st.just("sample")),
)


@given(st.lists(_changes, max_size=40))
def test_the_sums_of_a_sample_are_those_of_a_look_at_all(changes: list[tuple[Any, ...]]) -> None:
    crowd = Crowd()
    collector, other = Collector(crowd.control, exact_max=0), Collector(crowd.control)
    for change, *given_values in [*changes, ("sample",)]:
        if change != "sample":
            getattr(crowd, change)(*given_values)
            continue
        finished(collector.sample())
        sampled, looked = crowd.report(collector), crowd.report(other)
        assert sampled.totals.is_sampled == bool(crowd.model().things)
        sampled.totals.is_sampled, was = False, sampled.totals.is_sampled
        assert sampled.totals == looked.totals == crowd.model()
        sampled.totals.is_sampled = was
        octets = {key: each.numbers for key, each in sampled.statistics.octets.items()}
        assert octets == crowd.octets()
        assert octets == {key: each.numbers for key, each in looked.statistics.octets.items()}


def test_nothing_is_looked_at_for_the_sums_of_many_queues() -> None:
    crowd = Crowd()
    collector = Collector(crowd.control)
    for number in range(EXACT_MAX + 1):
        crowd.declare("/", str(number), 1, 0, 0)
    assert crowd.report(collector).totals == crowd.model()  # no sample was taken
    assert crowd.report(collector).things == EXACT_MAX + 1
    finished(collector.sample())
    looks = crowd.looks
    crowd.declare("/", "0", 100, 0, 0)
    report = crowd.report(collector)
    assert crowd.looks == looks
    assert report.totals.queues["/"].ready == EXACT_MAX + 1  # as the sample saw it
    assert report.things == 0
    finished(collector.sample())
    assert crowd.report(collector).totals.queues == crowd.model().queues


def test_few_queues_are_looked_at_for_who_asks() -> None:
    crowd = Crowd()
    collector = Collector(crowd.control)
    for number in range(EXACT_MAX):
        crowd.declare("/", str(number), 1, 0, 0)
    finished(collector.sample())
    crowd.declare("/", "0", 100, 0, 0)
    assert crowd.report(collector).totals == crowd.model()


def test_the_sums_of_a_broker_that_was_stopped_are_not_those_of_the_one_that_runs_now() -> None:
    crowd = Crowd()
    collector = Collector(crowd.control, exact_max=0)
    crowd.declare("/", "a", 1, 0, 0)
    finished(collector.sample())
    before = crowd.control.serving
    crowd.control.serving = None
    assert crowd.report(collector).totals == Totals()
    crowd.control.serving = SimpleNamespace(**vars(before))
    crowd.declare("/", "a", 7, 0, 0)
    assert crowd.report(collector).totals == crowd.model()
