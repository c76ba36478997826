"""Policies: which one applies to what, and what a user's and an operator's give together.

Per vhost, exactly one policy and one operator policy apply to a queue or an exchange: of those that
match, the one with the highest priority, of equal ones the first by name (RabbitMQ leaves that
open). Policies are never added up. One whose keys a queue's type does not support does not match.

Source: rabbit_policy.erl match/2, matches/2, merge_operator_definitions/2;
rabbit_queue_type.erl is_policy_applicable/2; the types' capabilities/0; behaviour.md 1.12.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from broker.metadata.records import Queue
from broker.patterns import Search, searcher

APPLY_TO = ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges")

_HA = (
    "ha-mode",
    "ha-params",
    "ha-sync-mode",
    "ha-sync-batch-size",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
    "warren-promote",
    "warren-sync",
    "queue-master-locator",
)
_STREAM = ("max-age", "stream-max-segment-size-bytes", "initial-cluster-size")
UNSUPPORTED: Mapping[str, frozenset[str]] = {
    "classic": frozenset(
        (
            *_STREAM,
            "delivery-limit",
            "dead-letter-strategy",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "target-group-size",
        )
    ),
    "quorum": frozenset((*_HA, *_STREAM, "queue-mode")),
}
"""By queue type, the keys that keep a policy from matching."""

_SMALLER_WINS = frozenset(
    (
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
    )
)
_HA_RANK = {"all": 2, "exactly": 1, "nodes": 0}


class Policy(msgspec.Struct, array_like=True, frozen=True):
    """A policy, or an operator policy.

    Attributes:
        vhost: Its virtual host.
        name: Its name; policies and operator policies have names of their own.
        pattern: A regular expression, searched for in names.
        apply_to: One of `APPLY_TO`.
        priority: The highest wins.
        definition: Keys and values, validated before it was proposed.
    """

    vhost: str
    name: str
    pattern: str
    apply_to: str
    priority: int | float
    definition: dict[str, object]


class Applied(NamedTuple):
    """What applies to a queue.

    Attributes:
        user: The policy, None without one.
        operator: The operator policy, None without one.
        effective: Both merged; empty without any.
    """

    user: Policy | None
    operator: Policy | None
    effective: Mapping[str, object]


NOTHING = Applied(None, None, {})


def merge(user: Policy | None, operator: Policy | None) -> dict[str, object]:
    """The effective definition of a policy and an operator policy.

    Keys of one of them stay; of a key in both the operator's value limits the user's. Never raises,
    whatever the values are.
    """
    ours = {} if user is None else user.definition
    theirs = {} if operator is None else operator.definition
    return {key: _merged(key, ours, theirs) for key in sorted({*ours, *theirs})}


def _merged(key: str, user: Mapping[str, object], operator: Mapping[str, object]) -> object:
    if key not in operator:
        return user[key]
    value, limit = user.get(key), operator[key]
    if key not in user:
        return limit
    if key in _SMALLER_WINS and isinstance(value, int) and isinstance(limit, int):
        return min(value, limit)
    if key == "target-group-size" and isinstance(value, int) and isinstance(limit, int):
        return max(value, limit)
    if key == "ha-mode":
        return value if _ha_rank(value) > _ha_rank(limit) else limit
    if key == "ha-params":
        return _merged_params(value, limit)
    return limit


def _ha_rank(mode: object) -> int:
    return _HA_RANK.get(mode, -1) if isinstance(mode, str) else -1


def _merged_params(value: object, limit: object) -> object:
    if isinstance(value, int) and isinstance(limit, int):
        return max(value, limit)
    if isinstance(value, list) and isinstance(limit, list):
        return value if len(value) > len(limit) else limit
    return value if isinstance(value, int) else limit


class _Rule:
    """A policy with its pattern compiled; ordered by which one is asked first."""

    __slots__ = ("found", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.found: Search = searcher(policy.pattern)

    def __lt__(self, other: _Rule) -> bool:
        one, two = self.policy, other.policy
        return (-one.priority, one.name) < (-two.priority, two.name)

    def selects_queue(self, name: str, queue_type: str) -> bool:
        policy = self.policy
        if policy.apply_to not in {"all", "queues", f"{queue_type}_queues"}:
            return False
        unsupported = UNSUPPORTED.get(queue_type, frozenset())
        return unsupported.isdisjoint(policy.definition) and self.found(name)

    def selects_exchange(self, name: str) -> bool:
        return self.policy.apply_to in {"all", "exchanges"} and self.found(name)


class _Rules:
    """The policies of one kind: of users, or of operators."""

    __slots__ = ("_by_name", "_in_order")

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, _Rule]] = {}
        self._in_order: dict[str, list[_Rule]] = {}

    def get(self, vhost: str, name: str) -> _Rule | None:
        return self._by_name.get(vhost, {}).get(name)

    def vhosts(self) -> Iterable[str]:
        return self._in_order

    def of(self, vhost: str) -> list[_Rule]:
        return self._in_order.get(vhost, [])

    def put(self, rule: _Rule) -> None:
        vhost, name = rule.policy.vhost, rule.policy.name
        self.remove(vhost, name)
        self._by_name.setdefault(vhost, {})[name] = rule
        insort(self._in_order.setdefault(vhost, []), rule)

    def remove(self, vhost: str, name: str) -> None:
        old = self._by_name.get(vhost, {}).pop(name, None)
        if old is not None:
            self._in_order[vhost].remove(old)

    def remove_vhost(self, vhost: str) -> None:
        self._by_name.pop(vhost, None)
        self._in_order.pop(vhost, None)


class PolicyTable:
    """All policies of a catalogue, and which of them apply to its queues.

    What applies to a queue is kept until a policy that selects it changes: its name and its type
    never do.
    """

    __slots__ = ("_applied", "_rules")

    def __init__(self) -> None:
        self._rules = {False: _Rules(), True: _Rules()}
        self._applied: dict[int, Applied] = {}

    # Reading

    def get(self, vhost: str, name: str, *, operator: bool) -> Policy | None:
        """A policy by name."""
        rule = self._rules[operator].get(vhost, name)
        return None if rule is None else rule.policy

    def all(self, vhost: str | None, *, operator: bool) -> list[Policy]:
        """The policies of one vhost, or all; of each vhost the one with the last say first."""
        rules = self._rules[operator]
        vhosts = rules.vhosts() if vhost is None else (vhost,)
        return [rule.policy for each in vhosts for rule in rules.of(each)]

    def applied(self, queue: Queue) -> Applied:
        """What applies to a queue of the catalogue."""
        known = self._applied.get(queue.uid)
        if known is None:
            known = self.for_queue(queue.vhost, queue.name, queue.type)
            self._applied[queue.uid] = known
        return known

    def for_queue(self, vhost: str, name: str, queue_type: str) -> Applied:
        """What applies, or would apply, to a queue of this name and type."""
        user = self._first(vhost, name, queue_type, operator=False)
        operator = self._first(vhost, name, queue_type, operator=True)
        if user is None and operator is None:
            return NOTHING
        return Applied(user, operator, merge(user, operator))

    def for_exchange(self, vhost: str, name: str) -> Policy | None:
        """The policy that applies to an exchange."""
        rules = self._rules[False].of(vhost)
        return next((rule.policy for rule in rules if rule.selects_exchange(name)), None)

    # Changing

    def forget_queue(self, uid: int) -> None:
        """A queue is deleted."""
        self._applied.pop(uid, None)

    def remove_vhost(self, vhost: str) -> None:
        """Remove a vhost's policies; its queues have been removed before."""
        for rules in self._rules.values():
            rules.remove_vhost(vhost)

    def change(
        self,
        vhost: str,
        name: str,
        policy: Policy | None,
        queues: Iterable[Queue],
        *,
        operator: bool,
    ) -> list[Queue]:
        """Put, replace or (None) remove a policy.

        Args:
            vhost: Its virtual host.
            name: Its name.
            policy: What it is from now on.
            queues: The queues of the vhost.
            operator: True for an operator policy.

        Returns:
            The queues to which another policy, or another definition, applies now.
        """
        rules = self._rules[operator]
        old = rules.get(vhost, name)
        new = None if policy is None else _Rule(policy)
        involved = [rule for rule in (old, new) if rule is not None]
        touched = [
            queue
            for queue in queues
            if any(rule.selects_queue(queue.name, queue.type) for rule in involved)
        ]
        before = [self.applied(queue) for queue in touched]
        if new is None:
            rules.remove(vhost, name)
        else:
            rules.put(new)
        for queue in touched:
            self.forget_queue(queue.uid)
        return [
            queue
            for queue, was in zip(touched, before, strict=True)
            if _shown(self.applied(queue)) != _shown(was)
        ]

    def _first(self, vhost: str, name: str, queue_type: str, *, operator: bool) -> Policy | None:
        rules = self._rules[operator].of(vhost)
        return next((rule.policy for rule in rules if rule.selects_queue(name, queue_type)), None)


def _shown(applied: Applied) -> tuple[str | None, str | None, Mapping[str, object]]:
    """What of it others can notice: a changed priority alone is nothing to them."""
    user, operator, effective = applied
    return (
        None if user is None else user.name,
        None if operator is None else operator.name,
        effective,
    )
