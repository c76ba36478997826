"""Every command that changes or checks something: its arguments and rabbitmqctl's words for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.cli.ctl import changes, delays, mirroring, policies
from broker.cli.ctl.api import Api
from broker.cli.ctl.arguments import Invocation


class Change(NamedTuple):
    """One command.

    Attributes:
        run: Does it; what it returns is printed after the banner, None prints nothing.
        least: Fewest arguments.
        most: Most arguments.
        usage: Its arguments, for the usage line.
        banner: Printed first unless -q; "{0}", "{1}" are arguments, "{vhost}" is -p,
            "{priority}" is --priority.
        check: Refuses arguments before the banner is printed.
        is_answer: What `run` returns is what the command is for: it is printed with -q too.
    """

    run: Callable[[Api, Invocation], str | None]
    least: int
    most: int
    usage: str
    banner: str = ""
    check: Callable[[Invocation], None] | None = None
    is_answer: bool = False


CHANGES: dict[str, Change] = {
    "add_user": Change(changes.add_user, 1, 2, "NAME [PASSWORD]", 'Adding user "{0}" ...'),
    "delete_user": Change(changes.delete_user, 1, 1, "NAME", 'Deleting user "{0}" ...'),
    "change_password": Change(
        changes.change_password, 1, 2, "NAME [PASSWORD]", 'Changing password for user "{0}" ...'
    ),
    "set_user_tags": Change(
        changes.set_user_tags, 1, 20, "NAME [TAG ...]", 'Setting tags for user "{0}" ...'
    ),
    "authenticate_user": Change(
        changes.authenticate, 2, 2, "NAME PASSWORD", 'Authenticating user "{0}" ...'
    ),
    "set_permissions": Change(
        changes.set_permissions,
        4,
        4,
        "[-p VHOST] USER CONFIGURE WRITE READ",
        'Setting permissions for user "{0}" in vhost "{vhost}" ...',
    ),
    "clear_permissions": Change(
        changes.clear_permissions,
        1,
        1,
        "[-p VHOST] USER",
        'Clearing permissions for user "{0}" in vhost "{vhost}" ...',
    ),
    "add_vhost": Change(changes.add_vhost, 1, 1, "NAME", 'Adding vhost "{0}" ...'),
    "delete_vhost": Change(changes.delete_vhost, 1, 1, "NAME", 'Deleting vhost "{0}" ...'),
    "delete_queue": Change(
        changes.delete_queue,
        1,
        1,
        "[-p VHOST] NAME [--if-empty] [--if-unused]",
        "Deleting queue '{0}' on vhost '{vhost}' ...",
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
    "cancel_delayed_messages": Change(
        delays.cancel,
        1,
        10_001,
        "[-p VHOST] EXCHANGE NUMBER ...|--all",
        "Cancelling delayed messages of exchange '{0}' in vhost '{vhost}' ...",
        check=delays.check_cancel,
    ),
    "close_connection": Change(
        changes.close_connection, 1, 2, "NAME [REASON]", "Closing connection {0} ..."
    ),
    "close_all_connections": Change(
        changes.close_all_connections, 0, 1, "[-p VHOST] [REASON]", "Closing all connections ..."
    ),
    "stop_app": Change(
        changes.node_verb("stop_app"), 0, 0, "", "Stopping rabbit application on node {node} ..."
    ),
    "start_app": Change(changes.node_verb("start_app"), 0, 0, "", "Starting node {node} ..."),
    "reset": Change(changes.node_verb("reset"), 0, 0, "", "Resetting node {node} ..."),
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
    "grow": Change(changes.grow, 2, 2, "NODE all|even", "Growing {1} quorum queues on {0} ..."),
    "ping": Change(
        changes.ping, 0, 0, "", "Will ping {node}. This only checks that its process answers."
    ),
    "check_running": Change(
        changes.check_running, 0, 0, "", "Checking if RabbitMQ is running on node {node} ..."
    ),
    "is_running": Change(
        changes.check_running, 0, 0, "", "Checking if RabbitMQ is running on node {node} ..."
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
    "check_if_node_is_quorum_critical": Change(
        changes.health(
            "node-is-quorum-critical", "there are no quorum queues that would lose their quorum"
        ),
        0,
        0,
        "",
        "Checking if node {node} is critical for quorum of any quorum queues ...",
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
        "all|classic|quorum [--vhost-pattern REGEX] [--queue-pattern REGEX]",
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
