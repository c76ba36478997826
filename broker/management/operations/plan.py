"""Plans a migration: the quorum queue to declare, and what messages would lose in it. Pure.

Refused is whatever would lose messages or their order silently: priorities, a life that ends with a
connection or a consumer, expiry while nobody consumes, a limit below what has to fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.metadata import arguments
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import QueueStat

_OF_CLASSIC_STORAGE: Final = (
    "x-queue-mode",
    "x-queue-version",
    "x-queue-master-locator",
    arguments.QUEUE_TYPE,
)
"""Arguments without a meaning for a quorum queue, and without a loss."""


def refusal(catalogue: Catalogue, source: Queue, target: str) -> str | None:
    """Say why a queue can't be migrated, None if it can.

    Args:
        catalogue: What exists.
        source: The queue whose messages shall move.
        target: Name of the quorum queue in the same vhost, there or not.
    """
    fault = _source_fault(source, target)
    if fault is not None:
        return fault
    existing = catalogue.queue(source.vhost, target)
    if existing is not None and existing.type != "quorum":
        return f"queue '{target}' is no quorum queue"
    declared = with_arguments(source) if existing is None else existing.arguments
    policy = _policy(catalogue, source, target, existing)
    if "x-expires" in declared or "expires" in policy:
        return (
            f"queue '{target}' would expire while nobody consumes from it yet: take x-expires or"
            " the policy key expires away"
        )
    if declared.get("x-overflow", policy.get("overflow")) == "reject-publish-dlx":
        return "x-overflow reject-publish-dlx: quorum queues know drop-head and reject-publish only"
    unfit = arguments.queue_fault(source.vhost, target, declared) if existing is None else None
    return None if unfit is None else unfit.text


def _source_fault(source: Queue, target: str) -> str | None:
    for is_wrong, text in (
        (source.type != "classic", f"queue '{source.name}' is a {source.type} queue already"),
        (source.name == target, "the quorum queue needs a name of its own"),
        (
            source.exclusive_owner is not None,
            "an exclusive queue ends with its connection: a quorum queue can't",
        ),
        (
            source.auto_delete,
            "an auto-delete queue ends with its last consumer: a quorum queue can't",
        ),
        (
            "x-max-priority" in source.arguments,
            "x-max-priority: quorum queues know no priorities, the order would be another",
        ),
    ):
        if is_wrong:
            return text
    return None


def with_arguments(source: Queue) -> dict[str, object]:
    """The arguments of the quorum queue that follows a classic one."""
    kept = {key: value for key, value in source.arguments.items() if key not in _OF_CLASSIC_STORAGE}
    return {**kept, arguments.QUEUE_TYPE: "quorum"}


def obstacle(
    catalogue: Catalogue, source: Queue, target: Queue, stat: QueueStat, held: QueueStat
) -> str | None:
    """Say so if what the queues hold, and who consumes, stands against it; None if nothing does.

    Args:
        catalogue: What exists.
        source: The queue whose messages shall move.
        target: The quorum queue.
        stat: What the source says of itself.
        held: What the target says of itself.
    """
    if source.arguments.get("x-single-active-consumer") is True and stat.consumers:
        return (
            f"queue '{source.name}' has x-single-active-consumer: stop its consumers first, or"
            " nothing else gets a message"
        )
    return _overflow(catalogue, target, stat, held)


def _overflow(catalogue: Catalogue, target: Queue, stat: QueueStat, held: QueueStat) -> str | None:
    policy = catalogue.effective_policy(target)
    for key, arrives, there in (
        ("max-length", stat.ready + stat.unacked, held.ready),
        ("max-length-bytes", stat.ready_bytes + stat.unacked_bytes, held.ready_bytes),
    ):
        limits = [target.arguments.get(f"x-{key}"), policy.get(key)]
        limit = min((each for each in limits if isinstance(each, int)), default=None)
        if limit is not None and arrives + there > limit:
            return (
                f"queue '{target.name}' has {key} {limit}, and {arrives + there} have to fit:"
                " raise the limit first"
            )
    return None


def _policy(
    catalogue: Catalogue, source: Queue, target: str, existing: Queue | None
) -> Mapping[str, object]:
    if existing is not None:
        return catalogue.effective_policy(existing)
    return catalogue.effective_policy_for(source.vhost, target, "quorum")
