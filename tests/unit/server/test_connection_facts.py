"""Where a client comes from, with and without a proxy."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.doors.proxy_header import Ends
from broker.server.connection_facts import ConnectionInfo


class Socket:
    """Says who is at the other end, as a transport does."""

    def __init__(self, peer: str) -> None:
        self._ends = {"peername": (peer, 40_000), "sockname": ("10.0.0.1", 5672)}

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return self._ends.get(name)


@pytest.mark.parametrize(
    ("peer", "told", "is_local"),
    [
        ("127.0.0.1", None, True),
        ("::ffff:127.0.0.1", None, True),
        ("10.0.0.7", None, False),
        ("127.0.0.1", "192.0.2.7", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("10.0.0.7", "127.0.0.1", False),  # from elsewhere a header may claim anything
    ],
)
def test_a_client_is_of_this_machine_if_it_and_its_proxy_are(
    peer: str, told: str | None, is_local: bool
):
    ends = None if told is None else Ends(told, 50_000, "192.0.2.1", 5671)
    info = ConnectionInfo(1, None, ends)
    info.connected(cast("Any", Socket(peer)), 0)
    assert info.is_loopback is is_local
    if told is not None:
        assert info.name == f"{told}:50000 -> 192.0.2.1:5671"
