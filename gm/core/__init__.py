"""Guaranteed multicast as a value: views, messages and broadcasts in, `MemberEffects` out.

The problem. A broadcast of one member of a group must reach all members or none, in the order of
its publisher, and the publisher must learn when every member has it on disk. Members stop, come
back under another identity, or pause and are taken for dead; streams between them break and lose
what was in flight. No member may have to remember anything for ever.

The idea (RabbitMQ's gm.erl). The members form a ring, and everything goes one way around it. A
broadcast that comes back to its publisher has passed every member; then an ack goes round, and all
members forget it. The ring does not decide who belongs to it: members come as a list of views that
is agreed on elsewhere and is the same for all (`gm.ports.ViewStore`). When a member dies, its left
neighbour gets another right neighbour and sends it a catch-up first: everything it has forwarded
and not forgotten. So nothing is missing behind the gap. The member to the right of the dead one,
its heir, completes what the dead one had in flight.

The guarantee, for each ring:

1. Per-publisher order without gaps: a member that was in the view in which m was broadcast, and
   gets a later m' of the same publisher, got m before it (GM1).
2. All or none: what a member that stays has delivered, everyone in the view of its broadcast that
   stays delivers (GM2), also when its publisher is dead, and then before its death is told (GM6).
3. Returned means everywhere: when a number is in `MemberEffects.returned`, every member of the view
   of its broadcast has it and has synced it, except those removed since (P19).
4. A message of a view is taken at that view or a later one, a birth is told before any broadcast
   of the new member, and a member that is not in the view stops (GM3, GM5).
5. Bounded memory: a broadcast that has gone round is forgotten. Messages that wait for a later view
   have a limit, and so have broadcasts in flight, at their origin: `Member.in_flight_bytes` (GM7,
   P14, P21).

Not guaranteed: an order between publishers; that a joining member gets what was broadcast before it
came (it may, and then in order); progress while a member of the view is paused, until a view
removes it; a broadcast that died with its publisher before any other member had it. A member that
is wrongly removed may go on until it learns of that; its broadcasts never come back, and its owner
answers for what it does with deliveries (by leases, above this package).

Where to find the rules:

- the neighbours and the heir of a member: view.py;
- numbers, and which broadcasts are forgotten or may be forwarded: ledger.py;
- only synced broadcasts are sent on, in activities and catch-ups: member._forward_synced,
  _send_catchup;
- messages of a left neighbour are dropped before its catch-up and behind a gap: member._take;
- messages of later views wait: held.py; broadcasts of dead members: heir.py;
- the order in which the host carries out effects: effects.py.

Why it holds. Fix a publisher P and look at how far each member has come with P's numbers, walking
from P to the right.

*Order, no gaps.* A member takes number n+1 after n only; a leap makes it ask for a catch-up, and a
leap in the steps of its neighbour, which count every message, does so even where no number is
missing. A catch-up says where it begins, and numbers are forgotten at the left neighbour only when
acked, which they are only after the member itself had them, or before it was in the ring.

*Progress falls from left to right.* A member forwards what it took, after its sync, only to its
right neighbour; a new right neighbour first gets a catch-up, which holds nothing beyond what was
forwarded. So a member is ahead of its left neighbour only by a path that no longer exists, and on
that path the left neighbour's left one had it too. When P's left neighbour tells P that it has
forwarded number n, every member between has synced n: (3). A member that joined later stands behind
one that had it. A joining member sends nothing until all it took over is synced. Otherwise what it
took over could be acked by those who had it without the joiner, and be forgotten by it before its
right neighbour had it.

*The dead.* Let H be the heir of D. H waits until it has forwarded all it has of D, then broadcasts
a mark in a view in which D is dead. A member that takes the mark is in that view or a later one, so
it takes nothing from D itself any more; and it passes the mark on behind everything it had of D.
When the mark is back at H, each member's part of D's broadcasts has gone to the next member before
the mark, all the way round: all members have the same, unless H just learned something new. Then H
passes that on and sends another mark. So in the end no member has more than another, and D may be
erased. The view that erases D is later than the last mark, so each member delivers the last
broadcast of D before it hears of D's death (2, GM6). gm.erl, without a mark, erases D when
everything that H knows of D is acked. That fails if H joined late: H takes over the state of its
left neighbour, which stands at D's far end and may know less of D than members that D reached
first. The simulator finds it (docs/planted-bugs.md G1a).

*Views.* Two members may know different views. A message of a later view waits, so whatever a member
takes was sent by one that knew no more. A message of an earlier view is taken from the member that
still is the left neighbour: its order and numbers hold. Messages of others would break the proof (a
removed D that still sends to H after the mark), so they are dropped.

Known bugs of such rings (docs/planted-bugs.md), and what prevents them here:

- a death told, and so a mirror promoted, before everything in flight had come (G1): marks;
- two members on one node, two masters (G3), a ring in charge of its own record (G2, G7): views come
  from one agreed log, a member is named by boot and view, and a ring proposes nothing but erasures;
- members that crashed again and again, not being in the view, or with acks and publishes that did
  not match (G4): such a member stops; an ack is one number; what does not follow is a gap;
- deadlocks by waiting in a callback, or by a stream that is not read (G5, G6): nothing here waits,
  owners are told between turns, and messages that must wait are held apart, within a limit;
- broadcasts kept for ever because they never came round (G11): acks, erasures, limits.

G8-G10 and G12 concern queues, and the code above this package prevents them. tests/sim/gm checks
all of this after every event, on this code.
"""
