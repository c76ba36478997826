"""Fixtures for clients."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.clients.place import Place
from tests.nodes import Node, Trio
from tests.tls_place import TlsPlace, started


@pytest.fixture(scope="module", params=["node", "cluster"])
def place(request: pytest.FixtureRequest) -> Place:
    """One node for everything, or three for three roles."""
    if request.param == "node":
        node: Node = request.getfixturevalue("node")
        return Place(node, node, node)
    trio: Trio = request.getfixturevalue("trio")
    return Place(trio.nodes[0], trio.nodes[1], trio.nodes[2])


@pytest.fixture(scope="session")
def tls_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsPlace]:
    """One node with TLS; who has a certificate may log in as whom its common name says."""
    found = started(
        tmp_path_factory.mktemp("tls"),
        "auth_mechanisms.1=PLAIN",
        "auth_mechanisms.2=AMQPLAIN",
        "auth_mechanisms.3=EXTERNAL",
        "ssl_cert_login_from=common_name",
    )
    try:
        yield found
    finally:
        found.node.end()


@pytest.fixture
def forgiven() -> Iterator[None]:
    """Collect what kombu and py-amqp leave while their warnings are still forgiven."""
    yield
    gc.collect()
