"""RabbitMQ's commands that there are not: each with one line that says why, or what to do instead.

Source: the modules of rabbitmq_cli 3.13 (names).
"""

from __future__ import annotations

from typing import Final

_NO_ERLANG: Final = "there is no Erlang here"
_STREAM_PROTOCOL: Final = "it shows clients of the stream protocol (port 5552), which is not served"
_GROUPS: Final = "groups of consumers are of the stream protocol (port 5552), which is not served"

ABSENT: Final[dict[str, str]] = {
    # rabbitmqctl
    "change_cluster_node_type": "all nodes are disc nodes",
    "decode": "values of settings are not encrypted here",
    "encode": "values of settings are not encrypted here",
    "eval": f"{_NO_ERLANG}; list_* commands and /api show a node's state",
    "eval_file": f"{_NO_ERLANG}; list_* commands and /api show a node's state",
    "exec": f"{_NO_ERLANG}; list_* commands and /api show a node's state",
    "list_ciphers": "it lists ciphers of encrypted settings, and settings are not encrypted here; "
    "`cipher_suites` lists those of TLS",
    "list_hashes": "stored passwords: `hash_password` shows the kinds; values of settings are not "
    "encrypted",
    "rename_cluster_node": "a node keeps its name: join_cluster a new one, then "
    "forget_cluster_node",
    "update_cluster_nodes": "members know each other's addresses from group 0",
    # rabbitmq-diagnostics
    "disable_auth_attempt_source_tracking": "sources are always counted: GET "
    "/api/auth/attempts/NODE/source",
    "erlang_cookie_hash": f"{_NO_ERLANG}: nodes prove a shared secret (cluster.secret)",
    "erlang_cookie_sources": f"{_NO_ERLANG}: nodes prove a shared secret (cluster.secret)",
    "observer": f"{_NO_ERLANG}; `warrenmq top` shows the cluster at work",
    "remote_shell": _NO_ERLANG,
    "schema_info": "the schema is group 0: export_definitions shows what is in it",
    # rabbitmq-streams
    "activate_stream_consumer": _GROUPS,
    "coordinator_status": "streams have no coordinator, each is a Raft group: `stream_status` "
    "shows its members",
    "list_stream_connections": f"{_STREAM_PROTOCOL}; `list_connections` shows those of AMQP",
    "list_stream_consumer_groups": _GROUPS,
    "list_stream_consumers": f"{_STREAM_PROTOCOL}; `list_consumers` shows those of AMQP",
    "list_stream_group_consumers": _GROUPS,
    "list_stream_publishers": f"{_STREAM_PROTOCOL}; `list_stream_tracking --writer` shows named "
    "publishers",
}
"""Why, by name."""
