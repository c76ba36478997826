"""Queue types: the one queue machine (`broker.fifo`), and a way to replicate it for each type.

classic   runs the machine where the queue lives; its ledger goes to disk
quorum    every replica runs the machine; its commands come out of a Raft log
client    a queue's handle on any other node: numbered commands, kept until they are answered

Everything a channel may ask of a queue is `broker.ports.QueueHandle`.
"""
