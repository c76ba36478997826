"""The behaviour this broker promises, row by row: sections of what RabbitMQ 3.13.7 does.

A row without a reason is promised now and named by a test.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One behaviour.

    Attributes:
        section: "1.4".
        name: What it is about.
        later: Why it is not promised yet; "" for what is.
    """

    section: str
    name: str
    later: str = ""

    @property
    def key(self) -> str:
        """As tests name it."""
        return f"{self.section} {self.name}"


SECTIONS = {
    "1.1": "Connection and protocol",
    "1.2": "Exchanges, bindings",
    "1.3": "Queues: declare, args, life cycle",
    "1.4": "TTL and expiry",
    "1.5": "Dead lettering",
    "1.6": "Length limits / overflow",
    "1.7": "Priority, lazy",
    "1.8": "Consumers",
    "1.9": "Acks",
    "1.10": "Publisher confirms, tx",
    "1.11": "Extensions on publish",
    "1.12": "Policies, parameters",
    "1.16": "Quorum queues: declare, limits, consume",
    "1.17": "Quorum queues: membership and leadership",
    "1.18": "Quorum queue at-least-once dead-lettering",
    "1.19": "Streams over AMQP 0-9-1",
}

ROWS = (
    Row("1.1", "Protocol header"),
    Row("1.1", "connection.start"),
    Row("1.1", "Server capabilities"),
    Row("1.1", "Client capabilities honoured"),
    Row("1.1", "SASL PLAIN / AMQPLAIN / EXTERNAL / RABBIT-CR-DEMO"),
    Row("1.1", "Login failure"),
    Row("1.1", "guest loopback only"),
    Row("1.1", "connection.tune"),
    Row("1.1", "tune-ok validation"),
    Row("1.1", "Heartbeat"),
    Row("1.1", "connection.open / vhost"),
    Row("1.1", "Limits"),
    Row("1.1", "channel_max"),
    Row("1.1", "Channel state errors"),
    Row("1.1", "Frame errors"),
    Row("1.1", "Max message size"),
    Row("1.1", "TLS"),
    Row("1.1", "PROXY protocol v1/v2"),
    Row("1.1", "connection.update-secret"),
    Row("1.1", "Handshake timeout"),
    Row("1.1", "Close"),
    Row("1.1", "connection.blocked / unblocked"),
    Row("1.1", "channel.flow"),
    Row("1.1", "consumer (ack) timeout"),
    Row("1.2", "Pre-declared per vhost"),
    Row("1.2", "Default exchange"),
    Row("1.2", "Types direct/fanout/topic/headers"),
    Row("1.2", "headers x-match"),
    Row("1.2", "declare equivalence"),
    Row("1.2", "passive declare"),
    Row("1.2", "exchange.delete"),
    Row("1.2", "auto_delete"),
    Row("1.2", "internal"),
    Row("1.2", "e2e bindings"),
    Row("1.2", "Alternate exchange"),
    Row("1.2", "queue.bind"),
    Row("1.2", "queue.unbind / exchange.unbind"),
    Row("1.2", "Binding durability"),
    Row(
        "1.2",
        "x-consistent-hash, x-modulus-hash(sharding), x-random, x-recent-history,"
        " x-delayed-message",
    ),
    Row("1.3", "durable / exclusive / auto_delete"),
    Row("1.3", "equivalence"),
    Row("1.3", "exclusive access"),
    Row("1.3", "server-named"),
    Row("1.3", "passive"),
    Row("1.3", "queue.delete"),
    Row("1.3", "queue.purge"),
    Row("1.3", "Arg validation"),
    Row("1.3", "Arg not supported by type"),
    Row("1.3", "CQ args"),
    Row("1.3", "QQ args"),
    Row("1.3", "ST args"),
    Row("1.3", "Default queue type"),
    Row("1.3", "x-queue-mode lazy"),
    Row("1.3", "x-queue-version 1/2"),
    Row("1.3", "Transient queue on dead node"),
    Row("1.3", "Durable non-mirrored queue on dead node"),
    Row("1.3", "Queue op during failover"),
    Row("1.4", "per-queue TTL"),
    Row("1.4", "per-message TTL"),
    Row("1.4", "When removed"),
    Row("1.4", "TTL 0"),
    Row("1.4", "x-expires"),
    Row("1.4", "Priority+TTL"),
    Row("1.5", "Triggers"),
    Row("1.5", "Config"),
    Row("1.5", "Routing key"),
    Row("1.5", "Message changes"),
    Row("1.5", "x-death"),
    Row("1.5", "Cycle detection"),
    Row("1.5", "Delivery guarantee"),
    Row("1.5", "Order vs confirm"),
    Row("1.6", "max-length / -bytes"),
    Row("1.6", "drop-head (default)"),
    Row("1.6", "reject-publish"),
    Row("1.6", "reject-publish-dlx"),
    Row("1.6", "Multi-queue routing"),
    Row("1.6", "precedence"),
    Row("1.7", "x-max-priority"),
    Row("1.7", "message priority"),
    Row("1.7", "with mirroring"),
    Row("1.7", "starvation"),
    Row("1.8", "basic.consume"),
    Row("1.8", "round robin"),
    Row("1.8", "prefetch"),
    Row("1.8", "default prefetch"),
    Row("1.8", "consumer priority"),
    Row("1.8", "SAC"),
    Row("1.8", "exclusive consumer"),
    Row("1.8", "basic.cancel"),
    Row("1.8", "cancel notify"),
    Row("1.8", "x-cancel-on-ha-failover"),
    Row("1.8", "x-stream-offset"),
    Row("1.8", "delivery flags"),
    Row("1.9", "delivery tags"),
    Row("1.9", "ack / nack / reject"),
    Row("1.9", "requeue position"),
    Row("1.9", "channel/conn close"),
    Row("1.9", "basic.recover(requeue=true)"),
    Row("1.9", "basic.get"),
    Row("1.9", "auto ack"),
    Row("1.10", "confirm.select"),
    Row("1.10", "when acked"),
    Row("1.10", "nack"),
    Row("1.10", "pause guard"),
    Row("1.10", "tx.select/commit/rollback"),
    Row("1.10", "mandatory"),
    Row("1.10", "immediate"),
    Row("1.10", "durability"),
    Row("1.11", "CC / BCC"),
    Row("1.11", "user-id"),
    Row("1.11", "direct reply-to"),
    Row("1.11", "RPC with reply queue"),
    Row("1.11", "sender selected delay"),
    Row("1.11", "message dedup"),
    Row("1.12", "policy matching"),
    Row("1.12", "applicability"),
    Row("1.12", "keys"),
    Row("1.12", "operator policy keys"),
    Row("1.12", "merge user/operator"),
    Row("1.12", "policy vs arg"),
    Row("1.12", "vhosts, users, tags"),
    Row("1.12", "permissions"),
    Row("1.12", "topic permissions"),
    Row("1.12", "limits"),
    Row("1.12", "global parameters"),
    Row("1.16", "declare"),
    Row("1.16", "accepted args"),
    Row("1.16", "initial size"),
    Row("1.16", "leader locator"),
    Row("1.16", "confirms"),
    Row("1.16", "dedupe of resends"),
    Row("1.16", "enqueue refused"),
    Row("1.16", "no majority"),
    Row("1.16", "delivery-limit"),
    Row("1.16", "what counts"),
    Row("1.16", "requeue position"),
    Row("1.16", "cancel"),
    Row("1.16", "node link loss"),
    Row("1.16", "global qos"),
    Row("1.16", "prefetch 0"),
    Row("1.16", "priorities of messages"),
    Row("1.16", "consumer priority"),
    Row("1.16", "SAC"),
    Row("1.16", "exclusive consume flag"),
    Row("1.16", "consumer args"),
    Row("1.16", "basic.get"),
    Row("1.16", "TTL"),
    Row("1.16", "x-expires"),
    Row("1.16", "length limits"),
    Row("1.16", "purge"),
    Row("1.16", "delete if-unused/if-empty"),
    Row("1.16", "exclusivity"),
    Row("1.16", "lazy, memory"),
    Row("1.17", "auto reconciliation"),
    Row("1.18", "switch"),
    Row("1.18", "worker"),
    Row("1.18", "reasons"),
    Row("1.18", "change strategy"),
    Row("1.18", "cycle"),
    Row("1.19", "declare"),
    Row("1.19", "consume"),
    Row("1.19", "offset"),
    Row("1.19", "ack"),
    Row("1.19", "retention"),
    Row("1.19", "filter"),
    Row("1.19", "confirm"),
    Row("1.19", "super streams"),
)


class Deviation(NamedTuple):
    """A behaviour in which this broker differs from RabbitMQ on purpose.

    Attributes:
        rabbitmq: What RabbitMQ does.
        here: What this broker does, and why.
        test: The test that holds it, as "unit/queues/test_x.py::test_y".
    """

    rabbitmq: str
    here: str
    test: str


DEVIATIONS = (
    Deviation(
        "every password that is tried is compared, 646 a second over AMQP and thousands over HTTP",
        "who guesses at a user waits before the next one is compared (403 after 3 s; HTTP 429), so "
        "that a password of eight letters outlives the attack; right ones are never slowed",
        "wire/test_doors.py::test_guesses_over_http_are_throttled_counted_and_hold_up_nobody_else",
    ),
    Deviation(
        "of 1,024 file descriptors clients may have 829, wherever else they are needed",
        "fewer, of fewer than 10,000: the store, links and operators have theirs, for a store that "
        "can't open a file would end the node",
        "wire/test_doors.py::"
        "test_a_node_lives_through_more_idle_connections_than_it_has_descriptors",
    ),
    Deviation(
        "dead letters of a mirrored queue are published at once: a basic.get on their queue finds "
        "them soon after the nack (3.10.8 found 9 of 10 where nacks and gets went out together)",
        "they are published when every mirror knows of the death, a round of the ring and a sync "
        "later, so a basic.get may find them some milliseconds later; published earlier, a master "
        "that dies would leave its successor to dead-letter them a second time",
        "unit/queues/test_dead_lettering.py::test_a_mirrored_queues_dead_wait_until_its_mirrors_know",
    ),
    Deviation(
        "what basic.get had taken before a channel-wide prefetch limit was set counts for ever: "
        "with as many as the limit, acknowledged or not, consumers get nothing more",
        "it counts until it is acknowledged, like every delivery",
        "wire/test_channel_prefetch.py::test_a_get_before_the_limit_counts_until_its_ack",
    ),
    Deviation(
        "a frame above 4096 bytes before connection.tune: the socket closes after 3 s",
        "501 `frame_too_large` first, so that the client's log says what to set",
        "unit/amqp/test_connection.py::test_early_frames_are_small",
    ),
    Deviation(
        "`quorum_queue.continuous_membership_reconciliation.enabled` is false: a quorum queue "
        "keeps the replicas of its first second for ever",
        "it is true: a queue with too few replicas loses its messages with one node, and nobody "
        "would be told",
        "cluster/test_repair.py::test_a_cluster_grown_from_one_node_has_all_its_replicas",
    ),
    Deviation(
        "reconciliation never removes the replica of a member that is down",
        "after `.replace_after` (10 minutes) it is replaced, where another node has no replica yet "
        "and only when the new one has caught up: a second death would cost the majority",
        "cluster/test_repair.py::test_the_replicas_of_a_lost_node_are_replaced",
    ),
    Deviation(
        "`queue_leader_locator` is client-local where nothing is set: who declares many quorum "
        "queues through one connection has them all led by one node",
        "where nothing is set, a node that leads more quorum queues than its share leaves new ones "
        "to others: one node would carry the work of all, and all would wait when it dies. Classic "
        "queues are client-local, and so is what asks for it",
        "cluster/test_first_second.py::test_leaders_of_new_queues_are_spread",
    ),
    Deviation(
        "`loopback_users.me = true` replaces the default list: guest may log in from everywhere",
        "guest stays in it until `loopback_users.guest = false` or `loopback_users = none`: "
        "whoever adds a name did not mean to open the door for guest",
        "unit/test_config_file.py::test_guest_stays_on_loopback_until_it_is_named",
    ),
    Deviation(
        "a decimal in a queue declared again, where it was declared with a number, ends the "
        "connection with 541 (3.10.8)",
        "406 `inequivalent arg` on the channel, as for every other type: one declare must not cost "
        "the connection's other channels",
        "wire/test_bad_input_declares.py"
        "::test_60_a_decimal_where_a_number_was_declared_ends_the_channel_alone",
    ),
    Deviation(
        "the HTTP API carries out a PUT, POST or DELETE whatever page the browser sends it for",
        "403 unless the `Origin` is the API's own or in `management.cors.allow_origins`: a browser "
        "adds the password it keeps for the API to every page's requests",
        "unit/management/test_browsers.py::test_a_page_of_another_site_changes_nothing",
    ),
    Deviation(
        "`management.cors.allow_origins.1 = *` reflects every origin with "
        "`Access-Control-Allow-Credentials: true`",
        "`Access-Control-Allow-Origin: *` without credentials: or else every page reads with the "
        "password that the browser keeps (CVE-2026-66070)",
        "unit/management/test_browsers.py::test_every_origin_is_allowed_without_credentials_only",
    ),
)
"""Where RabbitMQ's way would cost safety."""

REFUSED = (
    ("AMQP 1.0", "another protocol; clients of RabbitMQ 3.x speak 0-9-1"),
    ("MQTT", "another protocol with sessions and retained messages of its own"),
    ("STOMP", "another protocol"),
    ("LDAP", "the internal database only; a directory would be asked on every login"),
    ("OAuth 2", "the internal database only; connection.update-secret changes a password's user"),
    ("RAM nodes", "every node keeps all metadata on disk; `--ram` is refused"),
    ("AMQP 0-8", "answered with the 0-9-1 header, as RabbitMQ answers what it does not know"),
    ("RABBIT-CR-DEMO", "a demonstration of challenge and response that nobody should use"),
)
"""What RabbitMQ has and this broker does not want, with the reason."""
