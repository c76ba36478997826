"""Deprecated features: `/api/deprecated-features`, RabbitMQ 3.13's, all of them permitted here.

Source: rabbit_mgmt_wm_deprecated_features.erl; the features' names and texts are those of
`rabbit_deprecated_features` attributes in 3.13.
"""

from __future__ import annotations

from typing import Any, Final

from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts

MIRRORING: Final = "classic_queue_mirroring"
TRANSIENT: Final = "transient_nonexcl_queues"
_TEXTS: Final = {
    MIRRORING: "Classic mirrored queues",
    "global_qos": "basic.qos with global=true",
    "management_metrics_collection": "Statistics in the management API",
    "ram_node_type": "Nodes of the type ram",
    TRANSIENT: "Queues that are neither durable nor exclusive",
}


def _item(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "desc": _TEXTS[name],
        "deprecation_phase": "permitted_by_default",
        "doc_url": "",
        "provided_by": "rabbit",
        "state": "permitted",
    }


async def show_all(call: Call) -> Parts:
    """GET /api/deprecated-features."""
    return await call.listed_items([_item(name) for name in sorted(_TEXTS)])


async def show_used(call: Call) -> Parts:
    """GET /api/deprecated-features/used: those that records in group 0 make use of.

    As in RabbitMQ, what only clients do (`global_qos`) is not looked for.
    """
    used = set()
    policies = call.catalogue.policies() + call.catalogue.operator_policies()
    if any("ha-mode" in policy.definition for policy in policies):
        used.add(MIRRORING)
    if any(
        not each.durable and each.exclusive_owner is None for each in call.catalogue.all_queues()
    ):
        used.add(TRANSIENT)
    return await call.listed_items([_item(name) for name in sorted(used)])


ROUTES: tuple[Endpoint, ...] = (
    listing("/api/deprecated-features", show_all, "monitoring"),
    listing("/api/deprecated-features/used", show_used, "monitoring"),
)
