"""One file per resource: its endpoints as a table, and the functions that answer them."""

from __future__ import annotations

from broker.management.call import Endpoint
from broker.management.resources import (
    actions,
    alarms,
    bindings,
    channels,
    cluster,
    connections,
    consumers,
    definitions,
    delays,
    deprecations,
    exchanges,
    features,
    messages,
    node_control,
    nodes,
    overview,
    policies,
    queues,
    replicas,
    statistics,
)
from broker.management.resources.checks import certificates, health, stopping
from broker.management.resources.node import configuration, logs, process
from broker.management.resources.rights import (
    attempts,
    limits,
    parameters,
    permissions,
    topic_permissions,
    users,
    vhosts,
)

ROUTES: tuple[Endpoint, ...] = (
    *overview.ROUTES,
    *nodes.ROUTES,
    *cluster.ROUTES,
    *node_control.ROUTES,
    *process.ROUTES,
    *configuration.ROUTES,
    *logs.ROUTES,
    *alarms.ROUTES,
    *connections.ROUTES,
    *channels.ROUTES,
    *consumers.ROUTES,
    *exchanges.ROUTES,
    *delays.ROUTES,
    *queues.ROUTES,
    *replicas.ROUTES,
    *actions.ROUTES,
    *messages.ROUTES,
    *bindings.ROUTES,
    *vhosts.ROUTES,
    *attempts.ROUTES,
    *users.ROUTES,
    *permissions.ROUTES,
    *topic_permissions.ROUTES,
    *parameters.ROUTES,
    *limits.ROUTES,
    *policies.ROUTES,
    *definitions.ROUTES,
    *features.ROUTES,
    *deprecations.ROUTES,
    *statistics.ROUTES,
    *health.ROUTES,
    *certificates.ROUTES,
    *stopping.ROUTES,
)
