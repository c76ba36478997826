"""Claims about streams: every offset once, the same at every node, and nothing twice. Pure.

A stream keeps what is read, so each consumer gets everything, and acknowledgements say nothing.
At the end the whole stream is read through every node: a get each message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.facts import Facts, Finding
from chaos.history import Event


def missing(facts: Facts) -> list[Event]:
    """Publishes that were confirmed and whose message a node does not have in the end."""
    seen: dict[str, set[str]] = {
        event.node: set() for event in facts.events if event.op == "drain" and event.type == "ok"
    }
    for event in facts.events:
        if event.op == "get" and event.node in seen:
            seen[event.node].add(event.msg_id)
    sent = (facts.published.get(op_id) for op_id in sorted(facts.confirmed))
    return [
        publish for publish in sent
        if publish is not None and any(publish.msg_id not in node for node in seen.values())
    ]  # fmt: skip


def hole(facts: Facts) -> Iterator[Finding]:
    """One consumer's offsets count on; what reads everything begins at 0.

    Nothing is dropped in a run: the stream has no limit.
    """
    if facts.options.queue != "stream":
        return
    before: dict[tuple[str, str], int] = {}
    told: set[tuple[str, str]] = set()
    for event in _read(facts):
        reader = event.queue, event.consumer_tag
        expected = before.get(reader, -1 if event.op == "get" else event.stream_offset - 1) + 1
        before[reader] = event.stream_offset
        if event.stream_offset != expected and reader not in told:
            told.add(reader)
            text = f"offset {event.stream_offset} in place of {expected}"
            yield Finding("hole", event.consumer_tag, event.queue, text)


def stored_twice(facts: Facts) -> Iterator[Finding]:
    """A message has one offset: publishers send again under the number of the first time."""
    if facts.options.queue != "stream":
        return
    for copy, deliveries in sorted(facts.deliveries.items()):
        offsets = sorted({event.stream_offset for event in deliveries})
        if len(offsets) > 1:
            yield Finding("stored-twice", copy.msg_id, copy.queue, f"at {offsets}")


def differs(facts: Facts) -> Iterator[Finding]:
    """An offset has one message, whoever reads it wherever and whenever."""
    if facts.options.queue != "stream":
        return
    found: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for event in _read(facts):
        found[event.queue, event.stream_offset].add((event.msg_id, event.body_crc))
    for (queue, offset), messages in sorted(found.items()):
        if len(messages) > 1:
            names = ", ".join(sorted(msg_id for msg_id, _ in messages))
            yield Finding("differs", str(offset), queue, names)


def _read(facts: Facts) -> Iterator[Event]:
    return (event for event in facts.events if event.op in ("deliver", "get"))
