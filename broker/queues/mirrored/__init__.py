"""Mirrored queues: a classic queue with copies on other nodes, one of them its master.

Group 0 holds the ring of each such queue: who its members are, in which order, who is the master,
who succeeds it, who is synchronised (`broker.metadata.rings`). This package is what a node does
about it. GM (`gm`) carries what the master broadcasts once around the ring and tells it when every
member has it. Nothing here decides alone who serves: each step is proposed, and happens when group
0 has made it.

A message's way. The master runs the queue machine (`broker.queues.classic`); what a turn of its
loop did to the queue is one ledger, and goes out as one payload. Each mirror replays it, writes it
to its disk, and forwards it when it is synced. When it has come round, and the master's own disk is
synced too, every member of its view has it: then, if this node holds the lease, the confirm leaves
(P19). So a confirmed message survives as long as one synchronised member does.

A member's life. Group 0 adds it to the ring: empty, not synchronised. It gets its left neighbour's
state, then the master's handshake round the ring; it ignores what came before, erases the copy of
an earlier life from its disk, and replays everything from there on (P20). When the handshake has
come back the master notes `joined`, so that the member may succeed; when no older message remains,
or a synchronisation has filled them in, it notes `synchronised`. The founders of a queue declared
under a policy begin joined and synchronised, for the queue is empty.

A master's death. Group 0 ends all memberships of the node in one command, and designates the oldest
synchronised mirror. The heir of the dead slot has it erased once what it had in flight has come
round; then the successor syncs its disk and proposes `promoted` (P22). Its replica becomes the
machine: everything ready at its old place, everything redelivered, sessions go on, so publishers
offer again what has no answer and consumers attach again (P10-P12, P16). If nobody may succeed, the
queue is down until the last master's node returns and recovers from its disk.

    rings.py       the seats of this node: what the catalogue says compared with what runs (P6)
    seat.py        one membership: GM on one side, mirror or master on the other
    mirror.py      replays and writes; becomes a machine
    master.py      ledger out, confirms in, handshakes; when the queue must stand still
    tending.py     which steps are due: joins, notes, drops, leaving, founding, dissolving
    promotion.py   which steps are due where there is no master: successor, recovery, hand-over
    links.py       since when other nodes are gone, silent or cut off
    proposals.py   collects steps, one proposal at a time for the whole node (P2)
    sync.py        older messages for a mirror that lacks them (P26), batch by batch
    sync_frames.py what is said for that
    payloads.py    what travels round the ring
    ports.py       what all of this needs of the node

Invariants:
1. One seat per queue and node, for the member of this node that lives in the record.
2. Nothing is told to a publisher before it is safe (P19), without the lease (P4), or while a join
   is proposed whose outcome is unknown (P20).
3. Steps are fenced by (master, epoch) or by the member they are about; repeating one is harmless.
"""
