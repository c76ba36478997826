"""Raft as a value: messages and ticks in, a Ready out. No IO, no clock, no logging.

The problem: a few nodes must agree on one growing list of entries, though nodes stop, restart and
forget what was not synced, and the network loses, delays, repeats and reorders messages.

The idea (Ongaro and Ousterhout 2014): in each term at most one node leads. Only the leader adds
entries; a majority that has an entry of the leader's term makes it, and all before it, committed.
Whoever leads later was voted for by a majority, one of which has the entry, and voters refuse a
candidate whose log is older than theirs. So every later leader has it.

The guarantee: what comes out of `Ready.committed` at index i is the same on every replica, for
ever, as long as no replica loses what it was told is synced.

Not guaranteed: that a proposal is taken (its leader may fall), or taken once (the proposer may
try again; the machine above must know repeated commands); progress without a majority.

Where the rules live:

- one vote per term, and only for a log as good: voting.py; never a vote before its sync: the order
  in ready.py, and `state.PROMISES`, which says which messages wait;
- one term rule for all roles: node.py;
- commit only what is of the own term: replication.maybe_commit;
- nothing committed is ever truncated: log.py;
- a sync proves exactly the writes before it: unstable.py;
- one voter changed at a time, after the leader's own first commit: leader.change_refusal;
- elections disturb no living leader: pre-vote and the lease in node.py, quorum check in leader.py;
- a group quiesces only when nobody lacks anything: leader.py, follower.on_heartbeat.
"""
