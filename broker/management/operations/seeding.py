"""Gives new vhosts what the settings say: limits, operator policies, users and permissions.

It is done right after the vhost is made, by the node that made it; `default_users` are made there.
A node that ends in between leaves the vhost without the rest, as in RabbitMQ.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from broker.config import Settings
from broker.errors import Refusal
from broker.management.control import NodeError
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AddUser, AnyCommand
from broker.metadata.configured import defaults
from broker.passwords import HASHINGS, hash_password

_log = logging.getLogger(__name__)

Propose = Callable[[AnyCommand], Awaitable[object]]
"""Proposes a change to group 0; a refusal is a result, too."""


class Seeding:
    """The defaults of a node's settings for new vhosts.

    Args:
        settings: The node's.
    """

    def __init__(self, settings: Settings) -> None:
        self._defaults = settings.vhost_defaults
        self._algorithm = settings.password_hashing

    def check(self) -> None:
        """Check the settings before they are needed.

        Raises:
            NodeError: A policy in them is none.
        """
        fault = defaults.fault(self._defaults)
        if fault is not None:
            raise NodeError(fault)

    async def plant(self, vhost: str, catalogue: Catalogue, propose: Propose) -> None:
        """Give a new vhost what it gets; what is refused is logged.

        Args:
            vhost: Its name.
            catalogue: Of group 0.
            propose: See `Propose`.
        """
        users = defaults.missing_users(self._defaults, vhost, catalogue)
        hashes = {user.name: await self._hashed(user.password) for user in users}
        for command in defaults.commands(self._defaults, vhost, hashes, self._algorithm):
            result = await propose(command)
            is_race = isinstance(command, AddUser)  # another node made the user just now
            if isinstance(result, Refusal) and not is_race:
                _log.warning("vhost.default_refused: vhost '%s': %s", vhost, result.text)

    async def _hashed(self, password: str | None) -> str:
        if not password:
            return ""
        salt = secrets.token_bytes(HASHINGS[self._algorithm].salt_bytes)
        return await asyncio.to_thread(hash_password, password, salt, self._algorithm)
