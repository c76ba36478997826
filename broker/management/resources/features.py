"""Feature flags: `/api/feature-flags`: RabbitMQ 3.13's, and those of this cluster.

What RabbitMQ's flags stand for is always on here, but for those that group 0 has
(`broker.feature_flags`): they are off after an upgrade, until all nodes know them and an
operator enables them. What is missing of streams yet is unavailable.

Source: rabbit_core_ff.erl, rabbit_mgmt_wm_feature_flags.erl.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from broker import feature_flags
from broker.management.answers import bad_request, no_content
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.metadata.commands import EnableFeatures

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


def _of_cluster(call: Call) -> list[dict[str, str]]:
    """The flags that group 0 has, as they are."""
    return [
        {
            "name": flag.name,
            "desc": flag.text,
            "doc_url": "",
            "state": _ENABLED if flag.name in call.catalogue.features else "disabled",
            "stability": "stable",
            "provided_by": "rabbit",
        }
        for flag in feature_flags.FLAGS
    ]


async def show_all(call: Call) -> Parts:
    """GET /api/feature-flags."""
    items = [dict(each) for each in FLAGS] + _of_cluster(call)
    return await call.listed_items(sorted(items, key=lambda each: each["name"]))


async def enable(call: Call) -> web.Response:
    """PUT /api/feature-flags/FLAG/enable: nothing is left to do for one that is always on.

    Raises:
        ApiError: 400 for an unknown one, for one that is not supported yet, and for one that a
            node of the cluster does not know, or can't be asked about: the reason names it.
    """
    name = call.name("flag")
    if name in feature_flags.KNOWN:
        if name not in call.catalogue.features:
            why_not = await call.cluster.metadata.gate.why_not((name,))
            if why_not:
                raise bad_request(f"{name} can't be enabled: {why_not}")
            await call.propose(EnableFeatures((name,)))
        return no_content()
    state = {each["name"]: each["state"] for each in FLAGS}.get(name)
    if state is None:
        raise bad_request("unsupported")
    if state != _ENABLED:
        raise bad_request(f"{name} can't be enabled: it is not supported yet")
    return no_content()


ROUTES = (
    listing("/api/feature-flags", show_all, "monitoring"),
    Endpoint("PUT", "/api/feature-flags/{flag}/enable", enable, "administrator"),
)
