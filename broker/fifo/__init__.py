"""The queue machine: what a queue is, whatever replicates it.

The problem: classic, mirrored and quorum queues promise the same things to clients and differ only
in how they survive. Three implementations would differ in a hundred small ways.

The idea (docs/protocol-rules.md P15): one pure machine takes commands and returns effects and a
ledger. A quorum queue puts the commands into its Raft log, and every replica runs them. A classic
queue runs them once and writes the ledger to disk. A mirrored queue also sends the ledger to its
mirrors.

The guarantee: the same commands in the same order give the same state and the same effects, from
the beginning or from any snapshot between two commands. Every message enqueued is ready, held by
one holder, dead and waiting for its burial, or gone; what was gone never comes back. A command
offered twice is done once. Nothing that has expired is delivered, by the time the machine was told.

The non-guarantee: a delivery may be made again after a failover (P17), with `delivery_count` told.

Modules: `commands` go into `machine.QueueMachine`, `effects` come out, `ledger` is what lasts. The
machine is one class whose parts have names. `message_state` knows where every message is: ready
(`ready`), checked out by a channel (`checked_out`), dead and held (`dead_letter`) or gone, by which
`limits`, and which publishes are remembered (`dedup`). `consumers` says who gets messages,
`sessions` who brought commands and what they were answered, and `paging` lets messages leave the
memory and says which are to be read. `snapshot` is the bytes of all that.
`offers` and `redelivery_filter` run on the nodes of publishers and consumers, `config` says how one
queue is to behave. A mirror is a `replica` of the ledger: it begins with a `handshake`, knows by
`sessions` what it may say of duplicates, and gets older messages by a `fill`;
`message_state.digest_of` tells whether two members are alike.
"""
