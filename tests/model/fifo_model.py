"""The model of a queue, in lists and dicts, one message a turn: slow and easy to verify."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from broker.fifo.config import QueueConfig
from broker.fifo.limits import Rules
from broker.message import Delivery, Message

Key = tuple[str, str]


def again(item: Delivery) -> Delivery:
    """Return a delivery as it is after it came back once more."""
    return msgspec.structs.replace(item, delivery_count=item.delivery_count + 1)


def message(size: int = 3, *, persistent: bool = False, **facts: object) -> Message:
    return Message("", "q", b"h" * 14 + b"b" * size, 1, 14, size, persistent, **facts)


@dataclass
class ConsumerModel:
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int
    active: bool = True
    age: int = 0


@dataclass
class QueueModel:
    config: QueueConfig
    rules: Rules = field(default_factory=Rules)
    now_ms: int = 0
    published: int = 0
    gone: int = 0

    def __post_init__(self) -> None:
        self.front: list[Delivery] = []  # returned, before the others
        self.tail: list[Delivery] = []
        self.held: dict[Key, list[Delivery]] = {}
        self.held_dead: list[tuple[str, Delivery]] = []
        self.dead: list[tuple[str, Delivery, bool]] = []
        self.seen: list[tuple[str, int]] = []
        self.consumers: dict[Key, ConsumerModel] = {}
        self.single: Key | None = None
        self.ages = 0
        self.rings: dict[int, list[Key]] = {}
        self.delivered: dict[Key, list[Delivery]] = {}

    # The ready queue.

    def _place(self, item: Delivery) -> tuple[int, int]:
        if self.config.order == "priority":
            return -min(item.message.priority, self.config.priority_max), item.number
        return item.message.expires_ms or 1 << 63, item.number

    @property
    def ready(self) -> list[Delivery]:
        if self.config.order != "fifo":
            return sorted(self.front + self.tail, key=self._place)
        return self.front + self.tail

    def remove(self, item: Delivery) -> None:
        (self.front if item in self.front else self.tail).remove(item)

    def take(self) -> Delivery:
        item = self.ready[0]
        self.remove(item)
        return item

    def die(self, reason: str, item: Delivery) -> None:
        if self.rules.is_dead_lettered:
            self.dead.append((reason, item, self.rules.is_held))
            if self.rules.is_held:
                self.held_dead.append((reason, item))
                return
        self.gone += 1

    def expire(self, now_ms: int) -> None:
        while self.ready and 0 < self.ready[0].message.expires_ms <= now_ms:
            self.die("delayed" if self.config.order == "due" else "expired", self.take())

    # Consumers.

    def credit(self, key: Key) -> int:
        consumer = self.consumers[key]
        if not consumer.active or (self.config.is_single_active and key != self.single):
            return 0
        if consumer.no_ack or consumer.prefetch == 0:
            return 1 << 30
        return max(0, consumer.prefetch - len(self.held.get(key, [])))

    def refresh(self, key: Key) -> None:
        if key not in self.consumers:
            return
        ring = self.rings.setdefault(self.consumers[key].priority, [])
        if self.credit(key) > 0 and key not in ring:
            ring.append(key)
        elif self.credit(key) == 0 and key in ring:
            ring.remove(key)

    def checkout(self, key: Key, *, exclusive: bool, **options: object) -> bool:
        others = [c for k, c in self.consumers.items() if k != key]
        if exclusive and self.config.is_single_active:
            return False
        if any(c.exclusive for c in others) or (exclusive and others):
            return False
        known = self.consumers.get(key)
        if known is not None:
            self._leave_ring(key)
        self.ages += 1
        age = known.age if known is not None else self.ages
        self.consumers[key] = ConsumerModel(exclusive=exclusive, age=age, **options)
        if self.single is None:
            self.single = key
        self.refresh(key)
        return True

    def _leave_ring(self, key: Key) -> None:
        ring = self.rings.get(self.consumers[key].priority, [])
        if key in ring:
            ring.remove(key)

    def cancel(self, key: Key) -> None:
        if key not in self.consumers:
            return
        self._leave_ring(key)
        del self.consumers[key]
        if key == self.single:
            self.single = min(self.consumers, key=self._turn, default=None)
            if self.single is not None:
                self.refresh(self.single)

    def _turn(self, key: Key) -> tuple[int, int]:
        consumer = self.consumers[key]
        by_priority = self.config.single_active_by_priority
        return -consumer.priority if by_priority else 0, consumer.age

    # Commands.

    def publish(self, messages: list[Message]) -> list[int]:
        self.expire(self.now_ms - 1)
        credit = sum(self.credit(key) for key in self.consumers)
        waiting = [item.message for item in self.ready]
        return [
            i for i, each in enumerate(messages) if not self._publish_one(each, waiting, credit)
        ]

    def _publish_one(self, each: Message, waiting: list[Message], credit: int) -> bool:
        """Publish a message; consumers with credit take what waits as it comes, and at once."""
        rules, config = self.rules, self.config
        count = [*waiting[credit:], *(item.message for _, item in self.held_dead)]
        size = sum(each.body_size for each in count) + each.body_size
        is_over = (rules.max_length is not None and len(count) + 1 > rules.max_length) or (
            rules.max_length_bytes is not None and size > rules.max_length_bytes
        )
        if is_over and rules.overflow != "drop-head":
            if rules.overflow == "reject-publish-dlx" and rules.is_dead_lettered:
                self.dead.append(("maxlen", Delivery(0, 0, each), False))
            return False
        if config.dedup_size and each.dedup:
            ttl_ms = config.dedup_ttl_ms
            self.seen = [s for s in self.seen if ttl_ms is None or s[1] + ttl_ms > self.now_ms]
            if each.dedup in [key for key, _ in self.seen]:
                return True
            self.seen = [*self.seen, (each.dedup, self.now_ms)][-config.dedup_size :]
        self.published += 1
        self.tail.append(Delivery(self.published, 0, self._stamped(each)))
        waiting.append(each)
        return True

    def _stamped(self, each: Message) -> Message:
        lives = [ms for ms in (each.ttl_ms, self.rules.message_ttl_ms) if ms not in (-1, None)]
        if self.config.order == "due":
            lives = [max(0, each.ttl_ms)]
        if not lives:
            return each
        return msgspec.structs.replace(each, expires_ms=self.now_ms + min(lives))

    def let_go(self, key: Key, numbers: list[int]) -> list[Delivery]:
        held = self.held.get(key, [])
        items = [d for n in dict.fromkeys(numbers) for d in held if d.number == n]
        self.held[key] = [d for d in held if d not in items]
        self.refresh(key)
        return items

    def settle(self, key: Key, numbers: list[int]) -> None:
        self.gone += len(self.let_go(key, numbers))

    def discard(self, key: Key, numbers: list[int]) -> None:
        for item in self.let_go(key, numbers):
            self.die("rejected", item)

    def give_back(self, items: list[Delivery], *, to_tail: bool) -> None:
        limit = self.rules.delivery_limit
        for item in items:
            back = again(item)
            if limit is not None and back.delivery_count > limit:
                self.die("delivery_limit", back)
            elif to_tail:
                self.tail.append(back)
            else:
                self.front.append(back)
                if self.config.requeue == "original":
                    self.front.sort(key=lambda each: each.number)
        if items and self.config.requeue != "tail":
            self.expire(self.now_ms)

    def requeue(self, key: Key, numbers: list[int]) -> None:
        to_tail = self.config.requeue == "tail" and self.rules.delivery_limit is None
        self.give_back(self.let_go(key, numbers), to_tail=to_tail)

    def release(self, channel_id: str, tags: list[str]) -> None:
        for key in [key for key in self.consumers if key[0] == channel_id]:
            self.cancel(key)
        items = [item for tag in tags for item in self.held.pop((channel_id, tag), [])]
        self.give_back(items, to_tail=False)

    def get(self, channel_id: str, *, no_ack: bool) -> Delivery | None:
        self.expire(self.now_ms)
        if not self.ready:
            return None
        item = self.take()
        if no_ack:
            self.gone += 1
        else:
            self.held.setdefault((channel_id, ""), []).append(item)
        return item

    def purge(self) -> int:
        return self.drop([item.number for item in self.ready])

    def drop(self, numbers: list[int]) -> int:
        items = [item for item in self.ready if item.number in numbers]
        for item in items:
            self.remove(item)
        self.gone += len(items)
        return len(items)

    def drop_dead_lettered(self, numbers: list[int]) -> int:
        before = len(self.held_dead)
        self.held_dead = [pair for pair in self.held_dead if pair[1].number not in numbers]
        self.gone += before - len(self.held_dead)
        return before - len(self.held_dead)

    def set_rules(self, rules: Rules) -> None:
        self.rules = rules
        if not (rules.is_dead_lettered and rules.is_held):
            self.drop_dead_lettered([item.number for _, item in self.held_dead])

    def pump(self) -> None:
        self.serve()
        self.expire(self.now_ms)
        self.shorten()

    def serve(self) -> None:
        while self.ready:
            ring = next(
                (self.rings[p] for p in sorted(self.rings, reverse=True) if self.rings[p]), None
            )
            if ring is None:
                return
            self.expire(self.now_ms - 1)
            if not self.ready:
                return
            key = ring.pop(0)
            item = self.take()
            self.delivered.setdefault(key, []).append(item)
            if self.consumers[key].no_ack:
                self.gone += 1
            else:
                self.held.setdefault(key, []).append(item)
            self.refresh(key)

    def shorten(self) -> None:
        rules = self.rules
        if rules.overflow != "drop-head":
            return
        while self.ready and (
            (rules.max_length is not None and len(self.ready) > rules.max_length)
            or (
                rules.max_length_bytes is not None
                and sum(item.message.body_size for item in self.ready) > rules.max_length_bytes
            )
        ):
            self.die("maxlen", self.take())
        self.expire(self.now_ms)
