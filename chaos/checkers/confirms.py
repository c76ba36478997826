"""Each publish gets one answer at most, and only what was sent is answered. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.checkers.facts import Facts, Finding


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
        if event.op == "unknown" and event.code == "unanswered":
            yield Finding("unanswered", event.msg_id, event.queue, f"through {event.node}")
