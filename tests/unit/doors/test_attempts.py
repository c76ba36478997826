"""The rate limit of failed logins."""

from __future__ import annotations

from broker.doors.attempts import (
    ADDRESS_BURST,
    ADDRESS_PER_S,
    LINES_MAX,
    REMEMBERED_MAX,
    USER_BURST,
    USER_PER_S,
    Attempts,
    FailureLog,
    Tally,
    Ticket,
)

HERE, THERE = "192.0.2.1", "192.0.2.2"
HOUR_MS = 3_600_000


def guess(attempts: Attempts, user: str, now_ms: int, address: str = HERE) -> bool:
    """A wrong password; returns whether it was looked at."""
    ticket = attempts.ask(address, user, now_ms, wait_ms_max=0)
    if isinstance(ticket, int):
        return False
    attempts.settle(ticket, is_right=False)
    return True


def log_in(attempts: Attempts, user: str, now_ms: int, address: str = HERE) -> bool:
    """A right one."""
    ticket = attempts.ask(address, user, now_ms, wait_ms_max=0)
    if isinstance(ticket, int):
        return False
    attempts.settle(ticket, is_right=True)
    return True


def test_an_hour_of_guesses_at_a_user_sees_one_a_second():
    attempts = Attempts()
    seen = sum(guess(attempts, "u", now_ms) for now_ms in range(0, HOUR_MS, 10))
    assert seen <= USER_BURST + USER_PER_S * HOUR_MS // 1000


def test_an_hour_of_guesses_at_many_users_sees_five_a_second():
    attempts = Attempts()
    seen = sum(guess(attempts, f"u{now_ms}", now_ms) for now_ms in range(0, HOUR_MS, 10))
    assert seen <= ADDRESS_BURST + ADDRESS_PER_S * HOUR_MS // 1000


def test_right_passwords_are_never_slowed_however_many():
    attempts = Attempts()
    assert all(log_in(attempts, f"u{number % 7}", number // 10) for number in range(20_000))


def test_a_user_known_from_an_address_is_not_held_up_by_a_neighbour_that_guesses_at_others():
    attempts = Attempts()
    assert log_in(attempts, "honest", 0)
    while guess(attempts, "other", 0):
        pass
    while guess(attempts, f"user{len(attempts._pairs)}", 0):
        pass
    assert log_in(attempts, "honest", 1)
    assert not log_in(attempts, "new here", 1)
    assert log_in(attempts, "new here", 1, THERE)


def test_a_crowd_behind_one_address_that_is_mostly_right_is_not_slowed():
    attempts = Attempts()
    assert log_in(attempts, "u", 0)
    for number in range(1_000):
        assert guess(attempts, "u", number)
        assert log_in(attempts, "u", number)


def test_an_account_of_ones_own_buys_no_guesses_at_others():
    attempts = Attempts()
    seen = 0
    for now_ms in range(0, 60_000, 10):
        log_in(attempts, "own", now_ms)
        seen += guess(attempts, f"u{now_ms}", now_ms)
    assert seen <= ADDRESS_BURST + 60 * ADDRESS_PER_S


def test_who_waits_gets_a_turn_each_in_order_and_not_for_longer_than_it_would():
    attempts = Attempts()
    while guess(attempts, "u", 0):
        pass
    waits = []
    while isinstance(ticket := attempts.ask(HERE, "u", 0, wait_ms_max=3_000), Ticket):
        waits.append(ticket.wait_ms)
    assert waits == [1_000, 2_000, 3_000]
    assert ticket == 4_000


def test_what_is_remembered_is_bounded():
    attempts, tally = Attempts(), Tally()
    for number in range(REMEMBERED_MAX + 10):
        guess(attempts, "u", 0, f"{number}")
        tally.note("http", f"{number}", "u" * 10_000, is_right=False)
    assert len(attempts._pairs) == len(attempts._addresses) == REMEMBERED_MAX
    shown = tally.by_source()
    assert len(shown) == REMEMBERED_MAX
    assert len(str(shown[0]["username"])) <= 256


def test_counts_are_shown_as_rabbitmqs():
    tally = Tally()
    tally.note("amqp091", HERE, "u", is_right=True)
    tally.note("amqp091", HERE, "u", is_right=False)
    tally.note("http", HERE, "u", is_right=False)
    counts = {"auth_attempts": 2, "auth_attempts_failed": 1, "auth_attempts_succeeded": 1}
    assert tally.by_protocol()[0] == {"protocol": "amqp091", **counts}
    assert tally.by_source()[0] == {
        "remote_address": HERE,
        "username": "u",
        "protocol": "amqp091",
        **counts,
    }
    tally.reset()
    assert tally.by_protocol() == tally.by_source() == []


def test_the_log_names_so_many_addresses_a_second():
    log = FailureLog()
    told = [log.note(f"192.0.2.{number}") for number in range(LINES_MAX + 2)]
    assert sum(told) == LINES_MAX
    assert not log.note("192.0.2.1")
    assert log.tick() == [("192.0.2.1", 1), ("other addresses", 2)]
    assert log.tick() == []
    assert log.note("192.0.2.1")
