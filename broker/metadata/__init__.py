"""Group 0: vhosts, users, permissions, exchanges, queues, bindings, nodes, one replicated machine.

The problem: every node must agree on what exists, and read it without asking anyone. The idea: all
changes are commands in the log of Raft group 0; each node applies them to the same machine
(`machine.MetadataMachine`) and reads its own copy (`catalogue.Catalogue`). What is guaranteed: two
machines that applied the same log hold equal state, byte for byte in their snapshots; every check
that decides a command is made at apply, where all earlier commands are known. Not guaranteed: that
a reader on another node has applied a change already; docs/protocol-rules.md P4's lease sees to
that.

Nothing here reads a clock or draws a number: ids, hashes and placements come with the commands.
"""
