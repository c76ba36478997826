"""Streams on this node: replicas of their logs, and the consumers that read them.

    replica     a replica of a stream's Raft group: takes publishes while it leads, applies entries
    log         the replica's log as readers see it: chunks by their place, from memory or files
    reader      one consumer: where it is, its credit, its filter
    client      the handle of a stream on a node: publishes as any queue, reads from the local log

What a stream is, and its bytes, stand in `broker.streams`.
"""
