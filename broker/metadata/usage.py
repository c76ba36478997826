"""Counts of open connections and channels, for names that have a limit.

Limits hold for the whole cluster: this node counts its own, and adds what the other living nodes
last said of theirs (`Counts`). Two nodes that let somebody in at the same moment don't know of each
other, so that a limit may be passed by what the other nodes admit within one exchange. RabbitMQ's
tracking tables are filled after the fact too.

Only names that have a limit are ever told, so the counts of a node without limits are empty.

Source: rabbit_reader.erl is_over_vhost_connection_limit/2, is_over_user_connection_limit/1,
create_channel/2; rabbit_auth_backend_internal.erl is_over_connection_limit/1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.metadata.catalogue import Catalogue

CONNECTIONS: Final = "max-connections"
CHANNELS: Final = "max-channels"


class UsageCounts(msgspec.Struct, array_like=True, frozen=True):
    """The connections and channels that one node has open, of names that have a limit.

    Attributes:
        vhosts: Vhost to connections.
        users: User to connections.
        channels: User to channels.
    """

    vhosts: dict[str, int] = {}
    users: dict[str, int] = {}
    channels: dict[str, int] = {}


class _Open(NamedTuple):
    vhost: str
    user: str


class Usage:
    """The connections of a node, by vhost and by user, and what other nodes said of theirs.

    Args:
        catalogue: Has the limits.

    Attributes:
        changed: Called when other nodes should hear of a change; does nothing until it is set.
        node: This node's name, for texts.
        node_channel_max: `channel_max_per_node`, 0 for unlimited.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.changed: Callable[[], None] = _nobody
        self.node = ""
        self.node_channel_max = 0
        self._catalogue = catalogue
        self._open: dict[int, _Open] = {}
        self._vhosts: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._channels: dict[str, int] = {}
        self._channel_count = 0
        self._others: dict[str, UsageCounts] = {}

    # This node

    @property
    def connection_count(self) -> int:
        """Open connections of this node."""
        return len(self._open)

    def connected(self, connection_id: int, vhost: str, user: str) -> None:
        """Count a connection that was opened."""
        self._open[connection_id] = _Open(vhost, user)
        _add(self._vhosts, vhost, 1)
        _add(self._users, user, 1)
        self._tell(vhost, user)

    def disconnected(self, connection_id: int) -> None:
        """Count a connection that has closed; one that was never opened is ignored."""
        known = self._open.pop(connection_id, None)
        if known is None:
            return
        _add(self._vhosts, known.vhost, -1)
        _add(self._users, known.user, -1)
        self._tell(known.vhost, known.user)

    def channel_opened(self, user: str) -> None:
        """Count one more channel of a user's connection."""
        self._channel_count += 1
        _add(self._channels, user, 1)

    def channels_closed(self, user: str, count: int) -> None:
        """Count closed channels of a user's connection."""
        self._channel_count -= count
        _add(self._channels, user, -count)

    # Limits

    def user_limit(self, user: str, name: str) -> int | None:
        """Return a user's limit; None is unlimited, also for a user that does not exist."""
        record = self._catalogue.user(user)
        limit = None if record is None else record.limits.get(name)
        return limit if limit is not None and limit >= 0 else None

    def vhost_refusal(self, vhost: str, user: str) -> Refusal | None:
        """Return why a vhost refuses a further connection, None if it does not."""
        limit = self._catalogue.vhost_limit(vhost, CONNECTIONS)
        if limit is None:
            return None
        count = self._vhosts.get(vhost, 0)
        count += sum(other.vhosts.get(vhost, 0) for other in self._others.values())
        if count < limit:
            return None
        text = (
            f"access to vhost '{vhost}' refused for user '{user}': "
            f"connection limit ({limit}) is reached"
        )
        return Refusal(ReplyCode.NOT_ALLOWED, text)

    def user_refusal(self, user: str) -> Refusal | None:
        """Return why a user may not open a further connection, None if it may."""
        limit = self.user_limit(user, CONNECTIONS)
        if limit is None:
            return None
        count = self._users.get(user, 0)
        count += sum(other.users.get(user, 0) for other in self._others.values())
        if count < limit:
            return None
        text = f"connection refused for user '{user}': user connection limit ({limit}) is reached"
        return Refusal(ReplyCode.NOT_ALLOWED, text)

    def channel_refusal(self, user: str) -> Refusal | None:
        """Return why a user may not open a further channel, None if it may."""
        most = self.node_channel_max
        if most and self._channel_count >= most:
            text = (
                f"number of channels opened on node '{self.node}' has reached the maximum "
                f"allowed limit of ({most})"
            )
            return Refusal(ReplyCode.NOT_ALLOWED, text)
        limit = self.user_limit(user, CHANNELS)
        if limit is None:
            return None
        self.changed()
        count = self._channels.get(user, 0)
        count += sum(other.channels.get(user, 0) for other in self._others.values())
        if count < limit:
            return None
        text = (
            f"number of channels opened for user '{user}' has reached the maximum allowed "
            f"user limit of ({limit})"
        )
        return Refusal(ReplyCode.NOT_ALLOWED, text)

    # Other nodes

    def counts(self) -> UsageCounts:
        """Return the counts to send to other nodes."""
        limited = self._catalogue.vhost_limit
        return UsageCounts(
            {
                vhost: count
                for vhost, count in self._vhosts.items()
                if limited(vhost, CONNECTIONS) is not None
            },
            {
                user: count
                for user, count in self._users.items()
                if self.user_limit(user, CONNECTIONS) is not None
            },
            {
                user: count
                for user, count in self._channels.items()
                if self.user_limit(user, CHANNELS) is not None
            },
        )

    def heard(self, node: str, counts: UsageCounts) -> None:
        """Take the counts of another node."""
        self._others[node] = counts

    def lost(self, nodes: Iterable[str]) -> None:
        """Drop the counts of dead nodes."""
        for node in nodes:
            self._others.pop(node, None)

    def _tell(self, vhost: str, user: str) -> None:
        record = self._catalogue.user(user)
        if (record is not None and record.limits) or (
            self._catalogue.vhost_limit(vhost, CONNECTIONS) is not None
        ):
            self.changed()


def _add(counts: dict[str, int], name: str, change: int) -> None:
    """Change a count; what comes to nothing is forgotten."""
    count = counts.get(name, 0) + change
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)


def _nobody() -> None:
    """Do nothing, until a listener is set."""
