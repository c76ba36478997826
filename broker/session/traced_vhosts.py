"""Which vhosts are traced on a node, and which single messages are followed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from broker.amqp.content import decode_properties
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import Clock

FOLLOWED_MAX: Final = 100
"""Messages whose path a node keeps; the oldest goes."""

STEPS_MAX: Final = 200
"""Steps of one path on one node; what comes after them is not noted."""


class PathStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened to a followed message.

    Attributes:
        at_us: When, microseconds since the epoch, by the clock of the node.
        what: "published", "routed", "unroutable", "confirmed", "delivered" or "got"; then, of that
            delivery, "ack", "requeue" or "reject". Of its death "dead_lettered", and "routed" or
            "unroutable", or "cycle" where it would go round.
        queue: The queue.
        connection: Of the client.
        user: Whose connection it is.
        channel: Number of the channel.
        consumer_tag: "" for basic.get.
        redelivered: It was delivered before.
        no_ack: The delivery needs no acknowledgement.
        reason: Why it died in the queue.
    """

    at_us: int
    what: str
    queue: str = ""
    connection: str = ""
    user: str = ""
    channel: int = 0
    consumer_tag: str = ""
    redelivered: bool = False
    no_ack: bool = False
    reason: str = ""


class FollowedMessage:
    """One message and what happened to it on this node.

    Attributes:
        vhost: Where it was published.
        message_id: What tells it from others.
        token: Its bytes, which stand in its content.
        is_awaited: Deliveries are looked at for it.
        steps: What happened.
    """

    __slots__ = ("is_awaited", "message_id", "steps", "token", "vhost")

    def __init__(self, vhost: str, message_id: str) -> None:
        self.vhost = vhost
        self.message_id = message_id
        self.token = message_id.encode("utf-8", "surrogateescape")
        self.is_awaited = True
        self.steps: list[PathStep] = []

    def is_in(self, message: Message) -> bool:
        """Tell whether it is this message, by its id; decodes properties only where that stands."""
        if self.token not in message.content:
            return False
        return decode_properties(message).message_id == self.message_id

    def note(self, step: PathStep) -> None:
        """Add a step."""
        if len(self.steps) < STEPS_MAX:
            self.steps.append(step)

    def note_new(self, steps: list[PathStep]) -> None:
        """Add steps, unless they are the last that were noted: the same was tried again."""
        last = self.steps[-len(steps) :] if steps else []
        if [msgspec.structs.replace(each, at_us=0) for each in last] != [
            msgspec.structs.replace(each, at_us=0) for each in steps
        ]:
            for step in steps:
                self.note(step)


class TracedVhosts:
    """The vhosts that are traced on this node; it forgets them when it stops, as RabbitMQ does.

    Args:
        clock: For the times of copies.

    Attributes:
        names: Vhosts whose messages are looked at: those of the firehose, and those with a message
            that is followed. Empty: publishing and delivering look no further.
        firehose: Those of which copies are published.
        with_acks: Of these, those whose acknowledgements leave copies, too.
        followed: Single messages by id, the oldest first.
    """

    __slots__ = ("_clock", "firehose", "followed", "names", "with_acks")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.names: set[str] = set()
        self.firehose: set[str] = set()
        self.with_acks: set[str] = set()
        self.followed: dict[str, FollowedMessage] = {}

    def set(self, vhost: str, *, is_traced: bool, with_acks: bool = False) -> None:
        """Trace a vhost, or end that.

        Args:
            vhost: Its name.
            is_traced: Begin, not end.
            with_acks: Acknowledgements leave copies, too.
        """
        if is_traced:
            self.firehose.add(vhost)
        else:
            self.firehose.discard(vhost)
        if is_traced and with_acks:
            self.with_acks.add(vhost)
        else:
            self.with_acks.discard(vhost)
        self._look_at()

    def follow(self, vhost: str, message_id: str) -> FollowedMessage:
        """Look for a message among all that the vhost's clients are delivered.

        Args:
            vhost: Its virtual host.
            message_id: Its property; no other message has it.
        """
        found = self.followed[message_id] = FollowedMessage(vhost, message_id)
        while len(self.followed) > FOLLOWED_MAX:
            del self.followed[next(iter(self.followed))]
        self._look_at()
        return found

    def await_no_more(self, message_id: str) -> None:
        """Look no more for a message; what was noted stays, and settlements of it are noted yet."""
        found = self.followed.get(message_id)
        if found is not None:
            found.is_awaited = False
            self._look_at()

    def awaited(self, vhost: str) -> list[FollowedMessage]:
        """The messages that are looked for in a vhost."""
        every = self.followed.values()
        return [each for each in every if each.is_awaited and each.vhost == vhost]

    def died(
        self, queue: Queue, reason: str, message: Message, targets: Sequence[Queue], lost: str
    ) -> None:
        """As of `broker.queues.node.DeathWatch`: note it if it is one that is followed."""
        for found in self.awaited(queue.vhost):
            if found.is_in(message):
                now_us = self._clock.now_us()
                steps = [PathStep(now_us, "routed", each.name) for each in targets]
                if reason != "delayed":
                    steps.insert(0, PathStep(now_us, "dead_lettered", queue.name, reason=reason))
                if lost:
                    steps.append(PathStep(now_us, lost))
                found.note_new(steps)

    def _look_at(self) -> None:
        """Bring `names`, which sessions share, up to date."""
        self.names.clear()
        self.names |= self.firehose
        self.names |= {each.vhost for each in self.followed.values() if each.is_awaited}

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return self._clock.now_us()

    def since_ms(self, monotonic_ms: int) -> int:
        """Milliseconds since a monotonic time."""
        return max(0, self._clock.monotonic_ms() - monotonic_ms)
