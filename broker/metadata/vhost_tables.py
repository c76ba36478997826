"""One virtual host: exchanges, queues, bindings, and the routing of a message.

The part of the catalogue that routing reads. Invariants:

1. A binding's both ends exist.
2. The default exchange has one binding per queue in its matcher, none in the listings.
3. Matchers hold queue uids and `Source` objects, never names: a namesake can't inherit bindings.
4. The store of an exchange is a queue for whoever serves queues, and for nobody else: no name leads
   to it, no policy applies, no listing or limit counts it.
5. Every change of one thing takes time that depends on that thing, not on how many others there
   are: 10,000 queues come and go in time proportional to 10,000.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from broker.amqp.content import Properties
from broker.metadata.policies import Policy
from broker.metadata.records import Binding, Exchange, Queue, Tap, Vhost
from broker.routing import router
from broker.routing.traits import Traits

_arguments_encoder = msgspec.msgpack.Encoder(order="deterministic")

BindingKey = tuple[str, str, str, bytes]
"""What tells the bindings of one exchange apart: kind, destination, routing key, arguments."""


def binding_key(binding: Binding) -> BindingKey:
    """The identity of a binding within its source."""
    arguments = _arguments_encoder.encode(binding.arguments) if binding.arguments else b""
    return (binding.kind, binding.destination, binding.routing_key, arguments)


SHARDS_PER_NODE_MAX: Final = 256
"""More are not made, whatever a policy asks for; RabbitMQ has no limit."""


def shard_prefix(exchange: str) -> str:
    """Return the prefix of the names of an exchange's shards."""
    return f"sharding: {exchange} - "


class Sharding(NamedTuple):
    """The sharding part of an exchange's policy.

    Attributes:
        per_node: Queues on each node.
        routing_key: What they are bound with.
    """

    per_node: int
    routing_key: str

    @classmethod
    def of(cls, policy: Policy | None) -> Sharding | None:
        """Read a policy; None if it says nothing of shards."""
        per_node = None if policy is None else policy.definition.get("shards-per-node")
        if policy is None or not isinstance(per_node, int | float) or not per_node >= 0:
            return None
        key = policy.definition.get("routing-key", "")
        count = int(min(per_node, SHARDS_PER_NODE_MAX))
        return cls(count, key if isinstance(key, str) else "")


class ExchangeEntry:
    """An exchange with its bindings as source (`bindings`) and as destination (`incoming`).

    Attributes:
        record: The exchange.
        source: Its place in the walk.
        bindings: By identity.
        incoming: By source and identity.
        sharding: How a policy shards it, None if none does.
    """

    __slots__ = ("bindings", "incoming", "record", "sharding", "source")

    def __init__(self, record: Exchange) -> None:
        self.record = record
        self.source = router.Source(record.type, record.alternate, record.arguments, record.name)
        self.bindings: dict[BindingKey, Binding] = {}
        self.incoming: dict[tuple[str, BindingKey], Binding] = {}
        self.sharding: Sharding | None = None


class VhostTables:
    """All that lives in a vhost.

    Attributes:
        record: The vhost.
        exchanges: By name.
        queues: By name.
        stores: Queues that keep messages for an exchange, by its name.
        taps: By kind and name of their source.
    """

    __slots__ = (
        "_incoming",
        "_inside",
        "_sources",
        "_tapped",
        "exchanges",
        "queues",
        "record",
        "stores",
        "taps",
    )

    def __init__(self, record: Vhost) -> None:
        self.record = record
        self.exchanges: dict[str, ExchangeEntry] = {}
        self.queues: dict[str, Queue] = {}
        self.stores: dict[str, Queue] = {}
        self.taps: dict[tuple[str, str], Tap] = {}
        self._tapped: dict[Hashable, Hashable] = {}  # uid of a queue -> of the stream that taps it
        self._sources: dict[str, router.Source] = {}
        self._incoming: dict[str, dict[tuple[str, BindingKey], Binding]] = {}
        self._inside: dict[str, bool] = {}  # exchange -> looks_inside, as far as asked

    # Reading

    def bindings_to(self, kind: str, name: str) -> Iterable[Binding]:
        """Bindings a queue or an exchange is the destination of."""
        if kind == "queue":
            return self._incoming.get(name, {}).values()
        entry = self.exchanges.get(name)
        return () if entry is None else entry.incoming.values()

    def has_bindings_to(self, queue: str) -> bool:
        """True if a queue is bound to an exchange."""
        return queue in self._incoming

    def looks_inside(self, exchange: str) -> bool:
        """True if a route from here depends on more than the routing keys."""
        known = self._inside.get(exchange)
        if known is None:
            known = self._inside[exchange] = self._reaches_inside(exchange)
        return known

    def route(
        self,
        entry: ExchangeEntry,
        keys: tuple[str, ...],
        headers: Mapping[str, object] | None,
        properties: Properties | None,
        draw: int,
    ) -> tuple[list[Hashable], list[Hashable], list[tuple[str, str]], int]:
        """The uids of the queues, and of the stores, that a message goes to.

        Then (exchange, alternate) for each alternate that it needed and that is not there, and how
        many steps it took.
        """
        traits = Traits(keys, headers, properties, draw)
        leaves, stores, missing, looked = router.walk(entry.source, traits, self._sources.get)
        if self._tapped:
            leaves = self._with_taps(leaves)
        return leaves, stores, missing, looked

    def shards(self, exchange: str) -> tuple[Queue, ...]:
        """The shards bound to a sharded exchange, by name; () for any other name."""
        entry = self.exchanges.get(exchange)
        if entry is None or entry.sharding is None:
            return ()
        prefix = shard_prefix(exchange)
        names = {each.destination for each in entry.bindings.values() if each.kind == "queue"}
        return tuple(self.queues[name] for name in sorted(names) if name.startswith(prefix))

    # Changing

    def put_exchange(self, record: Exchange, policy: Policy | None) -> None:
        """Add an exchange, with the policy that applies to it."""
        entry = ExchangeEntry(record)
        self.exchanges[record.name] = entry
        self._sources[record.name] = entry.source
        self._apply_policy(entry, policy)
        self._inside.clear()

    def remove_exchange(self, name: str) -> None:
        """Remove an exchange without bindings."""
        entry = self.exchanges.pop(name)
        del self._sources[name]
        self._inside.clear()
        assert not entry.bindings, "bindings go before their source"
        assert not entry.incoming, "bindings go before their destination"

    def apply_policies(self, policy_of: Callable[[str], Policy | None]) -> None:
        """Let the policies that apply to exchanges now have their effect."""
        for name, entry in self.exchanges.items():
            self._apply_policy(entry, policy_of(name))
        self._inside.clear()

    def put_queue(self, record: Queue) -> None:
        """Add a queue, or replace the record of the same incarnation."""
        exchange = record.keeps_for
        if exchange is not None:
            self.stores[exchange] = record
            self.exchanges[exchange].source.store = record.uid
            return
        is_new = record.name not in self.queues
        self.queues[record.name] = record
        if is_new:
            matcher = self.exchanges[""].source.matcher
            matcher.bind(record.name, {}, record.uid, _label("queue", record.name))

    def remove_queue(self, record: Queue) -> None:
        """Remove a queue without bindings."""
        assert record.name not in self._incoming, "bindings go before their destination"
        exchange = record.keeps_for
        if exchange is not None:
            del self.stores[exchange]
            self.exchanges[exchange].source.store = None
            return
        del self.queues[record.name]
        matcher = self.exchanges[""].source.matcher
        matcher.unbind(record.name, {}, record.uid, _label("queue", record.name))

    def put_tap(self, tap: Tap) -> None:
        """Add a tap that is not there; both ends are."""
        self.taps[tap.kind, tap.source] = tap
        if tap.kind == "queue":
            self._tapped[self.queues[tap.source].uid] = self.queues[tap.stream].uid

    def remove_tap(self, tap: Tap) -> None:
        """Remove a tap that is there; both ends still are."""
        del self.taps[tap.kind, tap.source]
        if tap.kind == "queue":
            del self._tapped[self.queues[tap.source].uid]

    def taps_with(self, queue: str) -> list[Tap]:
        """The taps of which a queue is an end."""
        if not self.taps:
            return []
        own = self.taps.get(("queue", queue))
        to_it = [tap for tap in self.taps.values() if tap.stream == queue]
        return to_it if own is None else [own, *to_it]

    def put_binding(self, binding: Binding) -> None:
        """Add a binding that is not there; both ends are."""
        entry = self.exchanges[binding.source]
        key = binding_key(binding)
        entry.bindings[key] = binding
        if binding.kind == "queue":
            self._incoming.setdefault(binding.destination, {})[binding.source, key] = binding
        else:
            self.exchanges[binding.destination].incoming[binding.source, key] = binding
            self._inside.clear()
        entry.source.matcher.bind(
            binding.routing_key,
            binding.arguments,
            self._target(binding),
            _label(binding.kind, binding.destination),
        )

    def remove_binding(self, binding: Binding) -> None:
        """Remove a binding that is there; both ends still are."""
        entry = self.exchanges[binding.source]
        key = binding_key(binding)
        del entry.bindings[key]
        if binding.kind == "queue":
            incoming = self._incoming[binding.destination]
            del incoming[binding.source, key]
            if not incoming:
                del self._incoming[binding.destination]
        else:
            del self.exchanges[binding.destination].incoming[binding.source, key]
            self._inside.clear()
        entry.source.matcher.unbind(
            binding.routing_key,
            binding.arguments,
            self._target(binding),
            _label(binding.kind, binding.destination),
        )

    # Inside

    def _apply_policy(self, entry: ExchangeEntry, policy: Policy | None) -> None:
        """The argument wins over the policy; shards are a matter of policy alone."""
        record = entry.record
        if "alternate-exchange" not in record.arguments:
            name = None if policy is None else policy.definition.get("alternate-exchange")
            entry.source.alternate = name if isinstance(name, str) else None
        is_ours = not record.name or record.name.startswith("amq.")  # a policy ".*" means others
        entry.sharding = None if is_ours else Sharding.of(policy)

    def _with_taps(self, uids: list[Hashable]) -> list[Hashable]:
        """Queues, and after them the streams that tap one of them, each once."""
        found = dict.fromkeys(uids)
        for uid in uids:
            stream = self._tapped.get(uid)
            if stream is not None:
                found[stream] = None
        return list(found)

    def _target(self, binding: Binding) -> Hashable:
        """Return the value that a matcher holds for a binding's destination (invariant 3)."""
        if binding.kind == "queue":
            return self.queues[binding.destination].uid
        return self.exchanges[binding.destination].source

    def _reaches_inside(self, exchange: str) -> bool:
        pending, seen = [exchange], {exchange}
        while pending:
            entry = self.exchanges.get(pending.pop())
            if entry is None:
                continue
            if entry.source.looks_inside:
                return True
            following = [
                each.destination for each in entry.bindings.values() if each.kind == "exchange"
            ]
            if entry.source.alternate is not None:
                following.append(entry.source.alternate)
            pending.extend(name for name in following if name not in seen)
            seen.update(following)
        return False


def _label(kind: str, name: str) -> str:
    """Return a destination's name with its kind."""
    return f"{kind} {name}"
