"""The traits of a message that exchanges may look at.

Most routes depend on the routing keys alone; those are found with nothing else filled in, and may
be remembered. A route that depends on more is found again for each message
(`ExchangeType.looks_inside`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from broker.amqp.content import Properties


class Traits(msgspec.Struct, frozen=True, gc=False):
    """A message as matchers see it.

    Attributes:
        keys: The routing key, then those of CC and BCC.
        headers: Its headers table; None is none.
        properties: All its properties, where the caller has them; for `hash-property`.
        draw: 64 random bits, drawn for this message by whoever may draw; for x-random.
    """

    keys: Sequence[str]
    headers: Mapping[str, object] | None = None
    properties: Properties | None = None
    draw: int = 0
