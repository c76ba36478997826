"""Fixtures of tests of logs in segments."""

from __future__ import annotations

import pytest

from raft import parts


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proposals of a few hundred bytes take several entries."""
    monkeypatch.setattr(parts, "ENTRY_BYTES_MAX", 200)
    monkeypatch.setattr(parts, "_DATA_BYTES_MAX", 198)
