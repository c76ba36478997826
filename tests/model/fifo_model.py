"""What a queue is, in lists and dicts and with one message a turn: slow and plainly right."""

from __future__ import annotations

from broker.message import Delivery, Message

Key = tuple[str, str]


def message(size: int = 3, *, persistent: bool = False) -> Message:
    return Message("", "q", b"h" * 14 + b"b" * size, 1, 14, size, persistent)


class QueueModel:
    def __init__(self, requeue: str, delivery_limit: int | None) -> None:
        self.requeue_mode = requeue
        self.delivery_limit = delivery_limit
        self.published = 0
        self.front: list[Delivery] = []  # returned, before the others
        self.tail: list[Delivery] = []
        self.held: dict[Key, list[Delivery]] = {}
        self.consumers: dict[Key, dict] = {}
        self.rings: dict[int, list[Key]] = {}
        self.delivered: dict[Key, list[Delivery]] = {}
        self.gone = 0

    @property
    def ready(self) -> list[Delivery]:
        return self.front + self.tail

    def credit(self, key: Key) -> int:
        consumer = self.consumers[key]
        if not consumer["active"]:
            return 0
        if consumer["no_ack"] or consumer["prefetch"] == 0:
            return 1 << 30
        return max(0, consumer["prefetch"] - len(self.held.get(key, [])))

    def refresh(self, key: Key) -> None:
        if key not in self.consumers:
            return
        ring = self.rings.setdefault(self.consumers[key]["priority"], [])
        if self.credit(key) > 0 and key not in ring:
            ring.append(key)
        elif self.credit(key) == 0 and key in ring:
            ring.remove(key)

    def publish(self, messages: list[Message]) -> None:
        for each in messages:
            self.published += 1
            self.tail.append(Delivery(self.published, 0, each))

    def checkout(self, key: Key, *, exclusive: bool, **options: object) -> bool:
        others = [c for k, c in self.consumers.items() if k != key]
        if any(c["exclusive"] for c in others) or (exclusive and others):
            return False
        self.cancel(key)
        self.consumers[key] = {"active": True, "exclusive": exclusive, **options}
        self.refresh(key)
        return True

    def cancel(self, key: Key) -> None:
        consumer = self.consumers.pop(key, None)
        if consumer is not None:
            ring = self.rings.get(consumer["priority"], [])
            if key in ring:
                ring.remove(key)

    def let_go(self, key: Key, numbers: list[int]) -> list[Delivery]:
        held = self.held.get(key, [])
        items = [d for n in dict.fromkeys(numbers) for d in held if d.number == n]
        self.held[key] = [d for d in held if d not in items]
        self.refresh(key)
        return items

    def settle(self, key: Key, numbers: list[int]) -> None:
        self.gone += len(self.let_go(key, numbers))

    def give_back(self, items: list[Delivery], *, to_tail: bool) -> None:
        for item in items:
            back = item._replace(delivery_count=item.delivery_count + 1)
            if self.delivery_limit is not None and back.delivery_count > self.delivery_limit:
                self.gone += 1
            elif to_tail:
                self.tail.append(back)
            else:
                self.front.append(back)
                if self.requeue_mode == "original":
                    self.front.sort()

    def requeue(self, key: Key, numbers: list[int]) -> None:
        self.give_back(
            self.let_go(key, numbers),
            to_tail=self.requeue_mode == "tail" and self.delivery_limit is None,
        )

    def release(self, holder: str, tags: list[str]) -> None:
        for key in [key for key in self.consumers if key[0] == holder]:
            self.cancel(key)
        items = [item for tag in tags for item in self.held.pop((holder, tag), [])]
        self.give_back(items, to_tail=False)

    def take(self) -> Delivery:
        return (self.front or self.tail).pop(0)

    def get(self, holder: str, *, no_ack: bool) -> Delivery | None:
        if not self.ready:
            return None
        item = self.take()
        if no_ack:
            self.gone += 1
        else:
            self.held.setdefault((holder, ""), []).append(item)
        return item

    def purge(self) -> int:
        count = len(self.ready)
        self.gone += count
        self.front, self.tail = [], []
        return count

    def pump(self) -> None:
        while self.ready:
            ring = next(
                (self.rings[p] for p in sorted(self.rings, reverse=True) if self.rings[p]), None
            )
            if ring is None:
                return
            key = ring.pop(0)
            item = self.take()
            self.delivered.setdefault(key, []).append(item)
            if self.consumers[key]["no_ack"]:
                self.gone += 1
            else:
                self.held.setdefault(key, []).append(item)
            self.refresh(key)
