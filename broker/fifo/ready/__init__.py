"""The ready messages of a queue, in one of three orders, in memory or on disk.

`line` is what the queue machine asks of any order. `ready` is the order of arrival; `priority` puts
levels first, `due` the time at which messages expire.
`ram` tells the four states of a message; `depths`, with `deep` and `paged`, how a line pages.
"""
