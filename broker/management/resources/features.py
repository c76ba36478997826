"""Feature flags: `/api/feature-flags`. What RabbitMQ 3.13's flags stand for is always on here.

Operators' tools list them and enable all of them after an upgrade. Those of streams are unavailable
until there are streams.

Source: rabbit_core_ff.erl, rabbit_mgmt_wm_feature_flags.erl.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from broker.management.answers import bad_request, no_content
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts

_ENABLED: Final = "enabled"
_ON: Final = {
    "classic_mirrored_queue_version": "x-queue-version of mirrored queues",
    "classic_queue_type_delivery_support": "deliveries of classic queues by their type",
    "direct_exchange_routing_v2": "fast routing of direct exchanges",
    "drop_unroutable_metric": "publishes without a route are counted",
    "empty_basic_get_metric": "basic.get that finds nothing is counted",
    "feature_flags_v2": "feature flags in their second form",
    "implicit_default_bindings": "bindings to the default exchange need no record",
    "listener_records_in_ets": "listeners are not stored",
    "message_containers": "messages keep the form they were sent in",
    "quorum_queue": "quorum queues",
    "quorum_queue_non_voters": "replicas of quorum queues catch up before they vote",
    "tracking_records_in_ets": "connections are not stored",
    "user_limits": "limits of users",
    "virtual_host_metadata": "descriptions and tags of vhosts",
}
_OF_STREAMS: Final = {
    "stream_filtering": "filters of streams",
    "stream_queue": "streams",
    "stream_sac_coordinator_unblock_group": "single active consumers of streams",
    "stream_single_active_consumer": "single active consumers of streams",
}
_STABLE: Final = frozenset(
    (
        "message_containers",
        "quorum_queue_non_voters",
        "stream_filtering",
        "stream_sac_coordinator_unblock_group",
    )
)
"""The others are required in 3.13."""

_AGENTS: Final = frozenset(("drop_unroutable_metric", "empty_basic_get_metric"))

FLAGS: Final = tuple(
    {
        "name": name,
        "desc": text,
        "doc_url": "",
        "state": _ENABLED if name in _ON else "unavailable",
        "stability": "stable" if name in _STABLE else "required",
        "provided_by": "rabbitmq_management_agent" if name in _AGENTS else "rabbit",
    }
    for name, text in sorted((_ON | _OF_STREAMS).items())
)


async def show_all(call: Call) -> Parts:
    """GET /api/feature-flags."""
    return await call.listed_items([dict(each) for each in FLAGS])


async def enable(call: Call) -> web.Response:
    """PUT /api/feature-flags/FLAG/enable: nothing is left to do for one that is known.

    Raises:
        ApiError: 400 for an unknown one, and for one of streams.
    """
    name = call.name("flag")
    state = {each["name"]: each["state"] for each in FLAGS}.get(name)
    if state is None:
        raise bad_request("unsupported")
    if state != _ENABLED:
        raise bad_request(f"{name} can't be enabled: there are no streams yet")
    return no_content()


ROUTES = (
    listing("/api/feature-flags", show_all, "monitoring"),
    Endpoint("PUT", "/api/feature-flags/{flag}/enable", enable, "administrator"),
)
