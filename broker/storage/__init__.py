"""What a node keeps on its disk: one RocksDB store, one sync for everyone who waits.

`opening` is how a node begins and ends with it: `store` opens it (or says clearly why not),
`salvage` saves what can be saved from a damaged one, read by `damaged`; `survey` counts what is
there, unless a clean stop left a `summary`. `group_commit` is the one writer. `message_store` keeps
the messages of classic queues, with `stock` (what is where) and `bodies` (large contents, shared).
The bytes are drawn in docs/on-disk.md, `message_keys` and `raft.log_keys`.
"""
