"""A new cluster accepts clients when enough configured peers are members, or after a timeout."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.formation import PATIENCE_MS, members_needed
from broker.cluster.identity import IdentityFile, Promise
from broker.cluster.joining import Joining

A, B, C = PEERS = ("rabbit@a", "rabbit@b", "rabbit@c")
TIMEOUT_MS = 30_000


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


def member(folder: Path, clock: Clock, promise: Promise | None) -> Joining:
    """A node that got its cluster, "1", just now."""
    links: Any = SimpleNamespace(
        node=A, cluster_id="", serve=lambda *_: None, identify=lambda **_: None
    )
    file = IdentityFile(folder, A)
    joining = Joining(links, file, PEERS, clock, lambda: "1")  # type: ignore[arg-type]
    if promise is not None:
        joining._keep(SimpleNamespace(promise=promise, abandoned=()))  # type: ignore[arg-type]
    joining._belong("1", is_founding=promise is not None and promise.founder == A)
    return joining


@pytest.mark.parametrize("founder", [A, B])
def test_clients_wait_for_all_of_three(tmp_path: Path, founder: str) -> None:
    """A founder and who promised to it: with two replicas a queue is lost to one death."""
    joining = member(tmp_path, Clock(), Promise("1", founder))
    assert joining.missing({A, B}) == [C]
    assert joining.missing({A, B, C}) == []


def test_after_patience_a_majority_is_enough_and_who_is_missing_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    joining = member(tmp_path, clock, Promise("1", A))
    clock.ms = PATIENCE_MS - 1
    assert joining.missing({A, B}) == [C]
    clock.ms = PATIENCE_MS
    assert joining.missing({A}) == [B, C]
    assert joining.missing({A, B}) == []
    joining.formed({A, B})
    assert C in caplog.text


def test_after_the_timeout_one_is_enough(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    joining = member(tmp_path, clock, Promise("1", A))
    clock.ms = TIMEOUT_MS - 1
    assert joining.missing({A}) == [B, C]
    clock.ms = TIMEOUT_MS
    assert joining.missing({A}) == []
    joining.formed({A})
    assert f"{B}, {C}" in caplog.text


def test_a_formed_cluster_is_not_waited_for_again(tmp_path: Path) -> None:
    joining = member(tmp_path, Clock(), Promise("1", A))
    assert joining.missing(PEERS) == []
    joining.formed(PEERS)
    assert joining.missing({A}) == []
    assert not IdentityFile(tmp_path, A).identity.is_forming


def test_who_joins_a_cluster_that_serves_waits_for_nobody(tmp_path: Path) -> None:
    joining = member(tmp_path, Clock(), Promise("another", B))
    assert joining.missing({A, B}) == []


def test_a_start_again_goes_on_waiting(tmp_path: Path) -> None:
    member(tmp_path, Clock(), Promise("1", A))
    assert IdentityFile(tmp_path, A).identity.is_forming


def test_as_many_serve_as_found() -> None:
    assert [members_needed(count, 0, TIMEOUT_MS) for count in (1, 2, 3, 5)] == [1, 2, 3, 4]
    later = [members_needed(count, PATIENCE_MS, TIMEOUT_MS) for count in (1, 2, 3, 5)]
    assert later == [1, 2, 2, 3]
    assert members_needed(5, TIMEOUT_MS, TIMEOUT_MS) == 1
