"""The service for other nodes: delayed messages while a link is clogged (P14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.amqp.content import Properties, build_message
from broker.cluster.links import LinkEvent, LinkStatus
from broker.cluster.outbound import DATA, LinkLimits
from broker.fifo.commands import CommandBatch
from broker.queues.envelopes import QueueReply, decode_reply, pack_commands
from broker.server.node_service import COMMANDS, DIRECT_REPLY, NodeService
from broker.server.throttle import Behind

B = "rabbit@b"


class FakeLinks:
    node, boot = "rabbit@a", "boot"
    limits = LinkLimits(data_bytes=10_000)

    def __init__(self) -> None:
        self.sent: list[QueueReply] = []
        self.replies = 0
        self.waiting_bytes = 0
        self.room = 1_000
        self.handlers: dict[int, Callable[..., None]] = {}

    def on(self, kind: int, handler: Callable[..., None]) -> None:
        self.handlers[kind] = handler

    def on_event(self, listener: Callable[[LinkEvent], None]) -> None:
        self.event = listener

    def on_drained(self, listener: Callable[[str], None]) -> None:
        self.drained = listener

    def serve(self, method: str, handler: object) -> None:
        pass

    def is_clogged(self, node: str) -> bool:
        return self.room <= 0

    def send(self, node: str, stream: int, kind: int, payload: bytes) -> bool:
        self.room -= 1
        if kind == DIRECT_REPLY:
            self.replies += 1
        else:
            self.sent.append(decode_reply(payload))
        return True

    def status(self) -> list[LinkStatus]:
        return [LinkStatus(B, DATA, True, self.waiting_bytes, 0, 0, 0)]


class FakeQueues:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def drained(self, node: str) -> None:
        self.calls.append(("drained", node))

    def ring_link_up(self, node: str) -> None:
        """Told of streams both ways; tested with the rings."""

    def link_up(self, node: str) -> None:
        self.calls.append(("link_up", node))


def service() -> tuple[FakeLinks, FakeQueues, NodeService]:
    links, queues = FakeLinks(), FakeQueues()
    built: Any = NodeService(links, None, lambda work: work.close())  # type: ignore[arg-type]
    built.attach(queues, None, None)
    return links, queues, built


def test_answers_for_a_clogged_link_wait_in_order() -> None:
    links, queues, door = service()
    links.room = 1
    for number in range(4):
        door.send_queue_reply(B, QueueReply(number, 0))
    assert [reply.uid for reply in links.sent] == [0]
    assert door.is_clogged(B)
    links.room = 2
    links.drained(B)
    assert [reply.uid for reply in links.sent] == [0, 1, 2]
    assert queues.calls == []
    links.room = 9
    links.drained(B)
    assert [reply.uid for reply in links.sent] == [0, 1, 2, 3]
    assert queues.calls == [("drained", B)]
    assert not door.is_clogged(B)


def test_what_waits_is_lost_with_the_link_and_said_again_on_the_next() -> None:
    links, queues, door = service()
    links.room = 0
    door.send_queue_reply(B, QueueReply(1, 0))
    links.event(LinkEvent(B, "boot", DATA, outgoing=True, is_up=False))
    links.room = 9
    links.event(LinkEvent(B, "boot", DATA, outgoing=True, is_up=True))
    assert links.sent == []
    assert queues.calls == [("drained", B), ("link_up", B)]


class BrokenQueues(FakeQueues):
    def receive_commands(self, uid: int, batch: object) -> None:
        raise RuntimeError("a bug")


def test_a_batch_that_fails_does_not_break_the_link() -> None:
    """Every queue's traffic shares it; the sender would only send the batch again."""
    links, _, door = service()
    door.attach(BrokenQueues(), None, None)  # type: ignore[arg-type]
    payload = b"".join(pack_commands(7, CommandBatch("a/1/7/0", 1, 1, [])))
    links.handlers[COMMANDS](B, "boot", payload)
    links.handlers[COMMANDS](B, "boot", b"no batch")


# Direct replies


def reply(door: NodeService, size: int = 10) -> Behind | None:
    message = build_message("", "key", Properties(), bytes(size))
    return door.send_direct_reply(B, "boot", 1, 1, "key", message)


def test_a_reply_to_a_node_with_room_holds_nobody() -> None:
    links, _, door = service()
    assert reply(door) is None
    assert links.replies == 1


def test_who_replies_to_a_node_behind_a_clogged_link_waits_until_it_has_drained() -> None:
    links, _, door = service()
    links.room = 0
    behind = reply(door)
    assert links.replies == 1, "what was read already still goes"
    assert behind is not None
    woken: list[str] = []
    behind.when_drained(lambda: woken.append("drained"))
    assert woken == []
    links.room = 9
    links.drained(B)
    assert woken == ["drained"]
    assert not behind.is_congested


def test_replies_wait_behind_answers_that_were_put_off() -> None:
    links, _, door = service()
    links.room = 0
    for number in range(3):
        door.send_queue_reply(B, QueueReply(number, 0))
    behind = reply(door)
    assert behind is not None
    woken: list[str] = []
    behind.when_drained(lambda: woken.append("drained"))
    links.room = 1
    links.drained(B)
    assert woken == []
    links.room = 9
    links.drained(B)
    assert woken == ["drained"]


def test_one_long_reply_that_clogs_the_link_holds_its_publisher() -> None:
    """Else the next one of its length would be on its way before anybody looked."""
    links, _, door = service()
    links.room = 1
    assert reply(door, 2 << 20) is not None


def test_who_replies_does_not_wait_for_a_link_that_broke_or_drained_meanwhile() -> None:
    links, _, door = service()
    links.room = 0
    behind = reply(door)
    assert behind is not None
    woken: list[str] = []
    behind.when_drained(lambda: woken.append("broken"))
    links.room = 9
    links.event(LinkEvent(B, "boot", DATA, outgoing=True, is_up=False))
    assert woken == ["broken"]
    behind.when_drained(lambda: woken.append("at once"))
    assert woken == ["broken", "at once"]


def test_replies_are_dropped_before_they_fill_a_clogged_stream() -> None:
    """A full one breaks, with everything that queues and rings have on it."""
    links, _, door = service()
    links.room, links.waiting_bytes = 0, links.limits.data_bytes // 2 - 50
    assert reply(door, 200) is not None
    assert links.replies == 0
