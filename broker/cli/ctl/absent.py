"""RabbitMQ's commands that there are not: each with one line that says why, or what to do instead.

Source: the modules of rabbitmq_cli 3.13 (names).
"""

from __future__ import annotations

from typing import Final

_NO_ERLANG: Final = "there is no Erlang here"
_STREAMS: Final = "there are no streams yet"
_PLUGINS: Final = "what RabbitMQ's plugins do is built in; there is nothing to switch"
_LATER: Final = "not there yet"
_MIRRORED: Final = "mirrored queues are here to stay: list_policies shows theirs"
_NONE_DEPRECATED: Final = "nothing that RabbitMQ 3.13 deprecates is deprecated here"

ABSENT: Final[dict[str, str]] = {
    # rabbitmqctl
    "change_cluster_node_type": "all nodes are disc nodes",
    "decode": "values of settings are not encrypted here",
    "encode": "values of settings are not encrypted here",
    "list_deprecated_features": _NONE_DEPRECATED,
    "eval": f"{_NO_ERLANG}; list_* commands and /api show a node's state",
    "eval_file": f"{_NO_ERLANG}; list_* commands and /api show a node's state",
    "exec": f"{_NO_ERLANG}; list_* commands and /api show a node's state",
    "force_gc": "memory is given back by itself",
    "force_reset": "`reset` leaves the cluster; if that is gone, delete the stopped node's data "
    "folder",
    "list_ciphers": "it lists ciphers of encrypted settings, and settings are not encrypted here; "
    "`cipher_suites` lists those of TLS",
    "list_hashes": "stored passwords: `hash_password` shows the kinds; values of settings are not "
    "encrypted",
    "list_unresponsive_queues": "queues do not stop one by one: the event loop's turns are in "
    "`status`",
    "node_health_check": "deprecated in RabbitMQ: use check_running, check_local_alarms and their "
    "kin",
    "rename_cluster_node": "a node keeps its name: join_cluster a new one, then "
    "forget_cluster_node",
    "resume_listeners": _LATER,
    "suspend_listeners": _LATER,
    "rotate_logs": "log.file.rotation.size and .count rotate them; without a file the console has "
    "them",
    "set_log_level": f"levels are settings, log.*.level; changes while a node runs are {_LATER}",
    "shutdown": "use `warrenmq cluster stop`, or SIGTERM",
    "stop": "use `warrenmq cluster stop`, or SIGTERM",
    "update_cluster_nodes": "members know each other's addresses from group 0",
    # rabbitmq-diagnostics
    "check_if_any_deprecated_features_are_used": _NONE_DEPRECATED,
    "check_if_cluster_has_classic_queue_mirroring_policy": _MIRRORED,
    "command_line_arguments": "`environment` shows the settings that act",
    "consume_event_stream": f"events are {_LATER}",
    "disable_auth_attempt_source_tracking": "sources are always counted: GET "
    "/api/auth/attempts/NODE/source",
    "enable_auth_attempt_source_tracking": "sources are always counted: GET "
    "/api/auth/attempts/NODE/source",
    "list_node_auth_attempt_stats": "ask GET /api/auth/attempts/NODE",
    "discover_peers": "cluster_formation.classic_config.nodes.N lists them",
    "erlang_cookie_hash": f"{_NO_ERLANG}: nodes prove a shared secret (cluster.secret)",
    "erlang_cookie_sources": f"{_NO_ERLANG}: nodes prove a shared secret (cluster.secret)",
    "erlang_version": f"{_NO_ERLANG}; server_version shows the broker's",
    "info": "use status",
    "list_network_interfaces": "`ip address` lists them",
    "log_location": "`environment` shows log.file; without it the console has the log",
    "log_tail": f"{_LATER}; read the file of log.file",
    "log_tail_stream": f"{_LATER}; `tail -f` the file of log.file",
    "check_if_new_quorum_queue_replicas_have_finished_initial_sync": f"{_LATER}; "
    "check_for_quorum_queues_below_target_size is like it",
    "metadata_store_status": f"{_LATER}; cluster_status shows the members",
    "reset_node_auth_attempt_metrics": "use DELETE /api/auth/attempts/NODE",
    "maybe_stuck": f"{_NO_ERLANG}; `status` shows the event loop's longest turns",
    "observer": f"{_NO_ERLANG}; `py-spy top` shows a node's work",
    "os_env": "`environment` shows the settings that act",
    "remote_shell": _NO_ERLANG,
    "resolve_hostname": "`getent hosts` does",
    "resolver_info": "names are resolved by the system",
    "runtime_thread_stats": f"{_NO_ERLANG}; `status` shows the event loop's longest turns",
    "schema_info": "the schema is group 0: export_definitions shows what is in it",
    # rabbitmq-queues
    "delete_member": f"{_LATER}; forget_cluster_node removes a node's replicas, and lost ones are "
    "replaced",
    "shrink": f"{_LATER}; forget_cluster_node removes a node's replicas, and lost ones are "
    "replaced",
    "peek": f"{_LATER}; POST /api/queues/VHOST/NAME/get with ack_requeue_true shows the head",
    "reclaim_quorum_memory": "logs are trimmed by themselves",
    # rabbitmq-plugins
    **dict.fromkeys(("directories", "disable", "enable", "is_enabled", "list", "set"), _PLUGINS),
    # rabbitmq-streams
    **dict.fromkeys(
        (
            "activate_stream_consumer",
            "add_replica",
            "add_super_stream",
            "coordinator_status",
            "delete_replica",
            "delete_super_stream",
            "list_stream_connections",
            "list_stream_consumer_groups",
            "list_stream_consumers",
            "list_stream_group_consumers",
            "list_stream_publishers",
            "list_stream_tracking",
            "reset_offset",
            "restart_stream",
            "set_stream_retention_policy",
            "stream_status",
        ),
        _STREAMS,
    ),
}
