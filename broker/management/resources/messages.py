"""Publishing and getting messages over HTTP, for tests and repairs; the aliveness test.

Source: rabbit_mgmt_wm_exchange_publish.erl, rabbit_mgmt_wm_queue_get.erl,
rabbit_mgmt_wm_aliveness_test.erl.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from broker.amqp.content import Properties, build_message, decode_properties
from broker.amqp.frames import body_of
from broker.errors import AmqpError, Refusal, ReplyCode, quoted
from broker.fifo.commands import Cancel, Discard, Get, Release, Requeue
from broker.management import paging, request_body
from broker.management.answers import (
    bad_request,
    forbidden,
    json,
    not_found,
    plain,
    refuse,
    unavailable,
)
from broker.management.call import Call, Endpoint
from broker.management.pace import STEP
from broker.management.resources import queues
from broker.message import Delivery, Message
from broker.metadata.access import refused_topic
from broker.metadata.commands import DeclareQueue
from broker.metadata.results import Declared
from broker.ports import GetResult
from broker.queues.handle import QueueHandle
from broker.session.basic_publish import check_expiration
from broker.session.publishing.delays import with_stores
from broker.session.publishing.publish_batch import Copies, keyed_copies

CONFIRM_TIMEOUT_S: Final = 5.0
GET_COUNT_MAX: Final = 10_000
GET_BYTES_MAX: Final = 64 * 1024 * 1024
ALIVENESS_QUEUE: Final = "aliveness-test"

_ACK_MODES: Final = (
    "ack_requeue_true",
    "ack_requeue_false",
    "reject_requeue_true",
    "reject_requeue_false",
)


class _Verdicts:
    """Waits for a verdict of each queue (`broker.ports.PublisherPort`); numbers are the queues'."""

    def __init__(self, count: int) -> None:
        self._missing = set(range(1, count + 1))
        self._is_refused = False
        self._done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """A queue has it."""
        self._missing.difference_update(seqnos)
        if not self._missing and not self._done.done():
            self._done.set_result(not self._is_refused)

    def rejected(self, seqnos: Sequence[int]) -> None:
        """A queue refused it."""
        self._is_refused = True
        self.confirmed(seqnos)

    async def all_confirmed(self) -> bool:
        """Wait; False if a queue refused.

        Raises:
            TimeoutError: Not all have spoken.
        """
        async with asyncio.timeout(CONFIRM_TIMEOUT_S):
            return await self._done


async def publish_to_default(call: Call) -> web.Response:
    """POST /api/exchanges/VHOST//publish: to the default exchange, by its own name."""
    return await _publish(call, "")


async def publish(call: Call) -> web.Response:
    """POST /api/exchanges/VHOST/NAME/publish; `{"routed"}` once every queue has it."""
    return await _publish(call, call.exchange_name("name"))


async def _publish(call: Call, exchange: str) -> web.Response:
    vhost = call.vhost()
    record = call.catalogue.exchange(vhost, exchange)
    if record is None:
        raise not_found()
    body = await call.body()
    keys = ("routing_key", "properties", "payload", "payload_encoding")
    request_body.require(body, *keys)
    routing_key = request_body.text(body, "routing_key")
    payload = _payload(body)
    properties = _properties(call, request_body.table(body, "properties"))
    is_followed = _asks_to_follow(call, body, properties)
    call.check("write", "exchange", exchange, vhost)
    if record.internal:
        raise forbidden(f"cannot publish to internal {quoted('exchange', exchange, vhost)}")
    blind_keys = _header_keys(properties, "BCC")
    extra_keys = [*_header_keys(properties, "CC"), *blind_keys]
    most = call.serving.context.limits.cc_keys
    if len(extra_keys) > most:
        raise bad_request(f"invalid message: more than {most} CC and BCC keys")
    if record.type == "topic":
        _check_topics(call, vhost, exchange, (routing_key, *extra_keys))
    route = call.catalogue.route(
        vhost,
        exchange,
        routing_key,
        properties.headers or {},
        extra_keys,
        properties=properties,
        draw=secrets.randbits(64),
    )
    if properties.headers and "BCC" in properties.headers:
        properties.headers = {k: v for k, v in properties.headers.items() if k != "BCC"}
    message = _message(exchange, routing_key, properties, payload)
    if blind_keys:
        message = msgspec.structs.replace(message, bcc=tuple(blind_keys))
    queues_, stores = ((), ()) if route is None else (route.queues, route.stores)
    copies = keyed_copies(message, queues_)
    if stores:
        try:
            copies = with_stores(message, properties.headers or {}, copies, stores)
        except AmqpError as error:
            raise bad_request(error.text) from error
    kept = [store for store in stores if store.delays_for is not None]
    answer: dict[str, Any] = {"routed": bool(queues_ or kept)}
    if not is_followed:
        await _deliver(call, copies)
        return json(answer)
    answer["message_id"] = properties.message_id
    await _deliver_followed(call, vhost, str(properties.message_id), copies)
    return json(answer)


def _check_topics(call: Call, vhost: str, exchange: str, keys: Sequence[str]) -> None:
    """Check topic permissions.

    Raises:
        ApiError: 403.
    """
    for key in keys:
        if not call.access.may_topic(call.user.name, vhost, exchange, "write", key):
            refuse(refused_topic("write", key, exchange, vhost, call.user.name))


def _asks_to_follow(call: Call, body: request_body.Body, properties: Properties) -> bool:
    """Whether the message is to be followed; then it gets an id, unless it has one.

    Raises:
        ApiError: 400, or 403: other users' connections are seen by monitoring.
    """
    if not request_body.flag(body, "follow"):
        return False
    call.require("monitoring")
    properties.message_id = properties.message_id or secrets.token_hex(16)
    if properties.message_id in call.serving.context.traced.followed:
        raise bad_request(
            f"a message with the id '{properties.message_id}' is followed already: give another"
        )
    return True


async def _deliver_followed(call: Call, vhost: str, message_id: str, copies: Copies) -> None:
    paths = call.operations.paths
    await paths.follow(vhost, message_id)
    paths.note(message_id, "published")
    queues_ = [queue.name for _, some in copies for queue in some]
    for name in queues_:
        paths.note(message_id, "routed", name)
    if not queues_:
        paths.note(message_id, "unroutable")
        return
    await _deliver(call, copies)
    paths.note(message_id, "confirmed")


async def show_path(call: Call) -> web.Response:
    """GET /api/message-paths/ID: `{"steps", "missing_nodes"}` of a message that was followed."""
    found = await call.operations.paths.path(call.name("id"))
    if found is None or not call.sees(found.vhost):
        raise not_found()
    steps = [{"node": node, **msgspec.structs.asdict(step)} for node, step in found.steps]
    return json({"vhost": found.vhost, "steps": steps, "missing_nodes": found.missing})


async def _deliver(call: Call, copies: Copies) -> None:
    serving = call.serving
    if not serving.is_valid():
        raise unavailable("this node can't reach a majority of its cluster")
    found = [(message, queue) for message, some in copies for queue in some]
    if not found:
        return
    verdicts = _Verdicts(len(found))
    for number, (message, queue) in enumerate(found, 1):
        serving.queues.open(queue).publish([message], [number], verdicts)
    try:
        is_safe = await verdicts.all_confirmed()
    except TimeoutError:
        raise unavailable(f"not confirmed within {CONFIRM_TIMEOUT_S:g} s") from None
    if not is_safe:
        raise unavailable("a queue refused the message")


def _message(exchange: str, routing_key: str, properties: Properties, payload: bytes) -> Message:
    try:
        return build_message(exchange, routing_key, properties, payload)
    except (ValueError, TypeError, OverflowError) as error:
        raise bad_request(f"these properties fit in no frame: {error}") from error


def _payload(body: request_body.Body) -> bytes:
    payload = request_body.text(body, "payload")
    encoding = request_body.text(body, "payload_encoding", "string")
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise bad_request(f"unsupported_encoding: {encoding[:80]}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("payload is no base64") from None


def _properties(call: Call, given: dict[str, object]) -> Properties:
    """The properties of a message to publish.

    Raises:
        ApiError: 400.
    """
    unknown = set(given).difference(Properties.__struct_fields__)
    if unknown:
        raise bad_request(f"unknown property: {min(unknown)[:80]}")
    try:
        found = msgspec.convert(given, Properties)
    except msgspec.ValidationError as error:
        raise bad_request(f"properties: {error}") from error
    if found.user_id not in {None, call.user.name} and "impersonator" not in call.user.tags:
        raise bad_request(
            f"user_id property set to '{found.user_id}' but authenticated user was "
            f"'{call.user.name}'"
        )
    if found.expiration is not None:
        try:
            check_expiration(found.expiration)
        except AmqpError as error:
            raise bad_request(error.text) from error
    return found


def _header_keys(properties: Properties, name: str) -> list[str]:
    """The keys of CC or BCC; items that are no strings are passed over.

    Raises:
        ApiError: 400 for one that is no list.
    """
    value = (properties.headers or {}).get(name, [])
    if not isinstance(value, list):
        raise bad_request(f"header {name} must be a list")
    return [item for item in value if isinstance(item, str)]


async def get(call: Call) -> web.StreamResponse:
    """POST /api/queues/VHOST/NAME/get `{"count","ackmode","encoding","truncate"}`."""
    queue = queues.named(call)
    body = await call.body()
    count = _natural(body, "count", GET_COUNT_MAX)
    ack_mode = request_body.text(body, "ackmode")
    encoding = request_body.text(body, "encoding", "auto")
    truncate = _natural(body, "truncate", GET_BYTES_MAX) if "truncate" in body else None
    if ack_mode not in _ACK_MODES:
        raise bad_request(f"unsupported_ackmode: {ack_mode[:80]}")
    if encoding not in {"auto", "base64"}:
        raise bad_request(f"unsupported_encoding: {encoding[:80]}")
    call.check("read", "queue", queue.name, queue.vhost)
    if queue.exclusive_owner is not None:
        where = quoted("queue", queue.name, queue.vhost)
        raise bad_request(f"cannot obtain exclusive access to locked {where}")
    if queue.type == "stream":  # the text of a closed connection, as rabbit_mgmt_util.erl has it
        where = quoted("queue", queue.name, queue.vhost)
        text = f"basic.get not supported by stream queues {where}"
        raise bad_request(f"{int(ReplyCode.NOT_IMPLEMENTED)} NOT_IMPLEMENTED - {text}")
    handle = call.serving.queues.open(queue)
    found = await _take(handle, _channel_id(call), count, ack_mode)
    parts = await call.reports.pace.run(
        paging.written(found, lambda result: _shown(result, encoding, truncate), step=1)
    )
    return await call.listings.send(call.request, call.user, parts)


def _natural(body: request_body.Body, key: str, most: int) -> int:
    value = body.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:  # noqa: PLR2004 - fits an int
        value = int(value)  # rabbitmqadmin sends texts
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise bad_request(f"{key} must be a number from 0 to {most}")
    return value


def _channel_id(call: Call) -> str:
    """Return a channel id that holds the messages meanwhile; no client's connection is number 0."""
    context = call.serving.context
    return f"{context.node}/{context.boot}/0/{secrets.randbits(48)}"


async def _take(handle: QueueHandle, channel_id: str, count: int, ack_mode: str) -> list[GetResult]:
    """Take messages, then put back or away all of them."""
    no_ack = ack_mode == "ack_requeue_false"
    found: list[GetResult] = []
    size = 0
    try:
        while len(found) < count and size < GET_BYTES_MAX:
            result = await queues.ask(partial(handle.submit, Get(channel_id, no_ack)))
            if not isinstance(result, GetResult) or result.delivery is None:
                break
            found.append(result)
            size += result.delivery.message.body_size
            if not len(found) % STEP:
                await asyncio.sleep(0)  # a queue that is here answers at once
        numbers = [result.delivery.number for result in found if result.delivery is not None]
        if numbers and ack_mode == "reject_requeue_false":
            handle.submit(Discard(channel_id, "", numbers))
        elif numbers and not no_ack:
            handle.submit(Requeue(channel_id, "", numbers))
    finally:
        handle.submit(Release(channel_id))
    # Commands of a node are applied in order: when this one is answered, so are those above.
    await queues.ask(partial(handle.submit, Cancel(channel_id, "")))
    return found


def _shown(result: GetResult, encoding: str, truncate: int | None) -> dict[str, Any]:
    delivery = result.delivery
    assert delivery is not None
    message = delivery.message
    body = body_of(message)[:truncate]
    text, used = _encoded(body, encoding)
    return {
        "payload_bytes": message.body_size,
        "redelivered": delivery.delivery_count > 0,
        "exchange": plain(message.exchange),
        "routing_key": plain(message.routing_key),
        "message_count": result.remaining,
        "properties": _shown_properties(delivery),
        "payload": text,
        "payload_encoding": used,
    }


def _shown_properties(delivery: Delivery) -> dict[str, object] | list[object]:
    """The properties that are set; [] for none, as RabbitMQ writes an empty proplist."""
    properties = decode_properties(delivery.message)
    found = {
        name: plain(value)
        for name in Properties.__struct_fields__
        if (value := getattr(properties, name)) is not None
    }
    return found or []


def _encoded(body: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return body.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), "base64"


async def prove_alive(call: Call, vhost: str) -> None:
    """Declare a queue, publish to it and take the message (the aliveness test).

    Raises:
        ApiError: What of it failed.
    """
    name = ALIVENESS_QUEUE
    call.check("configure", "queue", name, vhost)
    call.check("write", "exchange", "", vhost)
    call.check("read", "queue", name, vhost)
    context = call.serving.context
    queue = call.catalogue.queue(vhost, name)
    if queue is None:
        home, members = context.place(vhost, name, "classic", {})
        declared = await call.propose(
            DeclareQueue(
                vhost=vhost,
                name=name,
                durable=False,
                auto_delete=False,
                exclusive_owner=None,
                arguments={},
                home=home,
                members=members,
                queue_limit=context.limits.cluster_queues,
            )
        )
        assert isinstance(declared, Declared)
        queue = declared.queue
    await _deliver(call, [(build_message("", name, Properties(), b"test_message"), (queue,))])
    handle = call.serving.queues.open(queue)
    if not await _take(handle, _channel_id(call), 1, "ack_requeue_false"):
        refuse(Refusal(ReplyCode.INTERNAL_ERROR, "the test message did not come back"))


ROUTES = (
    Endpoint("POST", "/api/exchanges/{vhost}/{name}/publish", publish),
    Endpoint("POST", "/api/exchanges/{vhost}//publish", publish_to_default),
    Endpoint("POST", "/api/queues/{vhost}/{name}/get", get),
    Endpoint("GET", "/api/message-paths/{id}", show_path, "monitoring"),
)
