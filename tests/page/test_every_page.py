"""Every page is drawn: no error, no request to another host, nothing that scrolls sideways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes import Node
from tests.page.browser import DESK, PHONE, encoded, window

PAGES = {
    "#/": "Overview",
    "#/connections": "Connections",
    "#/channels": "Channels",
    "#/exchanges": "Exchanges",
    "#/exchanges/%2F/amq.topic": "amq.topic",
    "#/exchanges/%2F/amq.default": "(default exchange)",
    "#/queues": "Queues and Streams",
    "#/cluster": "Cluster",
    "#/nodes/rabbit@single": "rabbit@single",
    "#/users": "Users",
    "#/users/guest": "guest",
    "#/vhosts": "Virtual hosts",
    "#/vhosts/%2F": "/",
    "#/policies": "Policies",
    "#/limits": "Limits",
    "#/definitions": "Definitions",
    "#/feature-flags": "Feature flags",
}
QUEUES = {
    "seen.quorum": {"x-queue-type": "quorum", "x-max-length": 10},
    "seen.classic": {"x-message-ttl": 60_000, "x-dead-letter-exchange": "amq.fanout"},
    "seen.stream": {"x-queue-type": "stream"},
}

_SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.long
@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_every_page_is_drawn_without_a_fault(
    browser: Any, node: Node, size: dict[str, int], scheme: str
) -> None:
    for name, arguments in QUEUES.items():
        body = {"durable": True, "arguments": arguments}
        node.api("PUT", f"/queues{encoded('/', name)}", body)
    pages = PAGES | {f"#/queues{encoded('/', name)}": name for name in QUEUES}
    own = f"seen.{scheme}"
    with (
        node.connect(),
        node.connect(client_properties={"connection_name": own}) as connection,
    ):
        channel = connection.channel()
        channel.basic_consume("seen.quorum", lambda *_: None)
        with window(browser, node, viewport=size, color_scheme=scheme) as view:
            view.login()
            view.allowed |= {404, 503}  # no migration, not safe to stop: answers of the API
            for address, heading in pages.items():
                view.go(address)
                view.heading(heading)
                view.page.locator(".skeleton").first.wait_for(state="detached")
                assert view.page.evaluate(_SIDEWAYS) == 0, address
                assert not view.page.get_by_text("could not be drawn").count(), address
            listed = node.api("GET", "/connections?columns=name,user_provided_name")
            # The node serves other tests, too, and their connections are listed beside ours.
            (name,) = (each["name"] for each in listed if each.get("user_provided_name") == own)
            for address in (f"#/connections{encoded(name)}", f"#/channels{encoded(name + ' (1)')}"):
                view.go(address)
                view.page.locator(".card.figure").first.wait_for()


def test_what_does_not_exist_is_said_and_no_error(browser: Any, node: Node) -> None:
    with window(browser, node) as view:
        view.login()
        view.allowed.add(404)
        view.go("#/queues/%2F/nowhere")
        view.told("There is no queue")
        view.go("#/what")
        view.told("There is no page")
        view.go("#/queues/%2F/100%")  # not a valid escape: taken as it is
        view.told("There is no queue “100%”")
