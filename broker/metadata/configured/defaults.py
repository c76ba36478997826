"""What a new vhost gets by the settings of the node that made it, as RabbitMQ does. Pure.

Source: rabbit_db_vhost_defaults.erl, apply/2.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.config import DefaultUser, VhostDefaults
from broker.metadata import policy_keys
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import (
    AddUser,
    AnyCommand,
    SetParameter,
    SetPermissions,
    SetPolicy,
)
from broker.metadata.parameters import LIMITS_COMPONENT, LIMITS_NAME
from broker.patterns import searcher


def missing_users(
    defaults: VhostDefaults, vhost: str, catalogue: Catalogue
) -> tuple[DefaultUser, ...]:
    """Return the users that a new vhost makes; their passwords are hashed by the caller.

    Args:
        defaults: Of the settings.
        vhost: The new vhost's name.
        catalogue: Of group 0.
    """
    return tuple(
        user
        for user in defaults.users
        if searcher(user.vhost_pattern)(vhost) and catalogue.user(user.name) is None
    )


def commands(
    defaults: VhostDefaults, vhost: str, hashes: Mapping[str, str], algorithm: str
) -> tuple[AnyCommand, ...]:
    """Return what to propose once a new vhost is there.

    Args:
        defaults: Of the settings.
        vhost: Its name.
        hashes: Of `missing_users`: name -> stored hash of the password, "" without one.
        algorithm: Of the hashes.
    """
    found: list[AnyCommand] = []
    for limits in defaults.limits:
        if searcher(limits.pattern)(vhost):
            found.append(SetParameter(vhost, LIMITS_COMPONENT, LIMITS_NAME, limits.limits))
            break
    for policy in defaults.operator_policies:
        if searcher(policy.vhost_pattern)(vhost):
            pattern, definition = policy.queue_pattern, policy.definition
            found.append(SetPolicy(vhost, policy.name, pattern, definition, operator=True))
    for user in defaults.users:
        if not searcher(user.vhost_pattern)(vhost):
            continue
        if user.name in hashes:
            found.append(AddUser(user.name, hashes[user.name], algorithm, user.tags, False))
        found.append(SetPermissions(user.name, vhost, *user.permissions))
    return tuple(found)


def fault(defaults: VhostDefaults) -> str | None:
    """Say what is wrong with an operator policy of the settings; None if nothing is.

    Args:
        defaults: Of the settings.
    """
    for policy in defaults.operator_policies:
        definition, pattern = policy.definition, policy.queue_pattern
        why = policy_keys.fault(policy.name, pattern, definition, 0, "all", operator=True)
        if why is not None:
            return f"default_policies.operator.{policy.name}: {why}"
    return None
