"""The host's limits, with their units in their names."""

from __future__ import annotations

import msgspec


class RaftHostConfig(msgspec.Struct, frozen=True):
    """Limits of a node's Raft host.

    Attributes:
        tick_ms: One tick of every group that is not quiesced.
        heartbeat_ticks: A leader sends heartbeats so often; 200 ms, as the failure detectors do.
        election_ticks: A follower that hears nothing campaigns after one to two times this.
        snapshot_entries: A snapshot is due after that many entries (if they weigh something
            against the last snapshot).
        snapshot_log_bytes: It is due, too, when the log has grown by this and by the size of the
            last snapshot.
        checkpoint_log_bytes: A group that keeps its log takes a checkpoint after so much of it: a
            restart applies no more than that.
        trailing_entries: Entries kept behind a snapshot for members that lag a little.
        trailing_bytes_max: But no more than about this much of them.
        read_retry_ticks: A read that heard nothing is asked for again after this.
        read_ticks_max: And given up after this.
        apply_behind_max: See `NodeConfig`; of groups that are read at their leader only.
        lag_entries_max: See `NodeConfig`; of the same groups.
        hedge_ms: A commit that waits for a follower this long, up to twice, waits for others too.
        transfer_ticks_max: A hand-over of leadership is given up after this.
    """

    tick_ms: int = 100
    heartbeat_ticks: int = 2
    election_ticks: int = 10
    snapshot_entries: int = 8192
    snapshot_log_bytes: int = 32 * 1024 * 1024
    checkpoint_log_bytes: int = 64 * 1024 * 1024
    trailing_entries: int = 512
    trailing_bytes_max: int = 8 * 1024 * 1024
    read_retry_ticks: int = 5
    read_ticks_max: int = 50
    apply_behind_max: int = 32
    lag_entries_max: int = 64
    hedge_ms: int = 10
    transfer_ticks_max: int = 30
