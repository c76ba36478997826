"""Redrive: dead letters are looked at in their queue, and sent back to where they came from.

`letters` reads what a message says of its deaths, `planning` decides what goes where and what
can't, `tally` counts it. They are pure. `scanning` reads a queue without taking its messages,
`running` carries them, `redrives` knows what runs where and takes over from a node that is gone.
"""
