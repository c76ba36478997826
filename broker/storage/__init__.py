"""What a node keeps on its disk: one RocksDB store, one sync for everyone who waits.

`store` opens it (or says clearly why not), `group_commit` is the one writer, `message_store` keeps
the messages of classic queues, `salvage` saves what can be saved from a damaged store. The bytes
are drawn in docs/on-disk.md, `message_keys` and `raft.log_keys`.
"""
