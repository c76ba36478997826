"""The read side of group 0. Skeleton: signatures hold, bodies follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.metadata.records import (
    Binding,
    Exchange,
    Node,
    Parameter,
    Permission,
    Queue,
    TopicPermission,
    User,
    Vhost,
)


class Route(NamedTuple):
    """Where a publish goes.

    Attributes:
        exchange: The exchange published to (internal ones are the caller's 403).
        queues: Each queue once; () is unroutable.
    """

    exchange: Exchange
    queues: tuple[Queue, ...]


class Catalogue:
    """What exists. Only the machine changes it; everyone on the node reads it.

    Attributes:
        version: Moves with every change that can alter routing or access.
        index: Group 0 index of the last applied entry.
    """

    version: int
    index: int
    cluster_id: str
    cluster_name: str

    def vhost(self, name: str) -> Vhost | None:
        raise NotImplementedError

    def vhosts(self) -> list[Vhost]:
        raise NotImplementedError

    def user(self, name: str) -> User | None:
        raise NotImplementedError

    def users(self) -> list[User]:
        raise NotImplementedError

    def permission(self, user: str, vhost: str) -> Permission | None:
        raise NotImplementedError

    def permissions(self) -> list[Permission]:
        raise NotImplementedError

    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermission | None:
        raise NotImplementedError

    def topic_permissions(self) -> list[TopicPermission]:
        raise NotImplementedError

    def exchange(self, vhost: str, name: str) -> Exchange | None:
        raise NotImplementedError

    def exchanges(self, vhost: str | None = None) -> list[Exchange]:
        raise NotImplementedError

    def queue(self, vhost: str, name: str) -> Queue | None:
        raise NotImplementedError

    def queue_by_uid(self, uid: int) -> Queue | None:
        raise NotImplementedError

    def queues(self, vhost: str | None = None) -> list[Queue]:
        raise NotImplementedError

    def bindings(self, vhost: str | None = None) -> list[Binding]:
        raise NotImplementedError

    def bindings_from(self, vhost: str, exchange: str) -> list[Binding]:
        raise NotImplementedError

    def bindings_to(self, vhost: str, kind: str, name: str) -> list[Binding]:
        raise NotImplementedError

    def node(self, name: str) -> Node | None:
        raise NotImplementedError

    def nodes(self) -> list[Node]:
        raise NotImplementedError

    def parameter(self, vhost: str, component: str, name: str) -> Parameter | None:
        raise NotImplementedError

    def parameters(self) -> list[Parameter]:
        raise NotImplementedError

    def needs_headers(self, vhost: str, exchange: str) -> bool:
        raise NotImplementedError

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object] | None = None,
        extra_keys: Iterable[str] = (),
    ) -> Route | None:
        raise NotImplementedError
