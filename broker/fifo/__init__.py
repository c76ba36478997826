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

Modules: `queue` has the commands as methods, on top of `contents`, which knows what is in it and
what `rules` make of it. `commands` go into `machine.QueueMachine`, `effects` come out, `ledger` is
what lasts. `lines`, `consumers` and `sessions` are its three parts, `fate` what becomes of messages
that may not stay, `snapshot` its bytes. `paging` lets messages leave the memory and says which are
to be read. `offers` and `inbox` run on the nodes of publishers and consumers, `config` says how one
queue is to behave. A mirror is a `replica` of the ledger: it begins with a `handshake`, knows by
`evidence` what it may say of duplicates, and gets older messages by a `fill`; `digest` tells
whether two members are alike.
"""
