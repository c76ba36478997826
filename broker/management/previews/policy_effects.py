"""What policies would change for queues and exchanges, told before they are set.

The policies of an import are looked at together: what applies to a queue is decided among all of
them, so two that both match it are not told as if each were alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.management.answers import plain
from broker.management.pace import STEP
from broker.metadata.catalogue import Catalogue
from broker.metadata.policies import AppliedPolicies, Policy, PolicyTable, is_other
from broker.metadata.records import Queue

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


class _Effects:
    """What one policy would touch."""

    def __init__(self, named_max: int) -> None:
        self._named_max = named_max
        self._queues: list[dict[str, Any]] = []
        self._exchanges: list[dict[str, Any]] = []
        self._queue_count = self._exchange_count = 0

    def note_queue(self, queue: Queue, before: AppliedPolicies, after: AppliedPolicies) -> None:
        self._queue_count += 1
        if len(self._queues) < self._named_max:
            self._queues.append(queue_item(queue, before, after))

    def note_exchange(self, item: dict[str, Any]) -> None:
        self._exchange_count += 1
        if len(self._exchanges) < self._named_max:
            self._exchanges.append(item)

    def shown(self) -> dict[str, Any]:
        return {
            "queues_changed": self._queue_count,
            "queues": self._queues,
            "exchanges_changed": self._exchange_count,
            "exchanges": self._exchanges,
        }


def effects_of(
    catalogue: Catalogue, drafts: Sequence[PolicyDraft]
) -> Generator[None, None, list[dict[str, Any]]]:
    """Say, in steps, what each of several policies would touch once all of them are set.

    Args:
        catalogue: Of group 0; it may change between two steps.
        drafts: The policies.

    Returns:
        For each draft, in their order, `what` and what a preview of one policy has. A queue stands
        with each draft that applies to it before or after, where that makes a difference to it.
        Queues that are not there yet are not told.
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
    rows = zip(drafts, found, strict=True)
    return [{"what": plain(each.what), **effects.shown()} for each, effects in rows]


def _on_queues(
    catalogue: Catalogue,
    vhost: str,
    table: PolicyTable,
    by_name: Mapping[tuple[bool, str], _Effects],
) -> Generator[None, None, None]:
    for number, queue in enumerate(catalogue.queues(vhost), 1):
        before = catalogue.applied_policies(queue)
        after = table.for_queue(vhost, queue.name, queue.type)
        if is_other(before, after):
            pairs = ((False, before.user, after.user), (True, before.operator, after.operator))
            for operator, old, new in pairs:
                for name in _names(old, new):
                    if (operator, name) in by_name:
                        by_name[operator, name].note_queue(queue, before, after)
        if not number % STEP:
            yield


def _on_exchanges(
    catalogue: Catalogue,
    vhost: str,
    table: PolicyTable,
    by_name: Mapping[tuple[bool, str], _Effects],
) -> Generator[None, None, None]:
    for number, exchange in enumerate(catalogue.exchanges(vhost), 1):
        old, new = catalogue.policy_of(exchange), table.for_exchange(vhost, exchange.name)
        for name in _names(old, new):
            if (False, name) in by_name:
                by_name[False, name].note_exchange(exchange_item(exchange.name, old, new))
        if not number % STEP:
            yield


def _names(old: Policy | None, new: Policy | None) -> Iterable[str]:
    """Of two policies, if they differ; each name once."""
    if not differ(old, new):
        return ()
    return dict.fromkeys(each.name for each in (old, new) if each is not None)


def differ(old: Policy | None, new: Policy | None) -> bool:
    """Tell whether what applies has another name or another definition."""
    return (old and (old.name, old.definition)) != (new and (new.name, new.definition))


def queue_item(queue: Queue, before: AppliedPolicies, after: AppliedPolicies) -> dict[str, Any]:
    """Return what a preview says of a queue.

    Args:
        queue: It.
        before: What applies now.
        after: What would apply.
    """
    return {
        "name": plain(queue.name),
        "type": queue.type,
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
