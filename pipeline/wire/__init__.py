"""A small synchronous client of AMQP 0-9-1, and of the HTTP API, for what Spark's tasks need.

`fields`, `frames`, `deliveries` and `urls` are pure: bytes to values and back. `connection` has the
socket, `consumer` and `publisher` what is done on a channel of it, `management` the HTTP API. It is
fast where messages are many: what comes is read in large pieces and sliced into columns, without an
object for each message. It imports nothing of the broker: it works with any that has streams.
"""
