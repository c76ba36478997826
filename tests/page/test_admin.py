"""Users, permissions, policies, limits and definitions, by the page's forms."""

from __future__ import annotations

import json
from pathlib import Path

from tests.nodes import Node
from tests.page.browser import View, encoded


def test_a_user_is_added_gets_permissions_and_is_deleted(view: View, node: Node) -> None:
    view.go("#/users")
    view.press("Add a user")
    view.page.locator("dialog [name=name]").fill("ann")
    view.page.locator("dialog [name=password]").fill("secret")
    view.page.locator("dialog [name=tags]").fill("monitoring, policymaker")
    view.press("Add", within="dialog")
    view.page.locator("main .title h1", has_text="ann").wait_for()
    assert node.api("GET", "/users/ann")["tags"] == ["monitoring", "policymaker"]
    view.page.get_by_role("region", name="Permissions", exact=True).get_by_text("None").wait_for()
    view.press("Set…", within="main")
    view.page.locator("dialog [name=configure]").fill("^ann")
    view.press("Set", within="dialog")
    view.page.get_by_role("cell", name="^ann").wait_for()
    assert node.api("GET", "/permissions/%2F/ann")["configure"] == "^ann"
    view.act("Delete…")
    view.allowed.add(404)  # the page may be asking for it while it goes
    view.press("Delete ann", within="dialog")
    view.heading("Users")
    assert "ann" not in [each["name"] for each in node.api("GET", "/users")]


def test_a_policy_says_what_it_touches_and_what_is_wrong_with_it(view: View, node: Node) -> None:
    node.api("PUT", f"/queues{encoded('/', 'admin.matched')}", {"durable": True})
    view.allowed.add(400)
    view.go("#/policies")
    view.press("Add…")
    dialog = view.page.locator("dialog")
    dialog.locator("[name=name]").fill("short")
    dialog.locator("[name=pattern]").fill("^admin\\.matched$")
    dialog.locator("[name=definition-key-0]").fill("max-length")
    dialog.locator("[name=definition-value-0]").fill("ten")
    view.press("Add", within="dialog")
    dialog.locator("[role=alert]", has_text="ten").wait_for()
    dialog.locator("[name=definition-value-0]").fill("10")
    dialog.locator("[name=definition-type-0]").select_option("Number")
    dialog.get_by_text("It touches 1 queue.").wait_for()
    dialog.get_by_text("admin.matched: max-length none → 10").wait_for()
    view.press("Add", within="dialog")
    view.told("short holds.")
    assert node.api("GET", f"/queues{encoded('/', 'admin.matched')}")["policy"] == "short"
    view.press("Delete…", within="main")
    dialog.get_by_text("admin.matched: max-length 10 → none").wait_for()
    view.allowed.add(404)  # the page may be asking for it while it goes
    view.press("Delete short", within="dialog")
    view.page.get_by_text("^admin\\.matched$").wait_for(state="detached")


def test_a_nodes_page_says_what_its_stop_touches(view: View, node: Node) -> None:
    node.api("PUT", f"/queues{encoded('/', 'admin.stopped')}", {"durable": True})
    view.allowed.add(503)
    view.go(f"#/nodes{encoded(node.user_name)}")
    view.press("What a stop touches…")
    dialog = view.page.locator("dialog")
    dialog.get_by_text("A stop interrupts something.").wait_for()
    dialog.get_by_text("away until it is back: on this node alone").wait_for()
    dialog.get_by_role("link", name="admin.stopped").click()
    view.heading("admin.stopped")


def test_an_import_shows_the_difference_first(view: View, node: Node, tmp_path: Path) -> None:
    view.allowed.add(400)
    file = tmp_path / "definitions.json"
    view.go("#/definitions")
    card = view.page.get_by_role("region", name="Import")
    file.write_text("{no json")
    card.locator("[name=file]").set_input_files(file)
    view.press("Show what it would change")
    card.locator("[role=alert]", has_text="is not JSON").wait_for()
    queue = {"name": "admin.imported", "vhost": "/", "durable": True, "auto_delete": False}
    file = tmp_path / "mended.json"
    node.api("PUT", f"/queues{encoded('/', 'admin.touched')}", {"durable": True})
    policy = {"vhost": "/", "name": "admin.p", "pattern": "^admin.touched$", "apply-to": "queues"}
    policy["definition"] = {"max-length": 3}
    whole = {"queues": [{**queue, "arguments": {}}], "policies": [policy]}
    file.write_text(json.dumps(whole))
    card.locator("[name=file]").set_input_files(file)
    view.press("Show what it would change")
    card.get_by_text("2 objects added, 0 changed").wait_for()
    card.get_by_text("It touches 1 queue.").wait_for()
    card.get_by_text("admin.touched: max-length none → 3").wait_for()
    names = [each["name"] for each in node.api("GET", "/queues?columns=name")]
    assert "admin.imported" not in names
    view.press("Import 2 changes")
    view.told("The definitions are imported.")
    assert node.api("GET", f"/queues{encoded('/', 'admin.imported')}")["durable"]
    node.api("DELETE", f"/policies{encoded('/', 'admin.p')}")


def test_a_limit_is_set_and_lifted(view: View, node: Node) -> None:
    view.go("#/limits")
    card = view.page.get_by_role("region", name="Limits of virtual hosts")
    card.get_by_role("button", name="Set…").click()
    view.page.locator("dialog [name=name]").select_option("max-queues")
    view.page.locator("dialog [name=value]").fill("1000")
    view.press("Set", within="dialog")
    view.page.get_by_role("cell", name="1,000").wait_for()
    assert node.api("GET", "/vhost-limits/%2F")[0]["value"] == {"max-queues": 1000}
    view.press("Lift")
    view.page.get_by_role("cell", name="1,000").wait_for(state="detached")
    assert node.api("GET", "/vhost-limits/%2F") == []
