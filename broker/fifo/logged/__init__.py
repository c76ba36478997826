"""A quorum queue whose bodies are in its Raft log: on disk once, in memory near the head only.

The machine is the same as with all bodies in memory: what it does follows from numbers, sizes,
counts and times alone, so replicas stay equal whatever each of them has in memory. `positions`
knows where in the log each message is, `ready` is the order of those that wait, in columns beyond
the head, and `broker.fifo.checkpoints` has the state without bodies. A message whose body left the
memory is a stub; it stays one for the machine, and whoever executes the effects reads its body from
the log.
"""
