"""Background operations: rebalancing masters, synchronising mirrors, migrating queues.

The API answers when the work has begun; it goes on at the node that serves the queue, or that leads
group 0, whichever node was asked.

    registry.py     all of it, as the API reaches it
    remote.py       has the right node run an operation
    syncing.py      begins and ends the synchronisation of mirrors
    balance.py      P  which queue should be served by which node
    draining.py     maintenance mode: a node without clients and leaders
    quorum_queues.py  takes replicas away, shows messages
    rebalance.py    moves them, one after another
    plan.py         P  what a classic queue would lose in a quorum queue
    mover.py        P  carries messages from one queue to another
    migration.py    the whole of a migration: declare, carry, lead bindings over, delete
"""
