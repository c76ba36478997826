"""WarrenMQ: a clustered AMQP 0-9-1 broker. The names a program that embeds it needs.

`Broker` and `Cluster` are imported when they are first asked for, so that `import warrenmq` (and
the command line's start) costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.cli.cluster.local import Cluster
    from broker.cli.cluster.single import Broker

__all__ = ["Broker", "Cluster", "__version__"]
__version__ = "0.2.0"

_HOMES = {"Broker": "broker.cli.cluster.single", "Cluster": "broker.cli.cluster.local"}


def __getattr__(name: str) -> object:
    """Import `Broker` or `Cluster` on first use.

    Raises:
        AttributeError: There is no such name here.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'warrenmq' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
