"""What a queue decides by beside the order of its messages: limits of age, length and deliveries.

Rules follow from arguments and policies, so they change while the queue lives
(`QueueMachine.set_rules`); what can't change stands in `config.QueueConfig`. A quorum queue's
change by an entry of its log.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
Reason = Literal["expired", "rejected", "maxlen", "delivery_limit", "delayed"]
"""Why a message died, in the words of x-death; "delayed" ends a delay, which is no death."""


class Rules(msgspec.Struct, array_like=True, frozen=True):
    """The rules of one queue. None means no limit. Fields are only appended, with defaults.

    Attributes:
        message_ttl_ms: Most milliseconds a message may wait; counted from its enqueue, so another
            value is for new messages only.
        max_length: Most ready messages.
        max_length_bytes: Most bytes of ready bodies.
        overflow: What happens beyond the two.
        delivery_limit: Most redeliveries of a message.
        is_dead_lettered: The shell wants to hear of dead messages (`Effects.dead`).
        is_held: A dead message stays here, out of reach of consumers, until it is buried
            (`QueueMachine.bury`): at-least-once dead-lettering, and delays.
    """

    message_ttl_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    delivery_limit: int | None = None
    is_dead_lettered: bool = False
    is_held: bool = False


NO_RULES: Final = Rules()
