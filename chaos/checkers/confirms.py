"""Each publish gets one answer at most, and only what was sent is answered. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.checkers.facts import Facts, Finding
from chaos.history import Event

_TIMEOUT_US = 10_000_000
_LATE_AFTER_HEAL_US = 10_000_000
"""As late as a queue may serve again."""


def once(facts: Facts) -> Iterator[Finding]:
    """One ack or nack for each publish, none for what was never sent."""
    for op_id, answers in sorted(facts.answers.items()):
        publish = facts.published.get(op_id)
        if publish is None:
            yield Finding("confirm-unasked", op_id, answers[0].queue, answers[0].op)
        elif len(answers) > 1:
            said = ", ".join(event.op for event in answers)
            yield Finding("confirm-twice", publish.msg_id, publish.queue, said)


def answered(facts: Facts) -> Iterator[Finding]:
    """On a healthy cluster, with its channel open, every publish is answered in the end."""
    for event in facts.events:
        if event.op == "unknown" and (event.code == "unanswered" or _is_forgotten(facts, event)):
            yield Finding("unanswered", event.msg_id, event.queue, f"through {event.node}")


def _is_forgotten(facts: Facts, event: Event) -> bool:
    """True if it waited in vain for the whole timeout, far from any fault, while others did not.

    What a publisher sent later than the one it gave up for may be answered yet. Where nobody is
    confirmed in the second half of the wait the machine stands still, not one confirm.
    """
    publish = facts.published.get(event.op_id)
    if event.code != "timeout" or publish is None:
        return False
    until_us = publish.ts_us + _TIMEOUT_US
    if event.ts_us < until_us or facts.is_disturbed(publish.ts_us, until_us, _LATE_AFTER_HEAL_US):
        return False
    return any(until_us - _TIMEOUT_US // 2 < at <= until_us for at in facts.confirm_times_us())
