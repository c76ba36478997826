"""The commands on a node's process, its machine and what is built in; a part of `ctl`'s table."""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.cli.ctl.change import Change
from broker.cli.ctl.node import checks, events, lifecycle, logs, plugins, surroundings

_MANY: Final = 1_000

NODE: Final[dict[str, Change]] = {
    "stop": Change(
        lifecycle.stop, 0, 1, "[--idempotent] [<pidfile>]", "Stopping and halting node {node} ..."
    ),
    "shutdown": Change(lifecycle.shutdown, 0, 0, "[--wait|--no-wait] [--timeout <timeout>]"),
    "force_gc": Change(
        lifecycle.force_gc,
        0,
        0,
        "[--timeout <timeout>]",
        "Will ask all processes on node {node} to schedule a full sweep GC",
    ),
    "suspend_listeners": Change(
        lifecycle.suspend_listeners,
        0,
        0,
        "",
        "Will suspend client connection listeners on node {node}. "
        "The node will no longer accept client connections!",
    ),
    "resume_listeners": Change(
        lifecycle.resume_listeners,
        0,
        0,
        "",
        "Will resume client connection listeners on node {node}. "
        "The node will now accept client connections",
    ),
    "log_tail": Change(
        logs.tail,
        0,
        0,
        "[--number|-N <lines>]",
        logs.tail_banner,
        check=logs.check_tail,
        is_answer=True,
    ),
    "log_tail_stream": Change(
        logs.stream, 0, 0, "[--duration|-d <seconds>]", "Streaming logs from node {node} ..."
    ),
    "consume_event_stream": Change(
        events.stream,
        0,
        0,
        "[--duration|-d <seconds>] [--pattern <pattern>]",
        events.banner,
        check=events.check,
    ),
    "log_location": Change(
        logs.location, 0, 0, "", "Node log file location(s) of {node} ...", is_answer=True
    ),
    "rotate_logs": Change(logs.rotate, 0, 0, "", "Rotating logs for node {node} ..."),
    "set_log_level": Change(logs.set_level, 1, 2, "[<category>] <level>", logs.level_banner),
    "runtime_thread_stats": Change(
        lifecycle.runtime_thread_stats,
        0,
        0,
        "[--sample-interval <seconds>]",
        lifecycle.thread_banner,
        check=lifecycle.check_interval,
        is_answer=True,
    ),
    "maybe_stuck": Change(
        lifecycle.maybe_stuck,
        0,
        0,
        "",
        "Asking node {node} to detect potentially stuck processes...",
        is_answer=True,
    ),
    "erlang_version": Change(
        surroundings.erlang_version,
        0,
        0,
        "[--details]",
        "Asking node {node} for the version of its runtime...",
        is_answer=True,
    ),
    "command_line_arguments": Change(
        surroundings.command_line_arguments,
        0,
        0,
        "",
        "Command line arguments of node {node} ...",
        is_answer=True,
    ),
    "os_env": Change(
        surroundings.os_env,
        0,
        0,
        "",
        "Listing RabbitMQ-specific environment variables defined on node {node}...",
        is_answer=True,
    ),
    "discover_peers": Change(
        surroundings.discover_peers, 0, 0, "", "Discovering peers nodes ...", is_answer=True
    ),
    "list_network_interfaces": Change(
        surroundings.list_network_interfaces,
        0,
        0,
        "",
        "Asking node {node} to report its network interfaces ...",
        is_answer=True,
    ),
    "resolver_info": Change(
        surroundings.resolver_info,
        0,
        0,
        "",
        "Asking node {node} for its effective hostname resolver configuration...",
        is_answer=True,
    ),
    "resolve_hostname": Change(
        surroundings.resolve_hostname,
        1,
        1,
        "<hostname> [--address-family <ipv4 | ipv6>]",
        surroundings.resolve_banner,
        check=surroundings.check_family,
        is_answer=True,
    ),
    "node_health_check": Change(
        checks.node_health_check, 0, 0, "", "Checking health of node {node} ..."
    ),
    "check_if_cluster_has_classic_queue_mirroring_policy": Change(
        checks.check_mirroring_policy,
        0,
        0,
        "",
        "Checking if cluster has any classic queue mirroring policy ...",
    ),
    "list_deprecated_features": Change(
        checks.list_deprecated_features,
        0,
        2,
        "[--used] [<column> ...]",
        "Listing deprecated features ...",
        is_answer=True,
    ),
    "check_if_any_deprecated_features_are_used": Change(
        checks.check_deprecated_features,
        0,
        0,
        "",
        "Checking if any deprecated features are used on node {node} ...",
    ),
    "list_node_auth_attempt_stats": Change(
        checks.list_auth_attempts,
        0,
        0,
        "[--by-source]",
        'Listing authentication\n attempts for node "{node}" ...',
        is_answer=True,
    ),
    "reset_node_auth_attempt_metrics": Change(
        checks.reset_auth_attempts,
        0,
        0,
        "",
        "Reset auth attempt metrics on node {node} ...",
    ),
    "enable_auth_attempt_source_tracking": Change(
        checks.enable_source_tracking,
        0,
        0,
        "",
        "Enabling authentication attempt source tracking on node {node} ...",
    ),
    "metadata_store_status": Change(
        checks.metadata_store_status,
        0,
        0,
        "",
        "Status of metadata store on node {node} ...",
        is_answer=True,
    ),
    "list": Change(
        plugins.show,
        0,
        1,
        "[pattern] [--minimal] [--enabled] [--implicitly-enabled]",
        plugins.list_banner,
        check=plugins.check_pattern,
        is_answer=True,
    ),
    "is_enabled": Change(
        plugins.is_enabled,
        1,
        _MANY,
        "<plugin1> [ <plugin2>] [--offline] [--online]",
        plugins.enabled_banner,
    ),
    "directories": Change(
        plugins.directories,
        0,
        0,
        "[--offline] [--online]",
        "Listing plugin directories used by node {node}",
        is_answer=True,
    ),
    "enable": Change(
        plugins.enable,
        0,
        _MANY,
        "<plugin1> [ <plugin2>] | --all [--offline] [--online]",
        partial(plugins.change_banner, "Enabling"),
    ),
    "disable": Change(
        plugins.disable,
        0,
        _MANY,
        "<plugin1> [ <plugin2>] | --all [--offline] [--online]",
        partial(plugins.change_banner, "Disabling"),
    ),
    "set": Change(
        plugins.replace,
        0,
        _MANY,
        "<plugin1> [ <plugin2>] [--offline] [--online]",
        partial(plugins.change_banner, "Enabling"),
    ),
}
