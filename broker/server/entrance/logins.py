"""Logins of clients and operators: at a bounded rate, in time that tells nothing.

What may be tried when is decided by `broker.doors.attempts`; slow hashes are computed in threads of
their own, few at a time, and a password that was right is not computed again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from broker.doors.attempts import WAIT_MS_MAX, Attempts, FailureLog, Tally, Ticket
from broker.doors.verified import Verified
from broker.metadata.records import User
from broker.passwords import HASHINGS, is_password

THREADS_MAX: Final = 4
"""Slow hashes at a time; half of the processors at most, for the loop needs one."""

_log = logging.getLogger(__name__)

Found = User | str
"""The user; or why not, for the log."""


class LoginAttempt(NamedTuple):
    """A login: a user name, a password and where they come from.

    Attributes:
        protocol: "amqp091" or "http".
        address: The client's.
        user: The name it gives.
        password: In clear.
        is_loopback: It comes from this machine.
    """

    protocol: str
    address: str
    user: str
    password: str
    is_loopback: bool


class Passwords(Protocol):
    """The users that may log in: `broker.metadata.access.Access`, or a stand-in."""

    def claimed(self, username: str, /) -> User:
        """Return the user whose password is to be compared."""
        ...

    def judge(
        self, claimed: User, username: str, password: str, /, *, loopback: bool, is_right: bool
    ) -> User | str:
        """The user; or why not, for the log."""
        ...


class Certified(Protocol):
    """The users that certificates name: `broker.metadata.access.Access`."""

    def certified(self, username: str, /, *, loopback: bool) -> User | str:
        """The user; or why not, for the log."""
        ...


class TooManyAttempts(Exception):
    """The address has tried too often; the password was not looked at.

    Attributes:
        retry_after_s: When another attempt may be made.
    """

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__("too many login attempts")
        self.retry_after_s = math.ceil(retry_after_ms / 1000)


class Logins:
    """All logins of one process."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.verified = Verified(secrets.token_bytes(32))
        self._attempts = Attempts()
        self._failures = FailureLog()
        self._threads = ThreadPoolExecutor(
            max(1, min(THREADS_MAX, (os.cpu_count() or 1) // 2)), "password"
        )

    def digest(self, access: Passwords, attempt: LoginAttempt) -> bytes:
        """What stands for the password of an attempt against what is stored now."""
        stored = access.claimed(attempt.user).password_hash
        return self.verified.digest(attempt.user, stored, attempt.password)

    def check(
        self, access: Passwords, attempt: LoginAttempt, done: Callable[[Found], None]
    ) -> None:
        """Check a login of a connection that can wait: over the rate it does, then it is refused.

        Args:
            access: Users and passwords.
            attempt: The user name, the password and where they come from.
            done: Told once, now or up to `WAIT_MS_MAX` and a slow hash later.
        """
        loop = asyncio.get_running_loop()
        ticket = self._ask(attempt, WAIT_MS_MAX)
        if isinstance(ticket, int):
            text = f"user '{attempt.user}' - too many attempts from {attempt.address}"
            loop.call_later(WAIT_MS_MAX / 1000, done, self._noted(attempt, text))
        elif ticket.wait_ms:
            loop.call_later(ticket.wait_ms / 1000, self._compare, access, attempt, ticket, done)
        else:
            self._compare(access, attempt, ticket, done)

    async def check_now(
        self, access: Passwords, attempt: LoginAttempt, *, is_proved: bool
    ) -> Found:
        """Check a login that can be told to come again.

        Args:
            access: Users and passwords.
            attempt: The user name, the password and where they come from.
            is_proved: The same password has just been right on the same connection: that is no
                attempt any more.

        Raises:
            TooManyAttempts: Over the rate.
        """
        if is_proved:
            claimed = access.claimed(attempt.user)
            return self._noted(
                attempt,
                access.judge(
                    claimed,
                    attempt.user,
                    attempt.password,
                    loopback=attempt.is_loopback,
                    is_right=True,
                ),
            )
        ticket = self._ask(attempt, 0)
        if isinstance(ticket, int):
            self._noted(attempt, "")
            raise TooManyAttempts(ticket)
        found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._compare(access, attempt, ticket, lambda answer: _answer(found, answer))
        return await found

    def check_certificate(
        self, access: Certified, attempt: LoginAttempt, refusal: str = ""
    ) -> Found:
        """Check a login of a client whose certificate was verified.

        Args:
            access: The users.
            attempt: The user name of the certificate, and where it comes from.
            refusal: Why it is refused whatever the users are; "": it is not.
        """
        found: Found = refusal or access.certified(attempt.user, loopback=attempt.is_loopback)
        return self._noted(attempt, found)

    def is_first_failure(self, address: str) -> bool:
        """True if the log shall have a line for this failure, not for further ones this second."""
        return self._failures.note(address)

    def tick(self) -> None:
        """Tell the log of failures that had no line; called every second."""
        for address, count in self._failures.tick():
            _log.warning("%d more logins of %s were refused within a second", count, address)

    def _ask(self, attempt: LoginAttempt, wait_ms_max: int) -> Ticket | int:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        return self._attempts.ask(attempt.address, attempt.user, now_ms, wait_ms_max=wait_ms_max)

    def _compare(
        self,
        access: Passwords,
        attempt: LoginAttempt,
        ticket: Ticket,
        done: Callable[[Found], None],
    ) -> None:
        claimed = access.claimed(attempt.user)
        stored, algorithm = claimed.password_hash, claimed.hashing_algorithm
        password = attempt.password

        def judge(is_right: bool) -> None:  # noqa: FBT001 - a callback's answer
            found = access.judge(
                claimed, attempt.user, password, loopback=attempt.is_loopback, is_right=is_right
            )
            if is_slow and isinstance(found, User):
                self.verified.add(attempt.user, stored, password)
            self._attempts.settle(ticket, is_right=isinstance(found, User))
            done(self._noted(attempt, found))

        hashing = HASHINGS.get(algorithm)
        is_slow = hashing is not None and hashing.is_slow
        if not is_slow:
            judge(is_password(password, stored, algorithm))
        elif self.verified.has(attempt.user, stored, password):
            judge(is_right=True)
        else:
            loop = asyncio.get_running_loop()
            computed = loop.run_in_executor(self._threads, is_password, password, stored, algorithm)
            computed.add_done_callback(lambda each: judge(each.result()))

    def _noted(self, attempt: LoginAttempt, found: Found) -> Found:
        is_right = isinstance(found, User)
        self.tally.note(attempt.protocol, attempt.address, attempt.user, is_right=is_right)
        return found


def _answer(found: asyncio.Future[Found], answer: Found) -> None:
    if not found.done():  # who asked may have gone
        found.set_result(answer)
