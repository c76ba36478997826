"""Feature flags: what nodes of an older version do not know. Pure.

A flag is enabled in group 0, for the whole cluster and for ever, when all members know it: from the
beginning in a cluster that a node of this version founds, else by an operator after an upgrade, as
in RabbitMQ (decision 0060). Until then no node writes what the flag stands for.

To add a command, or a field that must be understood: a flag in `FLAGS`, which the command names as
its `flag`. Whoever would write such a field asks `Catalogue.features`.

Source: rabbit_feature_flags.erl; the name of a flag that RabbitMQ has is RabbitMQ's
(rabbit_core_ff.erl).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from broker.errors import Refusal, ReplyCode

MAINTENANCE: Final = "maintenance_mode_status"
EVENT_EXCHANGE: Final = "event_exchange"
LOG_EXCHANGE: Final = "log_exchange"
STREAM_QUEUE: Final = "stream_queue"
QUORUM_LOGS: Final = "quorum_logs"


class FeatureFlag(NamedTuple):
    """One flag.

    Attributes:
        name: Never used again for something else.
        text: What it stands for.
        since: The first version that knows it.
    """

    name: str
    text: str
    since: str


FLAGS: Final = (
    FeatureFlag(MAINTENANCE, "Maintenance mode status", "0.3.0"),
    FeatureFlag(EVENT_EXCHANGE, "Events of the broker at amq.rabbitmq.event", "0.3.0"),
    FeatureFlag(LOG_EXCHANGE, "The log at amq.rabbitmq.log", "0.3.0"),
    FeatureFlag(STREAM_QUEUE, "Queues of type stream", "0.3.0"),
    FeatureFlag(QUORUM_LOGS, "Bodies of quorum queues in their logs", "0.3.0"),
)
KNOWN: Final = frozenset(flag.name for flag in FLAGS)
"""What a new cluster has from the beginning, too."""


def refusal(flag: str, enabled: Collection[str]) -> Refusal | None:
    """Return why what a flag stands for can't be done yet; None if it can.

    Args:
        flag: Its name; "" for what every node knows.
        enabled: Names of the flags that are enabled.
    """
    if not flag or flag in enabled:
        return None
    return Refusal(
        ReplyCode.PRECONDITION_FAILED,
        f"feature flag '{flag}' is not enabled: once all nodes run a version that knows it, use "
        f"enable_feature_flag {flag}",
    )


def lacking(enabled: Collection[str], known: Collection[str]) -> str:
    """Name the enabled flags that a node does not know; "" if it knows all."""
    return ", ".join(sorted(set(enabled) - set(known)))
