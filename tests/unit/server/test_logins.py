"""Logins with slow password hashes, and the answers of the HTTP API, on a real loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from broker.doors.attempts import USER_BURST
from broker.metadata import commands
from broker.metadata.access import Access
from broker.metadata.records import User
from broker.passwords import SCRYPT, hash_password
from broker.server.entrance.logins import Found, LoginAttempt, Logins, TooManyAttempts
from tests.unit.metadata.cluster import founded

pytestmark = pytest.mark.asyncio


def with_slow_user(password: str = "right") -> Access:
    asker = founded()
    asker.ask(commands.AddUser("slow", hash_password(password, b"s" * 16, SCRYPT), SCRYPT))
    return Access(asker.machine.catalogue)


def claim(password: str, address: str = "192.0.2.1", user: str = "slow") -> LoginAttempt:
    return LoginAttempt("http", address, user, password, is_loopback=False)


async def test_a_slow_hash_is_computed_beside_the_loop_and_once():
    access, logins = with_slow_user(), Logins()
    answers: list[Found] = []
    logins.check(access, claim("right"), answers.append)
    assert answers == []  # the loop went on
    while not answers:
        await asyncio.sleep(0.001)
    assert isinstance(answers[0], User)
    logins.check(access, claim("right", "192.0.2.2"), answers.append)
    assert isinstance(answers[1], User)  # at once
    assert isinstance(await logins.check_now(access, claim("wrong"), is_proved=False), str)


async def test_a_password_that_is_changed_while_it_is_checked_is_wrong():
    asker = founded()
    asker.ask(commands.AddUser("slow", hash_password("right", b"s" * 16, SCRYPT), SCRYPT))
    access, logins = Access(asker.machine.catalogue), Logins()
    answers: list[Found] = []
    logins.check(access, claim("right"), answers.append)
    asker.ask(commands.AddUser("slow", hash_password("new", b"t" * 16, SCRYPT), SCRYPT))
    while not answers:
        await asyncio.sleep(0.001)
    assert isinstance(answers[0], str)
    logins.check(access, claim("right"), answers.append)
    while len(answers) < 2:
        await asyncio.sleep(0.001)
    assert isinstance(answers[1], str)


async def test_over_the_rate_http_hears_when_to_come_again_and_who_is_proved_goes_on():
    asker = founded()
    asker.ask(commands.AddUser("slow", hash_password("right", b"salt")))
    access, logins = Access(asker.machine.catalogue), Logins()
    for _ in range(USER_BURST):
        assert isinstance(await logins.check_now(access, claim("x"), is_proved=False), str)
    with pytest.raises(TooManyAttempts) as refused:
        await logins.check_now(access, claim("right"), is_proved=False)
    assert refused.value.retry_after_s == 1
    assert isinstance(await logins.check_now(access, claim("right"), is_proved=True), User)
    elsewhere = claim("right", "192.0.2.2")
    assert isinstance(await logins.check_now(access, elsewhere, is_proved=False), User)


async def test_an_unknown_user_costs_as_much_as_a_known_one_where_hashes_are_slow():
    asker = founded()
    asker.ask(commands.AddUser("slow", hash_password("right", b"s" * 16, SCRYPT), SCRYPT))
    access = Access(asker.machine.catalogue, hashing_algorithm=SCRYPT)
    logins = Logins()

    async def cost(user: str) -> float:
        began = time.process_time()
        for _ in range(3):
            await logins.check_now(access, claim("wrong", user=user), is_proved=False)
        return time.process_time() - began

    known, unknown = await cost("slow"), await cost("who")
    assert known / 2 < unknown < known * 2
