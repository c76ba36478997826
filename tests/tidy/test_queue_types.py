"""No branch takes "not classic" for "quorum": there are three types of queues.

A comparison with one type's name says what only that type does, or does not. Who adds one to a file
looks at what becomes of the two others, and adds its line here. What holds for all queues with
replicas asks `records.REPLICATED`.
"""

from __future__ import annotations

import ast
from typing import get_args

from broker.metadata import arguments, policies
from broker.metadata.records import REPLICATED, QueueType
from broker.queues.client.pending_commands import UNANSWERED_MAX
from tests.tidy.test_callbacks import trees
from tests.tidy.tree import name, nodes_of

TYPES = frozenset(get_args(QueueType))

PLACES = {
    "classic": {  # one home, which is without others; rings of mirrors; copies in memory
        "broker/cluster/recovery/forcing.py",
        "broker/cluster/replicas/placement.py",
        "broker/management/memory.py",
        "broker/management/metrics/reading.py",
        "broker/management/operations/plan.py",
        "broker/management/resources/checks/stop_safety.py",
        "broker/management/resources/queues.py",
        "broker/metadata/applying/equivalence.py",
        "broker/metadata/applying/nodes.py",
        "broker/metadata/catalogue.py",
        "broker/metadata/definitions/planning.py",
        "broker/metadata/mirroring/steps.py",
        "broker/queues/client/remote.py",
        "broker/queues/machine_settings.py",
        "broker/queues/mirrored/mirrored_queues.py",
        "broker/queues/refusals.py",
        "broker/queues/registry.py",
        "broker/session/channel.py",
    },
    "quorum": {  # target sizes and repair, delivery counts, RabbitMQ's commands and texts for them
        "broker/cli/ctl/diagnostics.py",
        "broker/log_aside.py",
        "broker/management/metrics/node_families.py",
        "broker/management/operations/plan.py",
        "broker/management/operations/redriving/running.py",
        "broker/management/operations/syncing.py",
        "broker/management/resources/checks/health.py",
        "broker/management/resources/queues.py",
        "broker/management/resources/replicas.py",
        "broker/metadata/applying/queues.py",
        "broker/metadata/queue_settings.py",
        "broker/queues/registry.py",
        "broker/server/serving.py",
        "broker/session/basic_consume.py",
        "broker/session/queue.py",
    },
    "stream": {  # reading without emptying; a log that is kept
        "broker/cli/ctl/queues/browse.py",
        "broker/cli/perf/load.py",
        "broker/force_boot.py",
        "broker/management/memory.py",
        "broker/management/operations/browsing/browser.py",
        "broker/management/resources/diagnosis/browse.py",
        "broker/management/resources/diagnosis/dead_letters.py",
        "broker/management/resources/diagnosis/holders.py",
        "broker/management/resources/messages.py",
        "broker/management/resources/streams/tracking.py",
        "broker/metadata/applying/accounts.py",
        "broker/metadata/applying/queues.py",
        "broker/metadata/applying/taps.py",
        "broker/metadata/definitions/planning.py",
        "broker/metadata/queue_settings.py",
        "broker/metadata/streams/super_streams.py",
        "broker/server/groups.py",
        "broker/queues/registry.py",
        "broker/session/basic_consume.py",
        "broker/session/modes.py",
        "broker/session/streams.py",
        "broker/session/tracing/following.py",
        "broker/session/tracing/settlements.py",
    },
}


def types_in(compare: ast.Compare) -> set[str]:
    sides = (compare.left, *compare.comparators)
    found = (each for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant))
    return {each.value for each in found if isinstance(each.value, str)} & TYPES


def test_files_that_tell_one_type_from_the_others_are_listed() -> None:
    found: dict[str, set[str]] = {each: set() for each in PLACES}
    for path in trees():
        for node in nodes_of(path):
            types = types_in(node) if isinstance(node, ast.Compare) else set()
            if types != TYPES:
                for each in types:
                    found[each].add(name(path))
    assert found == PLACES


def test_tables_by_type_have_every_type() -> None:
    tables = (
        arguments.MODULES,
        arguments.ACCEPTED,
        policies.UNSUPPORTED,
        {**UNANSWERED_MAX},
        dict.fromkeys((*REPLICATED, "classic")),
    )
    assert [set(table) & TYPES for table in tables] == [TYPES] * len(tables)
