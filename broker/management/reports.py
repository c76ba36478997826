"""Asks the nodes for their reports (`broker.management.report`) and answers for this one.

A request that shows all of the cluster asks every living node once, for all it needs together. Who
does not answer in time is left out: a listing that misses a sick node's part helps more than none.

Viewers share: those who ask while one gathering runs get the next one together, which begins when
the last one has been paid for: 0.1 ms later for each thing it counted, at most 1 s. So 16 viewers
of 10,000 queues cost one gathering a second, and nobody is shown what was counted before it asked:
but for sums over many queues and clients (`broker.management.statistics.totals`).

Invariants:
1. One call a node and gathering, whatever the number of queues and viewers.
2. Of two nodes that both say they serve a queue, the one with the later term counts.
3. Reports that are shared are not changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from broker.cluster.calls import CallFailed
from broker.cluster.links import Links
from broker.errors import ReplyCode
from broker.management.control import NodeControl
from broker.management.pace import WorkPacer, mapped
from broker.management.report import (
    NODE,
    Holder,
    Item,
    Owner,
    Report,
    Served,
    Wanted,
    connections_of,
    report_of,
)
from broker.management.shared import Shared
from broker.management.statistics.ages import NO_AGES, Ages
from broker.management.statistics.collector import Collector
from broker.management.statistics.flows import NO_FLOWS, Asked, Flows
from broker.management.statistics.measured import NodeStatistics
from broker.management.statistics.totals import Totals

_log = logging.getLogger(__name__)

REPORT: Final = "management.report"
CLOSE: Final = "management.close"
NODE_TIMEOUT_S: Final = 2.0
"""How long a node may take to say how it is itself."""
REPORT_TIMEOUT_S: Final = 5.0
"""How long it may take to list its queues and clients, which it does in slices."""
SAMPLE_S: Final = 1.0
SAMPLE_SHARE: Final = 25
REST_S: Final = 0.000_1
REST_MAX_S: Final = 1.0


class _Packed(msgspec.Struct, array_like=True):
    """A report on its way: the fields of `Report` in their order, long lists not decoded."""

    node: Item = {}
    connections: list[msgspec.Raw] = []
    channels: list[msgspec.Raw] = []
    consumers: list[msgspec.Raw] = []
    served: list[msgspec.Raw] = []
    replicas: list[int] = []
    owners: list[Owner] = []
    held: list[int] = []
    totals: Totals = msgspec.field(default_factory=Totals)
    statistics: NodeStatistics = msgspec.field(default_factory=NodeStatistics)
    ranks: list[tuple[int, float]] = []
    memory: dict[str, int] = {}
    flows: Flows = msgspec.field(default_factory=Flows)
    damaged: list[int] = []
    holders: list[Holder] = []


_encode = msgspec.msgpack.Encoder().encode
_decode_wanted = msgspec.msgpack.Decoder(Wanted).decode
_decode_packed = msgspec.msgpack.Decoder(_Packed).decode
_decode_item = msgspec.msgpack.Decoder(Item).decode
_decode_served = msgspec.msgpack.Decoder(Served).decode
_decode_close = msgspec.msgpack.Decoder(tuple[str, str]).decode


class Reports:
    """Asks nodes, and answers for this one. A node has one.

    Args:
        control: The node.

    Attributes:
        pace: Divides the loop's time; for all long work of the API.
        collector: The rates of what this node counts.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control
        self._gatherings: dict[tuple[str, ...], Shared[dict[str, Report]]] = {}
        self.pace = WorkPacer()
        self.collector = Collector(control)
        self._next_sample_ms = 0

    async def sample(self) -> None:
        """Sample this node's counters; call it every `SAMPLE_S`.

        Where a sample takes long, calls are passed over: samples take at most one part in
        `SAMPLE_SHARE` of the time, but there is one each `collect_statistics_interval`.
        """
        clock, interval_ms = self._control.clock, self._control.settings.statistics_interval_ms
        began_ms = clock.monotonic_ms()
        if began_ms < self._next_sample_ms:
            return
        await self.pace.run(self.collector.sample())
        took_ms = clock.monotonic_ms() - began_ms
        self._next_sample_ms = began_ms + min(interval_ms * 9 // 10, took_ms * SAMPLE_SHARE)

    def reset(self) -> None:
        """Forget all samples: rates and their past begin anew, counters go on."""
        self.collector = Collector(self._control)

    def serve(self, links: Links) -> None:
        """Answer other nodes from now on."""

        async def report(_node: str, _boot: str, payload: bytes) -> bytes:
            found = await self.local(_decode_wanted(payload))
            return _encode(await self.pace.run(_packed(found), first=True))

        async def close(_node: str, _boot: str, payload: bytes) -> bytes:
            return _encode(self.close_here(*_decode_close(payload)))

        links.serve(REPORT, report)
        links.serve(CLOSE, close)

    async def gather(
        self,
        *parts: str,
        uids: Iterable[int] | None = None,
        connection: str = "",
        ages: Ages = NO_AGES,
        column: str = "",
        flows: Asked = NO_FLOWS,
    ) -> dict[str, Report]:
        """Ask all living nodes at once, this one included.

        Args:
            parts: See `Wanted`.
            uids: See `Wanted`.
            connection: See `Wanted`.
            ages: See `Wanted`.
            column: See `Wanted`.
            flows: See `Wanted`.

        Returns:
            By node; those that did not answer are missing. Not to be changed.
        """
        some = None if uids is None else tuple(uids)
        wanted = Wanted(parts, some, connection, ages, column, flows)
        is_shared = some is None and not connection and ages == NO_AGES and flows == NO_FLOWS
        if not is_shared:
            return await self._ask_all(wanted)
        key = (*parts, column)
        shared = self._gatherings.get(key)
        if shared is None:
            shared = self._gatherings[key] = Shared(_rest_s)
        return await shared.ask(partial(self._ask_all, wanted))

    async def local(self, wanted: Wanted) -> Report:
        """Return this node's report."""
        return await self.pace.run(report_of(self._control, wanted, self.collector), first=True)

    async def _ask_all(self, wanted: Wanted) -> dict[str, Report]:
        here, cluster = self._control.name, self._control.cluster
        if cluster is None:
            return {here: await self.local(wanted)}
        up = set(
            cluster.peers.up()
        )  # a suspected node would make every listing wait for the time limit
        others = [
            node.name
            for node in cluster.metadata.catalogue.nodes()
            if node.alive and node.name != here and node.name in up
        ]
        found = await asyncio.gather(
            self.local(wanted), *(self._ask(cluster.links, node, wanted) for node in others)
        )
        named = zip([here, *others], found, strict=True)
        return {node: report for node, report in named if report is not None}

    async def _ask(self, links: Links, node: str, wanted: Wanted) -> Report | None:
        timeout_s = NODE_TIMEOUT_S if wanted.parts == (NODE,) else REPORT_TIMEOUT_S
        try:
            answer = await links.call(node, REPORT, _encode(wanted), timeout_s)
        except CallFailed as why:
            _log.info("report.missing", extra={"node": node, "why": str(why)})
            return None
        return await self.pace.run(_unpacked(_decode_packed(answer)), first=True)

    async def close_connection(self, node: str, name: str, reason: str) -> bool:
        """Close a client's connection at its node; False if it is gone.

        Raises:
            CallFailed: The node did not answer.
        """
        if node == self._control.name:
            return self.close_here(name, reason)
        cluster = self._control.cluster
        if cluster is None:
            return False
        answer = await cluster.links.call(node, CLOSE, _encode((name, reason)), NODE_TIMEOUT_S)
        return bool(msgspec.msgpack.decode(answer))

    def close_here(self, name: str, reason: str) -> bool:
        """Close one of this node's connections; False if there is none of that name."""
        for connection in connections_of(self._control, name):
            connection.close(ReplyCode.CONNECTION_FORCED, reason)
            return True
        return False


def alarms_in(reports: Mapping[str, Report]) -> list[str]:
    """What nodes are short of, for people: "memory alarm on node rabbit@node1".

    Args:
        reports: By node; with NODE.
    """
    return [
        f"{word} alarm on node {name}"
        for name, report in reports.items()
        for key, word in (("memory_alarm", "memory"), ("disk_alarm", "disk"))
        if report.node.get(key)
    ]


def _rest_s(reports: dict[str, Report]) -> float:
    """Return the seconds between one gathering of reports and the next."""
    return min(REST_MAX_S, REST_S * sum(report.things for report in reports.values()))


def _raw(item: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(item))


def _packed(report: Report) -> Generator[None, None, _Packed]:
    return _Packed(
        report.node,
        (yield from mapped(report.connections, _raw)),
        (yield from mapped(report.channels, _raw)),
        (yield from mapped(report.consumers, _raw)),
        (yield from mapped(report.served, _raw)),
        report.replicas,
        report.owners,
        report.held,
        report.totals,
        report.statistics,
        report.ranks,
        report.memory,
        report.flows,
        report.damaged,
        report.holders,
    )


def _unpacked(packed: _Packed) -> Generator[None, None, Report]:
    return Report(
        packed.node,
        (yield from mapped(packed.connections, _decode_item)),
        (yield from mapped(packed.channels, _decode_item)),
        (yield from mapped(packed.consumers, _decode_item)),
        (yield from mapped(packed.served, _decode_served)),
        packed.replicas,
        packed.owners,
        packed.held,
        packed.totals,
        packed.statistics,
        packed.ranks,
        packed.memory,
        packed.flows,
        packed.damaged,
        packed.holders,
    )
