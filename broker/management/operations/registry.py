"""The background operations of a node: rebalancing, migrating, synchronising.

Also listing and cancelling delayed messages, with the help of other nodes. One instance for each
node, which lives as long as its process.
"""

from __future__ import annotations

from broker.cluster.links import Links
from broker.management.control import NodeControl
from broker.management.operations.delays import Delays
from broker.management.operations.draining import Maintenance
from broker.management.operations.importing import Importer
from broker.management.operations.migration import Migrations
from broker.management.operations.quorum_queues import QuorumQueues
from broker.management.operations.quorum_status import QuorumStatus
from broker.management.operations.rebalance import Rebalance
from broker.management.operations.remote import RemoteOperations
from broker.management.operations.resetting import Resetting
from broker.management.operations.seeding import Seeding
from broker.management.operations.syncing import Syncing
from broker.management.operations.tracing import Tracing
from broker.management.queue_order import QueueOrders
from broker.management.reports import Reports


class Operations:
    """The operations of operators that run in the background.

    Args:
        control: The node.

    Attributes:
        reports: What nodes say of themselves.
        orders: The orders in which queues are listed.
        remote: Runs operations on the nodes that have to do the work.
        delays: Messages kept by x-delayed-message exchanges.
        importer: Of definitions.
        migrations: Of classic queues into quorum queues.
        maintenance: Of this node.
        quorum_status: Of the members of quorum queues.
        quorum_queues: Their replicas and messages, one queue at a time.
        rebalance: Of masters and leaders.
        resetting: Of what was sampled.
        seeding: Of new vhosts.
        syncing: Of mirrors that lack messages.
        tracing: Of vhosts' messages, for the firehose.
    """

    def __init__(self, control: NodeControl) -> None:
        self.reports = Reports(control)
        self.orders = QueueOrders(self.reports, control.clock)
        self.remote = RemoteOperations(control)
        self.delays = Delays(control, self.remote)
        self.seeding = Seeding(control.settings)
        self.importer = Importer(control, self.reports.pace, self.seeding)
        self.migrations = Migrations(control, self.remote)
        self.quorum_status = QuorumStatus(control, self.remote)
        self.resetting = Resetting(self.reports, self.remote)
        self.syncing = Syncing(control, self.remote)
        self.tracing = Tracing(control, self.remote)
        self.quorum_queues = QuorumQueues(control, self.remote)
        self.rebalance = Rebalance(control, self.remote, self.reports)
        self.maintenance = Maintenance(control)

    def serve(self, links: Links) -> None:
        """Do for other nodes what they ask, from now on."""
        self.reports.serve(links)
        self.remote.serve(links)
