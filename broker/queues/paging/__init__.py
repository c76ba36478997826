"""Paging of classic queues: which messages are in memory, decided by the node and the queue.

`memory_budget` says how much memory a queue may use (pure). `node_pager` measures the node's memory
five times a second and gives its queues and mirrors their limits. `queue_pager` keeps one queue
within its limit: it writes messages to disk, reads them back, and fills stubs that leave the queue.
"""
