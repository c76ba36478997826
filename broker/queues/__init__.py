"""Queue types: the one queue machine (`broker.fifo`) and a way to keep it safe.

classic   runs the machine where the queue lives; its ledger goes to disk
quorum    every replica runs the machine; its commands come out of a Raft log
remote    a queue's handle on any other node: numbered offers until they are answered

Everything a channel may ask of a queue is `broker.ports.QueueHandle`.
"""
