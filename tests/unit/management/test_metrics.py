"""Prometheus' text format (`broker.management.metrics.exposition`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from broker.counters import MessageCounts
from broker.management.metrics import queue_families
from broker.management.metrics.exposition import CHUNK_BYTES, Columns, Family, labelled, written
from broker.management.metrics.facts import QueueFacts
from broker.management.metrics.paths import asked
from broker.management.metrics.rows import SUMMED, of_sum
from broker.metadata.records import Queue

QUEUE = Queue("/", "q", 1, "classic", True, False, None, {}, "n@h", ())

T = TypeVar("T")


def ended(work: Generator[None, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


def chunks(*families: Family) -> list[bytes]:
    return ended(written(families))


def text(*families: Family) -> str:
    return b"".join(chunks(*families)).decode()


def test_the_text_is_what_prometheus_own_parser_reads():
    hostile = 'a"b\\c\nd'
    found = text(
        Family("x_total", "counter", "Things", [("", 3)]),
        Family("y", "gauge", "Levels", [(labelled((("vhost", "/"), ("queue", hostile))), 0.5)]),
    )
    first, second = text_string_to_metric_families(found)
    assert (first.type, first.documentation, first.samples[0].value) == ("counter", "Things", 3)
    assert second.samples[0].labels == {"vhost": "/", "queue": hostile}
    assert found.count("\n") == 6


def test_many_samples_are_written_in_steps_and_pieces():
    samples = [(labelled((("n", str(n)),)), n) for n in range(10_000)]
    family = Family("y", "gauge", "Levels", samples)
    assert sum(1 for _ in written([family])) > 100
    assert max(map(len, chunks(family))) < 2 * CHUNK_BYTES
    (read,) = text_string_to_metric_families(text(family))
    assert [sample.value for sample in read.samples] == list(range(10_000))


def test_unknown_groups_show_nothing_and_unknown_vhosts_hide_all():
    assert asked(["queue_metrics", "nonsense"], [], ["/"]) == (frozenset({"queue_metrics"}), None)
    assert asked([], ["/", "gone"], ["/", "a"]).vhosts == frozenset({"/"})
    assert asked([], ["gone"], ["/"]).vhosts == frozenset()


def test_columns_are_written_as_pairs_are_whatever_values_neighbours_have():
    labels = [labelled((("n", str(n)),)) for n in range(1_000)]
    for values in ([7] * 1_000, [0.5] * 999 + [1], [n // 300 for n in range(1_000)]):
        pairs = Family("y", "gauge", "Levels", zip(labels, values, strict=True))
        columns = Family("y", "gauge", "Levels", Columns(labels, iter(values)))
        assert text(columns) == text(pairs)
    assert text(Family("y", "gauge", "Levels", Columns([], iter(())))).count("\n") == 2


def test_idle_queues_put_together_change_no_sum():
    queues = []
    for number in range(3 * SUMMED):
        counts = MessageCounts()
        counts.publish = number
        facts = QueueFacts(QUEUE, counts, 7_900 + number, is_classic=True)
        if not number % 5:
            facts.is_idle, facts.ready, facts.ready_bytes, facts.alpha = False, 3, 300 + number, 1
        queues.append(facts)
    some = ended(queue_families.condensed(queues))
    assert len(some) < len(queues) / 4
    whole, fewer = (ended(of_sum(queue_families.ALL, each)) for each in (queues, some))
    assert text(*fewer) == text(*whole)
    assert ended(queue_families.condensed([])) == []
