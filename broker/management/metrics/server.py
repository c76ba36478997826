"""The port of metrics: one text for everybody who asks within a second."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from broker.management.control import NodeControl
from broker.management.listener import ApiListener
from broker.management.metrics import exposition
from broker.management.metrics.families import RaftState, Snapshot, of_node
from broker.management.origins import Origins
from broker.management.report import NODE, QUEUES, STATISTICS, TOTALS, Wanted
from broker.management.reports import Reports
from broker.management.shared import Shared

REST_S: Final = 1.0
"""Scrapers that ask sooner wait for the next text together."""


class MetricsServer:
    """Metrics of one node.

    Args:
        control: The node.
        reports: Says how it is.
    """

    def __init__(self, control: NodeControl, reports: Reports) -> None:
        self._control = control
        self._reports = reports
        self._shared = {is_each: Shared[bytes](lambda _text: REST_S) for is_each in (False, True)}
        self._listener: ApiListener | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The address is taken.
        """
        settings, doors = self._control.settings, self._control.doors
        app = web.Application()
        app.router.add_get("/metrics", self._all)
        app.router.add_get("/metrics/per-object", self._each)
        self._listener = ApiListener(app, doors.management, Origins(settings))
        self._listener.use_tls(doors.certificates.metrics, doors, settings.tls_handshake_timeout_ms)
        await self._listener.start(
            settings.metrics_listener,
            settings.metrics_tls_listener,
            family="prometheus",
            name="Prometheus metrics",
        )

    async def stop(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._listener.stop()

    async def _all(self, request: web.Request) -> web.Response:
        return await self._answer(request, per_object=False)

    async def _each(self, request: web.Request) -> web.Response:
        return await self._answer(request, per_object=True)

    async def _answer(self, request: web.Request, *, per_object: bool) -> web.Response:
        async def write() -> bytes:
            return await self._written(per_object=per_object)

        text = await self._shared[per_object].ask(write)
        del request
        return web.Response(body=text, headers={"Content-Type": exposition.CONTENT_TYPE})

    async def _written(self, *, per_object: bool) -> bytes:
        report = await self._reports.local(Wanted((NODE, QUEUES, TOTALS, STATISTICS)))
        control = self._control
        serving, cluster = control.serving, control.cluster
        if serving is None or cluster is None:
            raise web.HTTPServiceUnavailable(text="the broker on this node is stopped\n")
        counts, catalogue = serving.context.counts, serving.catalogue
        infos = [each.info for each in serving.listener.connections.values()]

        found = [catalogue.queue_by_uid(each.uid) for each in report.served if per_object]
        names = {queue.uid: (queue.vhost, queue.name) for queue in found if queue is not None}
        replicas = [
            RaftState(
                replica.record.vhost,
                replica.record.name,
                status.term,
                status.snapshot_index,
                status.applied_index,
                status.commit_index,
                status.last_index,
            )
            for replica in serving.queues.local_quorum()
            if (group := cluster.host.group(replica.record.uid)) is not None
            for status in [group.status()]
        ]
        snapshot = Snapshot(
            report,
            control.name,
            catalogue.cluster_name,
            cluster.file.identity.cluster_id,
            control.doors.logins.tally.by_protocol(),
            counts.received_bytes + sum([info.received_bytes for info in infos]),
            counts.sent_bytes + sum([info.sent_bytes for info in infos]),
            counts.routed(),
            counts.messages(),
            replicas,
            names,
        )
        families = of_node(snapshot, per_object=per_object)
        return await self._reports.pace.run(exposition.written(families))
