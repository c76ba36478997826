"""The witness client of the attack tests reports what it should."""

from __future__ import annotations

import signal
import time

import pytest

from tests.cluster.witness import QUEUE, RATE_PER_S, witness
from tests.nodes import Node, Trio, wait_until


def test_a_quiet_node_confirms_all_in_time(trio: Trio):
    node = trio.nodes[0]
    with witness(node) as seen:
        path = f"/queues/%2F/{QUEUE}"
        wait_until(lambda: node.api("GET", path)["messages"] >= RATE_PER_S, "a second of publishes")
    assert len(seen.latencies_ms) >= RATE_PER_S
    seen.claim()


def test_a_node_that_stands_still_is_seen(node: Node):
    with witness(node) as seen:
        node.send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # the attack; the claim is about its length
        node.send_signal(signal.SIGCONT)
    assert seen.gap_s >= 1.4
    with pytest.raises(AssertionError):
        seen.claim(gap_s_max=0.2)
