"""What a redrive sends where, and what it can't send: decided for each message. Pure.

Rights are those of the user who asked for the redrive: write on every exchange that is published
to, topic permissions too, as if the user published the message.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from broker.amqp.content import Decoded
from broker.audit.actor import BROKER, Actor
from broker.errors import AmqpError
from broker.management.operations.browsing.masking import Masks
from broker.management.operations.redriving.letters import (
    NO_MASKS,
    DeadLetter,
    Which,
    read,
    revived,
)
from broker.message import Message
from broker.metadata.access import Access
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Exchange
from broker.session.publishing.delays import with_stores
from broker.session.publishing.publish_batch import Copies, keyed_copies

Verdict = Literal[
    "sent",
    "no_dead_letter",
    "not_selected",
    "looped",
    "no_origin",
    "no_exchange",
    "internal_exchange",
    "forbidden",
    "unroutable",
    "comes_back",
    "bad_delay",
]
"""What becomes of a message; all but "sent" stay in the queue."""

TEXTS: Final[dict[str, str]] = {
    "sent": "go back",
    "no_dead_letter": "are no dead letters: they have no x-death",
    "not_selected": "are not selected",
    "looped": "were sent back as often as allowed (max_redrives)",
    "no_origin": "do not say where they were published to",
    "no_exchange": "were published to an exchange that is gone",
    "internal_exchange": "would go to an internal exchange, which takes no publishes",
    "forbidden": "would go to an exchange, or with a routing key, that you may not write to",
    "unroutable": "would reach no queue",
    "comes_back": "would come back into this queue at once",
    "bad_delay": "have an x-delay that is too long",
    "refused": "were refused by their target",
}

To = Literal["origin", "death_queue", "exchange", "queue"]


class Selection(msgspec.Struct, frozen=True):
    """Which dead letters; None selects by nothing.

    Attributes:
        reason: Why they died.
        queue: Where they died.
        exchange: What they had been published to.
        seen_from_ms: They died first at this time or later, milliseconds since the epoch.
        seen_until_ms: They died first before this time.
        count: Most of them, from the head of the queue.
        max_redrives: Those that were sent back so often already stay.
        death: The death by which they are selected and sent back.
        exception: What they died of, as groups show it; "" selects those that do not say.
    """

    reason: str | None = None
    queue: str | None = None
    exchange: str | None = None
    seen_from_ms: int | None = None
    seen_until_ms: int | None = None
    count: int | None = None
    max_redrives: int | None = None
    death: Which = "first"
    exception: str | None = None

    def picks(self, letter: DeadLetter) -> bool:
        """Tell whether a dead letter is one of them, whatever the count."""
        seen = letter.seen_ms
        since, until = self.seen_from_ms, self.seen_until_ms
        return (
            self.reason in {None, letter.reason}
            and self.queue in {None, letter.queue}
            and self.exchange in {None, letter.exchange}
            and self.exception in {None, letter.exception or ""}
            and (since is None or (seen is not None and seen >= since))
            and (until is None or (seen is not None and seen < until))
        )


class Target(msgspec.Struct, frozen=True):
    """Where they go.

    Attributes:
        to: "origin": what they had been published to, with the keys they had. "death_queue":
            straight into the queue they died in. "exchange", "queue": those named here.
        exchange: For "exchange".
        routing_key: For "exchange"; None: each with the keys it had.
        queue: For "queue".
    """

    to: To = "origin"
    exchange: str = ""
    routing_key: str | None = None
    queue: str = ""


class Job(msgspec.Struct, frozen=True):
    """A redrive as it was asked for.

    Attributes:
        vhost: Of all that it touches.
        queue: Where the dead letters are.
        selection: Which of them.
        target: Where they go.
        rate: Most messages a second; None is without limit.
        by: Who asks.
    """

    vhost: str
    queue: str
    selection: Selection = Selection()
    target: Target = Target()
    rate: float | None = None
    by: Actor = BROKER


class Plan(NamedTuple):
    """What becomes of one message.

    Attributes:
        verdict: "sent", or why it stays.
        letter: What it says of its death; None if it is no dead letter.
        exchange: What it would be published to, where that is known.
        routing_key: With which key.
        copies: The message as each queue gets it; [] unless "sent".
    """

    verdict: Verdict
    letter: DeadLetter | None = None
    exchange: str | None = None
    routing_key: str = ""
    copies: Copies = []  # noqa: RUF012 - never changed

    @property
    def queues(self) -> list[str]:
        """Names of the queues it goes to; what an exchange keeps for later is none."""
        found = [queue for _, some in self.copies for queue in some if queue.keeps_for is None]
        return sorted({queue.name for queue in found})


class Planner:
    """Decides for each message of one redrive.

    Args:
        job: The redrive.
        catalogue: What exists.
        access: Who may what.
        masks: Names of headers whose values nobody sees, and nobody selects by.
    """

    def __init__(
        self, job: Job, catalogue: Catalogue, access: Access, masks: Masks = NO_MASKS
    ) -> None:
        self._job = job
        self._masks = masks
        self._catalogue = catalogue
        self._access = access

    def letter(self, message: Message) -> DeadLetter | None:
        """Return what a message says of the death that counts; None if it says of none.

        Args:
            message: With its content.
        """
        return read(message, self._job.selection.death, self._masks)

    def plan(self, message: Message, draw: int) -> Plan:
        """Decide.

        Args:
            message: As it is in the queue, with its content.
            draw: 64 random bits, for exchanges that spread messages.
        """
        selection = self._job.selection
        letter = self.letter(message)
        if letter is None:
            return Plan("no_dead_letter")
        if not selection.picks(letter):
            return Plan("not_selected", letter)
        if selection.max_redrives is not None and letter.redrives >= selection.max_redrives:
            return Plan("looped", letter)
        aim = self._aim(letter, message)
        if aim is None:
            return Plan("no_origin", letter)
        exchange, keys = aim
        verdict = self._obstacle(exchange, keys)
        if verdict is not None:
            return Plan(verdict, letter, exchange, keys[0])
        return self._routed(message, letter, exchange, keys, draw)

    def _aim(self, letter: DeadLetter, message: Message) -> tuple[str, tuple[str, ...]] | None:
        """Exchange and routing keys; None if the message does not say."""
        target = self._job.target
        if target.to == "queue":
            return "", (target.queue,)
        if target.to == "death_queue":
            return "", (letter.queue,)
        exchange = target.exchange if target.to == "exchange" else letter.exchange
        if target.to == "exchange" and target.routing_key is not None:
            keys: tuple[str, ...] = (target.routing_key,)
        else:
            keys = letter.keys and (*letter.keys, *message.bcc)
        return None if exchange is None or not keys else (exchange, keys)

    def _obstacle(self, name: str, keys: tuple[str, ...]) -> Verdict | None:
        vhost, user = self._job.vhost, self._job.by.user
        record = self._catalogue.exchange(vhost, name)
        if record is None:
            return "no_exchange"
        if not self._access.may(user, vhost, "write", name) or not self._may_topic(record, keys):
            return "forbidden"
        return "internal_exchange" if record.internal else None

    def _may_topic(self, record: Exchange, keys: tuple[str, ...]) -> bool:
        if record.type != "topic":
            return True
        vhost, user = self._job.vhost, self._job.by.user
        may = self._access.may_topic
        return all(may(user, vhost, record.name, "write", key) for key in keys)

    def _routed(
        self,
        message: Message,
        letter: DeadLetter,
        exchange: str,
        keys: tuple[str, ...],
        draw: int,
    ) -> Plan:
        is_with_own_keys = keys[1:] != ()
        cc = letter.keys[1:] if is_with_own_keys else ()
        revived_ = revived(message, letter, exchange, keys[0], cc)
        vhost, catalogue = self._job.vhost, self._catalogue
        decoded = Decoded(revived_)
        if catalogue.looks_inside(vhost, exchange):
            route = catalogue.route(
                vhost,
                exchange,
                keys[0],
                decoded.headers,
                keys[1:],
                properties=decoded.properties,
                draw=draw,
            )
        else:
            route = catalogue.route(vhost, exchange, keys[0], None, keys[1:])
        queues, stores = ((), ()) if route is None else (route.queues, route.stores)
        where = (letter, exchange, keys[0])
        if any(queue.name == self._job.queue for queue in queues):
            return Plan("comes_back", *where)
        copies = keyed_copies(revived_, queues, decoded)
        if stores:
            try:
                copies = with_stores(revived_, decoded.headers, copies, stores)
            except AmqpError:
                return Plan("bad_delay", *where)
        is_kept = any(store.delays_for is not None for store in stores)
        if not queues and not is_kept:
            return Plan("unroutable", *where)
        return Plan("sent", *where, copies)
