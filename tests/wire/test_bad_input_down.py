"""Requests for queues whose node is down are refused in time.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until
from tests.wire.raw import Raw
from tests.wire.refusals import refused, whole
from tests.wire.test_bad_input import serves

ANSWER_WITHIN_S = 8.0
"""Five seconds, and what two busy cores may add."""

METHODS = [
    spec.QueueDeclare("{}", passive=True),
    spec.BasicConsume("{}"),
    spec.BasicGet("{}"),
    spec.QueuePurge("{}"),
]


@pytest.fixture(scope="module")
def maimed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node of a cluster that has lost one, with a classic and a quorum queue that lived there."""
    three = Trio(tmp_path_factory.mktemp("maimed"))
    try:
        three.start()
        gone = three.nodes[2]
        with Raw(gone.amqp_port).to_channel() as raw:
            raw.call(1, spec.QueueDeclare("bad.94", durable=True), spec.QueueDeclareOk)
            alone: dict[str, object] = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}
            method = spec.QueueDeclare("bad.95", durable=True, arguments=alone)
            raw.call(1, method, spec.QueueDeclareOk)
        gone.kill()
        asked = three.nodes[0]

        def is_noticed() -> bool:
            nodes = asked.api("GET", "/nodes")
            return not next(each["running"] for each in nodes if each["name"] == gone.user_name)

        wait_until(is_noticed, "the dead node is noticed")
        yield asked
    finally:
        three.end()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_94_a_queue_on_a_node_that_is_down(maimed: Node, method: spec.Method) -> None:
    """Case 94.

    Rows: 1.3 Durable non-mirrored queue on dead node
    """
    method.queue = "bad.94"  # type: ignore[attr-defined]
    with Raw(maimed.amqp_port).to_channel() as raw:
        text = (
            "NOT_FOUND - home node 'rabbit@node3' of durable queue 'bad.94' in vhost '/' is down "
            "or inaccessible"
        )
        refused(raw, method, 404, text)
    serves(maimed)


def test_95_a_quorum_queue_without_a_leader(maimed: Node) -> None:
    """Case 95: 404 or 541 after five seconds, or an answer; other queues work meanwhile.

    Each is asked by a client of its own, all at once.
    """
    with ExitStack() as stack:
        asked = []
        start = time.monotonic()
        for method in METHODS:
            method.queue = "bad.95"  # type: ignore[attr-defined]
            raw = stack.enter_context(Raw(maimed.amqp_port).to_channel())
            raw.socket.settimeout(ANSWER_WITHIN_S * lateness())
            raw.send(method_frame(1, method))
            asked.append(raw)
        serves(maimed)
        for raw in asked:
            found = raw.read()
            assert time.monotonic() - start < ANSWER_WITHIN_S * lateness()
            assert found is not None
            answer = found.method
            if isinstance(answer, spec.ChannelClose | spec.ConnectionClose):
                assert answer.reply_code in (404, 541), answer
    serves(maimed)


def test_95_publishing_to_it_is_not_confirmed(maimed: Node) -> None:
    """Case 95: what nobody can keep is nacked or goes unanswered, never acknowledged."""
    with Raw(maimed.amqp_port).to_channel() as raw:
        raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
        raw.send(whole("bad.95"))
        raw.socket.settimeout(3.0)
        try:
            found = raw.read()
        except TimeoutError:
            found = None
        assert found is None or isinstance(found.method, spec.BasicNack)
    serves(maimed)
