"""How a message is shown that was browsed: as JSON, and no larger than asked for."""

from __future__ import annotations

import base64
from typing import Any, Final

from broker.amqp.fields import valid_text
from broker.fifo.ready.places import Place
from broker.management.answers import encode
from broker.management.operations.browsing.documents import indented, text_of
from broker.management.operations.browsing.views import View

PROPERTIES_BYTES: Final = 64 << 10

WITHHELD: Final = (
    "not shown: while management.browse.masked names fields, only bodies are that can be read as "
    "JSON or MessagePack as a whole"
)


def token(uid: int, place: Place) -> str:
    """Return a place in a form that clients give back."""
    return f"{uid}.{place.rank}.{place.number}"


def row(view: View, uid: int, truncate: int, *, is_stream: bool) -> dict[str, Any]:
    """Show a message.

    Args:
        view: What may be seen of it.
        uid: Its queue's.
        truncate: Most bytes that are shown of its body, and of what that decodes to.
        is_stream: It has an offset in place of a number.
    """
    seen, found = view.seen, view.document
    properties = view.properties
    is_large = len(encode(properties)) > PROPERTIES_BYTES
    shown: dict[str, Any] = {
        "offset" if is_stream else "number": seen.place.number,
        "token": token(uid, seen.place),
        "exchange": valid_text(seen.exchange),
        "routing_key": view.routing_key,
        "properties": {} if is_large else properties,
        "properties_cut": is_large,
        "payload_bytes": seen.body_size,
        **_payload(view, truncate),
        "format": found.kind,
        "compression": found.compression,
        **_decoded(view, truncate),
        "problem": WITHHELD if view.is_withheld and not found.is_structured else found.problem,
        "masked": sorted(view.hidden),
    }
    if is_stream:
        shown["timestamp_ms"] = seen.at_ms
    else:
        shown["redelivered"] = seen.delivery_count > 0
        shown["delivery_count"] = seen.delivery_count
    return shown


def _payload(view: View, truncate: int) -> dict[str, Any]:
    """The body as it is; withheld, it is null."""
    if view.is_withheld:
        return {"payload": None, "payload_encoding": "none", "payload_cut": False}
    seen, found = view.seen, view.document
    data = seen.body[:truncate]
    is_cut = len(data) < seen.body_size
    is_binary = found.kind == "binary" and not found.compression  # though it may begin as text does
    shown = None if is_binary else text_of(data, is_cut=is_cut)
    return {
        "payload": base64.b64encode(data).decode() if shown is None else shown,
        "payload_encoding": "base64" if shown is None else "string",
        "payload_cut": is_cut,
    }


def _decoded(view: View, truncate: int) -> dict[str, Any]:
    """What the body decodes to, as text; null where that says no more than the body itself."""
    found, shown = view.document, None
    if found.is_structured:
        shown = indented(found, view.value)
    elif found.compression and not view.is_withheld:
        shown = text_of(found.data, is_cut=found.is_cut)
    is_cut = found.is_cut and shown is not None
    if shown is not None and len(shown) > truncate:
        shown, is_cut = shown[:truncate], True
    return {"decoded": shown, "decoded_cut": is_cut}
