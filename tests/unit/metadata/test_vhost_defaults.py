"""What new vhosts get by the settings: read, chosen by name, turned into commands."""

from __future__ import annotations

import pytest

from broker.configuration import effective, sources
from broker.configuration.keys import ConfigError, read_settings
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AddUser, SetParameter, SetPermissions, SetPolicy
from broker.metadata.configured import defaults
from broker.metadata.records import User

TEXT = """
default_limits.vhosts.2.pattern = ^device
default_limits.vhosts.2.max_connections = 10
default_limits.vhosts.2.max_queues = -1
default_limits.vhosts.9.max_queues = 500
default_policies.operator.short.vhost_pattern = ^device
default_policies.operator.short.queue_pattern = ^mqtt
default_policies.operator.short.expires = 1d12h
default_policies.operator.short.message_ttl = 1.5s
default_policies.operator.short.max_length_bytes = 1KiB
default_policies.operator.short.classic_queues.ha_mode = exactly
default_policies.operator.short.classic_queues.ha_params = 2
default_users.app.vhost_pattern = ^device
default_users.app.password = hush
default_users.app.tags = management, policymaker
default_users.app.write = ^app
default_users.known.configure = ^$
"""
SETTINGS = read_settings(sources.parse(TEXT, "rabbitmq.conf")).settings


def proposed(vhost: str) -> list[object]:
    catalogue = Catalogue()
    catalogue.put_user(User("known", ""))
    users = defaults.missing_users(SETTINGS.vhost_defaults, vhost, catalogue)
    hashes = {user.name: f"hash of {user.password}" for user in users}
    return list(defaults.commands(SETTINGS.vhost_defaults, vhost, hashes, "a"))


def test_the_first_limits_that_fit_and_all_policies_and_users():
    definition = {
        "expires": 129_600_000,
        "message-ttl": 1500,
        "max-length-bytes": 1024,
        "ha-mode": "exactly",
        "ha-params": 2,
    }
    assert proposed("device-1") == [
        SetParameter(
            "device-1", "vhost-limits", "limits", {"max-connections": 10, "max-queues": -1}
        ),
        SetPolicy("device-1", "short", "^mqtt", definition, operator=True),
        AddUser("app", "hash of hush", "a", ("management", "policymaker"), may_exist=False),
        SetPermissions("app", "device-1", ".*", "^app", ".*"),
        SetPermissions("known", "device-1", "^$", ".*", ".*"),
    ]
    assert proposed("other") == [
        SetParameter("other", "vhost-limits", "limits", {"max-queues": 500}),
        SetPermissions("known", "other", "^$", ".*", ".*"),
    ]
    assert defaults.fault(SETTINGS.vhost_defaults) is None


def test_they_are_shown_without_passwords():
    found = {each.key: each for each in effective.effective(SETTINGS)}
    assert found["default_users"].value["app"]["password"] == "***"
    assert found["default_limits.vhosts"].value["9"] == {"pattern": ".*", "max-queues": 500}
    assert "hush" not in str(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("default_users.a.password", "expected `key = value`"),
        ("default_users.a.pass = x", "unknown key default_users.a.pass; did you mean"),
        ("default_limits.vhosts.1.max_queues = -2", "must be an integer of at least 0, or -1"),
        ("default_policies.operator.a.expires = soon", "must be a duration such as"),
        ("default_policies.operator.a.queue_pattern = (", "must be a regular expression"),
        (
            "credential_validator.validation_backend = min_password_length\n"
            "default_pass = long enough\ndefault_users.a.password = hush",
            "rabbitmq.conf:3: default_users.a.password does not satisfy credential_validator",
        ),
    ],
)
def test_what_does_not_fit_refuses_the_start(text: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        read_settings(sources.parse(text, "rabbitmq.conf"))
    assert problem in caught.value.problems[0]


def test_a_policy_that_is_none_is_told():
    text = "default_policies.operator.a.classic_queues.ha_mode = some"
    settings = read_settings(sources.parse(text, "rabbitmq.conf")).settings
    fault = defaults.fault(settings.vhost_defaults)
    assert fault is not None
    assert fault.startswith("default_policies.operator.a: ")
