"""Raft, many groups to a node. Knows nothing of queues.

`core` is the protocol without IO: messages and ticks in, a `Ready` out. `RaftHost` runs all groups
of a node on one journal, one transport and one timer; whoever embeds it gives each group a
`Machine` and holds a `Group`. What the embedder must provide stands in `ports`.
"""

from raft.errors import (
    ChangeRefused,
    GroupClosed,
    LogCorrupt,
    NotLeader,
    ProposalDropped,
    RaftError,
)
from raft.group import Group, GroupStatus
from raft.host import RaftHost
from raft.ports import Machine
from raft.settings import RaftHostConfig

__all__ = [
    "ChangeRefused",
    "Group",
    "GroupClosed",
    "GroupStatus",
    "LogCorrupt",
    "Machine",
    "NotLeader",
    "ProposalDropped",
    "RaftError",
    "RaftHost",
    "RaftHostConfig",
]
