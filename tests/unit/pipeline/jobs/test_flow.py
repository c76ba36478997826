"""How queues flow, from samples whose answers are known."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
from pipeline.command.declared import JOBS
from pipeline.jobs import flow
from pipeline.jobs.flow_samples import SCHEMA, Sample, sample

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


def samples(queue, values, messages_max=None, bytes_max=None):
    """A sample every 10 s: messages, published, delivered."""
    return [
        Sample(
            at * 10_000_000, "/", queue, messages, messages * 100, published, delivered, 1,
            messages_max, bytes_max,
        )
        for at, (messages, published, delivered) in enumerate(values)
    ]  # fmt: skip


def test_limits_of_arguments_and_policy_the_lower_one_counts():
    item = {
        "vhost": "/", "name": "q", "messages": 3, "message_bytes": 30, "consumers": 2,
        "message_stats": {"publish": 5, "deliver_get": 2}, "arguments": {"x-max-length": 10},
        "effective_policy_definition": {"max-length": 7, "max-length-bytes": 900},
    }  # fmt: skip
    assert sample(item, 1) == Sample(1, "/", "q", 3, 30, 5, 2, 2, 7, 900)
    bare = {"vhost": "/", "name": "q"}
    assert sample(bare, 1) == Sample(1, "/", "q", 0, 0, None, None, 0, None, None)


def test_the_job_needs_the_http_api():
    needed = [setting.name for setting in JOBS["flow"].settings if setting.is_needed]
    assert needed == ["http_url"]


@pytest.mark.long
def test_rates_growth_and_hours(spark):
    rows = [
        # 100 in, 60 out a second: 72,000 more in 0.5 h at 40 a second.
        *samples("grows", [(n * 400, n * 1000, n * 600) for n in range(4)], 73_200),
        *samples("by-bytes", [(n * 400, None, None) for n in range(4)], 10**9, 7_320_000),
        # Its node began anew: 500 since then.
        *samples("restarted", [(0, 9000, 9000), (0, 9500, 9500), (0, 500, 500)], 10),
        *samples("shrinks", [(900, 0, 0), (800, 0, 100)], 1000),
        *samples("is-full", [(10, 0, 0), (10, 0, 0)], 10),
        *samples("once", [(5, 5, 0)]),
    ]
    frame = flow.flows(spark.createDataFrame(rows, SCHEMA))
    found = {row["queue"]: row for row in frame.collect()}
    assert found["grows"]["in_rate"] == pytest.approx(100)
    assert found["grows"]["out_rate"] == pytest.approx(60)
    assert found["grows"]["growth"] == pytest.approx(40)
    assert found["grows"]["hours"] == pytest.approx(0.5)
    assert found["by-bytes"]["in_rate"] is None
    assert found["by-bytes"]["hours"] == pytest.approx(0.5)
    assert found["restarted"]["in_rate"] == pytest.approx((500 + 500) / 20)
    assert found["shrinks"]["growth"] == pytest.approx(-10)
    assert found["shrinks"]["hours"] is None
    assert found["is-full"]["hours"] == 0
    assert found["once"]["in_rate"] is None

    report = flow.report("flow", frame, 1)
    assert report.findings == [
        "queue 'is-full' reaches its limit in 0.0 h",
        "queue 'by-bytes' reaches its limit in 0.5 h",
        "queue 'grows' reaches its limit in 0.5 h",
    ]
    assert report.facts["queues"] == 6
    assert report.charts[0].items[0] == ("grows", pytest.approx(160))
    assert [name for name, _ in report.charts[1].items] == ["by-bytes", "grows"]
