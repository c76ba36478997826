"""The ready messages of a queue, in one of three orders, in memory or on disk.

`queue` is what the queue machine asks of any order. `fifo` is the order of arrival, `priority` puts
levels first, `due` the time at which messages expire. `ram` tells the four states of a message;
`fifo`, with `paged_state` and `paged`, how messages leave the memory.
"""
