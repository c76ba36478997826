"""Judges: pure functions from a history to findings.

Each checker gets the facts of a history and its options and returns findings; none means that
its claim held. `verdict` runs them all and merges: false beats unknown beats true, and a checker
that crashes makes the verdict unknown, never true. Every kind of finding has a forged history in
the tests that raises it and nothing else.
"""
