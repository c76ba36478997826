"""Policies: which one applies to a queue or exchange, and how user's and operator's are merged.

Per vhost, exactly one policy and one operator policy apply to a queue or an exchange: of those that
match, the one with the highest priority, of equal ones the first by name (RabbitMQ leaves that
open). Policies are never added up. One whose keys a queue's type does not support does not match.

Source: rabbit_policy.erl match/2, matches/2, merge_operator_definitions/2;
rabbit_queue_type.erl is_policy_applicable/2; the types' capabilities/0; docs/rabbitmq-behaviour.md
1.12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from broker.metadata.ha_policy import HaPolicy
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
    "stream": frozenset(
        (
            *_HA,
            "expires",
            "message-ttl",
            "dead-letter-exchange",
            "dead-letter-routing-key",
            "max-length",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "overflow",
            "queue-mode",
            "delivery-limit",
            "dead-letter-strategy",
            "target-group-size",
        )
    ),
}
"""By queue type, the keys that keep a policy from matching."""

_GROUPS = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}
"""How a policy's `apply_to` names the queues of a type."""

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
_PAIRS_MAX = 1024
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


class AppliedPolicies(NamedTuple):
    """The policies that apply to a queue.

    Attributes:
        user: The policy, None without one.
        operator: The operator policy, None without one.
        effective: Both merged; empty without any.
        ha: How that asks for mirrors, None if it does not.
    """

    user: Policy | None
    operator: Policy | None
    effective: Mapping[str, object]
    ha: HaPolicy | None


NOTHING = AppliedPolicies(None, None, {}, None)


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

    __slots__ = ("_found", "_is_for_exchanges", "_types", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._found: Search = searcher(policy.pattern)
        self._is_for_exchanges = policy.apply_to in {"all", "exchanges"}
        self._types = frozenset(
            queue_type
            for queue_type, unsupported in UNSUPPORTED.items()
            if policy.apply_to in {"all", "queues", _GROUPS[queue_type]}
            and unsupported.isdisjoint(policy.definition)
        )

    def __lt__(self, other: _Rule) -> bool:
        one, two = self.policy, other.policy
        return (-one.priority, one.name) < (-two.priority, two.name)

    def selects_queue(self, name: str, queue_type: str) -> bool:
        return queue_type in self._types and self._found(name)

    def selects_exchange(self, name: str) -> bool:
        return self._is_for_exchanges and self._found(name)


def _first(rules: Iterable[_Rule], name: str, queue_type: str) -> Policy | None:
    return next((rule.policy for rule in rules if rule.selects_queue(name, queue_type)), None)


class PolicyTable:
    """All policies of a catalogue, and which of them apply to its queues.

    What applies to a queue is kept until a policy changes it: its name and its type never do.
    """

    __slots__ = ("_applied", "_pairs", "_rules")

    def __init__(self) -> None:
        # operator or not -> vhost -> name, in the order in which they are asked
        self._rules: dict[bool, dict[str, dict[str, _Rule]]] = {False: {}, True: {}}
        self._applied: dict[int, AppliedPolicies] = {}
        self._pairs: dict[tuple[int, int], AppliedPolicies] = {}

    # Reading

    def get(self, vhost: str, name: str, *, operator: bool) -> Policy | None:
        """A policy by name."""
        rule = self._of(vhost, operator=operator).get(name)
        return None if rule is None else rule.policy

    def all(self, vhost: str | None, *, operator: bool) -> list[Policy]:
        """The policies of one vhost, or all; of each vhost the one with the last say first."""
        vhosts = self._rules[operator] if vhost is None else (vhost,)
        return [
            rule.policy for each in vhosts for rule in self._of(each, operator=operator).values()
        ]

    def applied(self, queue: Queue) -> AppliedPolicies:
        """Return the policies that apply to a queue of the catalogue."""
        known = self._applied.get(queue.uid)
        if known is None:
            known = self.for_queue(queue.vhost, queue.name, queue.type)
            self._applied[queue.uid] = known
        return known

    def for_queue(self, vhost: str, name: str, queue_type: str) -> AppliedPolicies:
        """Return the policies that apply, or would apply, to a queue of this name and type."""
        user = _first(self._of(vhost, operator=False).values(), name, queue_type)
        operator = _first(self._of(vhost, operator=True).values(), name, queue_type)
        return self.pair(user, operator)

    def for_exchange(self, vhost: str, name: str) -> Policy | None:
        """The policy that applies to an exchange."""
        rules = self._of(vhost, operator=False).values()
        return next((rule.policy for rule in rules if rule.selects_exchange(name)), None)

    # Changing

    def forget_queue(self, uid: int) -> None:
        """A queue is deleted."""
        self._applied.pop(uid, None)

    def remove_vhost(self, vhost: str) -> None:
        """Remove a vhost's policies; its queues have been removed before."""
        for rules in self._rules.values():
            rules.pop(vhost, None)

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
            queues: The queues of the vhost. There may be 100,000 of them: each is matched against
                the new pattern once at most, and against others only where the old one applied.
            operator: True for an operator policy.

        Returns:
            The queues to which another policy, or another definition, applies now.
        """
        change = self.preview(vhost, name, policy, operator=operator)
        changed = []
        for queue in queues:
            after = change.of_queue(queue)
            if after is None:
                continue
            if is_other(self.applied(queue), after):
                changed.append(queue)
            self._applied[queue.uid] = after
        self._rules[operator][vhost] = {rule.policy.name: rule for rule in change.ordered}
        return changed

    def preview(
        self, vhost: str, name: str, policy: Policy | None, *, operator: bool
    ) -> PolicyChange:
        """Prepare what `change` would do; nothing is changed by that.

        Args:
            vhost: As for `change`.
            name: As for `change`.
            policy: As for `change`.
            operator: As for `change`.
        """
        rules = self._of(vhost, operator=operator)
        old, new = rules.get(name), None if policy is None else _Rule(policy)
        return PolicyChange(self, rules, old, new, operator=operator)

    def with_policies(self, policies: Iterable[tuple[Policy, bool]]) -> PolicyTable:
        """Return another table in which policies are put or replaced; this one stays as it is.

        Args:
            policies: Each with True for an operator policy.
        """
        found = PolicyTable()
        found._rules = {operator: {**vhosts} for operator, vhosts in self._rules.items()}
        put: dict[tuple[bool, str], dict[str, _Rule]] = {}
        for policy, operator in policies:
            put.setdefault((operator, policy.vhost), {})[policy.name] = _Rule(policy)
        for (operator, vhost), rules in put.items():
            all_rules = self._of(vhost, operator=operator) | rules
            found._rules[operator][vhost] = {
                each.policy.name: each for each in sorted(all_rules.values())
            }
        return found

    def _of(self, vhost: str, *, operator: bool) -> dict[str, _Rule]:
        return self._rules[operator].get(vhost, {})

    def pair(self, user: Policy | None, operator: Policy | None) -> AppliedPolicies:
        """Both merged: one object for all queues that have the same two."""
        if user is None and operator is None:
            return NOTHING
        key = (id(user), id(operator))  # the value keeps both alive
        found = self._pairs.get(key)
        if found is None:
            if len(self._pairs) >= _PAIRS_MAX:
                self._pairs.clear()
            effective = merge(user, operator)
            found = AppliedPolicies(user, operator, effective, HaPolicy.of(effective))
            self._pairs[key] = found
        return found


class PolicyChange:
    """A policy that is put, replaced or removed: what applies then.

    Args:
        table: The policies as they are.
        rules: Those of the vhost and kind, by name.
        old: The one that goes; None if it is new.
        new: The one that comes; None if it is removed.
        operator: They are operator policies.

    Attributes:
        ordered: The rules afterwards, in the order in which they are asked.
    """

    __slots__ = ("_heirs", "_is_operator", "_new", "_old", "_rules", "_table", "ordered")

    def __init__(
        self,
        table: PolicyTable,
        rules: Mapping[str, _Rule],
        old: _Rule | None,
        new: _Rule | None,
        *,
        operator: bool,
    ) -> None:
        self._table = table
        self._rules = rules
        self._old, self._new = old, new
        self._is_operator = operator
        rest = [rule for rule in rules.values() if rule is not old]
        self.ordered = sorted(rest if new is None else [*rest, new])
        # where the old one applied, nothing that was asked before it selects the queue
        self._heirs = [
            each for each in self.ordered if each is new or old is None or not each < old
        ]

    def of_queue(self, queue: Queue) -> AppliedPolicies | None:
        """What applies to a queue then; None where nothing changes for it.

        Args:
            queue: Of the vhost.
        """
        before = self._table.applied(queue)
        current = before.operator if self._is_operator else before.user
        old, new = self._old, self._new
        if old is not None and current is old.policy:
            winner = _first(self._heirs, queue.name, queue.type)
        elif new is not None and (current is None or new < self._rules[current.name]):
            winner = _first((new,), queue.name, queue.type) or current
        else:
            return None
        if winner is current:
            return None
        if self._is_operator:
            return self._table.pair(before.user, winner)
        return self._table.pair(winner, before.operator)

    def of_exchange(self, name: str) -> Policy | None:
        """The policy that applies to an exchange then; not for operator policies."""
        return next((rule.policy for rule in self.ordered if rule.selects_exchange(name)), None)


def is_other(before: AppliedPolicies, after: AppliedPolicies) -> bool:
    """True if a queue notices the difference."""
    return _shown(after) != _shown(before)


def _shown(applied: AppliedPolicies) -> tuple[str | None, str | None, Mapping[str, object]]:
    """Return the visible part of a policy; its priority is not visible to queues."""
    user, operator = applied.user, applied.operator
    return (
        None if user is None else user.name,
        None if operator is None else operator.name,
        applied.effective,
    )
