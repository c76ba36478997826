"""The keys RabbitMQ 3.13 knows in rabbitmq.conf, as patterns, to tell a typo from a key we lack.

A `$` segment stands for one or more name parts (`loopback_users.$`). Written from RabbitMQ's
documentation and schema; where the documentation names a family, so does the pattern. Some are of
its advanced.config, which is written in this syntax here. Pure.
"""

from __future__ import annotations

import difflib
from functools import cache

_TLS = (
    "verify fail_if_no_peer_cert cacertfile certfile keyfile key.RSAPrivateKey key.DSAPrivateKey"
    " key.PrivateKeyInfo password psk_identity honor_cipher_order honor_ecc_order"
    " client_renegotiation reuse_session reuse_sessions secure_renegotiate depth dh dhfile"
    " versions.$ ciphers.$ log_alert log_level"
    " cacerts.$ cert crl_check bypass_pem_cache hostname_verification sni"
)
_TCP = (
    "backlog nodelay keepalive sndbuf recbuf buffer delay_send dual_stack linger.on linger.timeout"
    " exit_on_close high_watermark low_watermark high_msgq_watermark low_msgq_watermark deliver"
    " packet mode priority raw read_packets show_econnreset send_timeout send_timeout_close tos"
    " dontroute fd port"
)
_COWBOY = (
    "compress idle_timeout inactivity_timeout request_timeout shutdown_timeout max_keepalive"
    " max_empty_lines max_header_name_length max_header_value_length max_headers"
    " max_request_line_length"
)
_WEB = "tcp.port tcp.ip tcp.compress tcp.idle_timeout ssl.port ssl.ip ssl.backlog"

# One family a line: prefix, then what may follow it.
_FAMILIES: tuple[tuple[str, str], ...] = (
    ("listeners", "tcp tcp.$ ssl ssl.$"),
    ("num_acceptors", "tcp ssl"),
    ("tcp_listen_options", _TCP),
    ("ssl_options", _TLS),
    ("ssl_cert_login_from", ""),
    ("ssl_cert_login_san_type", ""),
    ("ssl_cert_login_san_index", ""),
    ("ssl_handshake_timeout", ""),
    ("ssl_allow_poodle_attack", ""),
    ("socket_writer", "gc_threshold"),
    ("loopback_users", "$"),
    ("loopback_users", ""),
    ("auth_backends", "$"),
    ("auth_mechanisms", "$"),
    ("authentication_backend", ""),
    ("anonymous_login_user", ""),
    ("anonymous_login_pass", ""),
    ("password_hashing_module", ""),
    ("credential_validator", "validation_backend min_length regexp"),
    ("default_user", ""),
    ("default_pass", ""),
    ("default_vhost", ""),
    ("default_password", ""),
    (
        "default_users",
        "$.vhost_pattern $.password $.configure $.write $.read $.tags",
    ),
    ("default_user_tags", "$"),
    ("default_permissions", "configure read write"),
    ("default_queue_type", ""),
    (
        "default_policies",
        "operator.$.vhost_pattern operator.$.queue_pattern operator.$.expires"
        " operator.$.message_ttl operator.$.max_length operator.$.max_length_bytes"
        " operator.$.max_in_memory_length operator.$.max_in_memory_bytes"
        " operator.$.delivery_limit operator.$.classic_queues.ha_mode"
        " operator.$.classic_queues.ha_params operator.$.classic_queues.ha_sync_mode",
    ),
    ("default_limits", "vhosts.$.pattern vhosts.$.max_connections vhosts.$.max_queues"),
    ("vhost_max", ""),
    ("vhost_restart_strategy", ""),
    ("heartbeat", ""),
    ("frame_max", ""),
    ("initial_frame_max", ""),
    ("channel_max", ""),
    ("channel_max_per_node", ""),
    ("session_max_per_connection", ""),
    ("link_max_per_session", ""),
    ("channel_operation_timeout", ""),
    ("channel_tick_interval", ""),
    ("channel_queue_cleanup_interval", ""),
    ("connection_max", ""),
    ("ranch_connection_max", ""),
    ("consumer_max_per_channel", ""),
    ("max_message_size", ""),
    ("consumer_timeout", ""),
    ("handshake_timeout", ""),
    ("reverse_dns_lookups", ""),
    ("proxy_protocol", ""),
    ("permit_deprecated_features", "$"),
    ("deprecated_features", "permit.$"),
    ("default_worker_pool_size", ""),
    ("feature_flags_file", ""),
    ("license_line", ""),
    ("vm_memory_high_watermark", "relative absolute"),
    ("vm_memory_high_watermark_paging_ratio", ""),
    ("vm_memory_calculation_strategy", ""),
    ("memory_monitor_interval", ""),
    ("total_memory_available_override_value", ""),
    ("disk_free_limit", "relative absolute"),
    ("disk_monitor_failure_retries", ""),
    ("disk_monitor_failure_retry_interval", ""),
    ("cluster_name", ""),
    ("cluster_tags", "$"),
    ("node_tags", "$"),
    ("cluster_partition_handling", ""),
    ("cluster_partition_handling.pause_if_all_down", "recover nodes.$"),
    ("cluster_keepalive_interval", ""),
    ("cluster_queue_limit", ""),
    ("cluster_exchange_limit", ""),
    (
        "cluster_formation",
        "peer_discovery_backend node_type classic_config.nodes.$ dns.hostname dns.$"
        " discovery_retry_limit discovery_retry_interval target_cluster_size_hint"
        " randomized_startup_delay_range.min randomized_startup_delay_range.max"
        " registration.enabled internal_lock_retries lock_retry_limit lock_retry_timeout"
        " lock_acquisition_timeout"
        " node_cleanup.interval node_cleanup.only_log_warning k8s.$ consul.$ etcd.$ aws.$ proxy.$"
        " http_proxy.$ instances.$",
    ),
    ("mirroring_sync_batch_size", ""),
    ("mirroring_sync_max_throughput", ""),
    ("mirroring_flow_control", ""),
    ("queue_master_locator", ""),
    ("queue_leader_locator", ""),
    ("queue_index_embed_msgs_below", ""),
    ("queue_index_max_journal_entries", ""),
    ("msg_store_file_size_limit", ""),
    ("msg_store_index_module", ""),
    ("msg_store_credit_disc_bound", ""),
    ("msg_store_io_batch_size", ""),
    ("msg_store_shutdown_timeout", ""),
    ("message_store_shutdown_timeout", ""),
    ("credit_flow_default_credit", ""),
    ("fhc_read_buffering", ""),
    ("fhc_write_buffering", ""),
    ("file_handles_high_watermark", ""),
    ("runtime_parameters", "limits.$"),
    ("amqp_client", "$"),
    ("ssl_options", ""),
    ("tcp_listen_options", ""),
    ("classic_queue", "default_version"),
    ("quorum_queue", "$"),
    ("quorum_queue.property_equivalence", "relaxed_checks_on_redeclaration"),
    ("quorum_relaxed_checks_on_redeclaration", ""),
    ("quorum_commands_soft_limit", ""),
    ("quorum_cluster_size", ""),
    ("quorum_membership_reconciliation_enabled", ""),
    ("quorum_membership_reconciliation_auto_remove", ""),
    ("quorum_membership_reconciliation_interval", ""),
    ("quorum_membership_reconciliation_trigger_interval", ""),
    ("quorum_membership_reconciliation_target_group_size", ""),
    ("quorum_tick_interval", ""),
    ("stream", "$"),
    ("stream_queue", "$"),
    ("stream_messages_soft_limit", ""),
    ("mnesia_table_loading_retry_timeout", ""),
    ("mnesia_table_loading_retry_limit", ""),
    ("khepri_default_timeout", ""),
    ("metadata_store", "$"),
    ("khepri_leader_wait_retry_timeout", ""),
    ("collect_statistics", ""),
    ("collect_statistics_interval", ""),
    ("statistics_level", ""),
    ("delegate_count", ""),
    ("background_gc_enabled", ""),
    ("background_gc_target_interval", ""),
    ("load_definitions", ""),
    (
        "definitions",
        "import_backend skip_if_unchanged local.path https.url hashing.algorithm tls.$ ssl.$ $",
    ),
    ("topic_permission_cache", "$"),
    ("auth_cache", "$"),
    ("track_auth_attempt_source", ""),
    ("lazy_queue_explicit_gc_run_operation_threshold", ""),
    ("queue_explicit_gc_run_operation_threshold", ""),
    ("hipe_compile", ""),
    ("motd_file", ""),
    ("product", "name version"),
    ("warn_file_limit", ""),
    ("reserve_disk_space", ""),
    ("writer_gc_threshold", ""),
    ("net_ticktime", ""),
    ("distribution", "$"),
    ("erlang", "$"),
    (
        "log",
        "dir console file exchange syslog journald console.$ file.$ exchange.$ syslog.$ journald.$"
        " default.$"
        " connection.$ channel.$ queue.$ mirroring.$ federation.$ upgrade.$ ra.$ prelaunch.$"
        " feature_flags.$ ldap.$ metadata_store.$",
    ),
    ("raft", "$"),
    (
        "management",
        "listener.$ tcp.$ ssl.$ path_prefix rates_mode load_definitions http_log_dir disable_stats"
        " enable_queue_totals sample_retention_policies.$ cors.allow_origins cors.allow_origins.$"
        " cors.max_age http.max_body_size"
        " csp.policy hsts.policy headers.$ db_cache_multiplier process_stats_gc_timeout"
        " stats_event_max_backlog login_session_timeout disable_basic_auth"
        " require_auth_for_api_desc_page require_auth_for_api_reference restrictions.$"
        " enable_uaa uaa_client_id uaa_location oauth_authorization_endpoint_params.$"
        " oauth_token_endpoint_params.$ oauth_enabled oauth_client_id oauth_client_secret"
        " oauth_provider_url oauth_scopes"
        " oauth_metadata_url oauth_initiated_logon_type oauth_disable_basic_auth"
        " oauth_response_type oauth_resource_servers.$ max_http_body_size"
        " content_security_policy delegate_count"
        " extension.$ hsts_policy frame_options xss_protection content_type_options",
    ),
    ("management_agent", "$"),
    (
        "prometheus",
        "tcp.$ ssl.$ path return_per_object_metrics filter_aggregated_queue_metrics_pattern"
        " authentication.enabled",
    ),
    ("mqtt", "$"),
    ("stomp", "$"),
    ("web_mqtt", f"{_WEB} ws_path cowboy_opts.$ ssl.$ tcp.$ $"),
    ("web_stomp", f"{_WEB} ws_frame cowboy_opts.$ ssl.$ tcp.$ $"),
    ("amqp1_0", "$"),
    ("auth_http", "$"),
    ("auth_ldap", "$"),
    ("auth_oauth2", "$"),
    ("trust_store", "$"),
    ("shovel", "$"),
    ("federation", "$"),
    ("trace", "$"),
    ("event_exchange", "$"),
    ("aws", "$"),
    ("consistent_hash", "$"),
    ("sysmon_handler", "$"),
    ("osiris", "$"),
    ("aten", "$"),
    ("message_interceptors", "$"),
    ("limits", "$"),
    ("web_dispatch", "$"),
    ("schema_definition", "$"),
    ("tcp_accept", "$"),
    ("cowboy_opts", _COWBOY),
)


def _expanded() -> tuple[tuple[str, ...], ...]:
    patterns: dict[tuple[str, ...], None] = {}
    for prefix, rest in _FAMILIES:
        for tail in rest.split() or [""]:
            patterns[tuple(f"{prefix}.{tail}".rstrip(".").split("."))] = None
    return tuple(patterns)


PATTERNS = _expanded()


def _matches(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    if pattern[-1] == "$":
        fixed = pattern[:-1]
        return len(parts) > len(fixed) and parts[: len(fixed)] == fixed
    if len(pattern) != len(parts):
        return False
    return all(want in ("$", have) for want, have in zip(pattern, parts, strict=True))


def is_known(key: str) -> bool:
    """True if RabbitMQ 3.13 would accept this key.

    Args:
        key: A key of rabbitmq.conf, "listeners.tcp.default".
    """
    parts = tuple(key.split("."))
    return any(_matches(pattern, parts) for pattern in PATTERNS)


@cache
def _fixed_names() -> tuple[str, ...]:
    return tuple(".".join(p for p in pattern if p != "$") for pattern in PATTERNS)


def nearest(key: str, ours: tuple[str, ...]) -> str:
    """The known key most like this one.

    Args:
        key: An unknown key.
        ours: Keys to choose from beside RabbitMQ's.
    """
    candidates = list(dict.fromkeys([*ours, *_fixed_names()]))
    found = difflib.get_close_matches(key, candidates, n=1, cutoff=0.0)
    return found[0] if found else candidates[0]
