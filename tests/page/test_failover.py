"""A failover, watched on the page of a mirrored queue."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.nodes import Node, Trio, wait_until
from tests.page.browser import encoded, window


@pytest.mark.long
def test_a_masters_death_is_seen_live_with_the_new_master_and_no_message_lost(
    browser: Any, own_trio: Trio
) -> None:
    first, second, _ = own_trio.nodes
    policy = {"pattern": "^m", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
    first.api("PUT", "/policies/%2F/ha", policy)
    first.api("PUT", "/queues/%2F/mirrored", {"durable": True})
    with first.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(50):
            channel.basic_publish("", "mirrored", b"kept")

    def in_step() -> bool:
        queue = second.api("GET", "/queues/%2F/mirrored")
        return len(queue.get("synchronised_slave_nodes", [])) == 2 and queue["messages"] == 50

    wait_until(in_step, "two mirrors are synchronised")
    master = own_trio.leader("mirrored")
    assert master is not None
    watcher = next(node for node in own_trio.nodes if node is not master)
    with window(browser, watcher) as view:
        view.login()
        view.allowed |= {404, 500, 503}
        view.go(f"#/queues{encoded('/', 'mirrored')}")
        card = view.page.get_by_role("region", name="Master and mirrors")
        card.locator("tr", has_text="master").get_by_text(master.name).wait_for()
        view.page.locator(".figure", has_text="Ready").locator(".num", has_text="50").wait_for()
        master.kill()
        others = [node.name for node in own_trio.nodes if node is not master]
        view.page.get_by_text(f"leader moved {master.name} →").wait_for()
        row = card.locator("tr", has_text="master")
        row.get_by_text(others[0]).or_(row.get_by_text(others[1])).wait_for()
        view.page.locator(".figure", has_text="Ready").locator(".num", has_text="50").wait_for()
        view.page.locator("header .pill", has_text="2 of 3 nodes").wait_for()
        view.go("#/cluster")
        happened = view.page.get_by_role("region", name="What happened")
        happened.get_by_role("row", name=f"{master.name} went down").wait_for()
        happened.get_by_role("link", name="'mirrored' is led by").first.wait_for()
        picture = view.page.get_by_role("region", name="Nodes and links")
        picture.get_by_text("away", exact=True).wait_for()
        picture.get_by_text(" ms", exact=False).first.wait_for()
        assert view.page.get_by_text("Partition:").count() == 0, "a killed node is no partition"
        (third,) = (node for node in own_trio.nodes if node not in (master, watcher))
        third.send_signal(signal.SIGSTOP)
        view.page.get_by_text(f"Partition: {watcher.name} does not see {third.name}.").wait_for()
        view.page.get_by_text(f"Nobody who answers hears {third.name}:").wait_for()


@pytest.mark.long
def test_a_page_whose_node_dies_says_so_and_goes_on_when_it_is_back(
    browser: Any, tmp_path: Path
) -> None:
    node = Node("single", tmp_path)
    try:
        node.start()
        node.api("PUT", "/queues/%2F/kept", {"durable": True})
        with window(browser, node) as view:
            view.allowed.add(503)  # a node that has begun does not know its users yet
            view.login()
            view.go("#/queues/%2F/kept")
            view.page.locator("main .title h1", has_text="kept").wait_for()
            node.kill()
            view.page.locator(".stale").first.wait_for()
            view.page.locator("main .title h1", has_text="kept").wait_for()
            node.start()
            view.page.locator(".stale").first.wait_for(state="detached")
            view.faults = [each for each in view.faults if "ERR_" not in each]  # it was away
    finally:
        node.end()
