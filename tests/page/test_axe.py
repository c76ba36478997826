"""axe-core finds nothing serious on any page, in either theme, at a desk and on a phone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes import Node, wait_until
from tests.page import axe
from tests.page.browser import DESK, PHONE, View, encoded, window
from tests.page.test_every_page import PAGES, QUEUES

DIALOGS = {
    "#/queues": ["Declare a queue"],
    "#/queues/%2F/axed.held": ["Publish", "Get messages", "Bind…"],
    "#/exchanges": ["Declare an exchange"],
    "#/users": ["Add a user"],
    "#/users/guest": ["Set…"],
    "#/vhosts": ["Add a virtual host"],
    "#/policies": ["Add…"],
    "#/limits": ["Set…"],
}
"""Buttons that open a form, by page."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def script() -> str:
    return axe.source()


def settled(view: View) -> None:
    """Wait until nothing loads any more."""
    view.page.locator("main h1").first.wait_for()
    view.page.locator(".skeleton").first.wait_for(state="detached")


def kill_some(node: Node) -> None:
    """Two dead letters in axed.dead."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("axed.dead", durable=True)
        dying = {"x-message-ttl": 1, "x-dead-letter-exchange": ""}
        dying["x-dead-letter-routing-key"] = "axed.dead"
        channel.queue_declare("axed.dying", durable=True, arguments=dying)
        before = node.api("GET", "/queues/%2F/axed.dead")["messages"]
        for _ in range(2):
            channel.basic_publish("", "axed.dying", b"dying")
    wait_until(
        lambda: node.api("GET", "/queues/%2F/axed.dead")["messages"] == before + 2, "they died"
    )


def look_while_loading(view: View, script: str) -> list[str]:
    """What a queue's page shows until the node answers; the page must not have seen that queue."""
    asked: list[Any] = []

    def hold(route: Any) -> None:
        asked.append(route)

    view.page.route("**/api/queues/**", hold)
    view.go("#/queues/%2F/axed.held")
    view.page.locator(".skeleton").first.wait_for()
    faults = axe.faults(view.page, script)
    for each in asked:
        each.continue_()
    view.page.unroute("**/api/queues/**")
    settled(view)
    return faults


def look_inside(view: View, script: str, found: dict[str, list[str]], *, is_wide: bool) -> None:
    """What opens on pages: parts, messages, menus, questions, and the search."""
    view.go("#/nodes/rabbit@single")
    settled(view)
    for fold in ("Log", "Settings that act"):
        view.page.locator("summary", has_text=fold).click()
    view.page.locator("details table").wait_for()
    found["folds"] = axe.faults(view.page, script)
    view.go("#/queues/%2F/axed.held")
    settled(view)
    view.press("Get messages")
    view.press("Get", within="dialog")
    view.page.locator("dialog pre").wait_for()
    found["messages"] = axe.faults(view.page, script)
    view.press("Close", within="dialog")
    view.press("Browse", within="main")
    view.page.locator("#browse details.found").first.wait_for()
    view.page.locator("#browse details.found summary").first.click()
    view.page.locator("#browse details.found pre").first.wait_for()
    found["browse"] = axe.faults(view.page, script)
    view.press("Take back…", within="main")
    view.page.locator("dialog").wait_for()
    found["take back"] = axe.faults(view.page, script)
    view.press("Close", within="dialog")
    view.go("#/queues/%2F/axed.dead")
    settled(view)
    view.press("Send all back…", within="main")
    view.press("Dry run", within="dialog")
    view.page.locator("dialog").get_by_role("region", name="Dry run").wait_for()
    found["dead letters"] = axe.faults(view.page, script)
    view.press("Close", within="dialog")
    view.go("#/queues/%2F/axed.held")
    settled(view)
    view.press("More acts", within="main")
    found["menu"] = axe.faults(view.page, script)
    view.page.get_by_role("menuitem", name="Delete…").click()
    found["question"] = axe.faults(view.page, script)
    view.press("Cancel", within="dialog")
    if is_wide:
        view.page.get_by_label("Find a queue").fill("axed")
        view.page.get_by_role("option", name="axed.held").wait_for()
        found["search"] = axe.faults(view.page, script)


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(DESK, "dark", id="dark-desk"),
        pytest.param(PHONE, "light", id="light-phone"),
        pytest.param(DESK, "light", marks=pytest.mark.soak, id="light-desk"),
        pytest.param(PHONE, "dark", marks=pytest.mark.soak, id="dark-phone"),
    ],
)
def test_axe_finds_nothing_serious_on_any_page(
    browser: Any, node: Node, script: str, size: dict[str, int], scheme: str
) -> None:
    for name, arguments in {**QUEUES, "axed.held": {}}.items():
        body = {"durable": True, "arguments": arguments}
        node.api("PUT", f"/queues{encoded('/', name)}", body)
    kill_some(node)
    pages = [*PAGES, *(f"#/queues{encoded('/', name)}" for name in (*QUEUES, "axed.held"))]
    own = f"axed.{scheme}.{size['width']}"
    found: dict[str, list[str]] = {}
    with (
        # Nobody reads it while the pages are looked at: the node must not expect heartbeats.
        node.connect(client_properties={"connection_name": own}, heartbeat=0) as connection,
        window(browser, node, viewport=size, color_scheme=scheme) as view,
    ):
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_publish("", "axed.held", b"one")
        channel.basic_publish("", "axed.held", b"line\n" * 100)
        channel.basic_consume("axed.held", lambda *_: None)
        connection.process_data_events(0.2)
        view.allowed |= {401, 404, 503}  # as in test_every_page
        view.page.goto(view.base)
        view.page.get_by_label("Password", exact=True).wait_for()
        found["login"] = axe.faults(view.page, script)
        view.login()
        found["loading"] = look_while_loading(view, script)
        clients = node.api("GET", "/connections?columns=name,user_provided_name")
        (name,) = (each["name"] for each in clients if each.get("user_provided_name") == own)
        for address in (
            *pages,
            f"#/connections{encoded(name)}",
            f"#/channels{encoded(name + ' (1)')}",
            "#/nowhere",
        ):
            view.go(address)
            if address != "#/nowhere":
                settled(view)
            found[address] = axe.faults(view.page, script)
        for address, buttons in DIALOGS.items():
            for button in buttons:
                view.go(address)
                settled(view)
                view.press(button, within="main")
                view.page.locator("dialog").wait_for()
                found[f"{address} {button}"] = axe.faults(view.page, script)
                view.press("Close", within="dialog")
        look_inside(view, script, found, is_wide=size == DESK)
    listed = [f"{address}: {fault}" for address, faults in found.items() for fault in faults]
    assert not listed, "\n".join(listed)
