"""The queue machine: the one implementation of a queue, for every way to replicate it.

The problem: classic, mirrored and quorum queues promise the same things to clients and differ only
in how they survive. Three implementations would differ in a hundred small ways.

The idea (docs/protocol-rules.md P15): one pure machine takes commands and returns effects and a
ledger. A quorum queue puts the commands into its Raft log, and every replica runs them. A classic
queue runs them once and writes the ledger to disk. A mirrored queue also sends the ledger to its
mirrors.

The guarantee: the same commands in the same order give the same state and the same effects, from
the beginning or from any snapshot between two commands. Every message enqueued is ready, checked
out by one channel, dead and held until its targets have it, or gone; a message that is gone never
comes back. A command sent twice is done once. No message is delivered after its expiry, by the time
that the machine was told.

The non-guarantee: a delivery may be made again after a failover (P17), with `delivery_count` told.

Modules: `commands` go into `machine.QueueMachine`, `effects` come out, `ledger` is what lasts. The
machine is one class whose parts have names. `message_state` knows where every message is: ready
(`ready`), checked out by a channel (`checked_out`), dead and held (`dead_letter`) or gone, by which
`limits`, and which publishes are remembered (`dedup`). `consumers` says who gets messages,
`sessions` who brought commands and what they were answered, and `paging` lets messages leave the
memory and says which are to be read. `snapshot` is the bytes of all that.
`config` says how one queue is to behave, `command_sizes` how many commands a node sends at once. A
mirror is a `replica` of the ledger: it begins with a `join_state`, knows by `sessions` what it may
say of duplicates, and gets older messages by `sync_batch`es; `message_state.digest_of` tells
whether two members are alike.

The nodes of publishers and consumers keep commands until they are answered, and drop redeliveries
(`broker.queues.client`).
"""
