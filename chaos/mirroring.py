"""The policy that makes a classic queue a mirrored one. Pure."""

from __future__ import annotations

import re
from typing import Any

from chaos.options import Options


def policy(options: Options, queue: str) -> dict[str, Any]:
    """Return the body of `PUT /api/policies` for one queue.

    Args:
        options: The run's.
        queue: The queue's name; no other matches.
    """
    definition: dict[str, Any] = {
        "ha-mode": options.ha_mode,
        "ha-sync-mode": options.ha_sync_mode,
        "ha-promote-on-failure": options.promote_on_failure,
        "ha-promote-on-shutdown": options.promote_on_shutdown,
    }
    if options.ha_mode == "exactly":
        definition["ha-params"] = int(options.ha_params)
    elif options.ha_mode == "nodes":
        definition["ha-params"] = options.ha_params.split(",")
    return {
        "pattern": f"^{re.escape(queue)}$",
        "definition": definition,
        "apply-to": "queues",
        "priority": 0,
    }
