"""RabbitMQ's command line tools and the commands each of them brings, as of 3.13. Data.

`ctl` answers all of them under one name; the tools' names say which to list (`rabbitmq-queues
help`). A command of several tools stands with the one whose folder has its source.

Source: the folders of rabbitmq_cli 3.13 (deps/rabbitmq_cli/lib/rabbitmq/cli/*/commands), and the
commands that the stream plugin adds to rabbitmq-streams.
"""

from __future__ import annotations

from typing import Final

CTL: Final = "rabbitmqctl"
DIAGNOSTICS: Final = "rabbitmq-diagnostics"


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OF_EVERY_TOOL: Final = ("autocomplete", "help", "version")

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    CTL: _names(
        """
        add_user add_vhost authenticate_user autocomplete await_online_nodes await_startup
        cancel_sync_queue change_cluster_node_type change_password clear_global_parameter
        clear_operator_policy clear_parameter clear_password clear_permissions clear_policy
        clear_topic_permissions clear_user_limits clear_vhost_limits close_all_connections
        close_all_user_connections close_connection cluster_status decode delete_queue delete_user
        delete_vhost enable_feature_flag encode environment eval eval_file exec export_definitions
        force_boot force_gc force_reset forget_cluster_node hash_password help import_definitions
        join_cluster list_bindings list_channels list_ciphers list_connections list_consumers
        list_deprecated_features list_exchanges list_feature_flags list_global_parameters
        list_hashes list_operator_policies list_parameters list_permissions list_policies
        list_queues list_topic_permissions list_unresponsive_queues list_user_limits
        list_user_permissions list_user_topic_permissions list_users list_vhost_limits list_vhosts
        node_health_check ping purge_queue rename_cluster_node report reset restart_vhost
        resume_listeners rotate_logs set_cluster_name set_disk_free_limit set_global_parameter
        set_log_level set_operator_policy set_parameter set_permissions set_permissions_globally
        set_policy set_topic_permissions set_user_limits set_user_tags set_vhost_limits
        set_vhost_tags set_vm_memory_high_watermark shutdown start_app status stop stop_app
        suspend_listeners sync_queue trace_off trace_on update_cluster_nodes update_vhost_metadata
        version wait
        """
    ),
    DIAGNOSTICS: _names(
        """
        alarms certificates check_alarms check_certificate_expiration
        check_if_any_deprecated_features_are_used
        check_if_cluster_has_classic_queue_mirroring_policy check_local_alarms
        check_port_connectivity check_port_listener check_protocol_listener check_running
        check_virtual_hosts cipher_suites command_line_arguments consume_event_stream
        disable_auth_attempt_source_tracking discover_peers enable_auth_attempt_source_tracking
        erlang_cookie_hash erlang_cookie_sources erlang_version info is_booting is_running
        list_network_interfaces list_node_auth_attempt_stats list_policies_that_match listeners
        log_location log_tail log_tail_stream maybe_stuck memory_breakdown metadata_store_status
        observer os_env remote_shell reset_node_auth_attempt_metrics resolve_hostname resolver_info
        runtime_thread_stats schema_info server_version tls_versions
        """
    ),
    "rabbitmq-queues": _names(
        """
        add_member check_if_new_quorum_queue_replicas_have_finished_initial_sync
        check_if_node_is_mirror_sync_critical check_if_node_is_quorum_critical delete_member grow
        peek quorum_status rebalance reclaim_quorum_memory shrink
        """
    ),
    "rabbitmq-streams": _names(
        """
        activate_stream_consumer add_replica add_super_stream coordinator_status delete_replica
        delete_super_stream list_stream_connections list_stream_consumer_groups
        list_stream_consumers list_stream_group_consumers list_stream_publishers
        list_stream_tracking reset_offset restart_stream set_stream_retention_policy stream_status
        """
    ),
    "rabbitmq-upgrade": _names(
        """
        await_online_quorum_plus_one await_online_synchronized_mirror drain post_upgrade revive
        """
    ),
    "rabbitmq-plugins": ("directories", "disable", "enable", "is_enabled", "list", "set"),
}
"""Command names by tool."""

_LISTS_ALL: Final = (CTL, DIAGNOSTICS)


def listed(tool: str) -> frozenset[str] | None:
    """The commands that a tool's help lists; None for all.

    rabbitmqctl and rabbitmq-diagnostics share so many that both list all here.

    Args:
        tool: A key of `COMMANDS`, or another program name.
    """
    if tool in _LISTS_ALL or tool not in COMMANDS:
        return None
    return frozenset((*COMMANDS[tool], *OF_EVERY_TOOL))
