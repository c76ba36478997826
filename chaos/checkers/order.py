"""Each consumer sees each publisher's messages in the order of publishing. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.checkers.facts import Copy, Facts, Finding


def first_deliveries(facts: Facts) -> Iterator[Finding]:
    """First deliveries to one consumer have rising numbers for each publisher.

    A publisher is one channel of one connection, a consumer one attachment. Redeliveries are
    exempt, also those that lack the flag: that is another finding.
    """
    first = {
        (deliveries[0].recorder, deliveries[0].event_no)
        for deliveries in facts.deliveries.values()
        if not deliveries[0].redelivered
    }
    seen: dict[tuple[str, str, str], int] = {}
    for event in facts.events:
        if (event.recorder, event.event_no) not in first:
            continue
        publish = facts.by_copy.get(Copy(event.queue, event.msg_id))
        if publish is None:
            continue
        line = (event.queue, event.consumer_tag, publish.publisher)
        before = seen.get(line, 0)
        if publish.seq < before:
            yield Finding(
                "order",
                event.msg_id,
                event.queue,
                f"came to {event.consumer_tag} after {publish.publisher}|{before}",
            )
        seen[line] = publish.seq
