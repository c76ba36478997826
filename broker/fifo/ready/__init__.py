"""The ready messages of a queue, in one of three orders, in memory or on disk.

`queue` is the interface that the queue machine uses. `fifo` orders messages by arrival, `priority`
by level, `due` by the time at which they expire. `ram` defines the four states of a message;
`fifo`, with `paged_state` and `paged`, moves messages out of memory.
"""
