"""Spark over histories: the same questions as the chaos checkers ask, for files of any size.

sources -> transforms -> quality -> verdict. `schemas` holds the columns, `transforms` pure
functions from DataFrame to DataFrame, one question each, `quality` what must hold of the input
for an answer to mean anything, `jobs` the steps in order and nothing else. It imports none of
our other packages: a judge written twice, in two ways, that must agree with itself.
"""
