"""Raft, many groups to a node. Knows nothing of queues."""
