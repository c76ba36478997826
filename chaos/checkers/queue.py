"""Claims about messages: nothing is lost, invented, damaged or brought back. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from chaos.checkers import stream
from chaos.checkers.facts import Copy, Facts, Finding
from chaos.history import Event

_LATE_US = 1_000_000


def lost(facts: Facts) -> Iterator[Finding]:
    """Confirmed, and never acked by the end of a complete drain, where that is not allowed.

    Source:
        Jepsen total-queue: a run that was not drained says nothing about loss.
    """
    lacking = _undrained(facts)
    if lacking:
        yield Finding("undrained", "drain", detail=lacking)
        return
    if facts.options.queue == "stream":
        for publish in stream.missing(facts):
            text = f"confirmed through {publish.node}, not read through every node"
            yield Finding("lost", publish.msg_id, publish.queue, text)
        return
    for publish in missing(facts):
        if publish.ts_us >= facts.joined_us:
            came = len(facts.deliveries.get(Copy(publish.queue, publish.msg_id), ()))
            yield Finding(
                "lost",
                publish.msg_id,
                publish.queue,
                f"confirmed through {publish.node}, delivered {came} times, never acked",
            )


def _undrained(facts: Facts) -> str:
    """Yield the drains through nodes, and the nodes' depths, that the end of the run lacks."""
    drains = [event for event in facts.events if event.op == "drain"]
    failed = [event for event in drains if event.type != "ok"]
    if failed:
        return failed[0].code or "failed"
    if not drains:
        return "no drain"
    measured = {event.node for event in facts.events if event.op == "depth"}
    drained = {event.node for event in drains}
    used = {event.node for event in facts.events if event.op in ("publish", "deliver")}
    lacking = (used | drained | measured) - (drained & measured)
    return f"no drain or no depth of {', '.join(sorted(lacking))}" if lacking else ""


def missing(facts: Facts) -> list[Event]:
    """Publishes that were confirmed and whose message nobody acked.

    It never came; or who got it gave it back, or died, and it did not come again. An ack that
    may have been swallowed counts as one: it may have reached the broker.
    """
    sent = (facts.published.get(op_id) for op_id in sorted(facts.confirmed))
    return [
        publish for publish in sent
        if publish is not None and (publish.queue, publish.msg_id) not in facts.acks
    ]  # fmt: skip


def depth(facts: Facts) -> Iterator[Finding]:
    """Messages left after the drain: held by nobody, deliverable to nobody."""
    for event in facts.events:
        if event.op == "depth" and event.size > 0:
            yield Finding("depth", event.node, event.queue, f"{event.size} messages after drain")


def phantom(facts: Facts) -> Iterator[Finding]:
    """Delivered, and never published; or with another body."""
    for copy, deliveries in sorted(facts.deliveries.items()):
        publish = facts.by_copy.get(copy)
        if publish is None:
            yield Finding("phantom", copy.msg_id, copy.queue, f"came to {deliveries[0].recorder}")
            continue
        damaged = [event for event in deliveries if event.body_crc != publish.body_crc]
        if damaged:
            yield Finding(
                "corrupt",
                copy.msg_id,
                copy.queue,
                f"crc {damaged[0].body_crc:08x} at {damaged[0].recorder},"
                f" published {publish.body_crc:08x}",
            )


def refused(facts: Facts) -> Iterator[Finding]:
    """Returned though its queue exists all along; or delivered though it was refused."""
    for op_id in sorted(facts.refused):
        publish = facts.published.get(op_id)
        if publish is None:
            yield Finding("unroutable", op_id)
        elif (publish.queue, publish.msg_id) in facts.deliveries:
            yield Finding("aborted", publish.msg_id, publish.queue, "refused, then delivered")
        else:
            yield Finding("unroutable", publish.msg_id, publish.queue, "returned")


def duplicated(facts: Facts) -> Iterator[Finding]:
    """Delivered after it was acked, where no fault can have swallowed the ack."""
    if facts.options.queue == "stream":  # each consumer gets everything
        return
    for copy, acks in sorted(facts.acks.items()):
        sure = [ack.ts_us for ack in acks if not facts.is_ack_uncertain(ack)]
        deliveries = facts.deliveries.get(copy)
        if not sure or not deliveries:
            continue
        late = deliveries[-1]
        if late.ts_us > min(sure):
            after_ms = (late.ts_us - min(sure)) // 1000
            yield Finding(
                "duplicated", copy.msg_id, copy.queue, f"{after_ms} ms after its ack, {late.node}"
            )


def flag(facts: Facts) -> Iterator[Finding]:
    """Delivered more than once without the redelivered flag.

    Which delivery came first is not asked: a client may read late what was sent early. Of all
    deliveries of a copy at most one can be the first.
    """
    if facts.options.queue == "stream":  # each consumer gets everything
        return
    for copy, deliveries in sorted(facts.deliveries.items()):
        fresh = [event for event in deliveries if not event.redelivered]
        if len(fresh) > 1:
            where = ", ".join(f"{event.consumer_tag} on {event.node}" for event in fresh)
            yield Finding("flag", copy.msg_id, copy.queue, f"not redelivered for {where}")


def held_twice(facts: Facts) -> Iterator[Finding]:
    """Delivered while another consumer holds it, with no fault near.

    Held until it is acked or given back, or the holder's connection ends. A holder may learn a
    second late that its connection ended.

    Source:
        docs/chaos.md, held-twice; P24 (docs/protocol-rules.md): beside a fault an old master may
        still deliver.
    """
    if facts.options.queue == "stream":  # each consumer gets everything
        return
    for copy, deliveries in sorted(facts.deliveries.items()):
        for first, second in pairwise(deliveries):
            until_us = _released_us(facts, copy, first)
            is_held = until_us is None or until_us > second.ts_us + _LATE_US
            if is_held and not facts.is_disturbed(second.ts_us, second.ts_us):
                yield Finding(
                    "held-twice",
                    copy.msg_id,
                    copy.queue,
                    f"held by {first.consumer_tag}, delivered to {second.consumer_tag}",
                )
                break


def _released_us(facts: Facts, copy: Copy, delivery: Event) -> int | None:
    """When a delivery was acked, given back, or lost with its connection; None if never."""
    moments = [
        event.ts_us for event in facts.releases.get(copy, ())
        if event.consumer_tag == delivery.consumer_tag and event.ts_us >= delivery.ts_us
    ]  # fmt: skip
    ended_us = facts.ended_connections.get(delivery.connection)
    return min(moments, default=ended_us)
