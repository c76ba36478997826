"""Replicas of quorum queues and streams: their Raft groups, and the forms that they have."""
