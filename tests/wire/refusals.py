"""Shared helpers of the refusal tests: requests, and the errors expected."""

from __future__ import annotations

from contextlib import ExitStack

from broker.amqp import spec
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import method_frame
from tests.nodes import Node
from tests.wire.raw import Raw

QUORUM: dict[str, object] = {"x-queue-type": "quorum"}
LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could "
    "be originally declared on another connection or the exclusive property value does not match "
    "that of the original declaration."
)


def whole(
    routing_key: str,
    exchange: str = "",
    body: bytes = b"x",
    *,
    mandatory: bool = False,
    immediate: bool = False,
    **properties: object,
) -> bytes:
    """A publish on channel 1 with its content."""
    message = build_message(exchange, routing_key, Properties(**properties), body)
    method = spec.BasicPublish(exchange, routing_key, mandatory, immediate)
    return method_frame(1, method) + message.content


def declare(raw: Raw, name: str, **more: object) -> None:
    """A queue of the connection's own, so that it goes with it."""
    more.setdefault("exclusive", True)
    raw.call(1, spec.QueueDeclare(name, **more), spec.QueueDeclareOk)


def quorum_queue(raw: Raw, name: str, **arguments: object) -> None:
    wanted = {**QUORUM, **{key.replace("_", "-"): value for key, value in arguments.items()}}
    declare(raw, name, durable=True, exclusive=False, arguments=wanted)


def refused(raw: Raw, method: spec.Method, code: int, text: str) -> None:
    """The channel closes with this."""
    raw.send(method_frame(1, method))
    raw.channel_closed(code, text)


def ends(raw: Raw, method: spec.Method, code: int, text: str) -> None:
    """The connection closes with this."""
    raw.send(method_frame(1, method))
    raw.connection_closed(code, text)


def bind_many(raw: Raw, queue: str, exchange: str, keys: list[str]) -> None:
    """Bind with many keys, on twenty channels at once."""
    raw.socket.settimeout(30)
    channels = range(101, 121)
    for channel in channels:
        raw.open_channel(channel)
    for at, channel in enumerate(channels):
        mine = [spec.QueueBind(queue, exchange, key, no_wait=True) for key in keys[at::20]]
        raw.send(*[method_frame(channel, method) for method in mine])
    raw.send(*[method_frame(channel, spec.ChannelFlow(active=True)) for channel in channels])
    for _ in channels:
        raw.expect(spec.ChannelFlowOk)


def user_with(node: Node, name: str, rights: tuple[str, str, str]) -> ExitStack:
    """A user with these rights in "/", for as long as the context lasts."""
    stack = ExitStack()
    node.api("PUT", f"/users/{name}", {"password": name, "tags": ""})
    stack.callback(node.api, "DELETE", f"/users/{name}")
    configure, write, read = rights
    body = {"configure": configure, "write": write, "read": read}
    node.api("PUT", f"/permissions/%2F/{name}", body)
    return stack
