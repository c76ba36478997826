"""Which messages of a classic queue are in memory: the node's decision, and the queue's part in it.

`level` decides how much memory a queue may use (pure), `pager` looks at the node every now and then
and tells its queues and mirrors, `window` is a queue's side: it writes out, brings in, and fills
what leaves the queue without its content.
"""
