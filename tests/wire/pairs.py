"""Every pair of verb and path of RabbitMQ 3.13's core management API, in an order that works.

Source: rabbit_mgmt_dispatcher.erl and the resources' `allowed_methods`. NODE stands for the node's
name, CONN for a connection's and CHAN for a channel's.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Pair(NamedTuple):
    """A request and the status that answers it."""

    method: str
    path: str
    status: int = 200
    body: dict[str, Any] | None = None


def _got(*paths: str) -> tuple[Pair, ...]:
    return tuple(Pair("GET", path) for path in paths)


_BIND: Final = "/bindings/%2F/e/walk.x/q/walk.q"
_BIND_E: Final = "/bindings/%2F/e/walk.x/e/walk.y"
_POLICY: Final = {"pattern": "^walk", "definition": {"max-length": 100}, "apply-to": "queues"}
_PUBLISH: Final = {"routing_key": "", "properties": {}, "payload": "", "payload_encoding": "string"}

PAIRS: Final = (
    *_got("/overview", "/cluster-name", "/nodes", "/nodes/NODE", "/nodes/NODE/memory"),
    *_got("/nodes/NODE/memory/relative", "/extensions", "/all-configuration", "/definitions"),
    Pair("PUT", "/cluster-name", 204, {"name": "walked"}),
    Pair("POST", "/all-configuration", 204, {}),
    Pair("POST", "/definitions", 204, {}),
    *_got("/definitions/%2F", "/whoami", "/auth", "/auth/hash_password/pw"),
    Pair("POST", "/definitions/%2F", 204, {}),
    Pair("PUT", "/users/walk", 201, {"password": "pw", "tags": ""}),
    *_got("/users", "/users/walk", "/users/without-permissions"),
    Pair("PUT", "/permissions/%2F/walk", 201, {"configure": "", "write": "", "read": ""}),
    *_got("/permissions", "/permissions/%2F/walk", "/users/walk/permissions"),
    *_got("/vhosts/%2F/permissions"),
    Pair("PUT", "/topic-permissions/%2F/walk", 201, {"exchange": "x", "write": "", "read": ""}),
    *_got("/topic-permissions", "/topic-permissions/%2F/walk", "/users/walk/topic-permissions"),
    *_got("/vhosts/%2F/topic-permissions"),
    Pair("DELETE", "/topic-permissions/%2F/walk", 204),
    Pair("DELETE", "/permissions/%2F/walk", 204),
    Pair("PUT", "/user-limits/walk/max-connections", 204, {"value": 3}),
    *_got("/user-limits", "/user-limits/walk"),
    Pair("DELETE", "/user-limits/walk/max-connections", 204),
    Pair("DELETE", "/users/walk", 204),
    Pair("POST", "/users/bulk-delete", 204, {"users": []}),
    Pair("PUT", "/vhosts/walk", 201, {}),
    *_got("/vhosts", "/vhosts/walk", "/vhosts/walk/connections", "/vhosts/walk/channels"),
    Pair("POST", "/vhosts/walk/start/NODE", 204),
    Pair("PUT", "/vhost-limits/walk/max-queues", 204, {"value": 3}),
    *_got("/vhost-limits", "/vhost-limits/walk"),
    Pair("DELETE", "/vhost-limits/walk/max-queues", 204),
    Pair("DELETE", "/vhosts/walk", 204),
    Pair("PUT", "/parameters/vhost-limits/%2F/limits", 201, {"value": {"max-queues": 99_999}}),
    *_got("/parameters", "/parameters/vhost-limits", "/parameters/vhost-limits/%2F"),
    *_got("/parameters/vhost-limits/%2F/limits"),
    Pair("DELETE", "/parameters/vhost-limits/%2F/limits", 204),
    Pair("PUT", "/global-parameters/walk", 201, {"value": 1}),
    *_got("/global-parameters", "/global-parameters/walk"),
    Pair("DELETE", "/global-parameters/walk", 204),
    Pair("PUT", "/policies/%2F/walk", 201, _POLICY),
    *_got("/policies", "/policies/%2F", "/policies/%2F/walk"),
    Pair("DELETE", "/policies/%2F/walk", 204),
    Pair("PUT", "/operator-policies/%2F/walk", 201, _POLICY),
    *_got("/operator-policies", "/operator-policies/%2F", "/operator-policies/%2F/walk"),
    *_got("/parameters/operator_policy/%2F"),
    Pair("DELETE", "/operator-policies/%2F/walk", 204),
    Pair("PUT", "/exchanges/%2F/walk.x", 201, {"type": "fanout"}),
    Pair("PUT", "/exchanges/%2F/walk.y", 201, {"type": "fanout"}),
    *_got("/exchanges", "/exchanges/%2F", "/exchanges/%2F/walk.x"),
    Pair("POST", "/exchanges/%2F/walk.x/publish", 200, _PUBLISH),
    *_got("/exchanges/%2F/walk.x/bindings/source", "/exchanges/%2F/walk.x/bindings/destination"),
    Pair("PUT", "/queues/%2F/walk.q", 201, {}),
    Pair(
        "PUT",
        "/queues/%2F/walk.qq",
        201,
        {"durable": True, "arguments": {"x-queue-type": "quorum"}},
    ),
    *_got("/queues", "/queues/detailed", "/queues/%2F", "/queues/%2F/walk.q"),
    *_got("/queues/%2F/walk.q/bindings", "/queues/quorum/%2F/walk.qq/status"),
    Pair(
        "POST",
        "/queues/%2F/walk.q/get",
        200,
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    ),
    Pair("POST", "/queues/%2F/walk.q/actions", 400, {"action": "sync"}),  # not mirrored
    Pair("DELETE", "/queues/%2F/walk.q/contents", 204),
    Pair("POST", "/queues/quorum/%2F/walk.qq/replicas/add", 204, {"node": "NODE"}),
    Pair("POST", "/queues/quorum/replicas/on/NODE/grow", 200, {"strategy": "all"}),
    Pair("DELETE", "/queues/quorum/%2F/walk.qq/replicas/delete", 400, {"node": "NODE"}),
    Pair("DELETE", "/queues/quorum/replicas/on/NODE/shrink"),
    Pair("POST", "/rebalance/queues", 204),
    Pair("POST", _BIND, 201, {}),
    Pair("POST", _BIND_E, 201, {}),
    *_got("/bindings", "/bindings/%2F", _BIND, _BIND + "/~", _BIND_E, _BIND_E + "/~"),
    Pair("DELETE", _BIND + "/~", 204),
    Pair("DELETE", _BIND_E + "/~", 204),
    Pair("DELETE", "/queues/%2F/walk.qq", 204),
    Pair("DELETE", "/queues/%2F/walk.q", 204),
    Pair("DELETE", "/exchanges/%2F/walk.x", 204),
    Pair("DELETE", "/exchanges/%2F/walk.y", 204),
    *_got("/consumers", "/consumers/%2F", "/channels", "/channels/CHAN", "/connections"),
    *_got("/connections/CONN", "/connections/CONN/channels", "/connections/username/guest"),
    Pair("DELETE", "/connections/CONN", 204),
    Pair("DELETE", "/connections/username/nobody", 204),
    *_got("/aliveness-test/%2F", "/healthchecks/node", "/healthchecks/node/NODE"),
    *_got("/health/checks/alarms", "/health/checks/local-alarms"),
    *_got("/health/checks/certificate-expiration/1/days", "/health/checks/virtual-hosts"),
    *_got("/health/checks/protocol-listener/amqp", "/health/checks/port-listener/AMQP"),
    *_got("/health/checks/node-is-mirror-sync-critical", "/health/checks/node-is-quorum-critical"),
    *_got("/feature-flags", "/deprecated-features", "/deprecated-features/used"),
    Pair("PUT", "/feature-flags/quorum_queue/enable", 204, {}),
    *_got("/auth/attempts/NODE", "/auth/attempts/NODE/source"),
    Pair("DELETE", "/auth/attempts/NODE", 204),
    Pair("DELETE", "/auth/attempts/NODE/source", 204),
    Pair("DELETE", "/reset/NODE", 204),
    Pair("DELETE", "/reset", 204),
)

ABSENT: Final = (
    Pair("GET", "/nodes/NODE/memory/ets", 404),
    Pair("GET", "/nodes/NODE/memory/ets/management", 404),
)
"""Each has its reason in docs/management-api.md, under "Pairs that are absent"."""
