"""What changes under one's hands: others' changes, a session that ends, a link that is slow."""

from __future__ import annotations

import signal
from typing import Any

import pika
import pytest

from tests.nodes import Node
from tests.page.browser import View, encoded, window

ALONE = "delete window.SharedWorker"
"""The tab has its event streams itself, so that what slows or cuts the tab slows or cuts them."""


def test_who_changes_a_policy_is_told_what_another_made_of_it_first(view: View, node: Node) -> None:
    mine = {"pattern": "^mine", "definition": {"max-length": 1}, "apply-to": "queues"}
    node.api("PUT", "/policies/%2F/shared", mine)
    view.go("#/policies")
    row = view.page.get_by_role("row", name="shared")
    row.get_by_role("button", name="Change").click()
    dialog = view.page.locator("dialog")
    dialog.locator("[name=priority]").fill("7")
    node.api("PUT", "/policies/%2F/shared", {**mine, "definition": {"max-length": 2}})
    view.press("Change", within="dialog")
    dialog.locator("[role=alert]", has_text='It is now {"max-length":2}').wait_for()
    assert node.api("GET", "/policies/%2F/shared")["priority"] == 0
    node.api("DELETE", "/policies/%2F/shared")
    view.press("Change", within="dialog")
    dialog.locator("[role=alert]", has_text="was deleted").wait_for()
    view.press("Change", within="dialog")
    view.told("shared holds.")
    found = node.api("GET", "/policies/%2F/shared")
    assert (found["priority"], found["definition"]) == (7, {"max-length": 1})
    view.press("Add…", within="main")
    dialog.locator("[name=name]").fill("shared")
    dialog.locator("[name=pattern]").fill("^other")
    view.press("Add", within="dialog")
    dialog.locator("[role=alert]", has_text="There is a shared already").wait_for()
    view.press("Cancel", within="dialog")
    node.api("DELETE", "/policies/%2F/shared")


_MARK = "() => document.querySelectorAll('tbody tr').forEach((row) => { row.marked = true; })"
_MARKED = """() => [...document.querySelectorAll('tbody tr')]
    .map((row) => [row.querySelector('td.name').textContent, Boolean(row.marked)])"""


def test_rows_keep_their_elements_until_something_else_is_asked_for(view: View, node: Node) -> None:
    """What has the focus must not become another queue; whoever asks for others has left it."""
    for name in ("kept.a", "kept.b", "other.a", "other.b"):
        node.api("PUT", f"/queues/%2F/{name}", {"durable": True})
    view.go("#/queues")
    view.page.get_by_label("Filter by name").fill("kept.")
    view.page.locator("td.name a", has_text="other.").first.wait_for(state="detached")
    view.page.locator("td.name a", has_text="kept.b").wait_for()
    view.page.evaluate(_MARK)
    node.api("DELETE", "/queues/%2F/kept.b")
    node.api("PUT", "/queues/%2F/kept.c", {"durable": True})
    view.page.locator("td.name a", has_text="kept.c").wait_for()
    view.page.locator("td.name a", has_text="kept.b").wait_for(state="detached")
    assert sorted(view.page.evaluate(_MARKED)) == [["kept.a", True], ["kept.c", False]]
    view.page.evaluate(_MARK)
    view.page.get_by_label("Filter by name").fill("other.")
    view.page.locator("td.name a", has_text="other.b").wait_for()
    assert sorted(view.page.evaluate(_MARKED)) == [["other.a", True], ["other.b", True]]
    for name in ("kept.a", "kept.c", "other.a", "other.b"):
        node.api("DELETE", f"/queues/%2F/{name}")


def test_a_session_that_ends_within_a_form_loses_nothing_of_it(view: View, node: Node) -> None:
    view.allowed.add(401)
    view.go("#/queues")
    view.press("Declare a queue")
    form = view.page.locator("dialog").first
    form.locator("[name=name]").fill("meanwhile.kept")
    form.locator("[name=type]").select_option("classic")
    view.page.context.clear_cookies()
    form.get_by_role("button", name="Declare", exact=True).click()
    again = view.page.get_by_role("dialog", name="Log in again")
    again.get_by_label("User", exact=True).fill("guest")
    again.get_by_label("Password", exact=True).fill("wrong")
    again.get_by_role("button", name="Log in", exact=True).click()
    again.locator("[role=alert]").wait_for()
    again.get_by_label("Password", exact=True).fill("guest")
    again.get_by_role("button", name="Log in", exact=True).click()
    again.wait_for(state="detached")
    assert form.locator("[name=name]").input_value() == "meanwhile.kept"
    form.get_by_role("button", name="Declare", exact=True).click()
    view.page.locator("main .title h1", has_text="meanwhile.kept").wait_for()
    assert node.api("GET", "/queues/%2F/meanwhile.kept")["type"] == "classic"


def test_a_form_goes_with_the_page_that_opened_it(view: View, node: Node) -> None:
    """The browser's Back leads to another page: the form would lie over what it is not about."""
    view.go("#/exchanges")
    view.heading("Exchanges")
    view.go("#/queues")
    view.press("Declare a queue")
    view.page.locator("dialog [name=name]").wait_for()
    view.page.go_back()
    view.heading("Exchanges")
    view.page.locator("dialog").wait_for(state="detached")


def test_another_user_who_logs_in_gets_a_page_of_its_own(view: View, node: Node) -> None:
    body = {"password": "secret", "tags": "management"}
    node.api("PUT", "/users/successor", body)
    view.allowed |= {401, 403}
    view.go("#/queues")
    view.press("Declare a queue")
    view.page.locator("dialog [name=name]").fill("meanwhile.others")
    view.page.context.clear_cookies()
    view.press("Declare", within="dialog")
    again = view.page.get_by_role("dialog", name="Log in again")
    again.get_by_label("User", exact=True).fill("successor")
    again.get_by_label("Password", exact=True).fill("secret")
    again.get_by_role("button", name="Log in", exact=True).click()
    view.page.get_by_role("button", name="User successor").wait_for()
    assert view.page.locator("dialog").count() == 0
    node.api("DELETE", "/users/successor")


def test_of_a_body_of_16_mb_the_beginning_is_shown_with_its_size(view: View, node: Node) -> None:
    size = 16_000_000
    node.api("PUT", "/queues/%2F/meanwhile.large", {"durable": True})
    with pika.BlockingConnection(node.parameters()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "meanwhile.large", b"0123456789" * (size // 10))
    view.go("#/queues/%2F/meanwhile.large")
    view.press("Get messages")
    view.press("Get", within="dialog")
    shown = view.page.locator("dialog pre")
    shown.wait_for()
    assert shown.inner_text() == "0123456789" * 5_000
    view.page.locator("dialog").get_by_text("16 MB").wait_for()
    view.press("Close", within="dialog")
    view.allowed.add(404)  # the page may be asking for it while it goes
    node.api("DELETE", "/queues/%2F/meanwhile.large")


def test_what_is_known_is_shown_at_once_while_the_node_stands_still(
    browser: Any, node: Node
) -> None:
    with window(browser, node) as view:
        view.page.add_init_script(ALONE)
        view.login(at="#/exchanges")
        first = view.page.locator("tbody td.name").first
        view.page.get_by_label("Filter by name").fill("amq.")
        order = view.page.locator("th .sort", has_text="Type")
        order.click()
        first.get_by_text("amq.direct").wait_for()
        order.click()  # the other way round
        first.get_by_text("amq.direct").wait_for(state="detached")
        node.send_signal(signal.SIGSTOP)
        try:
            order.click()
            first.get_by_text("amq.direct").wait_for(timeout=5_000)
            view.page.locator(".stale").first.wait_for()
        finally:
            node.send_signal(signal.SIGCONT)
        view.page.locator(".stale").first.wait_for(state="detached")
        view.faults = [each for each in view.faults if "ERR_" not in each]  # it was away


@pytest.mark.long
def test_behind_a_slow_link_the_page_comes_late_and_works(browser: Any, node: Node) -> None:
    """Half a second there and back, 50 kB a second: about 5 s for all of the page."""
    node.api("PUT", "/queues/%2F/meanwhile.slow", {"durable": True})
    with window(browser, node) as view:
        view.page.add_init_script(ALONE)
        link = view.page.context.new_cdp_session(view.page)
        link.send("Network.enable")
        slow = {"downloadThroughput": 50_000, "uploadThroughput": 50_000}
        link.send("Network.emulateNetworkConditions", {"offline": False, "latency": 500, **slow})
        view.login(at=f"#/queues{encoded('/', 'meanwhile.slow')}")
        view.page.locator("main .title h1", has_text="meanwhile.slow").wait_for()
        view.press("Publish", within="main")
        view.page.locator("dialog [name=payload]").fill("late")
        view.press("Publish", within="dialog")
        view.page.get_by_role("button", name="Working…").wait_for()  # it says that it waits
        view.told("Published to meanwhile.slow.")
        view.page.locator(".figure", has_text="Ready").locator(".num", has_text="1").wait_for()
        view.page.locator(".stale").first.wait_for(state="detached")
    node.api("DELETE", "/queues/%2F/meanwhile.slow")
