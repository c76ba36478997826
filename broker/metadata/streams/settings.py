"""The effective settings of a stream: its arguments and its policy put together.

Where both say something the policy does, unlike for other queues. Values were validated before; one
of a wrong type counts as absent.

Source: rabbit_stream_queue.erl update_stream_conf/2, policy_precedence/2; rabbit.hrl for the
largest segment, osiris for the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from broker.metadata.records import Queue
from broker.streams.ages import age_ms
from broker.streams.limits import FILTER_SIZES, SEGMENT_BYTES_MAX

SEGMENT_BYTES: Final = 500_000_000
"""Where neither arguments nor policy say how large a segment is."""


class StreamSettings(NamedTuple):
    """The settings of a stream.

    Attributes:
        max_length_bytes: Bytes from which the oldest segments go; None is without limit.
        max_age_ms: Age in milliseconds from which segments go; None is without limit.
        segment_bytes: Size at which a segment ends. 0: after each chunk.
        filter_size: Bytes of the filter in each chunk.
    """

    max_length_bytes: int | None = None
    max_age_ms: int | None = None
    segment_bytes: int = SEGMENT_BYTES
    filter_size: int = FILTER_SIZES.start


def stream_settings_of(queue: Queue, policy: Mapping[str, object]) -> StreamSettings:
    """Put a stream's arguments and its effective policy together.

    Args:
        queue: The stream.
        policy: `Catalogue.effective_policy` of it; {} for what its arguments say alone.
    """
    age = _chosen(queue.arguments, policy, "max-age", _age)
    segment = _chosen(queue.arguments, policy, "stream-max-segment-size-bytes", _natural)
    size = _chosen(queue.arguments, policy, "stream-filter-size-bytes", _filter_size)
    return StreamSettings(
        max_length_bytes=_chosen(queue.arguments, policy, "max-length-bytes", _natural),
        max_age_ms=age,
        segment_bytes=SEGMENT_BYTES if segment is None else min(segment, SEGMENT_BYTES_MAX),
        filter_size=FILTER_SIZES.start if size is None else size,
    )


def initial_size(arguments: Mapping[str, object], policy: Mapping[str, object]) -> int | None:
    """Return how many replicas a new stream is to have; None if nothing says so.

    Args:
        arguments: As declared.
        policy: The effective policy the stream will have. Its 0 counts as absent.
    """
    found = _chosen(arguments, policy, "initial-cluster-size", _natural)
    return found or _natural(arguments.get("x-initial-cluster-size")) or None


def _chosen(
    arguments: Mapping[str, object],
    policy: Mapping[str, object],
    key: str,
    read: Callable[[object], int | None],
) -> int | None:
    found = read(policy.get(key))
    return read(arguments.get(f"x-{key}")) if found is None else found


def _natural(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _age(value: object) -> int | None:
    return age_ms(value) if isinstance(value, str) else None


def _filter_size(value: object) -> int | None:
    size = _natural(value)
    return size if size in FILTER_SIZES else None
