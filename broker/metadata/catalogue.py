"""The read side of group 0: its state on this node after the last applied entry.

Sessions, queues and the management API read it directly; only `MetadataMachine` changes it, between
two entries, so a reader never sees half a command. Records are values and may be kept; a cached
route holds until `version` moves.

Invariant: what applies to a queue follows from its name, its type and the policies, nothing else.
Those of exchanges and bindings stand in `vhost_tables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Mapping
from typing import NamedTuple

from broker.amqp.content import Properties
from broker.metadata.ha_policy import HaPolicy
from broker.metadata.placed import PlacedQueues
from broker.metadata.policies import AppliedPolicies, Policy, PolicyChange, PolicyTable
from broker.metadata.records import (
    REPLICATED,
    Binding,
    Exchange,
    Node,
    Parameter,
    Permission,
    Queue,
    Tap,
    TopicPermission,
    User,
    Vhost,
)
from broker.metadata.vhost_tables import ExchangeEntry, Sharding, VhostTables, binding_key

__all__ = ["Catalogue", "RoutingResult", "binding_key"]


class RoutingResult(NamedTuple):
    """The targets of a publish.

    Attributes:
        exchange: The exchange published to (an internal one is the caller's 403).
        queues: Each queue once; () is unroutable unless a store takes it.
        stores: Queues that keep the message for an exchange on the way, each once: for later
            (x-delayed-message) or for whoever binds later (x-recent-history).
        looked: Steps it took to find: keys, bindings and words that were looked at.
    """

    exchange: Exchange
    queues: tuple[Queue, ...]
    stores: tuple[Queue, ...] = ()
    looked: int = 0


class Catalogue:
    """Everything that group 0 has decided, read-only.

    Attributes:
        version: Moves with every change that can alter routing, access or where a queue is served.
        index: Group 0 index of the last applied entry.
        cluster_id: "" before Bootstrap.
        cluster_name: What users see.
        features: Names of the feature flags that are enabled.
        alternate_missing: Called while routing with vhost, exchange and its alternate when the
            message needs the alternate and there is none; does nothing until it is set.
    """

    def __init__(self) -> None:
        self.alternate_missing: Callable[[str, str, str], None] = _nobody
        self.version = 0
        self.clear()

    def clear(self) -> None:
        """Forget all (before a snapshot is read). Machine only."""
        self.index = 0
        self.cluster_id = ""
        self.cluster_name = ""
        self.features: frozenset[str] = frozenset()
        self._vhosts: dict[str, VhostTables] = {}
        self._queues: dict[int, Queue] = {}
        self._owned: dict[str, dict[int, None]] = {}
        self._placed = PlacedQueues()
        self._users: dict[str, User] = {}
        self._permissions: dict[tuple[str, str], Permission] = {}
        self._topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        self._nodes: dict[str, Node] = {}
        self._parameters: dict[tuple[str, str, str], Parameter] = {}
        self._policies = PolicyTable()
        self._sharded: dict[tuple[str, str], Sharding] = {}
        self.touch()

    def touch(self) -> None:
        """Note that routing or access may have changed. Machine only."""
        self.version += 1

    # Reading

    def vhost(self, name: str) -> Vhost | None:
        """A virtual host."""
        entry = self._vhosts.get(name)
        return None if entry is None else entry.record

    def vhosts(self) -> list[Vhost]:
        """All virtual hosts."""
        return [entry.record for entry in self._vhosts.values()]

    def user(self, name: str) -> User | None:
        """A user."""
        return self._users.get(name)

    def users(self) -> list[User]:
        """All users."""
        return list(self._users.values())

    def permission(self, user: str, vhost: str) -> Permission | None:
        """A user's permissions in a vhost."""
        return self._permissions.get((user, vhost))

    def permissions(self) -> list[Permission]:
        """All permissions."""
        return list(self._permissions.values())

    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermission | None:
        """A user's topic permissions on an exchange."""
        return self._topic_permissions.get((user, vhost, exchange))

    def topic_permissions(self) -> list[TopicPermission]:
        """All topic permissions."""
        return list(self._topic_permissions.values())

    def exchange(self, vhost: str, name: str) -> Exchange | None:
        """An exchange."""
        entry = self._exchange_entry(vhost, name)
        return None if entry is None else entry.record

    def exchanges(self, vhost: str | None = None) -> list[Exchange]:
        """The exchanges of one vhost, or all."""
        return [entry.record for home in self._entries(vhost) for entry in home.exchanges.values()]

    def queue(self, vhost: str, name: str) -> Queue | None:
        """A queue by name."""
        entry = self._vhosts.get(vhost)
        return None if entry is None else entry.queues.get(name)

    def queue_by_uid(self, uid: int) -> Queue | None:
        """A queue by incarnation; None once it is deleted."""
        return self._queues.get(uid)

    def queue_uids(self) -> KeysView[int]:
        """Return the incarnations of all queues, stores included."""
        return self._queues.keys()

    def queues(self, vhost: str | None = None) -> list[Queue]:
        """The queues of one vhost, or all; no stores."""
        return [queue for home in self._entries(vhost) for queue in home.queues.values()]

    def all_queues(self, vhost: str | None = None) -> list[Queue]:
        """The queues of one vhost, or all, and the stores of x-delayed-message exchanges."""
        stores = [store for home in self._entries(vhost) for store in home.stores.values()]
        return self.queues(vhost) + stores

    def store(self, vhost: str, exchange: str) -> Queue | None:
        """Return the queue in which an x-delayed-message exchange keeps messages."""
        entry = self._vhosts.get(vhost)
        return None if entry is None else entry.stores.get(exchange)

    def rings(self) -> list[Queue]:
        """The mirrored queues, oldest first."""
        return [self._queues[uid] for uid in sorted(self._placed.ringed)]

    def queues_on(self, node: str) -> list[Queue]:
        """The queues whose home, replica or living mirror a node is, oldest first."""
        return [self._queues[uid] for uid in sorted(self._placed.by_node.get(node, ()))]

    def queue_count_on(self, node: str) -> int:
        """Return the number of queues that `queues_on` gives, without listing them."""
        return len(self._placed.by_node.get(node, ()))

    def homes(self) -> Mapping[str, int]:
        """Return the number of queues that each node is the home of, stores included."""
        return self._placed.homes

    def leaders(self) -> Mapping[str, int]:
        """Return how many queues with replicas each node leads by group 0, stores included."""
        return self._placed.leaders

    def replicas(self) -> Mapping[str, int]:
        """Return the number of queues of which each node has a replica, stores included."""
        return self._placed.replicas

    def owners(self) -> list[str]:
        """Connections that own exclusive queues."""
        return list(self._owned)

    def queues_of(self, owner: str) -> list[Queue]:
        """The exclusive queues of a connection, "NODE/BOOT/CONNECTION_ID"."""
        return [self._queues[uid] for uid in self._owned.get(owner, ())]

    def queue_count(self, vhost: str | None = None) -> int:
        """Return the number of queues of a vhost, or of all vhosts; stores are not counted."""
        return sum(len(home.queues) for home in self._entries(vhost))

    def binding_count(self) -> int:
        """Return the number of bindings of all vhosts; the default exchange's are left out."""
        entries = [entry for home in self._entries(None) for entry in home.exchanges.values()]
        return sum([len(entry.bindings) for entry in entries])

    def exchange_count(self, vhost: str | None = None) -> int:
        """Return the number of exchanges of a vhost, or of all vhosts."""
        return sum(len(home.exchanges) for home in self._entries(vhost))

    def is_reachable(self, queue: Queue) -> bool:
        """False for a classic queue whose home is down (404 "home node ... is down").

        A queue with replicas may be down too, but requests wait for its return.
        """
        if queue.type in REPLICATED or queue.ring is not None:
            return True
        node = self._nodes.get(queue.home)
        return node is not None and node.alive

    def bindings(self, vhost: str | None = None) -> list[Binding]:
        """The bindings of one vhost, or all; the default exchange's are left out."""
        return [
            binding
            for home in self._entries(vhost)
            for entry in home.exchanges.values()
            for binding in entry.bindings.values()
        ]

    def bindings_from(self, vhost: str, exchange: str) -> list[Binding]:
        """Bindings an exchange is the source of."""
        entry = self._exchange_entry(vhost, exchange)
        return [] if entry is None else list(entry.bindings.values())

    def bindings_to(self, vhost: str, kind: str, name: str) -> list[Binding]:
        """Bindings a queue or an exchange is the destination of."""
        home = self._vhosts.get(vhost)
        return [] if home is None else list(home.bindings_to(kind, name))

    def has_bindings_from(self, vhost: str, exchange: str) -> bool:
        """True if an exchange is the source of a binding."""
        entry = self._exchange_entry(vhost, exchange)
        return entry is not None and bool(entry.bindings)

    def has_binding(self, binding: Binding) -> bool:
        """True if exactly this binding exists."""
        entry = self._exchange_entry(binding.vhost, binding.source)
        return entry is not None and binding_key(binding) in entry.bindings

    def node(self, name: str) -> Node | None:
        """A member of the cluster."""
        return self._nodes.get(name)

    def drained(self) -> frozenset[str]:
        """Names of the members in maintenance mode."""
        return frozenset(node.name for node in self._nodes.values() if node.being_drained)

    def nodes(self) -> list[Node]:
        """All members, alive or not."""
        return list(self._nodes.values())

    def is_living(self, node: str, boot: str) -> bool:
        """True if this is the node's boot now (P1)."""
        record = self._nodes.get(node)
        return record is not None and record.boot == boot

    def parameter(self, vhost: str, component: str, name: str) -> Parameter | None:
        """A runtime parameter; vhost "" and component "" for a global one."""
        return self._parameters.get((vhost, component, name))

    def parameters(self) -> list[Parameter]:
        """All runtime parameters."""
        return list(self._parameters.values())

    def vhost_limit(self, vhost: str, name: str) -> int | None:
        """A vhost limit ("max-queues", "max-connections"); None is unlimited."""
        record = self._parameters.get((vhost, "vhost-limits", "limits"))
        limit = record.value.get(name) if record and isinstance(record.value, dict) else None
        return limit if isinstance(limit, int) and limit >= 0 else None

    def sharded(self) -> Mapping[tuple[str, str], Sharding]:
        """The exchanges that a policy shards, by vhost and name."""
        return self._sharded

    def shards(self, vhost: str, exchange: str) -> tuple[Queue, ...]:
        """The shards of a sharded exchange, in the order of their names; () for any other name."""
        if (vhost, exchange) not in self._sharded:
            return ()
        return self._vhosts[vhost].shards(exchange)

    def tap(self, vhost: str, kind: str, source: str) -> Tap | None:
        """The tap of a queue or an exchange."""
        entry = self._vhosts.get(vhost)
        return None if entry is None else entry.taps.get((kind, source))

    def taps(self, vhost: str | None = None) -> list[Tap]:
        """The taps of one vhost, or all."""
        return [tap for home in self._entries(vhost) for tap in home.taps.values()]

    def taps_with(self, queue: Queue) -> list[Tap]:
        """The taps of which a queue is an end."""
        return self._vhosts[queue.vhost].taps_with(queue.name)

    # Policies

    def policy(self, vhost: str, name: str, *, operator: bool = False) -> Policy | None:
        """A policy, or an operator policy, by name."""
        return self._policies.get(vhost, name, operator=operator)

    def policies(self, vhost: str | None = None) -> list[Policy]:
        """The policies of one vhost, or all."""
        return self._policies.all(vhost, operator=False)

    def operator_policies(self, vhost: str | None = None) -> list[Policy]:
        """The operator policies of one vhost, or all."""
        return self._policies.all(vhost, operator=True)

    def policy_of(self, subject: Queue | Exchange) -> Policy | None:
        """The policy that applies to a queue or an exchange that is here."""
        if isinstance(subject, Queue):
            return self._policies.applied(subject).user
        return self._policies.for_exchange(subject.vhost, subject.name)

    def operator_policy_of(self, queue: Queue) -> Policy | None:
        """The operator policy that applies to a queue that is here."""
        return self._policies.applied(queue).operator

    def effective_policy(self, queue: Queue) -> Mapping[str, object]:
        """Policy and operator policy of a queue that is here, merged; {} without any."""
        return {} if queue.keeps_for is not None else self._policies.applied(queue).effective

    def effective_policy_for(self, vhost: str, name: str, queue_type: str) -> Mapping[str, object]:
        """The effective policy that a queue of this name and type would have."""
        return self._policies.for_queue(vhost, name, queue_type).effective

    def ha_policy(self, queue: Queue) -> HaPolicy | None:
        """Return how a queue is to be mirrored; None for all others."""
        if queue.type != "classic" or queue.exclusive_owner is not None:
            return None
        return self._policies.applied(queue).ha

    # Routing

    def looks_inside(self, vhost: str, exchange: str) -> bool:
        """True if a route from here depends on more than the routing keys.

        If not, it may be kept until `version` moves. If so, `route` wants headers, properties and
        a draw, for each message anew.
        """
        home = self._vhosts.get(vhost)
        return home is not None and home.looks_inside(exchange)

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object] | None = None,
        extra_keys: Iterable[str] = (),
        *,
        properties: Properties | None = None,
        draw: int = 0,
    ) -> RoutingResult | None:
        """Find the queues a message goes to.

        Args:
            vhost: Virtual host.
            exchange: Exchange published to; "" is the default exchange.
            routing_key: Its routing key.
            headers: Its headers; may be None unless `looks_inside` says that they are wanted.
            extra_keys: The keys of CC and BCC.
            properties: All its properties, if `looks_inside`.
            draw: 64 random bits, if `looks_inside`.

        Returns:
            The route, or None if there is no such exchange. It holds until `version` moves.
        """
        home = self._vhosts.get(vhost)
        entry = None if home is None else home.exchanges.get(exchange)
        if home is None or entry is None:
            return None
        keys = (routing_key, *extra_keys)
        uids, stores, missing, looked = home.route(entry, keys, headers, properties, draw)
        for name, alternate in missing:
            self.alternate_missing(vhost, name, alternate)
        queues = self._queues_of(uids)
        return RoutingResult(
            entry.record, queues, self._queues_of(stores) if stores else (), looked
        )

    # Changing. Machine only; each keeps the invariants, none decides anything.

    def put_vhost(self, record: Vhost) -> None:
        """Add or replace a vhost's record."""
        entry = self._vhosts.get(record.name)
        if entry is None:
            self._vhosts[record.name] = VhostTables(record)
        else:
            entry.record = record
        self.touch()

    def remove_vhost(self, name: str) -> None:
        """Remove a vhost with its exchanges and bindings; its queues have been removed before."""
        del self._vhosts[name]
        for permission in [key for key in self._permissions if key[1] == name]:
            del self._permissions[permission]
        for topic in [key for key in self._topic_permissions if key[1] == name]:
            del self._topic_permissions[topic]
        for parameter in [key for key in self._parameters if key[0] == name]:
            del self._parameters[parameter]
        self._policies.remove_vhost(name)
        for sharded in [key for key in self._sharded if key[0] == name]:
            del self._sharded[sharded]
        self.touch()

    def put_exchange(self, record: Exchange) -> None:
        """Add an exchange."""
        policy = self._policies.for_exchange(record.vhost, record.name)
        home = self._vhosts[record.vhost]
        home.put_exchange(record, policy)
        self._note_sharding(record.vhost, home.exchanges[record.name])
        self.touch()

    def remove_exchange(self, vhost: str, name: str) -> None:
        """Remove an exchange without bindings."""
        self._vhosts[vhost].remove_exchange(name)
        self._sharded.pop((vhost, name), None)
        self.touch()

    def put_queue(self, record: Queue) -> None:
        """Add a queue, or replace the record of the same incarnation."""
        if record.uid not in self._queues and record.exclusive_owner is not None:
            self._owned.setdefault(record.exclusive_owner, {})[record.uid] = None
        self._placed.change(record.uid, self._queues.get(record.uid), record)
        self._queues[record.uid] = record
        self._vhosts[record.vhost].put_queue(record)
        self.touch()

    def remove_queue(self, record: Queue) -> None:
        """Remove a queue without bindings."""
        self._vhosts[record.vhost].remove_queue(record)
        self._placed.change(record.uid, record, None)
        del self._queues[record.uid]
        self._policies.forget_queue(record.uid)
        if record.exclusive_owner is not None:
            owned = self._owned[record.exclusive_owner]
            del owned[record.uid]
            if not owned:
                del self._owned[record.exclusive_owner]
        self.touch()

    def put_binding(self, binding: Binding) -> None:
        """Add a binding that is not there; both ends are."""
        self._vhosts[binding.vhost].put_binding(binding)
        self.touch()

    def remove_binding(self, binding: Binding) -> None:
        """Remove a binding that is there; both ends still are."""
        self._vhosts[binding.vhost].remove_binding(binding)
        self.touch()

    def put_tap(self, tap: Tap) -> None:
        """Add a tap that is not there; both ends are."""
        self._vhosts[tap.vhost].put_tap(tap)
        self.touch()

    def remove_tap(self, tap: Tap) -> None:
        """Remove a tap that is there; both ends still are."""
        self._vhosts[tap.vhost].remove_tap(tap)
        self.touch()

    def put_user(self, record: User) -> None:
        """Add or replace a user."""
        self._users[record.name] = record
        self.touch()

    def remove_user(self, name: str) -> None:
        """Remove a user with its permissions."""
        del self._users[name]
        for permission in [key for key in self._permissions if key[0] == name]:
            del self._permissions[permission]
        for topic in [key for key in self._topic_permissions if key[0] == name]:
            del self._topic_permissions[topic]
        self.touch()

    def put_permission(self, record: Permission) -> None:
        """Add or replace permissions."""
        self._permissions[record.user, record.vhost] = record
        self.touch()

    def remove_permission(self, user: str, vhost: str) -> None:
        """Remove permissions that are there."""
        del self._permissions[user, vhost]
        self.touch()

    def put_topic_permission(self, record: TopicPermission) -> None:
        """Add or replace topic permissions."""
        self._topic_permissions[record.user, record.vhost, record.exchange] = record
        self.touch()

    def remove_topic_permission(self, record: TopicPermission) -> None:
        """Remove topic permissions that are there."""
        del self._topic_permissions[record.user, record.vhost, record.exchange]
        self.touch()

    def put_node(self, record: Node) -> None:
        """Add or replace a node."""
        self._nodes[record.name] = record
        self.touch()

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        del self._nodes[name]
        self.touch()

    def put_parameter(self, record: Parameter) -> None:
        """Add or replace a parameter."""
        self._parameters[record.vhost, record.component, record.name] = record

    def remove_parameter(self, vhost: str, component: str, name: str) -> None:
        """Remove a parameter that is there."""
        del self._parameters[vhost, component, name]

    def put_policy(self, policy: Policy, *, operator: bool) -> list[Queue]:
        """Add or replace a policy; gives the queues to which something else applies now."""
        return self._change_policy(policy.vhost, policy.name, policy, operator=operator)

    def remove_policy(self, vhost: str, name: str, *, operator: bool) -> list[Queue]:
        """Remove a policy that is there; gives the queues to which something else applies now."""
        return self._change_policy(vhost, name, None, operator=operator)

    def preview_policy(
        self, vhost: str, name: str, policy: Policy | None, *, operator: bool
    ) -> PolicyChange:
        """Say what putting or (None) removing a policy would change; changes nothing."""
        return self._policies.preview(vhost, name, policy, operator=operator)

    def policies_with(self, policies: Iterable[tuple[Policy, bool]]) -> PolicyTable:
        """Return the policies as they would be with others put; changes nothing.

        Args:
            policies: Each with True for an operator policy.
        """
        return self._policies.with_policies(policies)

    def applied_policies(self, queue: Queue) -> AppliedPolicies:
        """The policies that apply to a queue that is here."""
        return self._policies.applied(queue)

    # Inside

    def _change_policy(
        self, vhost: str, name: str, policy: Policy | None, *, operator: bool
    ) -> list[Queue]:
        home = self._vhosts[vhost]
        queues = home.queues.values()
        changed = self._policies.change(vhost, name, policy, queues, operator=operator)
        home.apply_policies(lambda exchange: self._policies.for_exchange(vhost, exchange))
        for entry in home.exchanges.values():
            self._note_sharding(vhost, entry)
        self.touch()
        return changed

    def _note_sharding(self, vhost: str, entry: ExchangeEntry) -> None:
        """Keep the look-up of sharded exchanges."""
        key = (vhost, entry.record.name)
        if entry.sharding is None:
            self._sharded.pop(key, None)
        else:
            self._sharded[key] = entry.sharding

    def _queues_of(self, uids: Iterable[object]) -> tuple[Queue, ...]:
        queues = self._queues
        return tuple(queues[uid] for uid in uids if isinstance(uid, int))

    def _entries(self, vhost: str | None) -> Iterable[VhostTables]:
        if vhost is None:
            return self._vhosts.values()
        entry = self._vhosts.get(vhost)
        return () if entry is None else (entry,)

    def _exchange_entry(self, vhost: str, name: str) -> ExchangeEntry | None:
        home = self._vhosts.get(vhost)
        return None if home is None else home.exchanges.get(name)


def _nobody(vhost: str, exchange: str, alternate: str) -> None:
    """Do nothing, until a listener is set."""
