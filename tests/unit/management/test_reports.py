"""What a node says of itself arrives at the node that asks."""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from broker.management import reports
from broker.management.report import Holder, Owner, Report, Served
from broker.management.statistics.flows import Flows
from broker.management.statistics.measured import Measured, NodeStatistics
from broker.management.statistics.totals import Sums, Totals
from broker.ports import QueueDetails, QueueStat


def finished(steps: Generator[None, None, object]) -> object:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_every_part_of_a_report_arrives() -> None:
    served = Served(7, 3, QueueStat(1, 2, 3, 4, 5, "running"), None, ["a"], Measured((1,), (2.0,)))
    served.details = QueueDetails(capacity=0.5)
    holder = Holder(7, "c", "", "u", "a", 1, "t", 2, 30, 10, 2, False, 0, 2, True, 0)
    report = Report(
        node={"name": "a"},
        connections=[{"name": "c"}],
        channels=[{"name": "c (1)"}],
        consumers=[{"consumer_tag": "t"}],
        served=[served],
        replicas=[7],
        owners=[Owner(7, "c", "127.0.0.1", 1)],
        held=[8],
        totals=Totals({"/": Sums(1, 2, 3, 4)}),
        statistics=NodeStatistics(Measured((5,), (6.0,))),
        ranks=[(7, 1.0)],
        memory={"binary": 1},
        flows=Flows(),
        damaged=[9],
        holders=[holder],
    )
    left_out = [
        name for name in Report.__struct_fields__ if name != "flows" and not getattr(report, name)
    ]
    assert left_out == []  # a new part belongs in this test
    packed = finished(reports._packed(report))
    arrived = reports._decode_packed(msgspec.msgpack.encode(packed))
    assert finished(reports._unpacked(arrived)) == report
