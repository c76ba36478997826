"""Opens a port for clients, or says which setting to change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from broker.config import Listener


async def open_port(
    accept: Callable[[], asyncio.BaseProtocol], at: Listener, *, backlog: int, setting: str
) -> asyncio.Server:
    """Listen.

    Args:
        accept: Makes the protocol of a connection.
        at: Where.
        backlog: How many connections the system keeps until they are accepted.
        setting: The key of rabbitmq.conf that says where.

    Raises:
        OSError: The address is taken or is none of this machine; the text names the setting.
    """
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(
            accept, at.host or None, at.port, backlog=backlog, reuse_address=True
        )
    except OSError as why:
        reason = os.strerror(why.errno) if why.errno else str(why)
        text = (
            f"cannot listen on {at.host or '*'}:{at.port}: {reason};"
            f" stop the program that has the port, or set {setting} to another one"
        )
        raise OSError(text) from why
