"""What policies would change for queues and exchanges, told before they are set.

The policies of an import are looked at together: what applies to a queue is decided among all of
them, so two that both match it are not told as if each were alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.management.answers import plain
from broker.management.pace import STEP
from broker.metadata.catalogue import Catalogue
from broker.metadata.policies import (
    NOTHING,
    AppliedPolicies,
    Policy,
    PolicyTable,
    is_other,
)
from broker.metadata.records import QueueType

NAMED_MAX: Final = 100
"""Queues, and exchanges, that a preview names; it counts all."""
NAMED_MIN: Final = 5
"""Of each of many policies so many are named."""


class PolicyDraft(NamedTuple):
    """A policy that would be set.

    Attributes:
        what: For people: "policy 'p' in vhost '/'".
        policy: As it would be.
        operator: It is an operator policy.
    """

    what: str
    policy: Policy
    operator: bool


class Added(NamedTuple):
    """Queues and exchanges that an import would declare.

    Attributes:
        queues: Virtual host, name and type of each queue.
        exchanges: Virtual host and name of each exchange.
    """

    queues: Sequence[tuple[str, str, QueueType]] = ()
    exchanges: Sequence[tuple[str, str]] = ()


NOTHING_ADDED: Final = Added()


class _Effects:
    """What one policy would touch."""

    def __init__(self, named_max: int) -> None:
        self._named_max = named_max
        self._queues: list[dict[str, Any]] = []
        self._exchanges: list[dict[str, Any]] = []
        self._queue_count = self._exchange_count = 0

    def note_queue(self, item: dict[str, Any], *, added: bool) -> None:
        self._queue_count += 1
        if len(self._queues) < self._named_max:
            self._queues.append({**item, "added": added})

    def note_exchange(self, item: dict[str, Any], *, added: bool) -> None:
        self._exchange_count += 1
        if len(self._exchanges) < self._named_max:
            self._exchanges.append({**item, "added": added})

    def shown(self) -> dict[str, Any]:
        return {
            "queues_changed": self._queue_count,
            "queues": self._queues,
            "exchanges_changed": self._exchange_count,
            "exchanges": self._exchanges,
        }


def effects_of(
    catalogue: Catalogue, drafts: Sequence[PolicyDraft], added: Added = NOTHING_ADDED
) -> Generator[None, None, list[dict[str, Any]]]:
    """Say, in steps, what each of several policies would touch once all of them are set.

    Args:
        catalogue: Of group 0; it may change between two steps.
        drafts: The policies.
        added: What will be there when they are set, and is not yet.

    Returns:
        For each draft, in their order, `what` and what a preview of one policy has, and whether
        each queue and exchange is `added`. A queue stands with each draft that applies to it before
        or after, where that makes a difference to it.
    """
    named_max = max(NAMED_MIN, NAMED_MAX // max(1, len(drafts)))
    found = [_Effects(named_max) for _ in drafts]
    by_vhost: dict[str, dict[tuple[bool, str], _Effects]] = {}
    for draft, effects in zip(drafts, found, strict=True):
        by_name = by_vhost.setdefault(draft.policy.vhost, {})
        by_name[draft.operator, draft.policy.name] = effects
    after = catalogue.policies_with([(each.policy, each.operator) for each in drafts])
    for vhost, by_name in by_vhost.items():
        yield from _on_queues(catalogue, vhost, after, by_name)
        yield from _on_exchanges(catalogue, vhost, after, by_name)
    yield from _on_added(added, after, by_vhost)
    rows = zip(drafts, found, strict=True)
    return [{"what": plain(each.what), **effects.shown()} for each, effects in rows]


_ByName = Mapping[tuple[bool, str], _Effects]
"""The drafts of a virtual host: whether it is an operator policy, and its name."""


def _on_queues(
    catalogue: Catalogue, vhost: str, table: PolicyTable, by_name: _ByName
) -> Generator[None, None, None]:
    for number, queue in enumerate(catalogue.queues(vhost), 1):
        before = catalogue.applied_policies(queue)
        after = table.for_queue(vhost, queue.name, queue.type)
        if is_other(before, after):
            item = queue_item(queue.name, queue.type, before, after)
            for effects in _changing(by_name, before, after):
                effects.note_queue(item, added=False)
        if not number % STEP:
            yield


def _on_exchanges(
    catalogue: Catalogue, vhost: str, table: PolicyTable, by_name: _ByName
) -> Generator[None, None, None]:
    for number, exchange in enumerate(catalogue.exchanges(vhost), 1):
        old, new = catalogue.policy_of(exchange), table.for_exchange(vhost, exchange.name)
        for name in _names(old, new):
            if (False, name) in by_name:
                item = exchange_item(exchange.name, old, new)
                by_name[False, name].note_exchange(item, added=False)
        if not number % STEP:
            yield


def _on_added(
    added: Added, table: PolicyTable, by_vhost: Mapping[str, _ByName]
) -> Generator[None, None, None]:
    for number, (vhost, name, kind) in enumerate(added.queues, 1):
        after = table.for_queue(vhost, name, kind)
        for effects in _changing(by_vhost.get(vhost, {}), NOTHING, after):
            effects.note_queue(queue_item(name, kind, NOTHING, after), added=True)
        if not number % STEP:
            yield
    for number, (vhost, name) in enumerate(added.exchanges, 1):
        policy = table.for_exchange(vhost, name)
        effect = policy and by_vhost.get(vhost, {}).get((False, policy.name))
        if effect:
            effect.note_exchange(exchange_item(name, None, policy), added=True)
        if not number % STEP:
            yield


def _changing(
    by_name: _ByName, before: AppliedPolicies, after: AppliedPolicies
) -> Iterator[_Effects]:
    """What each draft by which a queue's policies change would touch."""
    pairs = ((False, before.user, after.user), (True, before.operator, after.operator))
    for operator, old, new in pairs:
        for name in _names(old, new):
            if (operator, name) in by_name:
                yield by_name[operator, name]


def _names(old: Policy | None, new: Policy | None) -> Iterable[str]:
    """Of two policies, if they differ; each name once."""
    if not differ(old, new):
        return ()
    return dict.fromkeys(each.name for each in (old, new) if each is not None)


def differ(old: Policy | None, new: Policy | None) -> bool:
    """Tell whether what applies has another name or another definition."""
    return (old and (old.name, old.definition)) != (new and (new.name, new.definition))


def queue_item(
    name: str, kind: QueueType, before: AppliedPolicies, after: AppliedPolicies
) -> dict[str, Any]:
    """Return what a preview says of a queue.

    Args:
        name: Its name.
        kind: Its type.
        before: What applies now.
        after: What would apply.
    """
    return {
        "name": plain(name),
        "type": kind,
        "policy": _name(before.user),
        "policy_after": _name(after.user),
        "operator_policy": _name(before.operator),
        "operator_policy_after": _name(after.operator),
        "changes": _changes(before.effective, after.effective),
    }


def exchange_item(name: str, old: Policy | None, new: Policy | None) -> dict[str, Any]:
    """Return what a preview says of an exchange.

    Args:
        name: Its name.
        old: The policy that applies now.
        new: The one that would.
    """
    return {"name": plain(name), "policy": _name(old), "policy_after": _name(new)}


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, Any]:
    """Keys of the effective definition that differ: `[before, after]`, null where there is none."""
    keys = sorted(before.keys() | after.keys())
    return {
        key: [plain(before.get(key)), plain(after.get(key))]
        for key in keys
        if before.get(key) != after.get(key)
    }


def _name(policy: Policy | None) -> object:
    return None if policy is None else plain(policy.name)
