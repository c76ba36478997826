"""Nodes exchange counts of connections and channels with limits: at changes and each second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.metadata.catalogue import Catalogue
from broker.metadata.records import User, Vhost
from broker.metadata.results import Changes
from broker.metadata.usage import Usage
from broker.server.usage_exchange import GATHER_S, SILENT_TICKS_MAX, UsageExchange
from tests.unit.server.rig import virtually


class Wire:
    """The links of all nodes: what is sent arrives, unless it is lost."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[str, str, bytes], None]] = {}
        self.sent = 0
        self.is_cut = False

    def of(self, node: str) -> Link:
        return Link(self, node)


class Link:
    def __init__(self, wire: Wire, node: str) -> None:
        self.wire, self.node = wire, node

    def on(self, _kind: int, handler: Callable[[str, str, bytes], None]) -> None:
        self.wire.handlers[self.node] = handler

    def send(self, node: str, _stream: int, _kind: int, payload: bytes) -> bool:
        self.wire.sent += 1
        if not self.wire.is_cut:
            self.wire.handlers[node](self.node, "boot", payload)
        return not self.wire.is_cut


class Others:
    """Nodes that are always heard."""

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes

    def up(self) -> list[str]:
        return self._nodes


def cluster(**limits: int) -> tuple[Wire, list[Usage], list[UsageExchange]]:
    catalogue = Catalogue()
    catalogue.put_vhost(Vhost("/"))
    catalogue.put_user(User("u", "", limits=limits))
    wire, nodes = Wire(), ("a", "b", "c")
    usages = [Usage(catalogue) for _ in nodes]
    exchanges = []
    for node, usage in zip(nodes, usages, strict=True):
        others = [each for each in nodes if each != node]
        link: Any = wire.of(node)
        exchanges.append(UsageExchange(link, usage, Others(others)))
    return wire, usages, exchanges


@virtually
async def test_a_storm_of_connections_is_one_payload_a_node() -> None:
    wire, (one, two, _), _ = cluster(**{"max-connections": 100})
    for number in range(99):
        one.connected(number, "/", "u")
    assert two.user_refusal("u") is None
    await asyncio.sleep(GATHER_S)
    assert wire.sent == 2
    two.connected(1, "/", "u")
    assert two.user_refusal("u") is not None
    one.disconnected(5)
    await asyncio.sleep(GATHER_S)
    assert two.user_refusal("u") is None


@virtually
async def test_what_was_lost_is_told_again() -> None:
    wire, (one, two, _), (exchange, _, _) = cluster(**{"max-connections": 1})
    wire.is_cut = True
    one.connected(1, "/", "u")
    await asyncio.sleep(GATHER_S)
    wire.is_cut = False
    assert two.user_refusal("u") is None
    exchange.tick()
    assert two.user_refusal("u") is not None
    one.disconnected(1)
    wire.is_cut = True
    await asyncio.sleep(GATHER_S)
    assert two.user_refusal("u") is not None
    wire.is_cut = False
    exchange.tick()
    assert two.user_refusal("u") is None


@virtually
async def test_who_is_not_heard_any_more_has_nothing_open() -> None:
    wire, (one, two, _), (exchange, other, _) = cluster(**{"max-connections": 1})
    one.connected(1, "/", "u")
    for _ in range(2 * SILENT_TICKS_MAX):
        exchange.tick()
        other.tick()
    assert two.user_refusal("u") is not None
    wire.is_cut = True
    for _ in range(SILENT_TICKS_MAX - 1):
        other.tick()
    assert two.user_refusal("u") is not None
    other.tick()
    other.tick()
    assert two.user_refusal("u") is None


@virtually
async def test_a_dead_node_has_nothing_open() -> None:
    _, (one, two, _), (_, exchange, _) = cluster(**{"max-connections": 1})
    one.connected(1, "/", "u")
    await asyncio.sleep(GATHER_S)
    assert two.user_refusal("u") is not None
    exchange.follow(Changes(boots_ended=[("a", "boot")]))
    assert two.user_refusal("u") is None


@virtually
async def test_without_limits_nothing_is_told() -> None:
    wire, (one, _, _), exchanges = cluster()
    one.connected(1, "/", "u")
    await asyncio.sleep(GATHER_S)
    for exchange in exchanges:
        exchange.tick()
    assert wire.sent == 0


@virtually
async def test_what_no_node_says_is_passed_over() -> None:
    wire, (one, _, _), _ = cluster(**{"max-connections": 1})
    wire.handlers["a"]("b", "boot", b"\xc1 nonsense")
    assert one.user_refusal("u") is None
