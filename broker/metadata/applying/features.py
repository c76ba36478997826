"""Feature flags: enabled by command, never disabled."""

from __future__ import annotations

from broker.metadata import commands
from broker.metadata.apply_context import ApplyContext
from broker.metadata.results import Result


def enable_features(context: ApplyContext, command: commands.EnableFeatures) -> Result:
    """Enable flags; True if one of them was not."""
    return enable(context, command.names)


def enable(context: ApplyContext, names: tuple[str, ...]) -> bool:
    """Enable flags, by a command or with the cluster; True if one of them was not."""
    before = context.catalogue.features
    context.catalogue.features = before.union(names)
    is_more = context.catalogue.features != before
    context.changes.features_changed |= is_more
    return is_more
