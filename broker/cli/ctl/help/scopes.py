"""What each command does, in one line, by the scopes of RabbitMQ's help. Data.

A command without a row here is still run; tests/unit/cli/test_ctl_help.py asks for its row.

Source: help_section/0 of RabbitMQ's commands (the scopes).
"""

from __future__ import annotations

from typing import Final

SCOPES: Final[dict[str, dict[str, str]]] = {
    "Help": {
        "help": "Shows this list, or the usage of one command",
        "autocomplete": "Lists the commands that begin as given",
        "version": "Shows the version that clients see",
    },
    "Nodes": {
        "await_startup": "Waits until the node serves clients",
        "force_gc": "Collects garbage and gives unused memory back to the system",
        "reset": "Makes a stopped node leave its cluster and forget everything",
        "rotate_logs": "Begins a new log file",
        "shutdown": "Ends the node's process and waits until it is gone",
        "start_app": "Serves clients again after stop_app",
        "stop": "Ends the node's process; with a pid file waits until it is gone",
        "stop_app": "Stops serving clients; the process and its API go on",
        "wait": "Waits until the node serves clients; with a pid file until its process is there",
    },
    "Cluster": {
        "await_online_nodes": "Waits until so many nodes of the cluster run",
        "change_cluster_node_type": "Changes the type of a node",
        "cluster_status": "Shows members, running nodes, versions, alarms and listeners",
        "force_boot": "Lets a stopped node start without members that are lost for good",
        "set_log_aside": "Lets a quorum queue of a stopped node go on whose only log is damaged",
        "force_reset": "Makes a stopped node forget everything without telling its cluster",
        "forget_cluster_node": "Removes a stopped node from the cluster",
        "join_cluster": "Makes a stopped node a member of another node's cluster",
        "rename_cluster_node": "Renames a node",
        "update_cluster_nodes": "Tells a node the members of its cluster",
    },
    "Replication": {
        "add_member": "Gives a quorum queue a replica on a node",
        "cancel_sync_queue": "Stops the synchronisation of a mirrored queue",
        "delete_member": "Removes a quorum queue's replica from a node",
        "force_shrink_member_to_current_member": "Lets the node's replica go on without the others",
        "grow": "Gives all quorum queues that match a replica on a node",
        "migrate_queue": "Moves a mirrored queue's messages and bindings to a quorum queue",
        "rebalance": "Spreads the leaders of replicated queues over the nodes",
        "shrink": "Removes the replicas of all quorum queues from a node",
        "sync_queue": "Fills the mirrors of a queue that are not synchronised",
    },
    "Users": {
        "add_user": "Creates a user, without permissions",
        "authenticate_user": "Checks a user's password",
        "change_password": "Changes a user's password",
        "clear_password": "Removes a user's password, so that it can not log in with one",
        "clear_user_limits": "Removes limits of a user",
        "delete_user": "Removes a user and closes its connections",
        "hash_password": "Shows the hash of a password, as definitions take it",
        "list_user_limits": "Lists limits of users",
        "list_users": "Lists users and their tags",
        "set_user_limits": "Limits connections and channels of a user",
        "set_user_tags": "Sets a user's tags, which say what it may manage",
    },
    "Access Control": {
        "clear_permissions": "Takes a user's permissions in a vhost",
        "clear_topic_permissions": "Takes a user's topic permissions in a vhost",
        "list_permissions": "Lists permissions in a vhost",
        "list_topic_permissions": "Lists topic permissions in a vhost",
        "list_user_permissions": "Lists a user's permissions in all vhosts",
        "list_user_topic_permissions": "Lists a user's topic permissions in all vhosts",
        "list_vhosts": "Lists vhosts",
        "set_permissions": "Sets what a user may configure, write and read in a vhost",
        "set_permissions_globally": "Sets a user's permissions in all vhosts",
        "set_topic_permissions": "Sets which routing keys a user may use with a topic exchange",
    },
    "Monitoring, observability and health checks": {
        "alarms": "Lists the alarms that are set, of all nodes",
        "check_alarms": "Fails if a node of the cluster has an alarm",
        "check_certificate_expiration": "Fails if a certificate expires within the time given",
        "check_for_quorum_queues_below_target_size": "Fails if quorum queues have too few replicas",
        "check_if_any_deprecated_features_are_used": "Fails if a deprecated feature is used",
        "check_if_cluster_has_classic_queue_mirroring_policy": "Fails if a policy mirrors queues",
        "check_if_new_quorum_queue_replicas_have_finished_initial_sync": "Fails if a replica on"
        " the node has no vote yet",
        "check_if_node_is_mirror_sync_critical": "Fails if a mirrored queue would lose its last"
        " synchronised copy without the node",
        "check_if_node_is_quorum_critical": "Fails if a quorum queue would lose its majority"
        " without the node",
        "check_local_alarms": "Fails if the node has an alarm",
        "check_port_connectivity": "Fails if a port of the node does not accept connections",
        "check_port_listener": "Fails if the node does not listen on a port",
        "check_protocol_listener": "Fails if the node does not listen for a protocol",
        "check_running": "Fails if the node does not serve clients",
        "check_virtual_hosts": "Fails if a vhost does not run on the node",
        "cipher_suites": "Lists the cipher suites of TLS",
        "consume_event_stream": "Prints events of the node as they happen",
        "directories": "Shows where RabbitMQ would look for plugins",
        "discover_peers": "Lists the nodes that the settings name as peers",
        "erlang_version": "Shows the version of the runtime, which is Python here",
        "info": "Shows the status of the node",
        "is_booting": "Tells whether the node still boots",
        "is_enabled": "Fails if what a plugin of RabbitMQ does is not there",
        "is_running": "Tells whether the node serves clients",
        "list_bindings": "Lists bindings of a vhost",
        "list_channels": "Lists channels",
        "list_ciphers": "Lists cipher suites",
        "list_connections": "Lists connections",
        "list_consumers": "Lists consumers of a vhost",
        "list_exchanges": "Lists exchanges of a vhost",
        "list_hashes": "Lists hash functions for values of settings",
        "list_network_interfaces": "Lists the network interfaces of the node's machine",
        "list_node_auth_attempt_stats": "Counts logins that were tried, by protocol or by source",
        "list_queues": "Lists queues of a vhost",
        "list_unresponsive_queues": "Lists queues that do not answer in time",
        "listeners": "Lists ports the node listens on",
        "log_tail": "Prints the last lines of the node's log",
        "log_tail_stream": "Prints the node's log as it is written",
        "maybe_stuck": "Tells whether the node's event loop turns",
        "memory_breakdown": "Shows what takes the node's memory",
        "metadata_store_status": "Shows the members of the store of definitions",
        "observer": "Shows the work of a node",
        "peek": "Shows a message of a quorum queue by its position",
        "ping": "Fails if the node's process does not answer",
        "quorum_status": "Shows the members of a quorum queue",
        "remote_shell": "Opens a shell on the node",
        "report": "Prints everything that a support request needs",
        "resolve_hostname": "Resolves a host name on the node's machine",
        "runtime_thread_stats": "Shows how much work the node's event loop has",
        "safe_to_stop": "Fails if stopping the node would cost availability",
        "schema_info": "Lists tables of the database",
        "server_version": "Shows the version that clients see",
        "status": "Shows a node's version, memory, descriptors, disk, totals and listeners",
        "stream_status": "Shows the members of a stream",
        "tls_versions": "Lists the versions of TLS",
        "why": "Tells why a queue does not drain, or that it is well",
    },
    "Parameters": {
        "clear_global_parameter": "Removes a global parameter",
        "clear_parameter": "Removes a parameter of a vhost",
        "list_global_parameters": "Lists global parameters",
        "list_parameters": "Lists parameters of a vhost",
        "set_global_parameter": "Sets a global parameter",
        "set_parameter": "Sets a parameter of a vhost",
    },
    "Policies": {
        "clear_operator_policy": "Removes an operator policy",
        "clear_policy": "Removes a policy",
        "list_operator_policies": "Lists operator policies of a vhost",
        "list_policies": "Lists policies of a vhost",
        "list_policies_that_match": "Lists policies whose pattern matches a queue",
        "set_operator_policy": "Sets an operator policy, which bounds what policies set",
        "set_policy": "Sets a policy",
    },
    "Virtual hosts": {
        "add_vhost": "Creates a vhost",
        "clear_vhost_limits": "Removes limits of a vhost",
        "delete_vhost": "Removes a vhost with everything in it",
        "list_vhost_limits": "Lists limits of vhosts",
        "restart_vhost": "Starts a vhost that failed",
        "set_vhost_limits": "Limits connections and queues of a vhost",
        "set_vhost_tags": "Sets a vhost's tags",
        "trace_off": "Ends copies of messages to amq.rabbitmq.trace",
        "trace_on": "Publishes copies of messages to amq.rabbitmq.trace",
        "update_vhost_metadata": "Changes a vhost's description, tags or default queue type",
    },
    "Configuration and Environment": {
        "certificates": "Shows the certificates that the node presents",
        "command_line_arguments": "Shows the command line of the node's process",
        "decode": "Decrypts a value of the settings",
        "disable_auth_attempt_source_tracking": "Stops counting logins by source",
        "enable_auth_attempt_source_tracking": "Counts logins by source",
        "encode": "Encrypts a value of the settings",
        "environment": "Shows the settings that act",
        "erlang_cookie_hash": "Shows a hash of the Erlang cookie",
        "erlang_cookie_sources": "Shows where the Erlang cookie comes from",
        "log_location": "Shows where the node writes its log",
        "os_env": "Lists the environment variables that the node reads",
        "reset_node_auth_attempt_metrics": "Sets the counts of logins to 0",
        "resolver_info": "Shows how the node's machine resolves host names",
        "set_cluster_name": "Names the cluster",
        "set_disk_free_limit": "Sets how much disk space has to be free, until the next start",
        "set_disk_free_limit_mem_relative": "Sets the same in multiples of the memory",
        "set_log_level": "Changes the log level of the running node",
        "set_vm_memory_high_watermark": "Sets how much memory blocks publishers, until the next"
        " start",
    },
    "Definitions": {
        "export_definitions": "Writes users, vhosts, queues, policies ... to a file as JSON",
        "import_definitions": "Imports them; --dry-run shows what would change",
    },
    "Feature flags": {
        "enable_feature_flag": "Enables a feature flag, or all of them",
        "list_deprecated_features": "Lists deprecated features",
        "list_feature_flags": "Lists feature flags",
    },
    "Operations": {
        "close_all_connections": "Closes all connections, or those of a vhost",
        "close_all_user_connections": "Closes all connections of a user",
        "close_connection": "Closes a connection",
        "eval": "Runs a piece of Erlang on the node",
        "eval_file": "Runs a file of Erlang on the node",
        "exec": "Runs a piece of Elixir",
        "reclaim_quorum_memory": "Trims the log of a quorum queue",
        "resume_listeners": "Lets new clients in again after suspend_listeners",
        "suspend_listeners": "Closes the ports for clients; those that are connected stay",
    },
    "Queues": {
        "browse": "Shows messages of a queue or stream, which stay as they are",
        "cancel_delayed_messages": "Cancels messages that an exchange delays",
        "delete_exchange": "Deletes an exchange",
        "delete_queue": "Deletes a queue",
        "list_dead_letters": "Lists a queue's dead letters by reason, origin and exception",
        "list_delayed_messages": "Lists messages that an exchange delays",
        "purge_queue": "Removes the ready messages of a queue",
        "redrive": "Sends dead letters back to where they came from, or elsewhere",
    },
    "Upgrade": {
        "await_online_quorum_plus_one": "Waits until quorum queues can do without the node",
        "await_online_synchronized_mirror": "Waits until mirrored queues can do without the node",
        "drain": "Puts the node into maintenance mode: no clients, no leaders",
        "post_upgrade": "Does what is left to do after an upgrade",
        "revive": "Ends the maintenance mode of the node",
    },
    "Plugin Management": {
        "disable": "Switches plugins off",
        "enable": "Switches plugins on",
        "list": "Lists what RabbitMQ's plugins do, and what of it is there",
        "set": "Switches exactly these plugins on",
    },
    "Streams": {
        "activate_stream_consumer": "Makes a consumer of a stream the active one",
        "add_replica": "Gives a stream a replica on a node",
        "add_super_stream": "Creates a partitioned stream",
        "add_tap": "Has a stream get a copy of what goes to a queue or through an exchange",
        "coordinator_status": "Shows the coordinator of streams",
        "delete_replica": "Removes a stream's replica from a node",
        "delete_super_stream": "Removes a partitioned stream",
        "delete_tap": "Removes a tap; its stream stays",
        "list_stream_connections": "Lists connections of the stream protocol",
        "list_stream_consumer_groups": "Lists groups of consumers of streams",
        "list_stream_consumers": "Lists consumers of streams",
        "list_stream_group_consumers": "Lists consumers of a group",
        "list_stream_publishers": "Lists publishers to streams",
        "list_stream_tracking": "Lists offsets and named publishers that a stream keeps",
        "list_taps": "Lists taps of a vhost",
        "reset_offset": "Sets an offset that a stream keeps to 0",
        "restart_stream": "Has another replica of a stream lead",
        "set_stream_retention_policy": "Sets how long a stream keeps messages",
    },
    "Deprecated": {
        "node_health_check": "Checks that the node serves clients without alarms",
    },
}
"""{scope: {command: one line}}, in the order of the help."""

LINES: Final = {name: line for lines in SCOPES.values() for name, line in lines.items()}
"""One line for each command."""

OTHER: Final = "Other"
"""The scope of commands without a row."""


def grouped(names: frozenset[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Order commands for the help.

    Args:
        names: The commands to show.

    Returns:
        Scopes with their commands and lines, in the order of `SCOPES`; empty scopes are left out.
    """
    found = [
        (scope, [(name, line) for name, line in lines.items() if name in names])
        for scope, lines in SCOPES.items()
    ]
    found.append((OTHER, [(name, "") for name in sorted(names - LINES.keys())]))
    return [(scope, lines) for scope, lines in found if lines]
