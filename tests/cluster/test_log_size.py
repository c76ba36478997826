"""What each node's disk has while one message of a quorum queue is held and many pass it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any, Final

import pytest

from tests.embedded.test_log_size import disk_bytes
from tests.nodes import Trio

QUEUE: Final = "held"
LOOK_S: Final = 0.1
DISK_BYTES: Final = 150_000_000
"""Two segments of the log, what comes until it is made smaller, the tail's files, the store."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(400_000, marks=pytest.mark.long),
        pytest.param(2_000_000, marks=pytest.mark.soak),
    ],
)
def test_a_message_that_is_held_keeps_no_more_log_on_any_node(own_trio: Trio, count: int) -> None:
    """As fast as the nodes take them: messages of 1 KB, with confirms, consumed and acked."""
    first = own_trio.nodes[0]
    with first.connect(heartbeat=0) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_publish("", QUEUE, b"held")
        channel.basic_qos(prefetch_count=1)
        held: Any = next(channel.consume(QUEUE, inactivity_timeout=30))
        assert held[2] == b"held"
        uri = f"amqp://127.0.0.1:{first.amqp_port}"
        options = f"-p -u {QUEUE} -s 1000 -f persistent -c 1000 -q 1000 -A 50 -C {count} -D {count}"
        command = [sys.executable, "-m", "broker", "perf", "-h", uri, *options.split()]
        most = dict.fromkeys([node.name for node in own_trio.nodes], 0)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as load:
            is_over = False
            while not is_over:
                for node in own_trio.nodes:
                    now = disk_bytes(str(node.directory / "data"))
                    most[node.name] = max(most[node.name], now)
                with suppress(subprocess.TimeoutExpired):
                    load.wait(LOOK_S)
                    is_over = True
        assert load.returncode == 0
    assert max(most.values()) < DISK_BYTES
