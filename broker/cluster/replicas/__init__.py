"""The replicas of quorum queues: their number, and repair without an operator (decision 0050).

`target` says how many a queue should have, `plan` which step brings it there (both pure), `repair`
carries the steps out on the node that leads the queue.
"""
