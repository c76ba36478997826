"""Prometheus' text format (`broker.management.metrics.exposition`)."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from broker.management.metrics.exposition import Family, written


def text(*families: Family) -> str:
    work = written(families)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: bytes = end.value
            return found.decode()


def test_the_text_is_what_prometheus_own_parser_reads():
    hostile = 'a"b\\c\nd'
    found = text(
        Family("x_total", "counter", "Things", [((), 3)]),
        Family("y", "gauge", "Levels", [((("vhost", "/"), ("queue", hostile)), 0.5)]),
    )
    first, second = text_string_to_metric_families(found)
    assert (first.type, first.documentation, first.samples[0].value) == ("counter", "Things", 3)
    assert second.samples[0].labels == {"vhost": "/", "queue": hostile}
    assert found.count("\n") == 6


def test_many_samples_are_written_in_steps():
    samples = [((("n", str(n)),), n) for n in range(1_000)]
    assert sum(1 for _ in written([Family("y", "gauge", "Levels", samples)])) > 50
