"""Guaranteed multicast as a value: views, messages and broadcasts in, `Effects` out.

The problem. What one member of a group broadcasts must reach all of them or none, in the order it
was broadcast, and its publisher must learn when everyone has it on disk. Members stop, come back
as somebody else, stand still and are taken for dead; streams between them break and lose what was
on its way. No member may have to remember anything for ever.

The idea (RabbitMQ's gm.erl). The members form a ring, and everything goes one way around it. What
comes back to its publisher has passed everyone; then an ack goes round, and all forget. Who is in
the ring is not decided here: it comes as a list of views, agreed on elsewhere, the same for all
(`gm.ports.ViewStore`). When a member dies, its left neighbour finds another right one and begins
with a catch-up, all it has forwarded and that is not forgotten, so nothing is missing behind the
gap. Who stands right of the dead, its heir, completes what was on its way.

The guarantee, for each ring:

1. Per-publisher order without gaps: a member that was in the view in which m was broadcast, and
   gets a later m' of the same publisher, got m before it (GM1).
2. All or none: what a member that stays has delivered, everyone in the view of its broadcast that
   stays delivers (GM2), also when its publisher is dead, and then before its death is told (GM6).
3. Returned means everywhere: when a number is in `Effects.returned`, every member of the view of
   its broadcast has it and has synced it, but for those removed since (P19).
4. A message of a view is taken at that view or a later one, a birth is told before anything the
   newborn says, and who is not in the view stops (GM3, GM5).
5. Bounded memory: what has gone round is forgotten; what waits for a later view has a limit, and
   so has, at its origin, what is on its way: `Member.in_flight_bytes` (GM7, P14, P21).

Not guaranteed: any order between publishers; that a joiner gets what was broadcast before it came
(it may, and then in order); progress while a member of the view stands still: it must be removed
by a view; that what died with its publisher before anyone else had it is not lost. A member that
is wrongly removed may go on for as long as it does not know; what it broadcasts then comes back
never, and what it delivered of its own doing is its owner's affair (leases are above).

Where the rules live:

- who is whose neighbour and heir: view.py;
- numbers, what is forgotten, what may be forwarded: ledger.py;
- nothing unsynced leaves, neither as news nor in a catch-up: member._forward_synced, _send_catchup;
- nothing of a left neighbour counts before its catch-up, nor behind a gap: member._take;
- later views' messages wait: held.py;  what the dead leave: heir.py;
- what the host does with effects, in which order: effects.py.

Why it holds. Fix a publisher P and look at how far each member has come with P's numbers, walking
from P to the right.

*Order, no gaps.* A member takes number n+1 after n only; a leap makes it ask for a catch-up, and a
leap in the steps of its neighbour, which count every message, does so even where no number is
missing. A catch-up says where it begins, and numbers are forgotten at the left neighbour only when
acked, which they are only after the member itself had them, or before it was in the ring.

*How far falls from left to right.* A member forwards what it took, after its sync, to its right
neighbour alone; a new right neighbour first gets a catch-up, which says nothing beyond what was
forwarded. So no member is ahead of its left one by anything but a path that no longer exists, and
on that path the left one's left had it too. When P's left neighbour tells P that it has forwarded
number n, everyone between has synced n: (3). Who joined later stands behind someone who had it.
A joiner is mute until all it took over is synced. Otherwise what it took over could be acked by
those who had it without the joiner, and be forgotten by it before its right neighbour had it.

*The dead.* Let H be D's heir. H waits until all it has of D is forwarded, then broadcasts a mark
in a view in which D is dead. Whoever takes the mark is in that view or a later one, so takes
nothing from D itself any more; and passes it on behind everything it had of D before. When the
mark is back at H, each member's part of D's broadcasts has gone to the next one ahead of it, all
around: all have the same, unless H just learned something new. Then H passes it on and sends
another mark. So at the end nobody has more than anyone else, and D may be erased. The erasing view
is later than the last mark, so each member's last delivery of D precedes its death notice (2, GM6).
gm.erl, with no mark, erases D when all that H knows of D is acked. That fails where H joined late:
H takes over the state of its left neighbour, which stands at D's far end, and may know less of D
than members that D reached first. The simulator finds it (docs/planted-bugs.md G1a).

*Views.* Two members may know different views. A message of a later view waits, so whatever is
taken was sent by somebody who knew no more. One of an earlier view is taken from whoever still is
the left neighbour: its order and its numbers are as good. Others' messages would go round the
proof (a removed D that goes on speaking to H, after the mark), so they are dropped.

What went wrong with such rings before (docs/planted-bugs.md), and what keeps it out here:

- a death told, so a mirror promoted, before all in flight had come (G1): marks;
- two members on one node, two masters (G3), a ring in charge of its own record (G2, G7): views come
  from one agreed log, a member is named by boot and view, and a ring proposes nothing but erasures;
- members that crashed again and again, not being in the view, or with acks and publishes that did
  not match (G4): such a member stops; an ack is one number; what does not follow is a gap;
- deadlocks of waiting in a callback, or of a stream that is not read (G5, G6): nothing here waits,
  owners are told between turns, what must wait is held by itself and bounded;
- what was seen and never came round kept for ever (G11): acks, erasures, limits.

G8-G10 and G12 are about queues, and are kept out above. All of this is what tests/sim/gm checks
after every event, on this very code.
"""
