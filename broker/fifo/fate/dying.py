"""Dead messages that stay until they have reached where dead messages go (`Rules.is_held`).

At-least-once dead-lettering, and delays: a message that died is out of every consumer's reach but
still the queue's, until the shell says that its targets have it (`QueueMachine.bury`). It counts
for the length limits meanwhile (docs/rabbitmq-behaviour.md 1.16, length limits; 1.18).
"""

from __future__ import annotations

from broker.fifo.effects import Dead
from broker.fifo.lines.line import body_bytes
from broker.fifo.rules import Reason
from broker.message import Delivery


class Dying:
    """The held dead, by message number, in the order in which they died.

    Attributes:
        size_bytes: Sum of their body sizes.
    """

    __slots__ = ("_items", "size_bytes")

    def __init__(self) -> None:
        self._items: dict[int, tuple[Reason, Delivery]] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, reason: Reason, items: list[Delivery]) -> None:
        """Take in what died for one reason."""
        self._items.update([(item.number, (reason, item)) for item in items])
        self.size_bytes += body_bytes(items)

    def bury(self, numbers: list[int]) -> list[Delivery]:
        """Forget these and return them; unknown numbers are ignored."""
        pop = self._items.pop
        items = [found[1] for number in numbers if (found := pop(number, None)) is not None]
        self.size_bytes -= body_bytes(items)
        return items

    def numbers(self) -> list[int]:
        """The numbers of all that is held, in the order of their deaths."""
        return list(self._items)

    def items(self) -> list[Delivery]:
        """All that is held, in the order of their deaths."""
        return [item for _, item in self._items.values()]

    def records(self) -> list[Dead]:
        """All that is held, in the order of their deaths, neighbours of one reason together."""
        records: list[Dead] = []
        for reason, item in self._items.values():
            if records and records[-1].reason == reason:
                records[-1].items.append(item)
            else:
                records.append(Dead(reason, [item], True))
        return records

    def load(self, records: list[Dead]) -> None:
        """Take over what `records` of another one said."""
        self._items = {}
        self.size_bytes = 0
        for record in records:
            self.add(record.reason, record.items)
