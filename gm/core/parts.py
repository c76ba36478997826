"""Catch-ups longer than one message: cut at the sender, joined at the receiver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gm.core.messages import PublisherState
from gm.core.view import MemberId


def cut(
    states: Mapping[MemberId, PublisherState], bytes_max: int
) -> Iterator[dict[MemberId, PublisherState]]:
    """Yield states in parts with at most so many payload bytes; a single payload always fits."""
    part: dict[MemberId, PublisherState] = {}
    room = bytes_max
    for publisher, state in states.items():
        start = 0
        for index, payload in enumerate(state.pubs):
            room -= len(payload)
            if room < 0 and (part or index > start):
                if index > start:
                    done = state.done + start
                    part[publisher] = PublisherState(done, state.pubs[start:index])
                yield part
                part, start, room = {}, index, bytes_max - len(payload)
        part[publisher] = PublisherState(state.done + start, state.pubs[start:])
    yield part


def join(
    before: Mapping[MemberId, PublisherState], part: Mapping[MemberId, PublisherState]
) -> dict[MemberId, PublisherState]:
    """Return the states of a part joined with those that came before."""
    joined = dict(before)
    for publisher, state in part.items():
        known = joined.get(publisher)
        if known is None:
            joined[publisher] = state
        else:
            joined[publisher] = PublisherState(known.done, [*known.pubs, *state.pubs])
    return joined
