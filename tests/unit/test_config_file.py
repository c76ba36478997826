from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import Listener, LogSettings, Peer, Settings, SyslogSettings, full_node_name
from broker.configuration import rabbitmq, sources
from broker.configuration.keys import ConfigError, Outcome, read_settings
from broker.configuration.readers import size_bytes


def settings_of(text: str) -> Settings:
    return outcome_of(text).settings


def outcome_of(text: str) -> Outcome:
    return read_settings(sources.parse(text, "rabbitmq.conf"))


def test_an_empty_file_gives_rabbitmqs_defaults():
    settings = settings_of("# nothing\n\n")
    assert settings.heartbeat_s == 60
    assert settings.frame_max_bytes == 131072
    assert settings.channel_max == 2047
    assert settings.max_message_size_bytes == 134217728
    assert settings.amqp_listeners == (Listener("", 5672),)
    assert settings.loopback_users == {"guest"}
    assert settings.inter_node_listener() == Listener("", 25672)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("heartbeat = 30", "heartbeat_s", 30),
        ("listeners.tcp.default = 5673", "amqp_listeners", (Listener("", 5673),)),
        (
            "listeners.tcp.2 = [::1]:5673\nlisteners.tcp.1 = 127.0.0.1:5672",
            "amqp_listeners",
            (Listener("127.0.0.1", 5672), Listener("::1", 5673)),
        ),
        ("listeners.tcp = none", "amqp_listeners", ()),
        ("loopback_users = none", "loopback_users", frozenset()),
        ("loopback_users.guest = false", "loopback_users", frozenset()),
        ("max_message_size = 16MiB  # small", "max_message_size_bytes", 16 * 1024 * 1024),
        ("default_pass = 'a#b'", "default_password", "a#b"),
        ("default_pass = 'it''s' # a", "default_password", "it's"),
        ("default_pass = 'C:\\' # a", "default_password", "C:\\"),
        ("node.name = node1", "node_name", "rabbit@node1"),
        ("consumer_timeout = undefined", "consumer_timeout_ms", None),
        ("frame_max = 128KB", "frame_max_bytes", 131_072),
        ("initial_frame_max = 8kb", "initial_frame_max_bytes", 8_192),
        ("handshake_timeout = infinity", "handshake_timeout_ms", 86_400_000),
        ("default_queue_type = rabbit_quorum_queue", "default_queue_type", "quorum"),
        ("log.console.level = alert", "log", LogSettings(levels={"console": "error"})),
        ("log.syslog.host = logs.example", "log", LogSettings()),
        (
            "log.syslog = true\nlog.syslog.transport = ssl\nlog.syslog.port = 1514\n"
            "log.syslog.ip = 10.0.0.1\nlog.syslog.facility = user\nlog.syslog.level = error\n"
            "log.connection.level = warning\nlog.file.rotation.date = $W0D23",
            "log",
            LogSettings(
                levels={"syslog": "error"},
                categories={"connection": "warning"},
                rotation_date="$W0D23",
                syslog=SyslogSettings(transport="tls", port=1514, host="10.0.0.1", facility="user"),
            ),
        ),
        ("log.file.level = <=notice", "log", LogSettings(levels={"file": "info"})),
        ("channel_max_per_node = infinity", "channel_max_per_node", 0),
        ("consumer_max_per_channel = 16", "consumer_max_per_channel", 16),
        ("consumer_max_per_channel = infinity", "consumer_max_per_channel", None),
        ("cluster_queue_limit = 7", "cluster_queue_limit", 7),
        ("cluster_queue_limit = infinity", "cluster_queue_limit", None),
        (
            "vm_memory_high_watermark_paging_ratio = 0.75",
            "vm_memory_high_watermark_paging_ratio",
            0.75,
        ),
        ("collect_statistics_interval = 250", "statistics_interval_ms", 250),
        ("prometheus.warrenmq_queues_max = 20", "metrics_queues_max", 20),
        ("prometheus.return_per_object_metrics = true", "metrics_per_object", True),
        ("classic_queue.default_version = 2", "classic_queue_default_version", 2),
        ("vm_memory_high_watermark.absolute = 1PiB", "vm_memory_high_watermark_bytes", 2**50),
        ("vm_memory_high_watermark.relative = 0.6", "vm_memory_high_watermark", 0.6),
        ("disk_free_limit.absolute = 2GB", "disk_free_limit_bytes", 2_000_000_000),
        (
            "management.tcp.port = 1\nmanagement.tcp.ip = ::1",
            "management_listener",
            Listener("::1", 1),
        ),
        ("management.tcp.port = none", "management_listener", None),
        (
            "management.listener.port = 1\nmanagement.listener.ip = ::1",
            "management_listener",
            Listener("::1", 1),
        ),
        (
            "management.listener.port = 1\nmanagement.tcp.port = 2",
            "management_listener",
            Listener("", 2),
        ),
        (
            "auth_mechanisms.2 = PLAIN\nauth_mechanisms.1 = AMQPLAIN",
            "auth_mechanisms",
            ("AMQPLAIN", "PLAIN"),
        ),
        ("management.http.max_body_size = 5000", "management_max_body_bytes", 5000),
        (
            "management.cors.allow_origins.2 = *\n"
            "management.cors.allow_origins.1 = https://App.example:8443",
            "management_cors_origins",
            ("https://app.example:8443", "*"),
        ),
        ("management.cors.allow_origins = none", "management_cors_origins", ()),
        (
            "management.browse.masked.2 = card\nmanagement.browse.masked.1 = password",
            "management_browse_masked",
            ("password", "card"),
        ),
        ("management.cors.max_age = 60", "management_cors_max_age_s", 60),
        ("management.login_session_timeout = 60", "management_session_timeout_min", 60),
        (
            "management.headers.frame_options = DENY\n"
            "management.csp.policy = default-src 'none'; img-src 'self'\n"
            "management.hsts.policy = max-age=31536000",
            "management_headers",
            (
                ("Content-Security-Policy", "default-src 'none'; img-src 'self'"),
                ("Strict-Transport-Security", "max-age=31536000"),
                ("X-Frame-Options", "DENY"),
            ),
        ),
        ("default_user_tags.monitoring = true", "default_user_tags", ("monitoring",)),
        ("default_permissions.write = x", "default_permissions", (".*", "x", ".*")),
        (
            "cluster.peers.node2 = 127.0.0.1:7",
            "cluster_peers",
            (Peer("rabbit@node2", "127.0.0.1", 7),),
        ),
    ],
)
def test_key_sets_field(text: str, field: str, value: object):
    assert getattr(settings_of(text), field) == value


def test_guest_stays_on_loopback_until_it_is_named():
    assert settings_of("loopback_users.me = true").loopback_users == {"guest", "me"}
    named = "loopback_users.me = true\nloopback_users.guest = false"
    assert settings_of(named).loopback_users == {"me"}


def test_a_peer_address_overrides_the_one_of_the_node_name():
    settings = settings_of(
        "cluster_formation.classic_config.nodes.1 = rabbit@a.example\n"
        "cluster_formation.classic_config.nodes.2 = rabbit@b.example\n"
        "cluster.peers.rabbit@b.example = 127.0.0.1:9000\n"
    )
    assert settings.cluster_peers == (
        Peer("rabbit@a.example", "a.example", 25672),
        Peer("rabbit@b.example", "127.0.0.1", 9000),
    )
    assert settings.peer_address("rabbit@b.example") == ("127.0.0.1", 9000)
    assert settings.peer_address("rabbit@c") is None


def test_a_typo_names_file_line_and_nearest_key():
    with pytest.raises(
        ConfigError, match=r"rabbitmq\.conf:2: unknown key heartbeet; did you mean heartbeat\?"
    ):
        outcome_of("channel_max = 5\nheartbeet = 30")


def test_a_typo_of_our_own_key_names_it():
    with pytest.raises(ConfigError, match=r"did you mean cluster\.secret"):
        outcome_of("cluster.secert = x")


def test_rabbitmqs_key_that_we_lack_is_one_warning():
    outcome = outcome_of("stream.frame_max = 1\nmqtt.default_user = x")
    assert len(outcome.warnings) == 2
    assert outcome.warnings[0].startswith("rabbitmq.conf:1: stream.frame_max")


@pytest.mark.parametrize("word", ["ignore", "autoheal", "pause_if_all_down"])
def test_other_partition_handlings_act_as_pause_minority_with_one_warning(word: str):
    outcome = outcome_of(f"cluster_partition_handling = {word}")
    assert outcome.settings.cluster_partition_handling == "pause_minority"
    assert outcome.warnings == [
        f"rabbitmq.conf:1: cluster_partition_handling = {word} acts as pause_minority"
    ]


@pytest.mark.parametrize(
    ("key", "silent", "other"),
    [
        ("queue_index_embed_msgs_below", ["4096", "4kb", "4KiB"], "0"),
        ("memory_monitor_interval", ["2500"], "1000"),
        ("vm_memory_calculation_strategy", ["rss"], "allocated"),
    ],
)
def test_what_has_one_value_here_is_warned_of_only_where_another_was_asked_for(
    key: str, silent: list[str], other: str
):
    for value in silent:
        assert outcome_of(f"{key} = {value}").warnings == []
    (warning,) = outcome_of(f"{key} = {other}").warnings
    assert warning.startswith(f"rabbitmq.conf:1: {key} = {other} acts as ")


@pytest.mark.parametrize(
    "line",
    [
        "vm_memory_high_watermark_paging_ratio = 1.0",
        "vm_memory_high_watermark_paging_ratio = 0",
        "vm_memory_high_watermark_paging_ratio = nan",
        "classic_queue.default_version = 3",
        "cluster_queue_limit = 0",
        "cluster_queue_limit = -1",
        "management.http.max_body_size = -1",
        "management.cors.allow_origins.1 = app.example",
        "management.cors.allow_origins.1 = https://app.example/page",
        "management.cors.allow_origins.1 = null",
        "management.csp.policy = default-src \u2019none\u2019",
        "memory_monitor_interval = soon",
        "vm_memory_calculation_strategy = guess",
        "queue_index_embed_msgs_below = some",
    ],
)
def test_values_that_rabbitmq_refuses_or_passes_over_are_refused(line: str):
    with pytest.raises(ConfigError, match=r"^rabbitmq\.conf:1: .* must be .*, found"):
        outcome_of(line)


@pytest.mark.parametrize("name", ["vm_memory_high_watermark", "disk_free_limit"])
def test_of_two_limits_the_absolute_one_counts(name: str, tmp_path: Path):
    both = f"{name}.absolute = 1GB\n{name}.relative = 0.5"
    outcome = outcome_of(both)
    assert outcome.warnings == [
        f"rabbitmq.conf:2: both {name}.absolute and {name}.relative are configured:"
        f" {name}.absolute counts"
    ]
    settings = outcome.settings
    assert (settings.vm_memory_high_watermark, settings.disk_free_limit_relative) == (0.4, None)
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text(f"{name}.absolute = 1GB\n")
    said = sources.load(str(conf), {}, [f"{name}.relative=0.5"])
    assert said.warnings == []
    found = said.settings
    assert 0.5 in {found.vm_memory_high_watermark, found.disk_free_limit_relative}
    assert found.vm_memory_high_watermark_bytes is None
    assert found.disk_free_limit_bytes == 50_000_000


@pytest.mark.parametrize(
    "text",
    [
        "heartbeat",
        "heartbeat =",
        "= 3",
        "two words = 3",
        "heartbeat = often",
        "listeners.tcp.1 = 70000",
    ],
)
def test_a_bad_line_is_an_error_with_file_and_line(text: str):
    with pytest.raises(ConfigError, match=r"^rabbitmq\.conf:1: "):
        outcome_of(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10", 10),
        ("50mb", 50_000_000),
        ("2GB", 2_000_000_000),
        ("500MiB", 500 * 2**20),
        ("1k", 1024),
        ("3 kb", 3000),
    ],
)
def test_sizes(text: str, size: int):
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "-1", "5xb", "1.5GB", "GB"])
def test_no_sizes(text: str):
    with pytest.raises(ValueError, match="a size"):
        size_bytes(text)


def test_confd_is_merged_in_name_order_then_environment_then_set(tmp_path: Path):
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("heartbeat = 1\nchannel_max = 1\nframe_max = 5000\nlisteners.tcp.default = 1\n")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "20-b.conf").write_text("heartbeat = 3\n")
    (tmp_path / "conf.d" / "10-a.conf").write_text("heartbeat = 2\nchannel_max = 2\n")
    outcome = sources.load(
        str(conf), {"RABBITMQ_NODE_PORT": "7000", "RABBITMQ_DEFAULT_USER": "u"}, ["default_user=me"]
    )
    settings = outcome.settings
    assert (settings.heartbeat_s, settings.channel_max, settings.frame_max_bytes) == (3, 2, 5000)
    assert settings.amqp_listeners == (Listener("", 7000),)
    assert settings.default_user == "me"


def test_environment_of_the_official_image(tmp_path: Path):
    secret = tmp_path / "password"
    secret.write_text("from-file\n")
    settings = sources.load(
        None,
        {
            "RABBITMQ_DEFAULT_USER": "app",
            "RABBITMQ_DEFAULT_PASS_FILE": str(secret),
            "RABBITMQ_DEFAULT_VHOST": "v",
            "RABBITMQ_NODENAME": "rabbit@here",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": "5999",
            "RABBITMQ_DIST_PORT": "6999",
            "RABBITMQ_ERLANG_COOKIE": "c",
            "RABBITMQ_VM_MEMORY_HIGH_WATERMARK": "60%",
            "RABBITMQ_MNESIA_BASE": "/var/lib/rabbitmq/mnesia",
            "RABBITMQ_LOGS": "-",
        },
    ).settings
    assert (settings.default_user, settings.default_password, settings.default_vhost) == (
        "app",
        "from-file",
        "v",
    )
    assert settings.amqp_listeners == (Listener("127.0.0.1", 5999),)
    assert settings.inter_node_listener() == Listener("127.0.0.1", 6999)
    assert settings.cluster_secret == "c"
    assert settings.vm_memory_high_watermark == 0.6
    assert settings.data_dir == "/var/lib/rabbitmq/mnesia/rabbit@here"


@pytest.mark.parametrize(
    ("value", "relative", "absolute"),
    [("0.3", 0.3, None), ("1GB", 0.4, 10**9), ("1073741824", 0.4, 2**30)],
)
def test_watermark_variable(value: str, relative: float, absolute: int | None):
    settings = sources.load(None, {"RABBITMQ_VM_MEMORY_HIGH_WATERMARK": value}).settings
    assert (settings.vm_memory_high_watermark, settings.vm_memory_high_watermark_bytes) == (
        relative,
        absolute,
    )


def test_secret_file_is_read(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    assert (
        sources.load(None, {}, [f"cluster.secret_file={secret}"]).settings.cluster_secret == "hush"
    )
    with pytest.raises(ConfigError, match="can't be read"):
        sources.load(None, {}, [f"cluster.secret_file={tmp_path}/none"])


def test_values_of_files_take_from_the_environment(tmp_path: Path):
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text(
        "default_user = $(SEED_USER)  # from outside\n"
        "default_pass = '$(SEED_PASS)'\n"
        "cluster_name = on-$(SITE)-$(SITE)\n"
        "default_vhost = $()(SITE)\n"
    )
    environ = {"SEED_USER": "admin", "SEED_PASS": "a#'$(SITE)", "SITE": "x"}
    settings = sources.load(str(conf), environ, ["node.name=$(SITE)"]).settings
    assert settings.default_user == "admin"
    assert settings.default_password == "a#'$(SITE)"  # what comes from there is not read again
    assert settings.cluster_name == "on-x-x"
    assert settings.default_vhost == "$(SITE)"
    assert settings.node_name == "rabbit@$(SITE)"


def test_a_variable_that_is_not_set_is_an_error_with_file_and_line():
    text = r"^rabbitmq\.conf:2: default_pass names \$\(SEED\), which is not set"
    with pytest.raises(ConfigError, match=text):
        sources.parse("\ndefault_pass = a$(SEED)", "rabbitmq.conf", {})
    with pytest.raises(ConfigError, match="default_pass has no value"):
        sources.parse("default_pass = $(SEED)", "rabbitmq.conf", {"SEED": ""})


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "pa#ss",
        "'",
        "'a'",
        "it's",
        "it's#",
        "a''b",
        " a ",
        "a\\",
        "#'\\'",
        "$(HOME)",
        "'$$($(x))#",
        "$()",
        "$",
    ],
)
def test_a_quoted_value_is_read_back(value: str):
    (entry,) = sources.parse(f"key = {sources.quoted(value)}", "node.conf")
    assert entry.value == value


@pytest.mark.parametrize("value", ["a\nb", "a\n", "a\u2028b"])
def test_several_lines_are_no_value(value: str):
    with pytest.raises(ValueError, match="one line"):
        sources.quoted(value)


def test_none_wins_over_what_it_says_there_is_none_of():
    outcome = outcome_of(
        "listeners.tcp.default = 5672\nlisteners.tcp = none\n"
        "loopback_users = none\nloopback_users.guest = true\n"
    )
    assert outcome.settings.amqp_listeners == ()
    assert outcome.settings.loopback_users == frozenset()
    assert outcome.warnings == [
        "rabbitmq.conf:1: listeners.tcp.default has no effect beside listeners.tcp = none",
        "rabbitmq.conf:4: loopback_users.guest has no effect beside loopback_users = none",
    ]


def test_a_missing_file_is_an_error():
    with pytest.raises(ConfigError, match="can't be read"):
        sources.load("/does/not/exist.conf")


def test_erlang_terms_are_refused_with_the_same_keys_in_conf_syntax(tmp_path: Path):
    path = tmp_path / "rabbitmq.config"
    path.write_text(
        "%% old\n[{rabbit, [{tcp_listeners, [5673]}, {heartbeat, 30}, {loopback_users, []},\n"
        '  {default_user, <<"me">>}, {vm_memory_high_watermark, 0.6},\n'
        "  {cluster_nodes, {['rabbit@a', 'rabbit@b'], disc}},\n"
        "  {disk_free_limit, {mem_relative, 1.5}}, {credit_flow_default_credit, {400, 200}},\n"
        "  {classic_queue_default_version, 2},\n"
        "  {tcp_listen_options, [{backlog, 128}]}]},\n"
        " {rabbitmq_management, [{listener, [{port, 15673}]}]}].\n"
    )
    with pytest.raises(ConfigError) as caught:
        sources.load(str(path))
    shown = str(caught.value).splitlines()[1:]
    assert shown == [
        "listeners.tcp.default = 5673",
        "heartbeat = 30",
        "loopback_users = none",
        "default_user = me",
        "vm_memory_high_watermark.relative = 0.6",
        "cluster_formation.classic_config.nodes.1 = rabbit@a",
        "cluster_formation.classic_config.nodes.2 = rabbit@b",
        "disk_free_limit.relative = 1.5",
        "credit_flow_default_credit = 400:200",
        "classic_queue.default_version = 2",
        "tcp_listen_options.backlog = 128",
        "management.listener.port = 15673",
    ]
    outcome = sources.load(None, {}, [line.replace(" = ", "=", 1) for line in shown])
    assert [each.split()[1] for each in outcome.warnings] == ["credit_flow_default_credit"]


@pytest.mark.parametrize("text", ["[{rabbit, fun() -> ok end}].", "[" * 100, "[{rabbit"])
def test_terms_that_are_not_plain_are_refused_without_a_translation(tmp_path: Path, text: str):
    path = tmp_path / "rabbitmq.config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="write it in"):
        sources.load(str(path))


@pytest.mark.parametrize(
    "key",
    [
        "cluster_exchange_limit",
        "log.console.formatter.time_format",
        "msg_store_credit_disc_bound",
        "credit_flow_default_credit",
        "definitions.tls.versions.1",
    ],
)
def test_rabbitmqs_keys_are_known(key: str):
    assert rabbitmq.is_known(key)


def test_no_key_of_rabbitmqs_schemas_is_unknown():
    path = Path(__file__).parents[1] / "golden" / "config" / "rabbitmq_keys.txt"
    keys = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert len(keys) > 850
    unknown = [key for key in keys if not rabbitmq.is_known(key.replace("$", "1"))]
    assert unknown == []


def test_node_names_are_completed():
    assert full_node_name("node1") == "rabbit@node1"
    assert full_node_name("hare@x") == "hare@x"


def test_reconciliation_has_rabbitmqs_keys_and_is_on():
    """Rows: 1.17 auto reconciliation"""
    key = "quorum_queue.continuous_membership_reconciliation"
    settings = Settings()
    assert settings.quorum_repair_enabled
    assert settings.quorum_repair_auto_remove
    assert settings.quorum_repair_interval_ms == 3_600_000
    assert settings.quorum_repair_trigger_interval_ms == 10_000
    outcome = outcome_of(
        f"{key}.enabled = false\n{key}.auto_remove = false\n{key}.interval = 1\n"
        f"{key}.trigger_interval = 2\n{key}.target_group_size = 5\n{key}.replace_after = 3\n"
        "cluster.formation_timeout = 4\n"
    )
    found = outcome.settings
    assert not found.quorum_repair_enabled
    assert not found.quorum_repair_auto_remove
    assert (found.quorum_repair_interval_ms, found.quorum_repair_trigger_interval_ms) == (1, 2)
    assert (found.quorum_target_group_size, found.quorum_repair_replace_after_ms) == (5, 3)
    assert found.cluster_formation_timeout_ms == 4
    assert outcome.warnings == []
