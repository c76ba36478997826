"""A node says how long the turns of its event loop are."""

from __future__ import annotations

import itertools
import random

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.nodes import Node, wait_until
from tests.wire.raw import BODY, Raw, content_header, frame

BINDINGS = 150
WORDS = 120


def test_a_long_turn_is_shown_and_named(node: Node, name: str) -> None:
    """One message that is matched with 150 long patterns at once cannot be cut into turns.

    `a` matches both words of a pattern, so the patterns share nothing, and behind the `#` each of
    them can begin at every word of the key.
    """
    rng = random.Random(7)
    before = node.api("GET", f"/nodes/{node.user_name}")["event_loop"]
    with Raw(node.amqp_port).to_channel() as raw:
        raw.call(1, spec.ExchangeDeclare(exchange=name, type="topic"), spec.ExchangeDeclareOk)
        raw.call(1, spec.QueueDeclare(queue=name, exclusive=True), spec.QueueDeclareOk)
        for _ in range(BINDINGS):
            pattern = ".".join(["#", *rng.choices("a*", k=WORDS)])
            raw.call(1, spec.QueueBind(name, name, pattern), spec.QueueBindOk)
        keys = (".".join(["a"] * WORDS + [f"x{number}"]) for number in itertools.count())

        def is_shown() -> bool:
            publish = method_frame(1, spec.BasicPublish(name, next(keys)))  # routes are cached
            raw.send(publish + content_header(1, 1) + frame(BODY, 1, b"x"))
            raw.call(1, spec.QueueDeclare(name, passive=True), spec.QueueDeclareOk)
            facts = node.api("GET", f"/nodes/{node.user_name}")["event_loop"]
            assert facts["longest_turn_ms"] >= facts["longest_own_ms"] >= facts["longest_busy_ms"]
            is_long = facts["longest_busy_ms"] > 100
            return is_long and facts["long_turns"] > before["long_turns"]

        wait_until(is_shown, "the node shows a turn that took over 100 ms of processor time")

        def is_named() -> bool:
            is_shown()
            lines = [line for line in node.log().splitlines() if "loop.turn_long" in line]
            return any("broker.routing.topic" in line for line in lines)

        wait_until(is_named, "the log names what such a turn did")
        raw.call(1, spec.ExchangeDelete(name), spec.ExchangeDeleteOk)
