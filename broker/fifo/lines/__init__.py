"""The ready messages of a queue, in one of three orders.

`ready` is what the queue machine asks of any order, and the order of arrival; `priority` puts
levels first, `due` the time at which messages expire. `order` makes the one a queue is set to.
"""
