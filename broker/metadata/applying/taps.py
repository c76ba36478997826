"""Taps: a stream that gets a copy of what goes to a queue or through an exchange."""

from __future__ import annotations

from typing import Final

from broker.errors import Refusal, ReplyCode, quoted
from broker.metadata import commands
from broker.metadata.apply_context import ApplyContext, unbind
from broker.metadata.applying import equivalence, exchanges
from broker.metadata.applying.queues import missing_vhost
from broker.metadata.records import Exchange, Queue, QueueType, Tap
from broker.metadata.results import Result
from broker.routing.delays import INNER_TYPE
from broker.routing.delays import TYPE as DELAYED

SPLITTING: Final = frozenset(("x-consistent-hash", "x-modulus-hash", "x-random"))
"""Exchange types that give each message to one of those bound: one more takes others' messages."""


def set_tap(context: ApplyContext, command: commands.SetTap) -> Result:
    """Add a tap unless it is there; that of an exchange with its binding."""
    catalogue = context.catalogue
    if catalogue.vhost(command.vhost) is None:
        return missing_vhost(command.vhost)
    tap = Tap(command.vhost, command.kind, command.source, command.stream, command.routing_key)
    existing = catalogue.tap(tap.vhost, tap.kind, tap.source)
    if existing == tap:
        return False
    refusal = _source_refusal(context, tap) or _stream_refusal(context, tap)
    if refusal is not None:
        return refusal
    if existing is not None:
        where = quoted(tap.kind, tap.source, tap.vhost)
        text = f"there is already another tap of {where}, to stream '{existing.stream}': delete it"
        return _refused(text)
    if tap.kind == "exchange":
        result = exchanges.bind(context, _bind(tap))
        if isinstance(result, Refusal):
            return result
    catalogue.put_tap(tap)
    context.changes.routing_changed = True
    return True


def delete_tap(context: ApplyContext, command: commands.DeleteTap) -> Result:
    """Remove a tap; its stream stays with what it has."""
    tap = context.catalogue.tap(command.vhost, command.kind, command.source)
    if tap is None:
        return False
    binding = tap.binding
    if binding is not None and context.catalogue.has_binding(binding):
        unbind(context, binding)  # the tap goes with it
    else:
        context.catalogue.remove_tap(tap)
    context.changes.routing_changed = True
    return True


def fault(tap: Tap, source: Exchange | QueueType) -> str | None:
    """Return why a source can't have a tap, for a 406; None if it can.

    Args:
        tap: The tap.
        source: The exchange, or the type of the queue.
    """
    where = quoted(tap.kind, tap.source, tap.vhost)
    if isinstance(source, Exchange):
        type_ = source.arguments.get(INNER_TYPE) if source.type == DELAYED else source.type
        if type_ in SPLITTING:
            return f"{where} of type {type_} divides messages: tap its queues instead"
        return None
    if source == "stream":
        return f"{where} is a stream: it can be read as it is"
    if tap.routing_key:
        return f"the tap of {where} has no routing key: it gets what the queue gets"
    return None


def _source_refusal(context: ApplyContext, tap: Tap) -> Refusal | None:
    catalogue = context.catalogue
    if tap.kind == "exchange" and not tap.source:
        return exchanges.default_exchange_refusal()
    source: Queue | Exchange | None
    if tap.kind == "exchange":
        source = catalogue.exchange(tap.vhost, tap.source)
    else:
        source = catalogue.queue(tap.vhost, tap.source)
    if source is None:
        return exchanges.not_found(tap.kind, tap.source, tap.vhost)
    if isinstance(source, Queue) and source.exclusive_owner is not None:
        return equivalence.locked(source)
    text = fault(tap, source.type if isinstance(source, Queue) else source)
    return None if text is None else _refused(text)


def _stream_refusal(context: ApplyContext, tap: Tap) -> Refusal | None:
    stream = context.catalogue.queue(tap.vhost, tap.stream)
    if stream is None:
        return exchanges.not_found("queue", tap.stream, tap.vhost)
    if stream.type != "stream":
        return _refused(f"{quoted('queue', tap.stream, tap.vhost)} is no stream")
    return None


def _refused(text: str) -> Refusal:
    return Refusal(ReplyCode.PRECONDITION_FAILED, text)


def _bind(tap: Tap) -> commands.Bind:
    return commands.Bind(
        vhost=tap.vhost,
        source=tap.source,
        kind="queue",
        destination=tap.stream,
        routing_key=tap.routing_key,
        arguments={},
    )
