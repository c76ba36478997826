"""Failures that stop a whole node."""

from __future__ import annotations

import subprocess
import sys

from broker.config import Listener, Settings
from broker.node import EXIT_METADATA_FAILED, Node


def test_a_node_whose_group_0_failed_ends() -> None:
    """It would have no lease ever again, and nobody would start it anew (P4)."""
    node = Node(Settings())
    node._group_failed(7, ValueError("a queue's replica"))
    assert not node._stopping.is_set()
    node._group_failed(0, ValueError("group 0"))
    assert node._stopping.is_set()
    assert node._exit_code == EXIT_METADATA_FAILED


def test_a_collection_in_the_loop_does_not_walk_the_modules() -> None:
    """56,000 objects of theirs took 44 ms in the turn in which a node said that it serves."""
    program = """
import gc
import subprocess
import sys

from broker.config import Listener, Settings
from broker.node import run

def started(_node):
    print(len(gc.get_objects()))
    raise SystemExit

run(Settings(), started)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert int(done.stdout) < 2_000, done.stderr


def test_the_end_of_the_start_says_where_to_connect() -> None:
    settings = Settings(
        amqp_listeners=(Listener("", 5672), Listener("::1", 5673)),
        amqp_tls_listeners=(Listener("10.0.0.7", 5671),),
        management_listener=None,
        management_tls_listener=Listener("0.0.0.0", 15671),
        metrics_listener=None,
    )
    assert settings.urls() == [
        "amqp://localhost:5672",
        "amqp://[::1]:5673",
        "amqps://10.0.0.7:5671",
        "https://localhost:15671",
    ]
    assert Settings().urls() == [
        "amqp://localhost:5672",
        "http://localhost:15672",
        "http://localhost:15692/metrics",
    ]
