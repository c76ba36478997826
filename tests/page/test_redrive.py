"""Dead letters on a queue's page: grouped, tried in a dry run, sent back, and stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node
from tests.page.browser import PHONE, View, encoded, window
from tests.wire.redriving import Dead


@pytest.fixture
def channel(node: Node) -> Iterator[BlockingChannel]:
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def dead(node: Node, channel: BlockingChannel) -> Iterator[Dead]:
    """Three that were rejected, two that expired, in a queue with a name of its own kind."""
    made = Dead(node, channel, "page <b>dead</b>", "quorum")
    made.path = f"/queues{encoded('/', made.dead)}"
    made.publish("r1", "r2", "r3", headers={"x-exception-message": "Sold <b>out</b>"})
    made.reject(3)
    made.publish("e1", "e2", expiration="1")
    made.arrived(5)
    yield made
    made.end()


def test_a_group_is_sent_back_after_a_dry_run(view: View, dead: Dead) -> None:
    view.go(f"#/queues{encoded('/', dead.dead)}")
    card = view.page.get_by_role("region", name="Dead letters")
    why = view.page.locator(".card.why", has_text="the first are dead letters").get_by_role(
        "button"
    )
    why.first.wait_for()
    assert why.all_text_contents() == ["Browse", "Send back", "Purge"]
    why.nth(1).click()
    view.press("Cancel", within="dialog")
    row = card.locator("tr", has_text="rejected")
    row.get_by_text("3", exact=True).wait_for()
    row.get_by_text("Sold <b>out</b>", exact=True).wait_for()
    card.locator("tr", has_text="expired").get_by_text("2", exact=True).wait_for()
    row.get_by_role("button", name="Send back…").click()
    view.press("Dry run", within="dialog")
    view.told("3 messages would go back.")
    view.told("2 would stay: they are not selected")
    plan = view.page.locator("dialog").get_by_role("region", name="Dry run")
    plan.get_by_text(dead.work).wait_for()
    assert dead.count(dead.dead) == 5, "nothing went yet"
    view.press("Send 3 messages back", within="dialog")
    view.told("Sent dead letters back to where they were published to: done")
    view.told("3 of 5 sent, 2 stay")
    assert [body for body, _ in dead.take(dead.work)] == ["r1", "r2", "r3"]
    card.locator("tr", has_text="rejected").wait_for(state="detached")
    assert dead.count(dead.dead) == 2


def test_a_phone_shows_all_columns_of_a_dry_run(
    browser: Any, node: Node, channel: BlockingChannel, dead: Dead
) -> None:
    key = "orders.europe.germany.berlin.card.declined"
    channel.queue_bind(dead.work, dead.origin, key)
    dead.publish("long", key=key)
    dead.reject(1)
    dead.arrived(6)
    with window(browser, node, viewport=PHONE) as view:
        view.login(at=f"#/queues{encoded('/', dead.dead)}")
        view.press("Send all back…")
        view.press("Dry run", within="dialog")
        plan = view.page.locator("dialog").get_by_role("region", name="Dry run")
        plan.get_by_text(key).wait_for()
        table = plan.get_by_role("group", name="table")
        assert table.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        assert plan.locator("th").all_inner_texts()[-1] == "Messages"


def test_it_is_slow_when_asked_and_stops(view: View, dead: Dead) -> None:
    view.go(f"#/queues{encoded('/', dead.dead)}")
    view.press("Send all back…")
    dialog = view.page.locator("dialog")
    dialog.locator("[name=to]").select_option("death_queue")
    dialog.locator("[name=rate]").fill("1")
    dialog.locator("[name=seen_from_ms]").fill("2100-01-01T00:00")
    view.press("Dry run", within="dialog")
    view.told("0 messages would go back.")
    dialog.locator("[name=seen_from_ms]").fill("2020-01-01T00:00")
    view.press("Dry run", within="dialog")
    view.press("Send 5 messages back", within="dialog")
    view.told("Sending dead letters back to the queue they died in")
    holders = view.page.get_by_role("region", name="Consumers, and who holds messages")
    row = holders.locator("tr", has_text="redrive")
    row.get_by_text("guest, on").wait_for()
    assert row.get_by_role("button").count() == 0
    view.press("Stop", within="main")
    view.told("stopped by guest; nothing is lost")
    assert dead.count(dead.dead) + dead.count(dead.work) == 5


def test_what_is_refused_is_said_and_a_queue_without_has_no_card(view: View, dead: Dead) -> None:
    view.go(f"#/queues{encoded('/', dead.work)}")
    view.heading(dead.work)
    assert view.page.get_by_role("region", name="Dead letters").count() == 0
    view.act("Look for dead letters…")
    view.told("No message here has died.")
    view.press("Close", within="dialog")
    view.allowed.add(400)
    view.go(f"#/queues{encoded('/', dead.dead)}")
    view.press("Send all back…")
    view.page.locator("dialog [name=to]").select_option("queue")
    view.page.locator("dialog [name=queue]").fill("no.such")
    view.press("Dry run", within="dialog")
    view.page.locator("dialog [role=alert]", has_text="no queue 'no.such'").wait_for()
