"""The background operations of a node: rebalancing, migrating, synchronising.

Also listing and cancelling delayed messages, with the help of other nodes. One instance for each
node, which lives as long as its process.
"""

from __future__ import annotations

from broker.cluster.links import Links
from broker.management.control import NodeControl
from broker.management.operations.browsing.browser import Browser
from broker.management.operations.delays import Delays
from broker.management.operations.draining import Maintenance
from broker.management.operations.holders.acts import Holders
from broker.management.operations.importing import Importer
from broker.management.operations.leaders import Leaders
from broker.management.operations.migration import Migrations
from broker.management.operations.paths.following import MessagePaths
from broker.management.operations.quorum_queues import QuorumQueues, Survivors
from broker.management.operations.quorum_status import QuorumStatus
from broker.management.operations.rebalance import Rebalance
from broker.management.operations.redriving.redrives import Redrives
from broker.management.operations.redriving.scanning import Scans
from broker.management.operations.remote import RemoteOperations
from broker.management.operations.resetting import Resetting
from broker.management.operations.seeding import Seeding
from broker.management.operations.streams import Streams
from broker.management.operations.syncing import Syncing
from broker.management.operations.timeline.picture import Picture
from broker.management.operations.timeline.watching import Timeline
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
        browser: Of messages that stay where they are.
        delays: Messages kept by x-delayed-message exchanges.
        holders: What is done to those who hold messages.
        importer: Of definitions.
        migrations: Of classic queues into quorum queues.
        maintenance: Of this node.
        paths: Of single messages.
        picture: What nodes lead, and how their links are.
        quorum_status: Of the members of quorum queues.
        quorum_queues: Their replicas and messages, one queue at a time.
        rebalance: Of masters and leaders.
        redrives: Of dead letters, back to where they came from.
        scans: Of queues, for dead letters.
        resetting: Of what was sampled.
        seeding: Of new vhosts.
        streams: Their members, and what they know of consumers and publishers.
        survivors: Of queues whose other replicas are damaged or lost.
        syncing: Of mirrors that lack messages.
        timeline: What happened to the cluster.
        tracing: Of vhosts' messages, for the firehose.
    """

    def __init__(self, control: NodeControl) -> None:
        self.reports = Reports(control)
        self.orders = QueueOrders(self.reports, control.clock)
        self.remote = RemoteOperations(control)
        self.delays = Delays(control, self.remote)
        self.holders = Holders(control, self.remote)
        self.seeding = Seeding(control.settings)
        self.importer = Importer(control, self.reports.pace, self.seeding)
        self.migrations = Migrations(control, self.remote)
        self.quorum_status = QuorumStatus(control, self.remote)
        self.resetting = Resetting(self.reports, self.remote)
        self.syncing = Syncing(control, self.remote)
        self.paths = MessagePaths(control, self.remote)
        self.picture = Picture(control, self.remote)
        self.timeline = Timeline(control, self.remote)
        self.tracing = Tracing(control, self.remote)
        leaders = Leaders(control, self.remote)
        self.browser = Browser(control, self.remote, leaders, self.reports.pace)
        self.quorum_queues = QuorumQueues(control, self.remote, leaders)
        self.survivors = Survivors(control, self.remote, leaders)
        self.streams = Streams(control, self.remote, leaders)
        self.scans = Scans(control, self.remote, leaders, self.reports.pace)
        self.redrives = Redrives(control, self.remote, self.scans)
        self.rebalance = Rebalance(control, self.remote, self.reports)
        self.maintenance = Maintenance(control)

    def serve(self, links: Links) -> None:
        """Do for other nodes what they ask, from now on."""
        self.reports.serve(links)
        self.picture.serve(links)
        self.remote.serve(links)
