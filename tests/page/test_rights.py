"""A user without rights sees less, never an error page."""

from __future__ import annotations

from typing import Any

from tests.nodes import Node
from tests.page.browser import encoded, window


def test_a_user_of_one_vhost_sees_that_and_no_tab_that_is_not_for_it(
    browser: Any, node: Node
) -> None:
    node.api("PUT", "/vhosts/mine", {})
    node.api("PUT", "/users/reader", {"password": "secret", "tags": "management"})
    node.api("PUT", "/permissions/mine/reader", {"configure": "", "write": "", "read": ".*"})
    node.api("PUT", f"/queues{encoded('mine', 'visible')}", {"durable": True})
    node.api("PUT", f"/queues{encoded('/', 'hidden')}", {"durable": True})
    with window(browser, node) as view:
        view.login("reader", "secret")
        view.heading("Overview")
        tabs = view.page.locator("header nav a").all_inner_texts()
        assert "Cluster" not in tabs
        assert "Queues and Streams" in tabs
        view.go("#/queues")
        view.page.locator("td.name a", has_text="visible").wait_for()
        assert view.page.locator("td.name a", has_text="hidden").count() == 0
        view.go("#/admin")
        view.heading("Virtual hosts")
        assert view.page.locator("nav.subnav a", has_text="Users").count() == 0
        view.allowed |= {401, 403}
        view.go("#/users")
        view.heading("Virtual hosts")
        view.go(f"#/queues{encoded('mine', 'visible')}")
        view.act("Delete…")
        view.allowed.add(404)  # the page may be asking for it while it goes
        view.press("Delete visible", within="dialog")
        view.page.locator(".notice.failed", has_text="refused").wait_for()


def test_a_user_without_a_tag_is_not_let_in_and_told_why(browser: Any, node: Node) -> None:
    node.api("PUT", "/users/plain", {"password": "secret", "tags": ""})
    with window(browser, node) as view:
        view.allowed |= {401, 403}
        view.page.goto(view.base)
        view.page.get_by_label("User", exact=True).fill("plain")
        view.page.get_by_label("Password", exact=True).fill("secret")
        view.press("Log in")
        view.page.locator("form [role=alert]").wait_for()
