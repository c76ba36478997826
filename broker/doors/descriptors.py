"""The division of a process's file descriptors. Pure.

The store, links between nodes and operators have theirs before clients come: a RocksDB that can't
open a file ends the node. What is drawn here is the limit that `ulimit -n` gives; with 1024:

    +---------+-----------+-------+-----------+----------+---------------------------------+
    | process | store     | links | operators | doors    | AMQP clients                    |
    |      40 | 32 + 128  |    32 |         8 |  32 + 16 |                             736 |
    +---------+-----------+-------+-----------+----------+---------------------------------+
"""

from __future__ import annotations

from typing import Final, NamedTuple

PROCESS: Final = 40
"""Log, event loop, listening sockets, the interpreter: an idle node has about 20."""

STORE_BESIDE_TABLES: Final = 32
"""RocksDB's logs, manifest and directories, tables that are being written: an idle store has 15."""

LINKS: Final = 32
"""Four for each other node: two streams that it dialled, and two to it. A cluster of seven has
24."""

OPERATORS: Final = 8
"""Management connections from this machine beyond the limit of all others."""

RESERVED: Final = 100
"""What RabbitMQ keeps for itself (RESERVED_FOR_OTHERS)."""


class Shares(NamedTuple):
    """The division of a process's descriptors.

    Attributes:
        files_max: All of them.
        tables: RocksDB's `max_open_files`: tables and blob files.
        management: HTTP connections, operators' own not counted.
        strangers: Connections to the inter-node port that have proved nothing yet.
        clients: AMQP connections: where RabbitMQ's alarm begins, or earlier.
    """

    files_max: int
    tables: int
    management: int
    strangers: int
    clients: int


def shares(files_max: int) -> Shares:
    """Divide.

    Args:
        files_max: The soft limit of open files (RLIMIT_NOFILE).

    Returns:
        The shares; of fewer than some 300 descriptors the reserves take nearly all, and one client
        is let in.

    Source:
        file_handle_cache.erl: OBTAIN_LIMIT and RESERVED_FOR_OTHERS, the most sockets of clients.
        Below 10,000 descriptors fewer are ours: RabbitMQ reserves nothing for a store.
    """
    tables = _within(files_max // 8, 32, 512)
    management = _within(files_max // 32, 16, 256)
    strangers = _within(files_max // 64, 8, 48)
    taken = PROCESS + STORE_BESIDE_TABLES + tables + LINKS + OPERATORS + management + strangers
    rabbitmqs = int((files_max - RESERVED) * 0.9) - 2
    return Shares(
        files_max, tables, management, strangers, max(1, min(rabbitmqs, files_max - taken))
    )


def _within(number: int, least: int, most: int) -> int:
    return max(least, min(number, most))
