"""Ready: the whole contract between the core and its host.

The host does, for each Ready, in this order:

1. Write `snapshot` (replacing log and snapshot), `hard_state` and `entries` to its journal, in one
   atomic batch. Entries replace whatever the log holds from `entries[0].index` on.
2. Send `messages_now` (it may do so before step 1: they promise nothing about this node's disk).
3. Apply: restore the machine from `snapshot`, then apply `committed` in order. Committed entries
   are durable on a majority, so this need not wait for this node's own sync.
4. Call `advance(ready)`. From here on the LogReader must answer for what was written.
5. When everything written so far is durable, send `messages_after_sync`, then call
   `synced(ready.number)`. A promise must also outlast earlier Readys, so even a Ready that writes
   nothing waits for the writes before it. `synced(n)` covers every number up to n.

If a sync fails, the host must stop the node: neither send nor call `synced` ever again.
Several Readys may be in flight between `ready()` and `synced()`, in order.
"""

from __future__ import annotations

import enum

import msgspec

from raft.core.messages import Configuration, Entry, HardState, Message, Snapshot


class Role(enum.Enum):
    """The role of a replica. A learner is a follower that is not among the voters."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class SoftState(msgspec.Struct, frozen=True):
    """The leader as known to this node, and its role. Not durable."""

    role: Role
    leader: str | None
    term: int


class ReadState(msgspec.Struct, frozen=True):
    """A read asked for with `context` may be served once `index` is applied here."""

    context: int
    index: int


class RefusalReason(enum.Enum):
    """The reason why a request was refused."""

    NOT_LEADER = "not leader"
    TRANSFERRING = "leadership is being transferred"
    OVERLOADED = "too much is proposed and not committed"
    CHANGE_PENDING = "a membership change is not committed yet"
    TERM_NOT_COMMITTED = "the leader has not committed an entry of its term"
    INVALID_CHANGE = "the change is not a single valid step"
    LEARNER_BEHIND = "the learner has not caught up"
    NOT_A_VOTER = "the node is not a voter of this group"


class Refused(msgspec.Struct, frozen=True):
    """A request that was not taken: a value, not an exception.

    Attributes:
        leader: Who leads, if known; the hint for NOT_LEADER.
        text: More than the reason says, for people.
    """

    reason: RefusalReason
    leader: str | None = None
    text: str = ""


class Ready(msgspec.Struct):
    """One portion of work; see the module's docstring for the order.

    Attributes:
        number: 1, 2, 3 … per node since its start.
        hard_state: To write, or None if term and vote are unchanged.
        entries: To append, after truncating from the first one's index.
        snapshot: To install in place of the whole log, or None.
        messages_now: Appends, heartbeats, pre-votes: may leave at once.
        messages_after_sync: Votes, vote replies, append replies: never before the sync.
        committed: To apply, in order, kinds NOOP and CONFIG included.
        soft_state: Role, leader or term, if one of them changed.
        read_states: Reads that may be served.
        configuration: The configuration in force, if it changed (it does when appended).
    """

    number: int
    hard_state: HardState | None
    entries: list[Entry]
    snapshot: Snapshot | None
    messages_now: list[Message]
    messages_after_sync: list[Message]
    committed: list[Entry]
    soft_state: SoftState | None
    read_states: list[ReadState]
    configuration: Configuration | None

    @property
    def must_sync(self) -> bool:
        """True if this Ready itself writes anything."""
        return self.hard_state is not None or bool(self.entries) or self.snapshot is not None
