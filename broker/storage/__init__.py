"""Storage of a node: one RocksDB store, one sync for all callers that wait.

`opening` opens it at a start and closes it at a stop: `store` opens it (or says clearly why not),
`salvage` saves what can be saved from a damaged one, read by `damaged`; `recovery_scan` counts what
is there, unless a clean stop left a `summary`. `group_commit` is the one writer. `message_store`
keeps the messages of classic queues, with `message_index` (what is where), `bodies` (large
contents, shared) and `int_map`.
The bytes are drawn in docs/on-disk.md, `message_keys` and `raft.log_keys`.
"""
