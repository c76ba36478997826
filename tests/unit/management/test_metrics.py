"""Prometheus' text format (`broker.management.metrics.exposition`)."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from broker.management.metrics.exposition import CHUNK_BYTES, Family, labelled, written
from broker.management.metrics.paths import asked


def chunks(*families: Family) -> list[bytes]:
    work = written(families)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: list[bytes] = end.value
            return found


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
