"""Looking through messages on a queue's page: filters, pages, what bodies are, and who may."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, wait_until
from tests.page.axe import faults, source
from tests.page.browser import PHONE, View, encoded, window

NAME = "browse <i>page</i> é/%"


@pytest.fixture(scope="module", params=["quorum", "stream"])
def queue(request: pytest.FixtureRequest, node: Node) -> Iterator[str]:
    """A queue or stream with 45 documents, and one body of each other kind."""
    name = f"{NAME} {request.param}"
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": request.param})
        for number in range(45):
            send(channel, name, json.dumps({"n": number, "of": {"ten": number // 10}}).encode())
        script = b"<script>alert(1)</script> needle"
        send(channel, name, script, headers={"kind": "script", "long": "x" * 300})
        send(channel, name, gzip.compress(b'{"zipped":"yes"}'), content_encoding="gzip")
        send(channel, name, bytes(range(256)), headers={"kind": "binary"})
        send(channel, name, b"large " + b"y" * 16_000_000, headers={"kind": "large"})
        yield name
        channel.queue_delete(name)


def send(channel: BlockingChannel, queue: str, body: bytes, **properties: Any) -> None:
    channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def opened(view: View, queue: str) -> Any:
    """The part of the queue's page, with its first messages."""
    view.go(f"#/queues{encoded('/', queue)}")
    view.press("Browse", within="main")
    part = view.page.locator("#browse")
    part.locator("details.found").first.wait_for()
    return part


def search(view: View, part: Any, **fields: str) -> None:
    for name in ("key", "header", "body", "json"):
        part.locator(f"[name={name}]").fill(fields.get(name, ""))
    view.press("Search", within="#browse")


def test_messages_are_paged_and_stay(view: View, node: Node, queue: str) -> None:
    part = opened(view, queue)
    part.get_by_text("20 messages of 20 looked at.").wait_for()
    assert part.locator("details.found").count() == 20
    first = part.locator("details.found").first.locator("b").inner_text()
    view.press("Next 20", within="#browse")
    part.locator("details.found", has_text='"n": 20').wait_for()
    view.press("Next 20", within="#browse")
    part.get_by_text("9 messages of 9 looked at. That is the end.").wait_for()
    assert part.get_by_role("button", name="Next 20").count() == 0
    view.press("Back", within="#browse")
    part.locator("details.found", has_text='"n": 20').wait_for()
    view.press("Back", within="#browse")
    part.locator("details.found", has_text='"n": 0,').wait_for()
    assert part.locator("details.found").first.locator("b").inner_text() == first
    shown = node.api("GET", f"/queues{encoded('/', queue)}")
    assert (shown["messages_ready"], shown["messages_unacknowledged"]) == (49, 0)
    assert not shown.get("message_stats", {}).get("deliver_get")


def test_filters_find_and_bodies_are_decoded(view: View, queue: str) -> None:
    part = opened(view, queue)
    search(view, part, body="needle")
    row = part.locator("details.found")
    row.get_by_text("<script>alert(1)</script> needle").wait_for()
    part.get_by_text("1 message of 49 looked at; 1 body searched only at the beginning.").wait_for()
    row.locator("summary").focus()
    view.page.keyboard.press("Enter")
    row.locator("dt", has_text="header kind").wait_for()
    search(view, part, header="kind=binary")
    row.get_by_text("256 bytes, binary").wait_for()
    row.locator("summary").click()
    row.locator("pre", has_text="000010  10 11 12 13").wait_for()
    search(view, part, json="zipped=yes")
    row.get_by_text("JSON, gzip").wait_for()
    row.locator("summary").click()
    row.locator("pre", has_text='"zipped": "yes"').wait_for()
    row.get_by_role("button", name="Bytes").click()
    row.locator("pre", has_text="000000  1f 8b").wait_for()
    search(view, part, json="of.ten=4", body='/"n": 4[12]/')
    part.get_by_text("2 messages of 49 looked at").wait_for()
    search(view, part, header="kind=large")
    row.get_by_text("16 MB, text").wait_for()
    row.locator("summary").click()
    row.get_by_text("Only the beginning of 16 MB.").wait_for()
    before = len(row.locator("pre").inner_text())
    view.press("Show more of it", within="#browse")
    wait_until(lambda: len(row.locator("pre").inner_text()) == 65_536, "64 KiB are shown")
    assert before == 4_096
    found = faults(view.page, source())
    assert not found, "\n\n".join(found)


def test_what_is_wrong_is_said(view: View, queue: str) -> None:
    part = opened(view, queue)
    view.allowed.add(400)
    search(view, part, body="/(/")
    part.get_by_text("no regular expression (RE2): missing )").wait_for()
    search(view, part, json="a..b")
    part.get_by_text("json: no path at character 2").wait_for()
    search(view, part, key="/^other/")
    part.get_by_text("0 messages of 49 looked at. That is the end.").wait_for()


def test_it_is_begun_at_a_position_or_an_offset(view: View, queue: str) -> None:
    part = opened(view, queue)
    if queue.endswith("stream"):
        part.locator("[name=from]").select_option("offset")
        part.locator("[name=offset]").fill("40")
    else:
        part.locator("[name=position]").fill("41")
    view.press("Search", within="#browse")
    part.get_by_text("9 messages of 9 looked at. That is the end.").wait_for()
    wanted = "Offset 40" if queue.endswith("stream") else "Message 41"
    assert part.locator("details.found b").first.inner_text() == wanted


def test_a_phone_shows_it_without_scrolling_sideways(browser: Any, node: Node, queue: str) -> None:
    with window(browser, node, viewport=PHONE) as view:
        view.login()
        part = opened(view, queue)
        part.locator("summary").nth(1).click()
        wide = view.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0
        for box in ("details.found .start", "details.found pre"):
            place = part.locator(box).first.bounding_box()
            assert place["x"] + place["width"] <= PHONE["width"]


def test_who_may_not_look_does_not_find_it(browser: Any, node: Node, queue: str) -> None:
    node.api("PUT", "/users/gets", {"password": "gets", "tags": "management"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    node.api("PUT", "/permissions/%2F/gets", everything)
    with window(browser, node) as view:
        view.login("gets", "gets")
        view.go(f"#/queues{encoded('/', queue)}")
        view.heading(queue)
        assert view.page.get_by_role("button", name="Browse").count() == 0
    node.api("DELETE", "/users/gets")
