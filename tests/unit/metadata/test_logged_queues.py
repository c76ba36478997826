"""Which form a quorum queue has is decided once, for all its replicas."""

from __future__ import annotations

import msgspec

from broker import feature_flags
from broker.metadata import commands, records
from broker.metadata.machine import MetadataMachine
from broker.metadata.results import Declared
from tests.unit.metadata.cluster import ONE, Asker, founded

QUORUM: dict[str, object] = {"x-queue-type": "quorum"}


def declared(asker: Asker, name: str, arguments: dict[str, object]) -> records.Queue:
    command = commands.DeclareQueue("/", name, True, False, None, arguments, ONE, (ONE,))
    result = asker.ask(command)
    assert isinstance(result, Declared), result
    return result.queue


def test_a_queue_has_the_form_of_the_time_when_it_was_declared() -> None:
    asker = founded()
    assert not declared(asker, "before", QUORUM).is_logged
    asker.ask(commands.EnableFeatures((feature_flags.QUORUM_LOGS,)))
    assert declared(asker, "after", QUORUM).is_logged
    assert not declared(asker, "before", QUORUM).is_logged, "declared again"
    assert not declared(asker, "classic", {}).is_logged
    other = MetadataMachine()
    other.restore(asker.machine.catalogue.index, asker.machine.snapshot())
    forms = {queue.name: queue.is_logged for queue in other.catalogue.queues()}
    assert forms == {"before": False, "after": True, "classic": False}


def test_an_older_record_is_one_with_snapshots() -> None:
    asker = founded()
    values = msgspec.to_builtins(declared(asker, "q", QUORUM))
    assert not msgspec.convert(values[:-1], records.Queue).is_logged
