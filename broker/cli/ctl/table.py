"""Every command that changes or checks something: its arguments and rabbitmqctl's words for it."""

from __future__ import annotations

from broker.cli.ctl import (
    alarms,
    certificates,
    changes,
    definitions,
    delays,
    diagnostics,
    mirroring,
    policies,
    upgrades,
)
from broker.cli.ctl.change import Change
from broker.cli.ctl.node.table import NODE
from broker.cli.ctl.queues.browse import BROWSE
from broker.cli.ctl.queues.quorum import QUORUM
from broker.cli.ctl.queues.redrive import REDRIVE
from broker.cli.ctl.queues.streams import STREAMS
from broker.cli.ctl.queues.super_streams import SUPER_STREAMS
from broker.cli.ctl.queues.taps import TAPS
from broker.cli.ctl.rights.table import RIGHTS

CHANGES: dict[str, Change] = {
    **RIGHTS,
    **NODE,
    **QUORUM,
    **STREAMS,
    **SUPER_STREAMS,
    **TAPS,
    **BROWSE,
    **REDRIVE,
    "delete_queue": Change(
        changes.delete_queue,
        1,
        1,
        "[--vhost <vhost>] <queue_name> [--if-empty] [--if-unused]",
        changes.delete_queue_banner,
        is_answer=True,
    ),
    "purge_queue": Change(
        changes.purge_queue, 1, 1, "[-p VHOST] NAME", "Purging queue '{0}' in vhost '{vhost}' ..."
    ),
    "delete_exchange": Change(
        changes.delete_exchange,
        1,
        1,
        "[-p VHOST] NAME",
        "Deleting exchange '{0}' in vhost '{vhost}' ...",
    ),
    "export_definitions": Change(
        definitions.export_definitions,
        1,
        1,
        "[-p VHOST] FILE|-",
        definitions.export_banner,
        check=definitions.check,
        is_answer=True,
    ),
    "import_definitions": Change(
        definitions.import_definitions,
        0,
        1,
        "[-p VHOST] [FILE|-] [--dry-run] [--skip-if-unchanged]",
        definitions.import_banner,
        check=definitions.check,
        is_answer=True,
    ),
    "cancel_delayed_messages": Change(
        delays.cancel,
        1,
        10_001,
        "[-p VHOST] EXCHANGE NUMBER ...|--all",
        "Cancelling delayed messages of exchange '{0}' in vhost '{vhost}' ...",
        check=delays.check_cancel,
    ),
    "stop_app": Change(
        changes.node_verb("stop_app"), 0, 0, "", "Stopping rabbit application on node {node} ..."
    ),
    "start_app": Change(changes.node_verb("start_app"), 0, 0, "", "Starting node {node} ..."),
    "reset": Change(changes.node_verb("reset"), 0, 0, "", "Resetting node {node} ..."),
    "force_reset": Change(
        changes.node_verb("force_reset"), 0, 0, "", "Forcefully resetting node {node} ..."
    ),
    "join_cluster": Change(changes.join, 1, 1, "NODE", "Clustering node {node} with {0}"),
    "forget_cluster_node": Change(
        changes.forget, 1, 1, "NODE", "Removing node {0} from the cluster"
    ),
    "add_member": Change(
        changes.add_member,
        2,
        2,
        "[-p VHOST] QUEUE NODE",
        "Adding a replica for queue {0} on node {1} ...",
    ),
    "ping": Change(
        changes.ping, 0, 0, "", "Will ping {node}. This only checks that its process answers."
    ),
    "check_running": Change(
        changes.check_running, 0, 0, "", "Checking if RabbitMQ is running on node {node} ..."
    ),
    "is_running": Change(
        changes.check_running, 0, 0, "", "Checking if RabbitMQ is running on node {node} ..."
    ),
    "set_vm_memory_high_watermark": Change(
        alarms.set_memory,
        1,
        2,
        "<fraction> | absolute <size>",
        alarms.memory_banner,
        check=alarms.check_memory,
    ),
    "set_disk_free_limit": Change(
        alarms.set_disk,
        1,
        2,
        "<size> | mem_relative <fraction>",
        alarms.disk_banner,
        check=alarms.check_disk,
    ),
    "set_disk_free_limit_mem_relative": Change(
        alarms.set_disk_relative,
        1,
        1,
        "<fraction>",
        "Setting disk free limit on {node} to {0} times the total RAM ...",
        check=lambda call: alarms.check_times(call.arguments[0]),
    ),
    "check_local_alarms": Change(
        changes.health("local-alarms", "reported no local alarms"),
        0,
        0,
        "",
        "Asking node {node} to report any local resource alarms ...",
    ),
    "check_alarms": Change(
        changes.health("alarms", "reported no alarms"),
        0,
        0,
        "",
        "Asking node {node} to report any known resource alarms ...",
    ),
    "check_virtual_hosts": Change(
        changes.health("virtual-hosts", "all virtual hosts are running"),
        0,
        0,
        "",
        "Checking if all vhosts are running on node {node} ...",
    ),
    "check_port_listener": Change(
        changes.health("port-listener", "a listener is active"),
        1,
        1,
        "PORT",
        "Asking node {node} if there's an active listener on port {0} ...",
    ),
    "check_protocol_listener": Change(
        changes.health("protocol-listener", "a listener is active"),
        1,
        1,
        "PROTOCOL",
        "Asking node {node} if there's an active listener for protocol {0} ...",
    ),
    "check_port_connectivity": Change(
        diagnostics.check_port_connectivity,
        0,
        0,
        "",
        "Testing TCP connections to all active listeners on node {node} ...",
        is_answer=True,
    ),
    "check_certificate_expiration": Change(
        certificates.check_expiration,
        0,
        0,
        "[--within <period>] [--unit <unit>]",
        "Checking certificate expiration on node {node} ...",
        check=certificates.check_expiration_options,
        is_answer=True,
    ),
    "certificates": Change(
        certificates.certificates, 0, 0, "", "Certificates of node {node} ...", is_answer=True
    ),
    "tls_versions": Change(
        certificates.tls_versions,
        0,
        0,
        "",
        "Listing all TLS versions supported by the runtime...",
        is_answer=True,
    ),
    "cipher_suites": Change(
        certificates.cipher_suites,
        0,
        0,
        "[--format (openssl | erlang | map)] [--all]",
        certificates.cipher_banner,
        check=certificates.check_cipher_options,
        is_answer=True,
    ),
    "is_booting": Change(
        diagnostics.is_booting, 0, 0, "", "Asking node {node} for its boot status ..."
    ),
    "wait": Change(changes.await_startup, 0, 1, "[PIDFILE]", "Waiting for node {node} ..."),
    "await_online_quorum_plus_one": Change(
        diagnostics.awaits(
            "node-is-quorum-critical", "quorum queues would lose their quorum without this node"
        ),
        0,
        0,
        "",
        "Will wait for a quorum + 1 of nodes to be online for all quorum queues ...",
    ),
    "await_online_synchronized_mirror": Change(
        diagnostics.awaits(
            "node-is-mirror-sync-critical",
            "mirrored queues have no synchronised mirror beside this node",
        ),
        0,
        0,
        "",
        "Will wait for a synchronised mirror to be online for all classic mirrored queues ...",
    ),
    "drain": Change(
        upgrades.drain,
        0,
        0,
        "",
        "Will put node {node} into maintenance mode. "
        "The node will no longer serve any client traffic!",
    ),
    "revive": Change(
        upgrades.revive, 0, 0, "", "Will put node {node} back into a regular operating mode"
    ),
    "post_upgrade": Change(
        upgrades.post_upgrade, 0, 0, "", "Executing post upgrade checks...", is_answer=True
    ),
    "safe_to_stop": Change(
        upgrades.safe_to_stop,
        0,
        1,
        "[NODE] [--tolerate KIND,...]",
        "Checking whether a stop would interrupt anybody ...",
        is_answer=True,
    ),
    "enable_feature_flag": Change(
        diagnostics.enable_feature_flag, 1, 1, "FLAG|all", 'Enabling feature flag "{0}" ...'
    ),
    "quorum_status": Change(
        diagnostics.quorum_status,
        1,
        1,
        "[-p VHOST] QUEUE",
        "Status of quorum queue {0} on node {node} ...",
        is_answer=True,
    ),
    "why": Change(
        diagnostics.why,
        1,
        1,
        "[-p VHOST] QUEUE",
        "Asking why queue '{0}' in vhost '{vhost}' does not drain ...",
        is_answer=True,
    ),
    "list_policies_that_match": Change(
        diagnostics.list_policies_that_match,
        1,
        1,
        "[-p VHOST] QUEUE",
        "Listing policies that match queue '{0}' in vhost '{vhost}' ...",
        is_answer=True,
    ),
    "check_if_node_is_quorum_critical": Change(
        changes.health(
            "node-is-quorum-critical", "there are no quorum queues that would lose their quorum"
        ),
        0,
        0,
        "",
        "Checking if node {node} is critical for quorum of any quorum queues ...",
    ),
    "check_for_quorum_queues_below_target_size": Change(
        changes.health(
            "quorum-queues-below-target-size", "all quorum queues have the replicas they should"
        ),
        0,
        0,
        "",
        "Checking if any quorum queues have too few replicas ...",
    ),
    "check_if_node_is_mirror_sync_critical": Change(
        mirroring.check_critical,
        0,
        0,
        "",
        "Checking if node {node} is critical for data safety of any classic mirrored queues ...",
    ),
    "sync_queue": Change(
        mirroring.sync_queue,
        1,
        1,
        "[-p VHOST] NAME",
        "Synchronising queue '{0}' in vhost '{vhost}' ...",
    ),
    "cancel_sync_queue": Change(
        mirroring.cancel_sync_queue,
        1,
        1,
        "[-p VHOST] NAME",
        "Stopping synchronising queue '{0}' in vhost '{vhost}' ...",
    ),
    "rebalance": Change(
        mirroring.rebalance,
        1,
        1,
        "all|classic|quorum|stream [--vhost-pattern REGEX] [--queue-pattern REGEX]",
        "Re-balancing leaders of {0} queues...",
        check=mirroring.check_type,
        is_answer=True,
    ),
    "migrate_queue": Change(
        mirroring.migrate_queue,
        2,
        2,
        "[-p VHOST] NAME QUORUM_QUEUE [--delete-source]",
        "Migrating queue '{0}' in vhost '{vhost}' to quorum queue '{1}' ...",
    ),
    "await_startup": Change(changes.await_startup, 0, 0, ""),
    "await_online_nodes": Change(
        changes.await_online_nodes, 1, 1, "COUNT", "Will wait for {0} nodes to be running"
    ),
    "set_policy": Change(
        policies.setter("policies"),
        3,
        3,
        "[-p VHOST] [--priority N] [--apply-to WHAT] NAME PATTERN DEFINITION",
        'Setting policy "{0}" for pattern "{1}" to "{2}" with priority "{priority}" for vhost '
        '"{vhost}" ...',
    ),
    "clear_policy": Change(
        policies.clearer("policies"),
        1,
        1,
        "[-p VHOST] NAME",
        'Clearing policy "{0}" on vhost "{vhost}" ...',
    ),
    "set_operator_policy": Change(
        policies.setter("operator-policies"),
        3,
        3,
        "[-p VHOST] [--priority N] [--apply-to WHAT] NAME PATTERN DEFINITION",
        'Setting operator policy override "{0}" for pattern "{1}" to "{2}" with priority '
        '"{priority}" for vhost "{vhost}" ...',
    ),
    "clear_operator_policy": Change(
        policies.clearer("operator-policies"),
        1,
        1,
        "[-p VHOST] NAME",
        'Clearing operator policy "{0}" on vhost "{vhost}" ...',
    ),
    "set_cluster_name": Change(
        changes.set_cluster_name, 1, 1, "NAME", "Setting cluster name to {0} ..."
    ),
}
