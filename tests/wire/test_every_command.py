"""Every command of RabbitMQ 3.13's tools at a real node: it works, or one line says why it can't.

Exit codes are those of rabbitmqctl 3.10.8 where it was asked for the same words, else those of
sysexits.h that its commands use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.ctl.absent import ABSENT
from broker.cli.ctl.commands import run
from broker.cli.ctl.help.tools import COMMANDS
from tests.nodes import Node, free_ports

Said = pytest.CaptureFixture[str]

STEPS: list[tuple[str, int]] = [
    ("help", 0),
    ("help list_queues", 0),
    ("autocomplete list_", 0),
    ("version", 0),
    ("ping", 0),
    ("status", 0),
    ("info", 0),
    ("report", 0),
    ("environment", 0),
    ("server_version", 0),
    ("erlang_version", 0),
    ("cluster_status", 0),
    ("metadata_store_status", 0),
    # users
    ("add_user walker secret", 0),
    ("add_user walker secret", 70),
    ("authenticate_user walker secret", 0),
    ("authenticate_user walker wrong", 65),
    ("change_password walker other", 0),
    ("set_user_tags walker monitoring", 0),
    ("list_users", 0),
    ("hash_password secret", 0),
    ('set_user_limits walker {"max-channels":5}', 0),
    ("list_user_limits", 0),
    ("clear_user_limits walker all", 0),
    ("clear_password walker", 0),
    # vhosts and permissions
    ("add_vhost walk", 0),
    ("list_vhosts", 0),
    ("set_vhost_tags walk a", 0),
    ("update_vhost_metadata walk --description text", 0),
    ("set_permissions -p walk walker .* .* .*", 0),
    ("set_permissions_globally walker .* .* .*", 0),
    ("list_permissions -p walk", 0),
    ("list_user_permissions walker", 0),
    ("set_topic_permissions -p walk walker amq.topic .* .*", 0),
    ("list_topic_permissions -p walk", 0),
    ("list_user_topic_permissions walker", 0),
    ("clear_topic_permissions -p walk walker", 0),
    ("clear_permissions -p walk walker", 0),
    ('set_vhost_limits -p walk {"max-queues":5}', 0),
    ("list_vhost_limits", 0),
    ("clear_vhost_limits -p walk", 0),
    ("restart_vhost -p walk", 0),
    ("delete_vhost walk", 0),
    ("delete_user walker", 0),
    ("close_all_user_connections guest text", 0),
    # parameters and policies
    ('set_parameter federation-upstream up {"uri":"amqp://nowhere"}', 69),
    ("list_parameters", 0),
    ("clear_parameter federation-upstream up", 69),
    ('set_global_parameter walk {"a":1}', 0),
    ("list_global_parameters", 0),
    ("clear_global_parameter walk", 0),
    ('set_policy walk ^walk {"max-length":5}', 0),
    ("list_policies", 0),
    ("list_policies_that_match walk.quorum", 0),
    ("clear_policy walk", 0),
    ('set_operator_policy walk ^walk {"max-length":5}', 0),
    ("list_operator_policies", 0),
    ("clear_operator_policy walk", 0),
    # listings
    ("list_queues", 0),
    ("list_queues nonsense", 64),
    ("list_exchanges", 0),
    ("list_bindings", 0),
    ("list_connections", 0),
    ("list_channels", 0),
    ("list_consumers", 0),
    ("list_feature_flags", 0),
    ("list_deprecated_features", 0),
    ("list_unresponsive_queues", 0),
    ("list_node_auth_attempt_stats", 0),
    ("list_node_auth_attempt_stats --by-source", 0),
    ("reset_node_auth_attempt_metrics", 0),
    ("enable_auth_attempt_source_tracking", 0),
    ("enable_feature_flag all", 0),
    # queues
    ("why walk.quorum", 0),
    ("why nowhere", 65),
    ("quorum_status walk.quorum", 0),
    ("peek walk.quorum 1", 69),
    ("reclaim_quorum_memory walk.quorum", 0),
    ("add_member walk.quorum nowhere@host", 65),
    ("delete_member walk.quorum nowhere@host", 0),
    ("delete_member nowhere nowhere@host", 69),
    ("force_shrink_member_to_current_member walk.quorum", 65),
    ("force_shrink_member_to_current_member walk.stream --force", 65),
    ("force_shrink_member_to_current_member walk.classic", 65),
    ("force_shrink_member_to_current_member nowhere", 65),
    ("add_member walk.stream nowhere@host", 65),
    ("add_replica walk.quorum nowhere@host", 69),
    ("add_replica walk.stream nowhere@host", 69),
    ("add_replica nowhere nowhere@host", 69),
    ("delete_replica walk.classic nowhere@host", 69),
    ("delete_replica walk.stream nowhere@host", 0),
    ("delete_replica walk.stream rabbit@walk", 69),
    ("list_queues name type messages leader members online committed_offset segments", 0),
    ("stream_status walk.stream", 0),
    ("stream_status walk.stream --tracking", 0),
    ("stream_status walk.quorum", 69),
    ("stream_status nowhere", 69),
    ("restart_stream walk.stream", 0),
    ("restart_stream walk.stream --preferred-leader-node rabbit@walk", 0),
    ("restart_stream walk.stream --preferred-leader-node nowhere@host", 69),
    ("restart_stream walk.classic", 69),
    ("set_stream_retention_policy walk.stream 7D", 0),
    ("set_stream_retention_policy walk.stream 8D", 0),
    ("set_stream_retention_policy walk.stream 0D", 69),
    ("set_stream_retention_policy walk.stream soon", 69),
    ("set_stream_retention_policy walk.quorum 7D", 69),
    ("set_stream_retention_policy nowhere 7D", 69),
    ("clear_policy retention.walk.stream", 0),
    ("list_stream_tracking walk.stream", 0),
    ("list_stream_tracking walk.stream --offset", 0),
    ("list_stream_tracking walk.stream --writer --all", 64),
    ("list_stream_tracking walk.classic", 69),
    ("list_stream_tracking nowhere", 69),
    ("reset_offset --stream walk.stream --reference nobody", 69),
    ("reset_offset --stream nowhere --reference nobody", 69),
    ("reset_offset --stream walk.stream", 64),
    ("add_super_stream walk.super --partitions 2 --max-age P1D --max-length-bytes 20gb", 0),
    ("add_super_stream walk.super", 70),
    ("add_super_stream walk.other --partitions 2 --binding-keys a,b", 64),
    ("add_super_stream walk.other --partitions 0", 64),
    ("add_super_stream walk.other --max-age soon", 64),
    ("delete_super_stream walk.super", 0),
    ("delete_super_stream walk.super", 70),
    ("browse walk.classic", 0),
    ("browse walk.quorum --number 150 --from 2 --key k --header a=b --body x --json a.b=1", 0),
    ("browse walk.stream --from first --key-pattern ^k --pattern x+", 0),
    ("browse walk.classic --pattern (", 69),
    ("browse walk.classic --from first", 69),
    ("browse walk.classic --number 0", 64),
    ("browse nowhere", 69),
    ("list_dead_letters walk.classic", 0),
    ("list_dead_letters walk.quorum reason messages", 0),
    ("list_dead_letters walk.stream", 69),
    ("list_dead_letters nowhere", 69),
    ("redrive walk.classic --dry-run", 0),
    ("redrive walk.quorum --reason rejected --number 5 --rate 10", 0),
    ("redrive walk.classic --to moon", 64),
    ("redrive walk.classic --to death_queue --to-queue walk.quorum", 64),
    ("redrive walk.classic --rate fast", 64),
    ("redrive walk.classic --to-queue nowhere", 69),
    ("redrive nowhere", 69),
    ("add_tap queue walk.classic --max-age 7D", 0),
    ("add_tap queue walk.classic", 0),
    ("add_tap queue walk.classic --key k", 64),
    ("add_tap queue walk.stream", 69),
    ("add_tap exchange amq.topic --key a.#", 0),
    ("add_tap exchange amq.topic", 69),
    ("add_tap exchange nowhere", 69),
    ("add_tap shovel nowhere", 64),
    ("list_taps", 0),
    ("delete_tap exchange amq.topic", 0),
    ("delete_tap exchange amq.topic", 69),
    ("delete_tap queue walk.classic", 0),
    ("delete_queue tap.queue.walk.classic", 0),
    ("delete_queue tap.exchange.amq.topic", 0),
    ("grow rabbit@walk all", 0),
    ("shrink nowhere@host", 0),
    ("rebalance all", 0),
    ("sync_queue walk.classic", 69),
    ("cancel_sync_queue walk.classic", 0),
    ("purge_queue walk.classic", 0),
    ("purge_queue nowhere", 69),
    ("delete_queue walk.classic", 0),
    ("delete_queue walk.quorum", 0),
    ("delete_queue walk.stream", 0),
    # checks
    ("alarms", 0),
    ("check_alarms", 0),
    ("check_local_alarms", 0),
    ("check_running", 0),
    ("check_virtual_hosts", 0),
    ("check_port_connectivity", 0),
    ("check_port_listener 1", 69),
    ("check_protocol_listener amqp", 0),
    ("check_if_any_deprecated_features_are_used", 0),
    ("check_if_cluster_has_classic_queue_mirroring_policy", 0),
    ("check_if_new_quorum_queue_replicas_have_finished_initial_sync", 0),
    ("check_if_node_is_mirror_sync_critical", 0),
    ("check_if_node_is_quorum_critical", 0),
    ("node_health_check", 0),
    ("is_booting", 0),
    ("is_running", 0),
    ("listeners", 0),
    ("memory_breakdown", 0),
    ("runtime_thread_stats --sample-interval 0.1", 0),
    ("maybe_stuck", 0),
    # surroundings
    ("command_line_arguments", 0),
    ("discover_peers", 0),
    ("list_network_interfaces", 0),
    ("os_env", 0),
    ("resolve_hostname localhost", 0),
    ("resolver_info", 0),
    # its log
    ("log_location", 0),
    ("log_tail -N 5", 0),
    ("log_tail -N 0", 64),
    ("rotate_logs", 0),
    ("set_log_level debug", 0),
    ("set_log_level connection error", 0),
    ("set_log_level loud", 64),
    ("set_log_level nowhere info", 64),
    ("set_log_level info", 0),
    # plugins
    ("list", 0),
    ("directories", 0),
    ("is_enabled rabbitmq_management", 0),
    ("enable rabbitmq_management", 0),
    ("disable rabbitmq_mqtt", 0),
    ("set rabbitmq_management", 0),
    # the node
    ("set_cluster_name walk", 0),
    ("set_vm_memory_high_watermark 0.5", 0),
    ("set_disk_free_limit 50MB", 0),
    ("export_definitions {file}", 0),
    ("import_definitions {file}", 0),
    ("close_all_connections text", 0),
    ("close_connection nowhere text", 69),
    ("force_gc", 0),
    ("suspend_listeners", 0),
    ("resume_listeners", 0),
    ("await_startup", 0),
    ("await_online_nodes 1", 0),
    ("await_online_quorum_plus_one -t 5", 0),
    ("await_online_synchronized_mirror -t 5", 0),
    ("wait -t 5", 0),
    ("force_reset", 64),
    ("reset", 64),
    ("join_cluster nowhere@host", 64),
    ("forget_cluster_node nowhere@host", 69),
    ("stop_app", 0),
    ("check_running", 69),
    ("force_boot", 69),
    ("set_log_aside nowhere", 69),
    ("reset", 0),
    ("start_app", 0),
    ("stop_app", 0),
    ("force_reset", 0),
    ("start_app", 0),
    ("shutdown", 0),
    ("stop --idempotent", 0),
    ("ping", 69),
]
"""Words and exit codes, in this order, at one node."""

ELSEWHERE = {
    "certificates",
    "check_certificate_expiration",
    "cipher_suites",
    "consume_event_stream",
    "drain",
    "list_ciphers",
    "log_tail_stream",
    "post_upgrade",
    "revive",
    "tls_versions",
    "trace_off",
    "trace_on",
}
"""Tested with what they are about: TLS, maintenance, logs and events."""


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node("walk", tmp_path_factory.mktemp("walk"))
    try:
        node.start()
        for kind in ("classic", "quorum", "stream"):
            body = {"durable": True, "arguments": {"x-queue-type": kind}}
            node.api("PUT", f"/queues/%2F/walk.{kind}", body)
        yield node
    finally:
        node.end()


def test_each_command_is_walked_is_absent_or_has_a_test_of_its_own():
    walked = {words.split()[0] for words, _ in STEPS}
    wanted = {name for names in COMMANDS.values() for name in names}
    assert sorted(wanted - walked - {*ABSENT} - ELSEWHERE) == []
    assert sorted(walked & {*ABSENT}) == []


def test_each_command_ends_as_rabbitmqs_and_answers_in_json(walked: Node, capsys: Said):
    file = str(walked.directory / "definitions.json")
    unwanted = []
    for words, wanted in STEPS:
        line = ["--url", f"http://127.0.0.1:{walked.management_port}"]
        line += (
            ["--data-dir", str(walked.directory / "data")]
            if words.startswith(("force_boot", "set_log_aside"))
            else []
        )
        arguments = [word.replace("{file}", file) for word in words.split(" ")]
        code = run([*line, *arguments, "--formatter", "json"], {})
        said = capsys.readouterr()
        is_json = arguments[0] in ("help", "autocomplete") or _is_json(said.err or said.out)
        if code != wanted or not is_json:
            unwanted.append((words, wanted, code, said.out[:200] + said.err[:200]))
    assert not unwanted, "\n".join(map(str, unwanted))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return text.startswith("Error (argument validation)")
    return True


def test_no_node_is_one_line_for_every_command(tmp_path: Path, capsys: Said):
    (port,) = free_ports(1)
    code = run(["--url", f"http://127.0.0.1:{port}", "list_queues"], {})
    said = capsys.readouterr()
    assert (code, said.err.count("\n")) == (69, 2)
    assert f"unable to reach http://127.0.0.1:{port}" in said.err
