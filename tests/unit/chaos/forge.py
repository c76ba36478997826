"""Forged histories: a clean one with a fault, and a mutation for each kind of violation.

Shared by the tests of the pure checkers and of the Spark audit: both must say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from chaos.history import Event
from chaos.options import Options

OPTIONS = Options(
    queue="quorum", fault="kill-leader", seed=1, seconds=20, confirmed_min=20,
    confirmed_in_faults_min=5, delivered_after_min=1,
)  # fmt: skip
QUEUE = "q"
FAULT_US, HEAL_US, END_US = 10_000_000, 19_500_000, 25_000_000
STEP_US = 250_000
CONFIRM_US, DELIVER_US, ACK_US = 10_000, 20_000, 30_000
OUTAGE_US = 3_000_000


class Forge:
    """Collects events, numbering them for each recorder."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._numbers: dict[str, int] = {}

    def add(self, recorder: str, ts_us: int, op: str, type_: str, **columns: object) -> None:
        number = self._numbers[recorder] = self._numbers.get(recorder, 0) + 1
        epoch = int(ts_us > FAULT_US + OUTAGE_US)
        self.events.append(
            Event(
                run_id="forged", recorder=recorder, event_no=number, ts_us=ts_us, op=op,
                type=type_, epoch=epoch, **columns,
            )
        )  # fmt: skip

    def publish(self, publisher: str, seq: int, ts_us: int, confirm_us: int | None) -> None:
        label = f"{publisher}.1"
        about = {
            "op_id": f"{label}/{seq}", "node": "n1", "queue": QUEUE, "routing_key": QUEUE,
            "connection": label, "channel": 1, "publisher": label, "seq": seq,
            "msg_id": f"{label}|{seq}",
        }  # fmt: skip
        self.add(publisher, ts_us, "publish", "invoke", **about, size=100, body_crc=crc(label, seq))
        if confirm_us is None:
            self.add(publisher, ts_us + 1, "unknown", "info", **about, code="connection lost")
        else:
            self.add(publisher, confirm_us, "confirm", "ok", **about, delivery_tag=seq)

    def deliver(
        self, consumer: str, publisher: str, seq: int, ts_us: int, *, again: bool = False,
        then: str = "ack", op: str = "deliver", attachment: int = 1,
    ) -> None:  # fmt: skip
        label, tag = f"{publisher}.1", f"{consumer}.{attachment}"
        about = {
            "node": "n2", "queue": QUEUE, "connection": tag, "channel": 1, "consumer_tag": tag,
            "msg_id": f"{label}|{seq}", "delivery_tag": 1,
        }  # fmt: skip
        self.add(
            consumer, ts_us, op, "ok", **about, publisher=label, seq=seq, redelivered=again,
            body_crc=crc(label, seq), size=100,
        )  # fmt: skip
        if then:
            self.add(consumer, ts_us + ACK_US - DELIVER_US, then, "ok", **about)


def crc(publisher: str, seq: int) -> int:
    return hash_of(f"{publisher}/{seq}")


def hash_of(text: str) -> int:
    return sum(ord(letter) * 31**i for i, letter in enumerate(text)) % 2**32


def clean() -> list[Event]:
    """Two publishers, two consumers, one killed leader, all promises held.

    With it: an unknown publish that landed and one that did not, a message given back, an ack
    that the fault swallowed, a message the drain found.
    """
    forge = Forge()
    forge.add("nemesis", 1, "load", "invoke")
    forge.add("watch", 2, "epoch", "info", node="n1", queue=QUEUE)
    for seq in range(1, 91):
        at = seq * STEP_US
        for publisher, consumer in (("p1", "c1"), ("p2", "c2")):
            if FAULT_US <= at < FAULT_US + OUTAGE_US:
                if at == FAULT_US:
                    forge.publish(publisher, seq, at, None)
                continue
            forge.publish(publisher, seq, at, at + CONFIRM_US)
            if (publisher, seq) == ("p2", 90):
                forge.deliver("drain", publisher, seq, END_US + 1_000_000, op="get")
            elif (publisher, seq) == ("p1", 8):
                forge.deliver(consumer, publisher, seq, at + DELIVER_US, then="requeue")
                forge.deliver("c2", publisher, seq, at + DELIVER_US + 50_000, again=True)
            else:
                forge.deliver(consumer, publisher, seq, at + DELIVER_US)
    fault = {"op_id": "fault-1", "node": "n1", "queue": QUEUE, "code": "kill-leader"}
    forge.add("nemesis", FAULT_US, "fault_start", "info", **fault)
    forge.add("nemesis", FAULT_US + 1, "effect", "info", **{**fault, "code": "gone"}, size=1)
    forge.add("watch", FAULT_US + OUTAGE_US - 500_000, "epoch", "info", node="n2", queue=QUEUE)
    landed = FAULT_US // STEP_US
    forge.deliver("c1", "p1", landed, FAULT_US + OUTAGE_US, attachment=2)
    swallowed = (FAULT_US - 1_000_000) // STEP_US
    forge.deliver("c2", "p1", swallowed, FAULT_US + OUTAGE_US, again=True)
    forge.add("nemesis", HEAL_US, "fault_end", "info", **fault)
    forge.add("nemesis", END_US - 2, "health", "ok")
    forge.add("nemesis", END_US - 1, "load", "ok")
    for node in ("n1", "n2", "n3"):
        forge.add("drain", END_US + 2_000_000, "drain", "ok", node=node, queue=QUEUE)
        forge.add("drain", END_US + 3_000_000, "depth", "ok", node=node, queue=QUEUE)
    return renumbered(forge.events)


def renumbered(events: Iterable[Event]) -> list[Event]:
    """By recorder and time, counted anew: nobody sees that a row came or went."""
    ordered = sorted(events, key=lambda event: (event.recorder, event.ts_us, event.event_no))
    numbers: dict[str, int] = {}
    out = []
    for event in ordered:
        numbers[event.recorder] = numbers.get(event.recorder, 0) + 1
        out.append(msgspec.structs.replace(event, event_no=numbers[event.recorder]))
    return out


def find(events: list[Event], op: str, msg_id: str = "", recorder: str = "") -> Event:
    return next(
        event for event in events
        if event.op == op and msg_id in ("", event.msg_id) and recorder in ("", event.recorder)
    )  # fmt: skip


def changed(events: list[Event], event: Event, **columns: object) -> list[Event]:
    new = msgspec.structs.replace(event, **columns)
    return renumbered(new if item is event else item for item in events)


def drop_delivered(events: list[Event], seq: int = 5) -> list[Event]:
    return renumbered(
        event for event in events
        if event.msg_id != f"p1.1|{seq}" or event.op not in ("deliver", "ack")
    )  # fmt: skip


def lost_unacked(events: list[Event], seq: int = 5) -> list[Event]:
    """Its holder's connection ends before the ack; it never comes again."""
    ack = find(events, "ack", f"p1.1|{seq}")
    lost = {"op": "close", "type": "info", "msg_id": "", "queue": "", "consumer_tag": ""}
    return changed(events, ack, **lost)


def lost_requeued(events: list[Event], seq: int = 5) -> list[Event]:
    """Given back; it never comes again."""
    return changed(events, find(events, "ack", f"p1.1|{seq}"), op="requeue")


def phantom(events: list[Event]) -> list[Event]:
    """A delivery of something nobody sent, and its ack."""
    ghost = "p9.1|1"
    delivery = find(events, "deliver", "p1.1|3")
    return renumbered(
        [
            *events,
            msgspec.structs.replace(delivery, msg_id=ghost, publisher="p9.1", seq=1),
        ]
    )


def corrupt(events: list[Event], seq: int = 5) -> list[Event]:
    return changed(events, find(events, "deliver", f"p1.1|{seq}"), body_crc=1)


def reorder(events: list[Event], seq: int = 5) -> list[Event]:
    """Two deliveries of one publisher to one consumer, the other way round, each then acked."""
    first, second = (
        find(events, "deliver", f"p1.1|{seq}"),
        find(events, "deliver", f"p1.1|{seq + 1}"),
    )
    swapped = {
        id(first): msgspec.structs.replace(
            second, ts_us=first.ts_us, event_no=first.event_no
        ),
        id(second): msgspec.structs.replace(
            first, ts_us=second.ts_us, event_no=second.event_no
        ),
    }  # fmt: skip
    later, earlier = find(events, "ack", second.msg_id), find(events, "ack", first.msg_id)
    swapped[id(later)] = msgspec.structs.replace(later, ts_us=earlier.ts_us)
    swapped[id(earlier)] = msgspec.structs.replace(earlier, ts_us=later.ts_us)
    return renumbered(swapped.get(id(event), event) for event in events)


def dup_after_ack(events: list[Event], seq: int = 5) -> list[Event]:
    """Acked five seconds before the fault, delivered again after it."""
    old = find(events, "deliver", f"p1.1|{seq}")
    again = msgspec.structs.replace(
        old, recorder="c2", consumer_tag="c2.1", connection="c2.1",
        ts_us=FAULT_US + OUTAGE_US, redelivered=True,
    )  # fmt: skip
    return renumbered([*events, again])


def flag_missing(events: list[Event]) -> list[Event]:
    return changed(events, find(events, "deliver", "p1.1|8", "c2"), redelivered=False)


def dup_after_change(events: list[Event]) -> list[Event]:
    """Acked to the next leader while the old one is still down, and delivered again."""
    seq = (FAULT_US + OUTAGE_US + 4_000_000) // STEP_US
    old = find(events, "deliver", f"p1.1|{seq}")
    again = msgspec.structs.replace(
        old, recorder="c2", consumer_tag="c2.1", connection="c2.1", ts_us=old.ts_us + 500_000,
        redelivered=True,
    )  # fmt: skip
    return renumbered([*events, again])


def held_twice(events: list[Event], seq: int = 5) -> list[Event]:
    """Not acked by the one who has it, and delivered to another who acks it."""
    ack = find(events, "ack", f"p1.1|{seq}")
    old = find(events, "deliver", f"p1.1|{seq}")
    again = msgspec.structs.replace(
        old, recorder="c2", consumer_tag="c2.1", connection="c2.1", ts_us=old.ts_us + 90_000,
        redelivered=True,
    )  # fmt: skip
    moved = msgspec.structs.replace(
        ack, recorder="c2", consumer_tag="c2.1", connection="c2.1", ts_us=old.ts_us + 91_000
    )
    return renumbered([*(event for event in events if event is not ack), again, moved])


def double_confirm(events: list[Event], seq: int = 5) -> list[Event]:
    confirm = find(events, "confirm", f"p1.1|{seq}")
    return renumbered([*events, msgspec.structs.replace(confirm, ts_us=confirm.ts_us + 1)])


def unasked_confirm(events: list[Event], seq: int = 5) -> list[Event]:
    confirm = find(events, "confirm", f"p1.1|{seq}")
    stray = msgspec.structs.replace(confirm, op_id="p1.1/999", msg_id="p1.1|999", seq=999)
    return renumbered([*events, stray])


def no_fault(events: list[Event]) -> list[Event]:
    return renumbered(
        event for event in events if not event.op.startswith("fault") and event.op != "epoch"
        and not (event.op == "deliver" and event.msg_id == "p1.1|36" and event.redelivered)
        and not (event.op == "ack" and event.msg_id == "p1.1|36" and event.ts_us > FAULT_US)
    )  # fmt: skip


def quiet_faults(events: list[Event]) -> list[Event]:
    """The fault ends before anything is confirmed again."""
    return changed(events, find(events, "fault_end"), ts_us=FAULT_US + OUTAGE_US - 400_000)


def leader_stayed(events: list[Event]) -> list[Event]:
    return renumbered(event for event in events if event.op != "epoch")


def slow_recovery(events: list[Event]) -> list[Event]:
    """Nothing confirmed for four more seconds: seven in all."""
    begin, end = FAULT_US + OUTAGE_US, FAULT_US + 7_000_000
    return renumbered(
        event for event in events
        if not (event.op == "confirm" and begin <= event.ts_us < end)
    )  # fmt: skip


def few_confirms(events: list[Event]) -> list[Event]:
    """Most publishes stay unanswered."""
    return renumbered(
        event for event in events
        if event.op != "confirm" or (event.publisher == "p1.1" and event.seq % 5 == 0)
    )  # fmt: skip


def returned(events: list[Event], seq: int = 5) -> list[Event]:
    """Sent back as unroutable, then confirmed, as RabbitMQ does; never delivered."""
    confirm = find(events, "confirm", f"p1.1|{seq}")
    back = msgspec.structs.replace(
        confirm, op="return", type="fail", ts_us=confirm.ts_us - 1, code="312 NO_ROUTE"
    )
    return renumbered([*drop_delivered(events, seq), back])


def aborted(events: list[Event], seq: int = 5) -> list[Event]:
    """Sent back, and delivered all the same."""
    confirm = find(events, "confirm", f"p1.1|{seq}")
    back = msgspec.structs.replace(
        confirm, op="return", type="fail", ts_us=confirm.ts_us - 1, code="312 NO_ROUTE"
    )
    return renumbered([*events, back])


def unanswered(events: list[Event], seq: int = 5) -> list[Event]:
    confirm = find(events, "confirm", f"p1.1|{seq}")
    return changed(events, confirm, op="unknown", type="info", code="unanswered")


def forgotten(events: list[Event], late_us: int = HEAL_US + 11_000_000) -> list[Event]:
    """Long after the heal one waits ten seconds in vain, while another is confirmed."""
    forge = Forge()
    forge.publish("p3", 1, late_us, None)
    timeout = msgspec.structs.replace(
        forge.events.pop(), ts_us=late_us + 10_100_000, code="timeout"
    )
    other_us = late_us + 8_000_000
    forge.publish("p3", 2, other_us, other_us + CONFIRM_US)
    forge.deliver("c1", "p3", 2, other_us + DELIVER_US)
    return renumbered([*events, *forge.events, timeout])


def left_over(events: list[Event]) -> list[Event]:
    return changed(events, find(events, "depth"), size=1)


def unhealthy(events: list[Event]) -> list[Event]:
    return changed(events, find(events, "health"), type="fail", code="n1 does not serve")


def undrained(events: list[Event]) -> list[Event]:
    return changed(events, find(events, "drain"), type="fail", code="connection refused")


def no_depth(events: list[Event]) -> list[Event]:
    return renumbered(event for event in events if event.op != "depth")


def drained_once(events: list[Event]) -> list[Event]:
    """Through one node alone."""
    return renumbered(event for event in events if event.op != "drain" or event.node == "n1")


def gap(events: list[Event]) -> list[Event]:
    """A row torn out, so that the numbers show it: the ack that the fault swallowed."""
    ack = find(events, "ack", "p1.1|36")
    return [event for event in events if event is not ack]


def no_effect(events: list[Event]) -> list[Event]:
    """The process did not go."""
    return changed(events, find(events, "effect"), size=0)


def no_proof(events: list[Event]) -> list[Event]:
    return renumbered(event for event in events if event.op != "effect")


def storm(events: list[Event]) -> list[Event]:
    """The leader goes to and fro while one fault lasts."""
    seen = [event for event in events if event.op == "epoch"][-1]
    more = [
        msgspec.structs.replace(seen, ts_us=seen.ts_us + turn * STEP_US, node=f"n{turn % 2 + 2}")
        for turn in range(1, 4)
    ]
    return renumbered([*events, *more])


def starved(events: list[Event]) -> list[Event]:
    """Two consumers are attached after the heal, and only one gets anything."""
    delivery = find(events, "deliver", "p1.1|90")
    attached = [
        msgspec.structs.replace(
            delivery, op="consume", ts_us=HEAL_US, recorder=name, msg_id="", publisher="", seq=0
        )
        for name in ("c1", "c3")
    ]  # fmt: skip
    return renumbered([*events, *attached])


def nobody_served(events: list[Event]) -> list[Event]:
    """What is published after the heal comes to the drain alone."""
    drain = {"recorder": "drain", "connection": "drain.n1", "consumer_tag": "drain.n1"}
    for op, now in (("deliver", "get"), ("ack", "ack")):
        late = find(events, op, "p1.1|90")
        events = changed(events, late, **drain, op=now, ts_us=late.ts_us + END_US)
    return events


def joined(events: list[Event], at_us: int, role: str) -> list[Event]:
    """The next leader was a mirror before: since when, and as what."""
    seen = find(events, "epoch")
    return renumbered(
        [
            *events,
            msgspec.structs.replace(seen, op="member", node="n2", ts_us=at_us, code=role),
        ]
    )


Mutation = Callable[..., list[Event]]

MUTATIONS: dict[str, tuple[Mutation, tuple[str, str]]] = {
    "drop delivered": (drop_delivered, ("lost", "p1.1|5")),
    "lost unacked": (lost_unacked, ("lost", "p1.1|5")),
    "lost requeued": (lost_requeued, ("lost", "p1.1|5")),
    "phantom": (phantom, ("phantom", "p9.1|1")),
    "body corrupt": (corrupt, ("corrupt", "p1.1|5")),
    "reorder": (reorder, ("order", "p1.1|5")),
    "dup after ack": (dup_after_ack, ("duplicated", "p1.1|5")),
    "dup after change": (dup_after_change, ("duplicated", "p1.1|68")),
    "held twice": (held_twice, ("held-twice", "p1.1|5")),
    "flag missing": (flag_missing, ("flag", "p1.1|8")),
    "double confirm": (double_confirm, ("confirm-twice", "p1.1|5")),
    "confirm of nothing": (unasked_confirm, ("confirm-unasked", "p1.1/999")),
    "no fault": (no_fault, ("vacuous", "no-fault")),
    "no confirm in a fault": (quiet_faults, ("vacuous", "few-confirms-in-faults")),
    "no effect": (no_effect, ("vacuous", "no-effect/fault-1")),
    "no proof": (no_proof, ("vacuous", "no-effect/fault-1")),
    "storm": (storm, ("storm", "fault-1")),
    "starved": (starved, ("starved", "c3")),
    "nobody served": (nobody_served, ("starved", "everybody")),
    "leader stayed": (leader_stayed, ("vacuous", "leader-stayed/fault-1")),
    "few confirms": (few_confirms, ("vacuous", "few-confirms")),
    "slow recovery": (slow_recovery, ("recovery", "fault-1")),
    "returned": (returned, ("unroutable", "p1.1|5")),
    "fail seen": (aborted, ("aborted", "p1.1|5")),
    "unanswered": (unanswered, ("unanswered", "p1.1|5")),
    "forgotten": (forgotten, ("unanswered", "p3.1|1")),
    "left over": (left_over, ("depth", "n1")),
    "unhealthy": (unhealthy, ("unhealthy", "cluster")),
    "undrained": (undrained, ("undrained", "drain")),
    "no depth": (no_depth, ("undrained", "drain")),
    "drained once": (drained_once, ("undrained", "drain")),
    "gap": (gap, ("history", "c1")),
}
"""Name -> (what spoils a clean history, the one finding it must raise: kind and subject)."""


def spoiled(events: list[Event]) -> list[Event]:
    """Everything that can go wrong with single messages, in one history."""
    for spoil, seq in (
        (drop_delivered, 5), (corrupt, 7), (dup_after_ack, 9), (double_confirm, 11),
        (unasked_confirm, 13), (returned, 15), (aborted, 17), (unanswered, 19), (reorder, 21),
        (held_twice, 23), (lost_requeued, 25), (lost_unacked, 33),
    ):  # fmt: skip
        events = spoil(events, seq)
    return unhealthy(left_over(flag_missing(phantom(forgotten(events)))))


STREAM_OPTIONS = msgspec.structs.replace(OPTIONS, queue="stream")
NOT_LANDED = "p2.1|40"


def clean_stream() -> list[Event]:
    """The same publishes to a stream: two consumers, and a whole reading through each node."""
    forge = Forge()
    kept = [event for event in clean() if event.op not in ("deliver", "get", "ack", "requeue")]
    sent = [event for event in kept if event.op == "publish" and event.msg_id != NOT_LANDED]
    sent.sort(key=lambda event: (event.ts_us, event.msg_id))
    for offset, event in enumerate(sent):
        about = {"queue": QUEUE, "channel": 1, "msg_id": event.msg_id, "delivery_tag": offset + 1}
        what = {
            "publisher": event.publisher, "seq": event.seq, "body_crc": event.body_crc,
            "size": 100, "stream_offset": offset,
        }  # fmt: skip
        for name in ("c1", "c2"):
            tag = f"{name}.1"
            where = {"node": "n2", "connection": tag, "consumer_tag": tag}
            forge.add(name, event.ts_us + DELIVER_US, "deliver", "ok", **about, **what, **where)
            forge.add(name, event.ts_us + ACK_US, "ack", "ok", **about, **where)
        for node in ("n1", "n2", "n3"):
            tag = f"drain.{node}.1"
            where = {"node": node, "connection": tag, "consumer_tag": tag}
            forge.add("drain", END_US + 1_000_000 + offset, "get", "ok", **about, **what, **where)
    return renumbered([*kept, *forge.events])


def _read(events: list[Event], tag: str, msg_id: str) -> Event:
    return next(
        event for event in events
        if event.op in ("deliver", "get") and (event.consumer_tag, event.msg_id) == (tag, msg_id)
    )  # fmt: skip


def lost_at_a_node(events: list[Event]) -> list[Event]:
    """The last message, at one node of three."""
    gone = _read(events, "drain.n3.1", "p2.1|90")
    return renumbered(event for event in events if event is not gone)


def hole(events: list[Event]) -> list[Event]:
    """One consumer does not get a message."""
    gone = _read(events, "c1.1", "p1.1|5")
    return renumbered(event for event in events if event is not gone)


def stored_twice(events: list[Event]) -> list[Event]:
    """What was sent again is there again, behind the others."""
    old, last = _read(events, "c2.1", "p1.1|7"), _read(events, "c2.1", "p2.1|90")
    again = msgspec.structs.replace(
        old, ts_us=last.ts_us + 1, stream_offset=last.stream_offset + 1
    )  # fmt: skip
    return renumbered([*events, again])


def differs(events: list[Event]) -> list[Event]:
    """A consumer reads something of which nobody else has heard."""
    seen = _read(events, "c2.1", "p2.1|39")
    other = find(events, "publish", NOT_LANDED)
    return changed(
        events, seen, msg_id=other.msg_id, seq=other.seq, body_crc=other.body_crc
    )  # fmt: skip


STREAM_MUTATIONS: dict[str, tuple[Mutation, tuple[str, str]]] = {
    "lost at a node": (lost_at_a_node, ("lost", "p2.1|90")),
    "hole": (hole, ("hole", "c1.1")),
    "stored twice": (stored_twice, ("stored-twice", "p1.1|7")),
    "differs": (differs, ("differs", "77")),
}
"""As `MUTATIONS`, of a stream's clean history."""
