"""Streams in group 0: their flag, arguments, settings and policies."""

from __future__ import annotations

import msgspec
import pytest

from broker.feature_flags import STREAM_QUEUE
from broker.metadata import arguments, commands
from broker.metadata.policies import Policy, PolicyTable
from broker.metadata.queue_settings import QueueSettings, settings_of
from broker.metadata.records import Queue
from broker.metadata.results import Declared
from broker.metadata.streams.settings import (
    SEGMENT_BYTES,
    StreamSettings,
    initial_size,
    stream_settings_of,
)
from broker.streams.limits import SEGMENT_BYTES_MAX
from tests.unit.metadata.cluster import ONE, TWO, Asker, founded, refusal

STREAM: dict[str, object] = {"x-queue-type": "stream"}
SUBJECT = "for queue 'q' in vhost '/'"
PLAIN = Queue("/", "q", 1, "stream", True, False, None, STREAM, ONE, (ONE, TWO))


def asker_of_streams() -> Asker:
    asker = founded()
    asker.ask(commands.EnableFeatures((STREAM_QUEUE,)))
    return asker


def declared(asker: Asker, name: str = "q", **changes: object) -> object:
    given = {"arguments": STREAM, "members": (ONE, TWO), **changes}
    return asker.queue(name, **given)


def test_a_stream_is_a_queue_with_members() -> None:
    """Rows: 1.19 declare"""
    result = declared(asker_of_streams())
    assert isinstance(result, Declared)
    assert (result.queue.type, result.queue.members) == ("stream", (ONE, TWO))


def test_no_streams_until_all_nodes_know_them() -> None:
    asker = founded()
    code, text = refusal(declared(asker))
    assert code == 406
    assert text.endswith("use enable_feature_flag stream_queue")
    assert asker.machine.catalogue.queues() == []
    other = commands.AddVhost("v", default_queue_type="stream")
    assert refusal(asker.ask(other)) == (406, text)
    assert asker.machine.catalogue.vhost("v") is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"auto_delete": True, "durable": False}, "auto-delete"),
        ({"exclusive_owner": f"{ONE}/{'1' * 16}/7"}, "exclusive-owner"),
        ({"durable": False}, "non-durable"),
    ],
)
def test_what_a_stream_cannot_be(changes: dict[str, object], word: str) -> None:
    """Rows: 1.19 declare"""
    text = f"invalid property '{word}' {SUBJECT}"
    assert refusal(declared(asker_of_streams(), **changes)) == (406, text)


def test_a_stream_is_never_named_by_the_server() -> None:
    result = declared(asker_of_streams(), "amq.gen-1", server_named=True)
    text = "Cannot declare a server-named queue for type rabbit_stream_queue"
    assert refusal(result) == (406, text)


OTHERS = (
    "x-max-length", "x-message-ttl", "x-single-active-consumer", "x-expires", "x-overflow",
    "x-dead-letter-exchange", "x-max-priority", "x-queue-mode", "x-delivery-limit",
    "x-quorum-initial-group-size",
)  # fmt: skip


@pytest.mark.parametrize("key", OTHERS)
def test_arguments_of_other_types_are_refused(key: str) -> None:
    """Rows: 1.3 ST args; 1.19 declare"""
    fault = arguments.queue_fault("/", "q", {**STREAM, key: "x"})
    text = f"invalid arg '{key}' {SUBJECT} of queue type rabbit_stream_queue"
    assert fault is not None
    assert fault.text == text


WRONG = [
    ("x-max-age", "abc", f"invalid arg 'x-max-age' {SUBJECT}: invalid_max_age"),
    ("x-max-age", "0D", f"invalid arg 'x-max-age' {SUBJECT}: invalid_max_age"),
    ("x-max-age", 7, f"invalid arg 'x-max-age' {SUBJECT}: {{unacceptable_type,signedint}}"),
    (
        "x-max-length-bytes",
        -1,
        f"invalid arg 'x-max-length-bytes' {SUBJECT}: {{value_negative,-1}}",
    ),
    (
        "x-initial-cluster-size",
        0,
        f"invalid arg 'x-initial-cluster-size' {SUBJECT}: {{value_zero,0}}",
    ),
    (
        "x-stream-max-segment-size-bytes",
        SEGMENT_BYTES_MAX + 1,
        "Exceeded max value for x-stream-max-segment-size-bytes",
    ),
    ("x-stream-filter-size-bytes", 15, "Invalid value for  x-stream-filter-size-bytes"),
    ("x-stream-filter-size-bytes", 256, "Invalid value for  x-stream-filter-size-bytes"),
    ("x-stream-filter-size-bytes", "16", "Invalid value for  x-stream-filter-size-bytes"),
    ("x-queue-leader-locator", "x", f"invalid arg 'x-queue-leader-locator' {SUBJECT}: invalid_"),
]


@pytest.mark.parametrize(("key", "value", "text"), WRONG)
def test_values_are_checked(key: str, value: object, text: str) -> None:
    """Rows: 1.3 ST args"""
    code, said = refusal(declared(asker_of_streams(), arguments={**STREAM, key: value}))
    assert code == 406
    assert said.startswith(text)


def test_all_a_stream_takes() -> None:
    """Rows: 1.3 ST args; 1.19 declare"""
    given = {
        **STREAM,
        "x-max-length-bytes": 10**12,
        "x-max-age": "7D",
        "x-stream-max-segment-size-bytes": SEGMENT_BYTES_MAX,
        "x-stream-filter-size-bytes": 255,
        "x-initial-cluster-size": 2,
        "x-queue-leader-locator": "balanced",
        "x-mine": "kept",
    }
    asker = asker_of_streams()
    result = declared(asker, arguments=given)
    assert isinstance(result, Declared)
    assert result.queue.arguments == given
    again = declared(asker, arguments={**given, "x-stream-filter-size-bytes": 16, "x-mine": 1})
    assert isinstance(again, Declared)
    assert not again.created
    code, text = refusal(declared(asker, arguments={**given, "x-max-age": "8D"}))
    assert code == 406
    assert text == f"inequivalent arg 'x-max-age' {SUBJECT}: received '8D' but current is '7D'"


def test_a_declare_without_the_type_means_another_queue() -> None:
    asker = asker_of_streams()
    declared(asker)
    code, text = refusal(asker.queue("q"))
    assert code == 406
    assert text.startswith(f"inequivalent arg 'x-queue-type' {SUBJECT}: received none")


def test_a_vhosts_default_type_is_for_those_it_allows() -> None:
    """Rows: 1.3 Default queue type"""
    asker = asker_of_streams()
    asker.ask(commands.AddVhost("v", default_queue_type="stream"))
    kinds = []
    for name, changes in (("a", {}), ("b", {"durable": False}), ("c", {"auto_delete": True})):
        result = asker.queue(name, vhost="v", **changes)
        assert isinstance(result, Declared)
        kinds.append(result.queue.type)
    assert kinds == ["stream", "classic", "classic"]


# Settings


def settings(given: dict[str, object], policy: dict[str, object]) -> StreamSettings:
    queue = msgspec.structs.replace(PLAIN, arguments={**STREAM, **given})
    return stream_settings_of(queue, policy)


def test_without_arguments_nothing_is_dropped() -> None:
    assert settings({}, {}) == StreamSettings(None, None, SEGMENT_BYTES, 16)


def test_the_policy_wins_even_where_it_allows_more() -> None:
    """Rows: 1.19 retention"""
    given: dict[str, object] = {
        "x-max-length-bytes": 10,
        "x-max-age": "1h",
        "x-stream-max-segment-size-bytes": 1_000,
        "x-stream-filter-size-bytes": 32,
    }
    assert settings(given, {}) == StreamSettings(10, 3_600_000, 1_000, 32)
    policy: dict[str, object] = {
        "max-length-bytes": 20,
        "max-age": "2h",
        "stream-max-segment-size-bytes": 2_000,
        "stream-filter-size-bytes": 64,
    }
    assert settings(given, policy) == StreamSettings(20, 7_200_000, 2_000, 64)
    assert settings(given, {"max-age": "3s"}) == StreamSettings(10, 3_000, 1_000, 32)


def test_a_policys_segment_is_no_larger_than_one_may_be() -> None:
    policy: dict[str, object] = {"stream-max-segment-size-bytes": 10**12}
    assert settings({}, policy).segment_bytes == SEGMENT_BYTES_MAX


def test_how_many_replicas_a_stream_begins_with() -> None:
    given: dict[str, object] = {"x-initial-cluster-size": 2}
    assert initial_size({}, {}) is None
    assert initial_size(given, {}) == 2
    assert initial_size(given, {"initial-cluster-size": 1}) == 1
    assert initial_size(given, {"initial-cluster-size": 0}) == 2


def test_a_streams_messages_have_no_limits_of_other_types() -> None:
    """What a queue of its name had as another type, or an old argument, does nothing."""
    queue = msgspec.structs.replace(PLAIN, arguments={**STREAM, "x-message-ttl": 1})
    assert settings_of(queue, {"max-length-bytes": 1}) == QueueSettings()
    assert settings_of(queue, {"consumer-timeout": 9}) == QueueSettings(consumer_timeout_ms=9)


# Policies


def applied(apply_to: str, definition: dict[str, object]) -> bool:
    table = PolicyTable()
    policy = Policy("/", "p", ".*", apply_to, 0, definition)
    table.change("/", "p", policy, (), operator=False)
    return table.for_queue("/", "q", "stream").user is policy


@pytest.mark.parametrize("apply_to", ["all", "queues", "streams"])
def test_policies_apply_to_streams(apply_to: str) -> None:
    assert applied(apply_to, {"max-age": "7D", "max-length-bytes": 1})


@pytest.mark.parametrize("apply_to", ["classic_queues", "quorum_queues", "exchanges"])
def test_policies_for_others_do_not(apply_to: str) -> None:
    assert not applied(apply_to, {"max-length-bytes": 1})


@pytest.mark.parametrize(
    "key", ["expires", "message-ttl", "max-length", "ha-mode", "delivery-limit", "overflow"]
)
def test_a_policy_with_a_key_no_stream_knows_does_not_match(key: str) -> None:
    assert not applied("queues", {key: 1, "max-age": "7D"})


def test_policies_of_streams_alone_leave_others_alone() -> None:
    table = PolicyTable()
    policy = Policy("/", "p", ".*", "streams", 0, {"max-length-bytes": 1})
    table.change("/", "p", policy, (), operator=False)
    assert table.for_queue("/", "q", "classic").user is None
    assert table.for_queue("/", "q", "quorum").user is None


# Consumers


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"x-stream-offset": "first", "x-credit": {}, "x-stream-filter": ["a"]}, None),
        ({"x-stream-offset": 5, "x-stream-match-unfiltered": True}, None),
        (
            {"x-stream-offset": "x"},
            f"invalid arg 'x-stream-offset' {SUBJECT}: "
            '{invalid_stream_offset_arg,{longstr,<<"x">>}}',
        ),
        (
            {"x-stream-offset": True},
            f"invalid arg 'x-stream-offset' {SUBJECT}: {{invalid_stream_offset_arg,{{bool,true}}}}",
        ),
        (
            {"x-priority": 1},
            f"invalid arg 'x-priority' {SUBJECT} of queue type rabbit_stream_queue",
        ),
        (
            {"x-cancel-on-ha-failover": True},
            f"invalid arg 'x-cancel-on-ha-failover' {SUBJECT} of queue type rabbit_stream_queue",
        ),
    ],
)
def test_arguments_of_consumers(given: dict[str, object], text: str | None) -> None:
    """Rows: 1.19 offset"""
    fault = arguments.consumer_fault(PLAIN, given)
    assert (fault.text if fault else None) == text
