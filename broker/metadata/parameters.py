"""Runtime parameters and limits: their names and the checks of their values.

Checked before a parameter is proposed, never while it is applied. Texts are RabbitMQ's, with Erlang
terms, because people and tools compare them.

Source: rabbit_runtime_parameters.erl set/5, rabbit_vhost_limit.erl validate/5,
rabbit_auth_backend_internal.erl validate_user_limits/1, rabbit_parameter_validation.erl
proplist/3, number/2; compared with a RabbitMQ 3.10.8 node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.metadata.policy_keys import NO_FEDERATION, term

VHOST_LIMITS: Final = ("max-connections", "max-queues")
USER_LIMITS: Final = ("max-connections", "max-channels")
LIMITS_COMPONENT: Final = "vhost-limits"
LIMITS_NAME: Final = "limits"
RESERVED: Final = "policies may not be set using this method"
INTERNAL_CLUSTER_ID: Final = "internal_cluster_id"
CLUSTER_NAME: Final = "cluster_name"
COMPUTED: Final = (CLUSTER_NAME, INTERNAL_CLUSTER_ID)
"""Global parameters that group 0 keeps by itself."""

NAME_BYTES_MAX: Final = 255


def limits_fault(limits: object, known: tuple[str, ...], what: str) -> str | None:
    """Say what is wrong with limits, None if nothing is.

    Args:
        limits: Names and values, as the caller gave them.
        known: Names that there are.
        what: "limits" for a vhost's, "user-limits" for a user's.
    """
    if not isinstance(limits, dict):
        return f"{what} should be an object, actually was {term(limits)}"
    for name in known:
        value = limits.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{name} should be a number, actually was {term(value)}"
    foreign = [f"{{{term(key)},{term(limits[key])}}}" for key in limits if key not in known]
    if foreign:
        return f"Unrecognised terms [{','.join(foreign)}] in {what}"
    return None


def _vhost_limits(name: str, value: object) -> str | None:
    if name != LIMITS_NAME:
        return f"name not recognised: {name}"
    return limits_fault(value, VHOST_LIMITS, "limits")


_PLUGINS: Final = {
    "federation-upstream": NO_FEDERATION,
    "federation-upstream-set": NO_FEDERATION,
    "shovel": "shovels are not supported yet; consume and publish with a client",
}
"""Components that RabbitMQ's plugins bring -> what to do without them."""

_COMPONENTS: Final[dict[str, Callable[[str, object], str | None]]] = {
    LIMITS_COMPONENT: _vhost_limits,
}


def fault(component: str, name: str, value: object) -> str | None:
    """Say what is wrong with a runtime parameter of a vhost, None if nothing is.

    Args:
        component: What it is a parameter of; those that plugins bring come with their features.
        name: Its name.
        value: As JSON has it.
    """
    if component in {"policy", "operator_policy"}:
        return RESERVED
    check = _COMPONENTS.get(component)
    if check is None:
        advice = _PLUGINS.get(component)
        return f"component {component} not found" + (f": {advice}" if advice else "")
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"a parameter's name has at most {NAME_BYTES_MAX} bytes"
    return check(name, value)
