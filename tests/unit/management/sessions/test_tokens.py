"""Tokens of sessions: whose they are, until when, and what no longer makes them valid."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from broker.management.sessions import tokens
from broker.metadata.records import User

KEY, OTHER_KEY = bytes(32), bytes([1]) * 32
NONCE = bytes(range(16))
ALICE = User("alice", "hash-1", tags=("management",))


def valid(token: str, user: User = ALICE, *, key: bytes = KEY, now_s: int = 99) -> bool:
    session = tokens.read(token)
    return session is not None and tokens.is_valid(key, session, user, now_s)


def test_a_token_is_valid_until_it_expires():
    token = tokens.issue(KEY, ALICE, 100, NONCE)
    assert valid(token)
    assert not valid(token, now_s=100)


@pytest.mark.parametrize(
    "user",
    [
        User("alice", "hash-2"),  # another password
        User("alice", "hash-1", "rabbit_password_hashing_sha512"),
        User("bob", "hash-1"),
        User("", ""),  # nobody has that name
    ],
)
def test_it_is_the_users_with_that_password_alone(user):
    assert not valid(tokens.issue(KEY, ALICE, 100, NONCE), user)


def test_tags_may_change_meanwhile():
    assert valid(tokens.issue(KEY, ALICE, 100, NONCE), User("alice", "hash-1", tags=()))


def test_another_cluster_does_not_know_it():
    assert not valid(tokens.issue(OTHER_KEY, ALICE, 100, NONCE))


@given(st.data())
def test_no_changed_byte_is_overlooked(data):
    token = tokens.issue(KEY, ALICE, 1_000, NONCE)
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.characters(codec="ascii").filter(lambda each: each != token[place]))
    assert not valid(token[:place] + letter + token[place + 1 :])


@given(st.text(max_size=2_000))
def test_anything_else_is_no_session(text):
    assert tokens.read(text) is None or not valid(text)


@pytest.mark.parametrize("name", ["", "a.b", "ü", "😀" * 60, "bad \udcff byte"])
def test_every_name_of_a_user_comes_back(name):
    user = User(name, "hash")
    session = tokens.read(tokens.issue(KEY, user, 100, NONCE))
    assert session is not None
    assert session.user == name
    assert tokens.is_valid(KEY, session, user, 99)


def test_sessions_that_were_logged_out_are_known_and_bounded():
    ended = tokens.EndedSessions()
    sessions = [
        tokens.read(tokens.issue(KEY, ALICE, 100 + number, number.to_bytes(16, "big")))
        for number in range(tokens.ENDED_MAX + 3)
    ]
    for session in sessions:
        ended.end(session, 0)
    assert sessions[-1] in ended
    assert sum(session in ended for session in sessions) == tokens.ENDED_MAX
