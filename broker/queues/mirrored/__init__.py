"""Mirrored queues: a classic queue with copies on other nodes, one of them its master.

Group 0 holds the ring of each such queue (`broker.metadata.rings`): its members in their order, the
master, its successor, and which members are synchronised. This package implements it on a node. GM
(`gm`) carries the master's broadcasts once around the ring and tells the master when every member
has them. No node decides alone which one serves: it proposes a step, and the step takes effect when
group 0 applies it.

A publish. The master runs the queue machine (`broker.queues.classic`). The events of one turn of
its event loop are one ledger, which it broadcasts as one payload. Each mirror replays the
ledger, writes it to its disk, and forwards it when it is synced. When it has come round, and the
master's own disk is synced too, every member of its view has it. Then the master sends the confirm,
if its node holds the lease (P19). So a confirmed message survives as long as one synchronised
member does.

A new member. Group 0 adds it to the ring: empty, not synchronised. It gets its left neighbour's
state, then the master's join state round the ring; it ignores broadcasts before that, erases its
disk's copy of an earlier membership, and replays all that follow (P20). When the join state has
come back the master notes `joined`, so that the member may succeed; when no older message remains,
or a synchronisation has filled them in, it notes `synchronised`. The founders of a queue declared
under a policy begin joined and synchronised, for the queue is empty.

The death of a master. Group 0 ends all memberships of its node in one command and names the oldest
synchronised mirror as successor. When everything that the dead master had in flight has come round,
the heir of its slot has the slot erased; then the successor syncs its disk and proposes `promoted`
(P22). Its replica becomes the queue machine: all messages are ready at their old places and will be
marked as redelivered, and sessions go on, so unanswered publishes are sent again and consumers
attach again (P10-P12, P16). If no member may succeed, the queue is down until the last
master's node returns and recovers it from its disk.

    mirrored_queues.py  this node's ring memberships: opened and closed as the catalogue says (P6)
    ring_membership.py  one membership: GM on one side, the mirror or the master on the other
    mirror.py           replays the ledger and writes it; becomes a machine at a promotion
    master.py           ledger out, confirms in, join states; when the queue is paused
    reconcile.py        which steps are due: joins, notes, drops, leaving, founding, dissolving
    promotion.py        steps without a master (successor, recovery); hand-over at a node's stop
    links.py            since when other nodes are gone, silent or cut off
    proposals.py        collects steps, one proposal at a time for the whole node (P2)
    sync.py             older messages for a mirror that lacks them (P26), batch by batch
    sync_frames.py      the messages of a synchronisation
    payloads.py         the kinds of payloads of the ring
    ports.py            what mirrored queues need of their node

Invariants:
1. One membership for each queue and node, for the member of this node that lives in the record.
2. No verdict reaches a publisher before it is safe (P19), without the lease (P4), or while a join
   is proposed whose outcome is unknown (P20).
3. Steps are fenced by (master, epoch) or by the member they are about; repeating one is harmless.
"""
