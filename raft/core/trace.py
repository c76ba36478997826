"""One record per transition, so that a run can be checked after the fact.

The shape is the one TLA+ trace validation of etcd's raft reads: event name, node, term, vote,
commit, role, last index, configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from raft.core.messages import Configuration
from raft.core.ready import Role


class TraceRecord(msgspec.Struct, frozen=True):
    """The state of one replica just after `name` happened.

    Attributes:
        name: "follower", "pre-candidate", "candidate", "leader", "vote", "append", "commit",
            "configuration", "snapshot", "quiesced", "wake".
    """

    name: str
    node: str
    group: int
    term: int
    vote: str | None
    commit: int
    role: Role
    last_index: int
    configuration: Configuration


Tracer: TypeAlias = Callable[[TraceRecord], None]


def as_line(record: TraceRecord) -> bytes:
    """The record as one NDJSON line, without the newline."""
    return msgspec.json.encode(
        {
            "event": {
                "name": record.name,
                "nid": record.node,
                "group": record.group,
                "state": {"term": record.term, "vote": record.vote, "commit": record.commit},
                "role": record.role.value,
                "log": record.last_index,
                "conf": [record.configuration.voters, record.configuration.learners],
            }
        }
    )
