"""What keeps messages out of a queue, and what becomes of those that die in it.

`limits` says how long messages live and which may come in, `dedup` knows the doubles. `dying` keeps
what died until it has arrived elsewhere; `dead_letter` writes what a dead message tells of its
death, and where it goes on to.
"""
