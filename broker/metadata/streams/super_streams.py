"""Super streams: an exchange whose queues are streams, its partitions, in an order. Pure.

Nothing in group 0 is new for them: a direct exchange with `x-super-stream: true`, streams
`NAME-KEY` bound with KEY, and in each binding the partition's place as `x-stream-partition-order`.

Source: rabbit_stream_manager.erl create_super_stream/6, delete_super_stream/3 (texts, order of the
checks), rabbit_stream_utils.erl sort_partitions/1, enforce_correct_name/1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.errors import Refusal, ReplyCode
from broker.metadata.arguments import QUEUE_TYPE
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import Bind, DeclareExchange, DeclareQueue
from broker.metadata.records import Queue

SUPER_STREAM: Final = "x-super-stream"
ORDER: Final = "x-stream-partition-order"
NAME_BYTES_MAX: Final = 255

PARTITIONS_MAX: Final = 1_000
"""Each is a Raft group on several nodes; RabbitMQ's newer versions have the same limit."""


def keys_of(partitions: int) -> list[str]:
    """Return the binding keys of so many partitions: "0", "1" ..."""
    return [str(number) for number in range(partitions)]


def partition_name(name: str, key: str) -> str:
    """Return the name of the partition that gets a key."""
    return f"{name}-{key}"


def refusal(catalogue: Catalogue, vhost: str, name: str, keys: Sequence[str]) -> Refusal | None:
    """Say why a super stream can't be created; None if it can.

    Args:
        catalogue: Group 0.
        vhost: A virtual host that is there.
        name: The super stream's.
        keys: Binding keys, one a partition.
    """
    partitions = [partition_name(name, key) for key in keys]
    limit = catalogue.vhost_limit(vhost, "max-queues")
    text = ""
    if not keys or len(keys) > PARTITIONS_MAX:
        text = f"a super stream has 1 to {PARTITIONS_MAX} partitions, not {len(keys)}"
    elif len(set(partitions)) < len(partitions):
        text = f"Duplicate partition names found {', '.join(partitions)}"
    elif wrong := [each for each in partitions if not _is_name(each)]:
        text = f"{wrong[0]} is not a correct partition names"
    elif limit is not None and catalogue.queue_count(vhost) + len(keys) > limit:
        text = (
            f"Cannot declare super stream {name} with {len(keys)} partition(s) because queue limit "
            f"{limit} in vhost '{vhost}' is reached"
        )
    elif not _is_name(name):
        text = f"{name} is not a correct name for a super stream"
    elif catalogue.exchange(vhost, name) is not None:
        text = f"there is already an exchange named {name}"
    elif taken := [each for each in partitions if catalogue.queue(vhost, each) is not None]:
        text = f"there is already a queue named {taken[0]}"
    return Refusal(ReplyCode.PRECONDITION_FAILED, text) if text else None


def creation(
    vhost: str, name: str, keys: Sequence[str], arguments: dict[str, object]
) -> Iterator[DeclareExchange | DeclareQueue | Bind]:
    """Yield what creates a super stream; the partitions' homes and members are to be filled in.

    Args:
        vhost: Its virtual host.
        name: Its name.
        keys: Binding keys, one a partition.
        arguments: Of the partitions, beside their type.
    """
    yield DeclareExchange(
        vhost=vhost,
        name=name,
        type="direct",
        durable=True,
        auto_delete=False,
        internal=False,
        arguments={SUPER_STREAM: True},
    )
    for key in keys:
        yield DeclareQueue(
            vhost=vhost,
            name=partition_name(name, key),
            durable=True,
            auto_delete=False,
            exclusive_owner=None,
            arguments={**arguments, QUEUE_TYPE: "stream"},
            home="",
        )
    for order, key in enumerate(keys):
        yield Bind(
            vhost=vhost,
            source=name,
            kind="queue",
            destination=partition_name(name, key),
            routing_key=key,
            arguments={ORDER: order},
        )


def partitions(catalogue: Catalogue, vhost: str, name: str) -> list[Queue] | None:
    """Return the partitions of a super stream in their order; None if there is no such.

    A direct exchange that only has streams bound is none; RabbitMQ would delete it as one.
    """
    exchange = catalogue.exchange(vhost, name)
    if exchange is None or exchange.arguments.get(SUPER_STREAM) is not True:
        return None
    found: dict[int, tuple[int, str, Queue]] = {}
    for binding in catalogue.bindings_from(vhost, name):
        queue = None
        if binding.kind == "queue":
            queue = catalogue.queue(vhost, binding.destination)
        if queue is not None and queue.type == "stream":
            order = binding.arguments.get(ORDER)
            place = order if isinstance(order, int) else PARTITIONS_MAX
            found.setdefault(queue.uid, (place, queue.name, queue))
    return [queue for _, _, queue in sorted(found.values(), key=lambda each: each[:2])]


def _is_name(name: str) -> bool:
    is_plain = not name.startswith("amq.") and "\n" not in name and "\r" not in name
    return is_plain and 0 < len(name.encode()) <= NAME_BYTES_MAX
