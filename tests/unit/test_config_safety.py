"""Settings that promise safety and are not supported refuse the start, from wherever they come."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli.server import command
from broker.configuration import sources
from broker.configuration.keys import ConfigError, Outcome, read_settings
from broker.passwords import PasswordRule, may_have_password

# key -> a value that is refused, and RabbitMQ's default, which is accepted; None has no default.
PROMISES: dict[str, tuple[str, str | None]] = {
    "ssl_options": ("some", "none"),
    "ssl_options.key.RSAPrivateKey": ("x", None),
    "ssl_options.cert": ("x", None),
    "ssl_options.cacerts.1": ("x", None),
    "ssl_options.psk_identity": ("x", None),
    "ssl_options.dhfile": ("/dh.pem", None),
    "ssl_options.client_renegotiation": ("true", "false"),
    "ssl_options.secure_renegotiate": ("false", "true"),
    "management.ssl.max_connections": ("10", None),
    "ssl_cert_login_from": ("email_address", "distinguished_name"),
    "ssl_cert_login_san_type": ("other_name", "dns"),
    "management.listener.ssl": ("true", "false"),
    "management.listener.ssl_opts": ("some", "none"),
    "management.listener.ssl_opts.keyfile": ("/key.pem", None),
    "prometheus.ssl.dhfile": ("/dh.pem", None),
    "auth_backends.1": ("ldap", "internal"),
    "auth_backends.2": ("rabbit_auth_backend_http", "rabbit_auth_backend_internal"),
    "auth_backends.1.authn": ("oauth2", "internal"),
    "auth_backends.1.authz": ("cache", "internal"),
    "auth_mechanisms.1": ("GSSAPI", "PLAIN"),
    "auth_mechanisms.2": ("ANONYMOUS", "AMQPLAIN"),
    "auth_mechanisms.3": ("RABBIT-CR-DEMO", None),
    "definitions.tls.verify": ("verify_none", None),
    "definitions.tls.dhfile": ("/dh.pem", None),
    "definitions.import_backend": ("rabbit_definitions_import_etcd", None),
    "definitions.import_backend#local": ("local_filesystem", None),
    **{
        f"cluster_formation.peer_discovery_backend#{name}": (name, "classic_config")
        for name in (
            "dns",
            "k8s",
            "kubernetes",
            "consul",
            "etcd",
            "aws",
            "rabbit_peer_discovery_dns",
        )
    },
    "management.disable_basic_auth": ("true", "false"),
    "management.oauth_enabled": ("true", "false"),
    "management.enable_uaa": ("true", "false"),
    "distribution.listener.interface": ("127.0.0.1", None),
}


def outcome_of(text: str) -> Outcome:
    return read_settings(sources.parse(text, "rabbitmq.conf"))


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        outcome_of(text)
    return caught.value.problems


@pytest.mark.parametrize(("row", "values"), PROMISES.items(), ids=PROMISES)
def test_what_promises_safety_refuses_the_start_in_one_line(
    row: str, values: tuple[str, str | None]
):
    key, refused = row.partition("#")[0], values[0]
    (problem,) = problems_of(f"heartbeat = 5\n{key} = {refused}")
    assert re.match(rf"rabbitmq\.conf:2: {re.escape(key)} is refused: .+; \w+ ", problem), problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("row", "default"), [(row, default) for row, (_, default) in PROMISES.items() if default]
)
def test_rabbitmqs_default_of_it_is_accepted_without_a_word(row: str, default: str):
    outcome = outcome_of(f"{row.partition('#')[0]} = {default}")
    assert outcome.warnings == []


DEFINITIONS = {
    "load_definitions = /a.json": ("/a.json",),
    "load_definitions = none": (),
    "management.load_definitions = /a.json": ("/a.json",),
    "definitions.local.path = /a.json": ("/a.json",),
    "definitions.import_backend = local_filesystem\ndefinitions.local.path = /a": ("/a",),
    "load_definitions = /a.json\nmanagement.load_definitions = /b.json": ("/a.json", "/b.json"),
}


@pytest.mark.parametrize(("text", "paths"), DEFINITIONS.items())
def test_definitions_of_the_start_are_named_by_each_of_rabbitmqs_keys(
    text: str, paths: tuple[str, ...]
):
    outcome = outcome_of(text)
    assert outcome.settings.definitions_paths == paths
    assert outcome.warnings == []


def test_definitions_say_who_is_there_and_a_default_user_has_no_effect_beside_them():
    outcome = outcome_of("load_definitions = /a.json\ndefault_user = ann\ndefault_pass = x")
    assert outcome.warnings == [
        "rabbitmq.conf:2: default_user has no effect beside definitions, which say who is there"
    ]


@pytest.mark.parametrize(("written", "read"), [("sha", "sha1"), ("sha512", "sha512")])
def test_definitions_are_known_again_by_the_hash_that_is_set(written: str, read: str):
    text = f"definitions.skip_if_unchanged = true\ndefinitions.hashing.algorithm = {written}"
    settings = outcome_of(text).settings
    assert (settings.definitions_skip_if_unchanged, settings.definitions_hashing) == (True, read)
    with pytest.raises(ConfigError, match="must be one of sha, sha224"):
        outcome_of("definitions.hashing.algorithm = crc32")


def test_definitions_of_advanced_config_count(tmp_path: Path):
    conf, advanced = tmp_path / "rabbitmq.conf", tmp_path / "advanced.config"
    conf.write_text("heartbeat = 5\n")
    advanced.write_text(
        '[{rabbit, [{load_definitions, "/a"}, {definitions, [{local_path, "/b"}]}]},\n'
        ' {rabbitmq_management, [{load_definitions, "/c"}]}].'
    )
    assert sources.load(str(conf)).settings.definitions_paths == ("/a", "/b", "/c")


def test_no_value_of_a_refused_key_is_shown():
    (problem,) = problems_of("ssl_options.cert = hush")
    assert "hush" not in problem
    (problem,) = problems_of("ssl_options.password = hush")
    assert "hush" not in problem


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RABBITMQ_SSL_CERT", "x"),
        ("RABBITMQ_MANAGEMENT_SSL_DHFILE", "/dh.pem"),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-proto_dist inet_tls"),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-rabbitmq_management load_definitions '/x'"),
    ],
)
def test_variables_that_promise_safety_refuse_the_start(variable: str, value: str):
    with pytest.raises(ConfigError, match=f"^{variable} is refused: "):
        sources.load(None, {variable: value})
    assert sources.load(None, {variable: ""}).warnings == []


ADVANCED = {
    '{rabbit, [{ssl_options, [{dhfile, "/x"}]}]}': "ssl_options.dhfile",
    "{rabbit, [{auth_backends, [rabbit_auth_backend_ldap]}]}": "auth_backends.1",
    "{rabbit, [{auth_backends, [{rabbit_auth_backend_internal, [rabbit_auth_backend_http,"
    " rabbit_auth_backend_internal]}]}]}": "auth_backends.1.authz.1",
    "{rabbit, [{auth_mechanisms, ['PLAIN', 'ANONYMOUS']}]}": "auth_mechanisms.2",
    "{rabbit, [{definitions, [{import_backend, rabbit_definitions_import_etcd}]}]}": (
        "definitions.import_backend"
    ),
    "{rabbit, [{cluster_formation, [{peer_discovery_backend, rabbit_peer_discovery_k8s}]}]}": (
        "cluster_formation.peer_discovery_backend"
    ),
    '{rabbitmq_management, [{ssl_config, [{dhfile, "/x"}]}]}': "management.ssl.dhfile",
    "{rabbitmq_management, [{listener, [{port, 1}, {ssl, true}]}]}": "management.listener.ssl",
    "{rabbitmq_management, [{disable_basic_auth, true}]}": "management.disable_basic_auth",
    '{rabbitmq_prometheus, [{ssl_config, [{dhfile, "/x"}]}]}': "prometheus.ssl.dhfile",
    "{kernel, [{inet_dist_use_interface, {127,0,0,1}}]}": "distribution.listener.interface",
}


@pytest.mark.parametrize(("term", "key"), ADVANCED.items(), ids=ADVANCED.values())
def test_advanced_config_refuses_the_start_likewise(tmp_path: Path, term: str, key: str):
    conf, advanced = tmp_path / "rabbitmq.conf", tmp_path / "advanced.config"
    conf.write_text("heartbeat = 5\n")
    advanced.write_text(f"%% beside rabbitmq.conf\n[\n {term}\n].\n")
    with pytest.raises(ConfigError) as caught:
        sources.load(str(conf))
    (problem,) = caught.value.problems
    assert problem.startswith(f"{advanced}:3: {key} is refused: ")


def test_advanced_config_is_read_and_replaces_what_rabbitmq_conf_says(tmp_path: Path):
    conf, advanced = tmp_path / "rabbitmq.conf", tmp_path / "elsewhere.config"
    conf.write_text(
        "heartbeat = 5\nlisteners.tcp.1 = 1\nlisteners.tcp.2 = 2\nauth_backends.1 = ldap\n"
        "default_permissions.read = x\nloopback_users.guest = false\n"
    )
    advanced.write_text(
        '[{rabbit, [{heartbeat, 30}, {tcp_listeners, [{"127.0.0.1", 5673}]},\n'
        '  {auth_backends, [rabbit_auth_backend_internal]}, {default_pass, <<"a\\"b">>},\n'
        '  {default_user_tags, [monitoring]}, {loopback_users, [<<"me">>]},\n'
        '  {default_permissions, [<<"a">>, <<"b">>, <<"c">>]},\n'
        '  {delegate_count, 5000}, {made_up, [{password, "hush"}]}]},\n'
        " {rabbitmq_shovel, [{shovels, []}]}]."
    )
    environ = {"RABBITMQ_ADVANCED_CONFIG_FILE": str(tmp_path / "elsewhere")}
    settings, warnings = sources.load(str(conf), environ, ["channel_max=7"])
    assert (settings.heartbeat_s, settings.channel_max) == (30, 7)
    assert [(at.host, at.port) for at in settings.amqp_listeners] == [("127.0.0.1", 5673)]
    assert (settings.default_password, settings.default_user_tags) == ('a"b', ("monitoring",))
    assert settings.default_permissions == ("a", "b", "c")
    assert settings.loopback_users == {"guest", "me"}
    assert sorted(warning.removeprefix(f"{advanced}:") for warning in warnings) == [
        "5: delegate_count is RabbitMQ's, WarrenMQ does not support it: no effect",
        "5: {rabbit, made_up} is not supported: no effect",
        "6: shovel.shovels is RabbitMQ's, WarrenMQ does not support it: no effect",
    ]
    assert "hush" not in "".join(warnings)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[{rabbit, [{heartbeat, fun() -> 1 end}]}].", "line 1: unexpected '('"),
        ("[{rabbit, [", "line 1: "),
        ("[{rabbit, [proxy_protocol]}].", "expected {name, value}"),
        ("[{rabbit, []}]. [].", "expected one list and a dot"),
        ('[{rabbit, [{default_pass, ""}]}].', ":1: default_pass has no value"),
        ('[{rabbit, [{default_pass,\n {encrypted, <<"x">>}}]}].', "{rabbit, default_pass}"),
    ],
)
def test_an_advanced_config_that_cannot_be_read_refuses_the_start(
    tmp_path: Path, text: str, problem: str
):
    conf, advanced = tmp_path / "rabbitmq.conf", tmp_path / "advanced.config"
    conf.write_text("heartbeat = 5\n")
    advanced.write_text(text)
    with pytest.raises(ConfigError) as caught:
        sources.load(str(conf))
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(str(advanced))
    assert problem in caught.value.problems[0]


def test_check_says_all_problems_at_once_and_so_does_a_start(tmp_path: Path):
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text(
        "no setting\nheartbeat = often\nssl_options.cert = x\nheartbeet = 1\n"
        "cluster.peers.node2 = nowhere\ndefault_pass = $(UNSET_HERE)\n"
    )
    advanced = tmp_path / "advanced.config"
    advanced.write_text("[{rabbitmq_management, [{disable_basic_auth, true}]}].")
    more = ["--set", "channel_max", "--set", "auth_backends.1=ldap"]
    for arguments in (["--check"], []):
        run = CliRunner(env={"RABBITMQ_SSL_DHFILE": "/x"}).invoke(
            command, ["--conf", str(conf), *more, *arguments]
        )
        assert run.exit_code == 78
        told = "\n".join(sorted(run.stderr.splitlines()))
        for found in (
            r":1: expected `key = value`",
            r":2: heartbeat must be an integer",
            r":3: ssl_options\.cert is refused",
            r":4: unknown key heartbeet",
            r":5: cluster\.peers\.node2 must be HOST:PORT",
            r":6: default_pass names \$\(UNSET_HERE\)",
            r"advanced\.config:1: management\.disable_basic_auth is refused",
            r"RABBITMQ_SSL_DHFILE is refused",
            r"--set: expected KEY=VALUE",
            r"--set: auth_backends\.1 is refused",
        ):
            assert re.search(rf"warrenmq: .*{found}", told), (found, told)
        assert len(run.stderr.splitlines()) == 10


def test_check_of_what_is_fine_exits_with_0(tmp_path: Path):
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("heartbeat = 5\nssl_options = none\n")
    run = CliRunner().invoke(command, ["--conf", str(conf), "--check"])
    assert (run.exit_code, run.stdout) == (0, "The configuration is fine.\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("vhost_max = 0", "vhost_max must be an integer of at least 1, or infinity, found '0'"),
        (
            "credential_validator.validation_backend = own",
            "credential_validator.validation_backend must be one of"
            " rabbit_credential_validator_accept_everything,"
            " rabbit_credential_validator_min_password_length,"
            " rabbit_credential_validator_password_regexp, found 'own'",
        ),
        (
            "credential_validator.validation_backend = password_regexp",
            "credential_validator.validation_backend = password_regexp needs"
            " credential_validator.regexp",
        ),
        (
            "credential_validator.regexp = (",
            "credential_validator.regexp must be a regular expression that RE2 takes"
            " (missing ): (), found '('",
        ),
    ],
)
def test_limits_and_rules_that_can_not_be_kept_are_told(text: str, problem: str):
    assert problems_of(text) == (f"rabbitmq.conf:1: {problem}",)


@pytest.mark.parametrize(
    ("password", "rule", "is_good"),
    [
        (None, PasswordRule("accept_everything", 5, ""), True),
        (None, PasswordRule("min_password_length", 0, ""), False),
        ("1234", PasswordRule("min_password_length", 5, ""), False),
        ("é34é", PasswordRule("min_password_length", 5, ""), True),  # bytes, as RabbitMQ counts
        ("aB1", PasswordRule("password_regexp", 5, "[A-Z]"), True),
        ("ab1", PasswordRule("password_regexp", 5, "[A-Z]"), False),
    ],
)
def test_passwords_are_judged_by_the_rule(password: str | None, rule: PasswordRule, is_good: bool):
    assert may_have_password(password, rule) is is_good
