"""What one can do with queues by the page; what the broker refuses is said in its words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes import Node, wait_until
from tests.page.browser import View, encoded


def counted(node: Node, name: str) -> int:
    return int(node.api("GET", f"/queues{encoded('/', name)}")["messages"])


def declare(view: View, name: str, kind: str, arguments: dict[str, tuple[str, str]]) -> None:
    """Declare a queue by the form."""
    view.go("#/queues")
    view.press("Declare a queue")
    dialog = view.page.locator("dialog")
    dialog.locator("[name=type]").select_option(kind)
    dialog.locator("[name=name]").fill(name)
    for index, (key, (value, kind_of)) in enumerate(arguments.items()):
        dialog.locator(f"[name=arguments-key-{index}]").fill(key)
        dialog.locator(f"[name=arguments-value-{index}]").fill(value)
        dialog.locator(f"[name=arguments-type-{index}]").select_option(kind_of)
    view.press("Declare", within="dialog")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_declare_publish_get_purge_and_delete(view: View, node: Node, kind: str) -> None:
    name = f"acts.{kind}"
    declare(view, name, kind, {"x-max-length": ("100", "Number")})
    view.heading(name)
    assert node.api("GET", f"/queues{encoded('/', name)}")["arguments"]["x-max-length"] == 100
    for body in ("one", "two <script>alert(1)</script>"):
        view.press("Publish", within="main")
        view.page.locator("dialog [name=payload]").fill(body)
        view.press("Publish", within="dialog")
        view.told(f"Published to {name}.")
        view.press("Close", within="dialog")
    wait_until(lambda: counted(node, name) == 2, "both messages are there")
    view.press("Get messages")
    view.page.locator("dialog [name=count]").fill("5")
    view.press("Get", within="dialog")
    view.page.locator("dialog pre", has_text="two <script>alert(1)</script>").wait_for()
    view.press("Close", within="dialog")
    wait_until(lambda: counted(node, name) == 2, "they are back in the queue")
    view.page.locator(".figure", has_text="Ready").locator(".num", has_text="2").wait_for()
    view.act("Purge…")
    view.told("2 ready messages of")
    view.press(f"Purge {name}", within="dialog")
    wait_until(lambda: counted(node, name) == 0, "the queue is empty")
    view.act("Delete…")
    view.allowed.add(404)  # the page may be asking for it while it goes
    view.press(f"Delete {name}", within="dialog")
    view.heading("Queues and Streams")
    assert not [each for each in node.api("GET", "/queues") if each["name"] == name]


def test_a_stream_is_declared_and_has_no_get_and_no_purge(view: View) -> None:
    declare(view, "acts.stream", "stream", {"x-max-age": ("7D", "String")})
    view.heading("acts.stream")
    view.page.get_by_role("button", name="Publish").wait_for()
    assert view.page.get_by_role("button", name="Get messages").count() == 0


def test_bind_and_unbind(view: View, node: Node) -> None:
    node.api("PUT", f"/queues{encoded('/', 'acts.bound')}", {"durable": True})
    view.go(f"#/queues{encoded('/', 'acts.bound')}")
    view.press("Bind…")
    view.page.locator("dialog [name=source]").fill("amq.topic")
    view.page.locator("dialog [name=routing_key]").fill("orders.*")
    view.press("Bind", within="dialog")
    card = view.page.get_by_role("region", name="Bindings")
    card.get_by_text("orders.*").wait_for()
    view.press("Unbind", within="main")
    view.press("Unbind", within="dialog")
    card.get_by_text("orders.*").wait_for(state="detached")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-max-length": ("many", "String")}, "invalid arg 'x-max-length'"),
        ({"x-max-length": ("many", "Number")}, "'many' is not a number"),
        ({"x-max-priority": ("5", "Number")}, "invalid arg 'x-max-priority'"),
    ],
)
def test_wrong_input_shows_what_is_wrong(
    view: View, arguments: dict[str, tuple[str, str]], text: str
) -> None:
    view.allowed.add(400)
    declare(view, "acts.wrong", "quorum", arguments)
    view.page.locator("dialog [role=alert]", has_text=text).wait_for()


def test_what_no_queue_is_bound_for_is_said(view: View) -> None:
    view.go("#/exchanges/%2F/amq.direct")
    view.press("Publish", within="main")
    view.page.locator("dialog [name=routing_key]").fill("nobody")
    view.press("Publish", within="dialog")
    view.page.locator("dialog [role=alert]", has_text="Not routed").wait_for()


def test_the_reason_why_a_queue_does_not_drain_stands_on_its_page(view: View, node: Node) -> None:
    node.api("PUT", f"/queues{encoded('/', 'acts.stuck')}", {"durable": True})
    with node.connect(client_properties={"connection_name": "sleeper"}) as connection:
        channel: Any = connection.channel()
        channel.basic_qos(prefetch_count=2)
        for _ in range(5):
            channel.basic_publish("", "acts.stuck", b"x")
        channel.basic_consume("acts.stuck", lambda *_: None, consumer_tag="asleep")
        connection.process_data_events(0.2)
        view.go(f"#/queues{encoded('/', 'acts.stuck')}")
        view.told("prefetch full for")
        view.page.get_by_role("row", name="sleeper").get_by_text("2 of 2").wait_for()
    view.page.get_by_text("No consumer").or_(
        view.page.get_by_text("nobody consumes")
    ).first.wait_for()


def test_what_a_stuck_client_holds_is_taken_back(view: View, node: Node) -> None:
    node.api("PUT", f"/queues{encoded('/', 'acts.taken')}", {"durable": True})
    with node.connect(client_properties={"connection_name": "stuck"}) as connection:
        channel: Any = connection.channel()
        channel.basic_qos(prefetch_count=3)
        for _ in range(3):
            channel.basic_publish("", "acts.taken", b"x")
        channel.basic_consume("acts.taken", lambda *_: None, consumer_tag="asleep")
        connection.process_data_events(0.2)
        view.go(f"#/queues{encoded('/', 'acts.taken')}")
        row = view.page.get_by_role("row", name="stuck")
        row.get_by_text("3 of 3").wait_for()
        row.get_by_role("button", name="Take back…").click()
        view.press("Cancel the consumer", within="dialog")
        view.told("Cancelled consumer asleep of stuck. The client was told.")
        row.get_by_text("cancelled").wait_for()
        row.get_by_role("button", name="Take back…").click()
        view.press("Give back delivery 2", within="dialog")
        view.told("Delivery 2 is back in acts.taken.")
        view.told("holds 2 messages")
        assert counted(node, "acts.taken") == 3
        view.press("Give all back", within="dialog")
        view.told("2 messages of stuck went back to acts.taken.")
        view.page.get_by_text("nobody holds a message of it").wait_for()
        ready = view.page.locator(".figure", has_text="Ready").locator(".num", has_text="3")
        ready.wait_for()
        channel.basic_ack(3, multiple=True)
        view.allowed.add(404)  # the page may be asking for it while it goes
        channel.queue_delete("acts.taken")


def test_the_path_of_a_message_is_watched(view: View, node: Node) -> None:
    node.api("PUT", f"/queues{encoded('/', 'acts.dead')}", {"durable": True})
    dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "acts.dead"}
    body = {"durable": True, "arguments": dying}
    node.api("PUT", f"/queues{encoded('/', 'acts.followed')}", body)
    view.go(f"#/queues{encoded('/', 'acts.followed')}")
    view.press("Publish", within="main")
    view.page.locator("dialog [name=payload]").fill("x")
    view.page.locator("dialog [name=follow]").check()
    view.press("Publish", within="dialog")
    view.told("routed to acts.followed")
    view.told("safe in every queue it was routed to")
    view.told("It waits in its queue for a consumer.")
    with node.connect() as connection:
        channel: Any = connection.channel()
        method, _, _ = channel.basic_get("acts.followed")
        view.told("It waits for its acknowledgement.")
        channel.basic_nack(method.delivery_tag, requeue=False)
        view.told("rejected by")
        view.told("rejected in acts.followed: dead-lettered")
        view.told("routed to acts.dead")
        view.told("It waits in its queue for a consumer.")
        method, _, _ = channel.basic_get("acts.dead")
        channel.basic_ack(method.delivery_tag)
        view.told("acknowledged by")
    view.press("Done", within="dialog")
