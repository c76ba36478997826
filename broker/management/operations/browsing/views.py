"""A message as the one who browses may see it: decoded when asked for, and masked before that."""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from broker.amqp.content import Properties, properties_in
from broker.amqp.fields import valid_text
from broker.fifo.ready.places import Place
from broker.management.answers import plain
from broker.management.operations.browsing.documents import Document, document
from broker.management.operations.browsing.masking import Masks

_NAMES: Final = Properties.__struct_fields__


class Seen(NamedTuple):
    """A message that was read.

    Attributes:
        place: Where it stands.
        exchange: What it was published to.
        routing_key: What it was published with.
        raw: Its properties, as `broker.amqp.content.properties_in` takes them.
        body: The first bytes of its body.
        body_size: How many it has in all.
        delivery_count: How often it was handed out.
        at_ms: Of a stream: when its chunk was written, in milliseconds since the epoch; else 0.
    """

    place: Place
    exchange: str
    routing_key: str
    raw: bytes
    body: bytes
    body_size: int
    delivery_count: int = 0
    at_ms: int = 0


class View:
    """What may be seen of a message.

    Args:
        seen: The message.
        masks: What is hidden.

    Attributes:
        seen: As given.
        hidden: Names whose values were hidden, as far as was looked at.
    """

    def __init__(self, seen: Seen, masks: Masks) -> None:
        self.seen = seen
        self.hidden: set[str] = set()
        self._masks = masks

    @property
    def routing_key(self) -> str:
        """Its routing key, in a form that JSON can hold."""
        return valid_text(self.seen.routing_key)

    @cached_property
    def _properties(self) -> Properties:
        return properties_in(self.seen.raw)

    @cached_property
    def properties(self) -> dict[str, object]:
        """The properties that are set, headers among them."""
        found = {
            name: plain(value)
            for name in _NAMES
            if (value := getattr(self._properties, name)) is not None
        }
        masked = self._masks.hidden(found, self.hidden)
        assert isinstance(masked, dict)
        return masked

    @property
    def headers(self) -> dict[str, object]:
        """Its headers; none where all of them are hidden."""
        found = self.properties.get("headers")
        return found if isinstance(found, dict) else {}

    @cached_property
    def document(self) -> Document:
        """Its body, not masked: for this class and what has looked at `is_withheld`."""
        seen, properties = self.seen, self._properties
        kind, encoding = properties.content_type or "", properties.content_encoding or ""
        return document(seen.body, seen.body_size, kind, encoding)

    @cached_property
    def value(self) -> object:
        """What its body decodes to; None where it does not."""
        found = self.document
        return self._masks.hidden(found.value, self.hidden) if found.is_structured else None

    @property
    def is_withheld(self) -> bool:
        """True if the bytes of its body are not shown.

        While names are masked nobody sees more than what was decoded: text may hold anything, and
        JSON may have a name twice.
        """
        return bool(self._masks) and bool(self.document.data)

    @property
    def is_cut(self) -> bool:
        """True if its body was not looked at as a whole."""
        return self.document.is_cut

    @cached_property
    def searched(self) -> bytes:
        """In which a text or a pattern is looked for: never what is hidden."""
        found = self.document
        if found.is_structured and (self.is_withheld or found.kind == "msgpack"):
            return msgspec.json.encode(self.value)
        return b"" if self.is_withheld else found.data
