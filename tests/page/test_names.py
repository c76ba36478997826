"""Names that break pages: quotes, markup, escapes, other scripts, the longest."""

from __future__ import annotations

import pytest

from tests.nodes import Node
from tests.page.browser import View, encoded

NAMES = [
    'it\'s "quoted"',
    "a/b//c",
    "100% %2F %zz",
    "🐇 hole 🕳️",
    "طلبات-جديدة",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "?a=b&c#d",
    " spaces  inside ",
    "x" * 255,
    "🐇" * 63,
]


WORST = '<img src=x onerror=alert(1)> "it\'s" a/b%2F?#&; 🐇 طلبات'


def test_whatever_has_a_name_may_have_the_worst_one(view: View, node: Node) -> None:
    view.page.on("dialog", lambda dialog: view.faults.append(f"a script ran: {dialog.message}"))
    name = encoded(WORST)
    node.api("PUT", f"/vhosts{name}", {})
    node.api("PUT", f"/users{name}", {"password": "x", "tags": WORST.replace(",", "")})
    node.api("PUT", f"/permissions{name}{name}", {"configure": "", "write": "", "read": ""})
    node.api("PUT", f"/permissions{name}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    node.api("PUT", f"/exchanges{name}{name}", {"type": "topic"})
    node.api("PUT", f"/queues{name}{name}", {"durable": True, "arguments": {WORST: WORST}})
    node.api("POST", f"/bindings{name}/e{name}/q{name}", {"routing_key": WORST})
    policy = {"pattern": "^<img", "definition": {"max-length": 5}, "apply-to": "queues"}
    node.api("PUT", f"/policies{name}{name}", policy)
    shown = " ".join(WORST.split())
    for page, part in (
        ("vhosts", name),
        ("users", name),
        ("exchanges", name + name),
        ("queues", name + name),
    ):
        view.go(f"#/{page}{part}")
        view.page.locator("main .title h1", has_text=shown).wait_for()
    view.page.get_by_role("region", name="Bindings").get_by_text(WORST).first.wait_for()
    view.press("Publish", within="main")
    view.page.locator("dialog [name=payload]").fill(WORST)
    view.press("Publish", within="dialog")
    view.told("Published to")
    view.press("Close", within="dialog")
    view.press("Get messages")
    view.press("Get", within="dialog")
    view.page.locator("dialog pre", has_text=WORST).wait_for()
    view.press("Close", within="dialog")
    view.go("#/policies")
    view.page.get_by_role("row", name="max-length 5").get_by_text(WORST).first.wait_for()
    node.api("DELETE", f"/vhosts{name}")
    node.api("DELETE", f"/users{name}")


@pytest.mark.long
def test_a_queue_of_any_name_is_declared_found_shown_and_deleted(view: View, node: Node) -> None:
    view.page.on("dialog", lambda dialog: view.faults.append(f"a script ran: {dialog.message}"))
    for name in NAMES:
        view.go("#/queues")
        view.press("Declare a queue")
        view.page.locator("dialog [name=type]").select_option("classic")
        view.page.locator("dialog [name=name]").fill(name)
        view.allowed.discard(404)
        view.press("Declare", within="dialog")
        view.page.locator("main .title h1").wait_for()
        assert view.page.locator("main h1").inner_text().split() == name.split()
        assert node.api("GET", f"/queues{encoded('/', name)}")["name"] == name
        view.go("#/queues")
        view.page.get_by_label("Filter by name").fill(name)
        view.page.locator("td.name a", has_text=" ".join(name.split())).first.click()
        view.page.locator("main .title h1").wait_for()
        view.act("Delete…")
        view.allowed.add(404)  # its charts may be asked for at the moment of its delete
        view.page.locator("dialog .danger").click()
        view.heading("Queues and Streams")
        view.page.get_by_label("Filter by name").fill("")
        assert name not in [each["name"] for each in node.api("GET", "/queues?columns=name")]
