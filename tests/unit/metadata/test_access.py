"""Logins and permissions, against RabbitMQ's own values."""

from __future__ import annotations

import base64

import pytest

from broker import passwords
from broker.metadata import access, commands
from broker.metadata.access import Access
from broker.metadata.records import User
from tests.unit.metadata.cluster import founded

SALT = bytes.fromhex("908DC60A")


def with_user(**permissions: str) -> tuple[Access, object]:
    asker = founded()
    asker.ask(commands.AddUser("u", passwords.hash_password("secret", SALT)))
    regexes = {"configure": "", "write": "", "read": "", **permissions}
    asker.ask(commands.SetPermissions("u", "/", **regexes))
    return Access(asker.machine.catalogue), asker


def test_hash_is_rabbitmqs():
    """The vector of RabbitMQ's documentation on passwords."""
    assert passwords.hash_password("test12", SALT) == (
        "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    )


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_each_algorithm_checks_its_own(algorithm):
    """Rows: 1.12 vhosts, users, tags"""
    name = f"rabbit_password_hashing_{algorithm}"
    user = User("u", passwords.hash_password("påss", SALT, name), name)
    assert passwords.is_password("påss", user.password_hash, user.hashing_algorithm)
    assert not passwords.is_password("pass", user.password_hash, user.hashing_algorithm)


@pytest.mark.parametrize("stored", ["", "not base64!", "AAAA"])
def test_stored_rubbish_lets_nobody_in(stored):
    assert not passwords.is_password("", stored, passwords.SHA256)
    assert not passwords.is_password("x", stored, passwords.SHA256)
    assert not passwords.is_password("x", stored, "rot13")


def test_log_in_says_why_not():
    checks, _ = with_user()
    assert isinstance(checks.log_in("u", "secret", loopback=False), User)
    assert checks.log_in("u", "wrong", loopback=True) == "user 'u' - invalid credentials"
    assert checks.log_in("nobody", "x", loopback=True) == "user 'nobody' - invalid credentials"
    assert "blank password" in str(checks.log_in("u", "", loopback=True))


@pytest.mark.parametrize("algorithm", passwords.HASHINGS)
def test_nobody_has_a_hash_of_the_usual_form(algorithm):
    """An unknown user is checked against it, so that it costs the same time."""
    nobody = Access(founded().machine.catalogue, hashing_algorithm=algorithm).claimed("who")
    hashing = passwords.HASHINGS[algorithm]
    assert nobody.hashing_algorithm == algorithm
    assert len(base64.b64decode(nobody.password_hash)) == hashing.salt_bytes + hashing.digest_bytes
    assert not passwords.is_password("x", nobody.password_hash, algorithm)


def test_guest_comes_from_here_only_unless_configured():
    """Rows: 1.1 guest loopback only"""
    asker = founded()
    asker.ask(commands.ChangePassword("guest", passwords.hash_password("guest", SALT)))
    catalogue = asker.machine.catalogue
    assert isinstance(Access(catalogue).log_in("guest", "guest", loopback=True), User)
    assert Access(catalogue).log_in("guest", "guest", loopback=False) == (
        "user 'guest' can only connect via localhost"
    )
    opened = Access(catalogue, frozenset())
    assert isinstance(opened.log_in("guest", "guest", loopback=False), User)


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        (".*", "anything", True),
        ("", "q", False),
        ("", "", False),
        ("^$", "q", False),
        ("q", "my-queue", True),
        ("^q$", "my-queue", False),
        ("^q", "queue", True),
        ("^amq\\.default$", "", True),
        ("(a+)+$", "a" * 200 + "!", False),
        ("(?=a)", "a", False),
        ("[", "[", False),
    ],
)
def test_expressions_are_searched_for_and_anchored_by_their_author(pattern, name, allowed):
    checks, _ = with_user(write=pattern)
    assert checks.may("u", "/", "write", name) is allowed


def test_actions_are_apart_and_changes_count_at_once():
    checks, asker = with_user(write="^w", read="^r")
    assert checks.may("u", "/", "write", "w1")
    assert not checks.may("u", "/", "read", "w1")
    assert not checks.may("u", "/", "configure", "w1")
    assert not checks.may("u", "other", "write", "w1")
    assert checks.has_any("u", "/", "r1")
    assert not checks.has_any("u", "/", "x")
    asker.ask(commands.ClearPermissions("u", "/"))
    assert not checks.may("u", "/", "write", "w1")
    assert not checks.has_vhost("u", "/")


def test_topic_permissions_allow_all_where_none_are_set():
    checks, asker = with_user()
    assert checks.may_topic("u", "/", "amq.topic", "write", "a.b")
    asker.ask(commands.SetTopicPermissions("u", "/", "amq.topic", "^{username}\\.", "^{vhost}$"))
    assert checks.may_topic("u", "/", "amq.topic", "write", "u.b")
    assert not checks.may_topic("u", "/", "amq.topic", "write", "v.b")
    assert checks.may_topic("u", "/", "amq.topic", "read", "/")
    assert checks.may_topic("u", "/", "other", "read", "x")


def test_texts_are_rabbitmqs():
    assert access.refused("configure", "queue", "q", "/", "u").text == (
        "configure access to queue 'q' in vhost '/' refused for user 'u'"
    )
    assert access.refused("write", "exchange", "", "/", "u").text == (
        "write access to exchange 'amq.default' in vhost '/' refused for user 'u'"
    )
    assert access.refused_topic("write", "k", "x", "/", "u").text == (
        "write access to topic 'k' in exchange 'x' in vhost '/' refused for user 'u'"
    )
