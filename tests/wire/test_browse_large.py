"""Looking through a stream of millions of messages (docs/bad-input.md)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine import lateness
from tests.nodes import Node
from tests.wire.pulse import Pulse, rss_bytes
from tests.wire.test_browse import browse

MIB = 1 << 20
BODY_BYTES = 100
LOOKED_AT_MAX = 20_000
"""Messages that one request looks at."""
STALL_MAX_S = 0.25
GROWN_BYTES_MAX = 60 * MIB


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Node]:
    node = Node("millions", tmp_path / "millions")
    try:
        node.start()
        yield node
    finally:
        node.end()


def fill(node: Node, queue: str, count: int) -> None:
    uri = f"amqp://127.0.0.1:{node.amqp_port}"
    options = f"-u {queue} -qa x-queue-type=stream -ad false -f persistent -y 0 -c 2000 -C {count}"
    words = ["perf", "-h", uri, "-s", str(BODY_BYTES), *options.split()]
    subprocess.run([sys.executable, "-m", "broker", *words], stdout=subprocess.DEVNULL, check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(300_000, id="300,000"),
        pytest.param(10_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)], id="10M"),
    ],
)
def test_every_place_of_it_is_found_at_once_and_no_client_waits(own: Node, count: int) -> None:
    """At its ends, in its middle and by time; a search that finds nothing says how far it came."""
    half = count // 2
    fill(own, "millions", half)
    with own.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "millions", b"the needle")
    fill(own, "millions", half)
    assert own.process is not None
    before = rss_bytes(own.process.pid)
    with Pulse(own.amqp_port, own.process.pid) as pulse:
        for offset, found in {"first": 0, half: half, half + 7: half + 7, "last": None}.items():
            status, answer = browse(own, "millions", count=3, offset=offset)
            assert status == 200, answer
            offsets = [each["offset"] for each in answer["messages"]]
            assert offsets
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
            if found is None:
                # The last chunk's first message, as for consumers.
                assert count - 5_000 < offsets[0] <= count
            else:
                assert offsets[0] == found
        middle = browse(own, "millions", count=1, offset=half)[1]["messages"]
        assert [each["payload"] for each in middle] == ["the needle"]
        at = middle[0]["timestamp_ms"]
        begun = browse(own, "millions", count=1, timestamp=at)[1]["messages"]
        assert half - 5_000 < begun[0]["offset"] <= half
        looked_at = 0
        after = ""
        for _ in range(5):
            status, answer = browse(own, "millions", body="no such text", after=after)
            assert (status, answer["messages"]) == (200, [])
            assert answer["stopped"] in {"scanned", "time", "bytes"}
            assert 0 < answer["scanned"] <= LOOKED_AT_MAX
            looked_at += answer["scanned"]
            after = answer["next"]
        resumed = browse(own, "millions", count=1, after=after)[1]["messages"]
        assert resumed[0]["offset"] == looked_at, "nothing is left out between two requests"
        near = half - LOOKED_AT_MAX // 2
        answer = browse(own, "millions", count=1, offset=near, body="needle")[1]
        assert [each["payload"] for each in answer["messages"]] == ["the needle"]
        assert pulse.stall_s() < STALL_MAX_S * lateness()
    assert rss_bytes(own.process.pid) - before < GROWN_BYTES_MAX
