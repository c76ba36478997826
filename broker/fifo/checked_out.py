"""The unacknowledged messages of a queue, by the channel and consumer that hold them.

Each is held by one (channel_id, tag): a channel and its consumer, or `GET_TAG` for basic.get. A
consumer shares the dict of its own (`place`), so its credit follows from the dict's length. What is
held may be a stub, whose content is on disk (`ready.ram`).

Invariants: 1. `count` and `size_bytes` are the sums over all that is held. 2. `stubs` counts the
stubs among it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.fifo.ready.queue import Eviction, body_bytes
from broker.fifo.ready.ram import MESSAGE_RAM_BYTES, STUB_RAM_BYTES, Stubs, stub_of
from broker.message import Delivery

GET_TAG: Final = ""
"""The tag under which basic.get's messages are held."""

HELD_MIN_BYTES: Final = 1 << 16
"""As long as no more than this can be saved, what consumers hold is left alone."""

Held = dict[int, Delivery]
"""What one (channel_id, tag) holds, by message number, in the order of delivery."""


class CheckedOut:
    """The unacknowledged messages of a queue.

    Attributes:
        count: Messages held.
        size_bytes: Sum of their body sizes.
        stubs: How many of them are stubs.
    """

    __slots__ = ("_held", "count", "size_bytes", "stubs")

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Held]] = {}
        self.count = 0
        self.size_bytes = 0
        self.stubs = Stubs()

    def __iter__(self) -> Iterator[tuple[str, str, Held]]:
        """Yield every (channel_id, tag) with its messages, perhaps none, in order of arrival."""
        for channel_id, tags in self._held.items():
            for tag, held in tags.items():
                yield channel_id, tag, held

    def channel_ids(self) -> list[str]:
        """The names of all channels that hold something, or consume, in the order they came."""
        return list(self._held)

    def held_by(self, channel_id: str) -> dict[str, Held]:
        """What a channel holds, by tag; nothing may be added to it."""
        return self._held.get(channel_id, {})

    def place(self, channel_id: str, tag: str) -> Held:
        """Return the dict of a (channel_id, tag), a new one if need be; `add` puts messages in."""
        return self._held.setdefault(channel_id, {}).setdefault(tag, {})

    def add(self, held: Held, items: list[Delivery], size_bytes: int) -> None:
        """Add messages to the dict that `place` returned.

        Args:
            held: As `place` returned it.
            items: In order.
            size_bytes: Their `body_bytes`.
        """
        count = len(items)
        if count == 1:  # messages that are dealt out to many consumers
            [item] = items
            held[item.number] = item
        else:
            held.update(zip([item.number for item in items], items, strict=True))
        self.count += count
        self.size_bytes += size_bytes

    def take(self, channel_id: str, tag: str, numbers: list[int]) -> list[Delivery]:
        """Remove messages by number and return them; numbers that are not held are ignored."""
        tags = self._held.get(channel_id)
        held = None if tags is None else tags.get(tag)
        if not held:
            return []
        pop = held.pop
        items = [item for number in numbers if (item := pop(number, None)) is not None]
        self.count -= len(items)
        self.size_bytes -= body_bytes(items)
        if self.stubs.count:
            self.stubs.remove(items)
        return items

    def release(self, channel_id: str) -> list[Delivery]:
        """Remove all that a channel holds, and its places; return it tag by tag."""
        tags = self._held.pop(channel_id, None)
        if tags is None:
            return []
        items = [item for held in tags.values() for item in held.values()]
        self.count -= len(items)
        self.size_bytes -= body_bytes(items)
        self.stubs.remove(items)
        return items

    def forget_if_empty(self, channel_id: str, tag: str) -> None:
        """Drop a place that nobody consumes under any more, if it is empty."""
        tags = self._held.get(channel_id)
        if tags is None or tags.get(tag):
            return
        tags.pop(tag, None)
        if not tags:
            del self._held[channel_id]

    @property
    def ram_bytes(self) -> int:
        """About how much memory all this takes, in bytes."""
        stubs = self.stubs
        whole = self.count - stubs.count
        size_bytes = self.size_bytes - stubs.size_bytes
        return whole * MESSAGE_RAM_BYTES + size_bytes + stubs.count * STUB_RAM_BYTES

    def page_out(self, eviction: Eviction) -> None:
        """Replace held messages by stubs, channel by channel, if that frees enough memory."""
        stubs = self.stubs
        saved = MESSAGE_RAM_BYTES - STUB_RAM_BYTES
        savable = (self.count - stubs.count) * saved + self.size_bytes - stubs.size_bytes
        if savable < HELD_MIN_BYTES:
            return
        for _, _, held in self:
            whole: list[Delivery] = []
            for number in reversed(held):  # what was taken last is whole
                item = held[number]
                if not item.message.content:
                    break
                whole.append(item)
            eviction.note(whole)
            new = [
                Delivery(item.number, item.delivery_count, stub_of(item.message)) for item in whole
            ]
            held.update([(item.number, item) for item in new])
            before_bytes = stubs.size_bytes
            stubs.add(new)
            eviction.excess_bytes -= stubs.size_bytes - before_bytes + len(new) * saved
            if eviction.excess_bytes <= 0:
                return
