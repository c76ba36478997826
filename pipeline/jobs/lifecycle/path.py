"""One message's path: its copies of a trace in their order, and what became of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

ACKED: Final = "acked"
TAKEN: Final = "delivered without ack"
REJECTED: Final = "rejected"
REQUEUED: Final = "requeued"
HELD: Final = "held, no ack seen"
WAITING: Final = "waiting"
UNROUTABLE: Final = "unroutable"
SETTLED: Final = {"ack": ACKED, "requeue": REQUEUED, "reject": REJECTED}
"""What the first word of a copy's routing key says of a delivery."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Step(NamedTuple):
    """One thing that happened to a message.

    Attributes:
        place: Offset of its copy in the trace.
        kind: "publish", "deliver", "ack", "requeue" or "reject".
        at_us: When, microseconds since the epoch; None in a copy without a time (RabbitMQ's).
        received_us: Of a publish: when its node had read it.
        exchange: It was published to.
        routing_key: Likewise.
        queue: It was in; None of a publish.
        queues: Of a publish: where it went.
        number: In the queue.
        is_redelivered: Of a delivery: not the first.
        no_ack: Of a delivery: no acknowledgement is awaited.
        dead_letter_exchange: Of a rejection: where it went on to.
        node: Where it happened.
        connection: Likewise.
        channel: Likewise.
        user: Who did it.
    """

    place: int
    kind: str
    at_us: int | None = None
    received_us: int | None = None
    exchange: str | None = None
    routing_key: str | None = None
    queue: str | None = None
    queues: Sequence[str] | None = None
    number: int | None = None
    is_redelivered: bool | None = None
    no_ack: bool | None = None
    dead_letter_exchange: str | None = None
    node: str | None = None
    connection: str | None = None
    channel: int | None = None
    user: str | None = None


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Steps by time; those of one time, or without one, by their places."""
    return sorted(steps, key=lambda step: (step.at_us or 0, step.place))


def lines(steps: Iterable[Step]) -> list[tuple[str, float | None, str, str, str]]:
    """What happened, a line each.

    Args:
        steps: Of one message.

    Returns:
        The time in UTC, milliseconds since it was published (since the first step where that is
        not in the trace), what happened, the node, and who did it where.
    """
    ordered = in_order(steps)
    first_us = next((step.received_us or step.at_us for step in ordered if step.at_us), None)
    return [
        (
            "" if step.at_us is None else time_of(step.at_us),
            None if step.at_us is None or first_us is None else (step.at_us - first_us) / 1000,
            _said(step),
            step.node or "",
            f"{step.user} by {step.connection}, channel {step.channel}",
        )
        for step in ordered
    ]


def time_of(at_us: int) -> str:
    """A time in UTC, to the microsecond."""
    return f"{_EPOCH + timedelta(microseconds=at_us):%Y-%m-%d %H:%M:%S.%f}"


def states(steps: Iterable[Step]) -> dict[str | None, str]:
    """What became of a message in each queue, by the last that the trace says.

    Args:
        steps: Of one message.

    Returns:
        Queue -> one of the words above; the key is None where it was routed to no queue.
    """
    found: dict[str | None, str] = {}
    deliveries: dict[tuple[object, ...], Step] = {}
    last: dict[str, int] = {}
    for step in sorted(steps, key=lambda step: step.place):
        if step.kind == "publish":
            for queue in step.queues or (None,):
                found.setdefault(queue, UNROUTABLE if queue is None else WAITING)
            continue
        if step.queue is None:
            continue
        of = (step.queue, step.number, step.node, step.connection, step.channel)
        if step.kind == "deliver":
            deliveries[of] = step
            last[step.queue] = step.place
            found[step.queue] = TAKEN if step.no_ack else HELD
        elif of in deliveries and deliveries.pop(of).place == last[step.queue]:
            found[step.queue] = SETTLED[step.kind]
    return found


def _said(step: Step) -> str:
    if step.kind == "publish":
        to = f"exchange '{step.exchange}'" if step.exchange else "the default exchange"
        went = ", ".join(step.queues or ()) or "no queue"
        return f"published to {to} with key '{step.routing_key}', routed to {went}"
    if step.kind == "deliver":
        again = " again" if step.is_redelivered else ""
        ends = ", no ack awaited" if step.no_ack else ""
        return f"delivered{again} from '{step.queue}'{ends}"
    if step.kind == "reject" and step.dead_letter_exchange is not None:
        to = step.dead_letter_exchange or "the default exchange"
        return f"rejected in '{step.queue}', dead-lettered to {to}"
    return f"{SETTLED.get(step.kind, step.kind)} in '{step.queue}'"
