"""The way to queues whose machine answers through messages: elsewhere, mirrored, or quorum."""
