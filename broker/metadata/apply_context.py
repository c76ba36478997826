"""One entry of group 0 while it is applied, and the removals that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Binding, Queue
from broker.metadata.results import Changes

UID_INDEX_BITS: Final = 40


@dataclass(slots=True)
class ApplyContext:
    """The context of one command's handler.

    Attributes:
        catalogue: The state.
        changes: What shells hear of.
        index: Group 0 index of the entry.
        extra: Queues declared by this entry beside the one whose uid is the index.
    """

    catalogue: Catalogue
    changes: Changes
    index: int
    extra: int = 0

    def next_uid(self) -> int:
        """A uid for one more queue of this entry.

        The count stands above 40 bits of index, so no other entry's uid is the same. 2^40 entries
        take 35 years at a thousand a second.
        """
        self.extra += 1
        return (self.extra << UID_INDEX_BITS) + self.index


def delete_queue(context: ApplyContext, queue: Queue) -> None:
    """Delete a queue with its bindings, and exchanges that were there for those alone."""
    sources = _unbind_all(context, context.catalogue.bindings_to(queue.vhost, "queue", queue.name))
    for tap in context.catalogue.taps_with(queue):
        context.catalogue.remove_tap(tap)
    context.catalogue.remove_queue(queue)
    context.changes.queues_removed.append(queue)
    context.changes.routing_changed = True
    _delete_unbound(context, queue.vhost, sources)


def delete_exchange(context: ApplyContext, vhost: str, name: str) -> None:
    """Delete an exchange with its bindings, and exchanges that were there for those alone."""
    catalogue = context.catalogue
    _unbind_all(context, catalogue.bindings_from(vhost, name))
    sources = _unbind_all(context, catalogue.bindings_to(vhost, "exchange", name))
    _remove_exchange(context, vhost, name)
    context.changes.routing_changed = True
    _delete_unbound(context, vhost, sources)


def unbind(context: ApplyContext, binding: Binding) -> None:
    """Remove a binding, and its source if it is an auto-delete exchange with no other."""
    sources = _unbind_all(context, [binding])
    _delete_unbound(context, binding.vhost, sources)


def _unbind_all(context: ApplyContext, bindings: list[Binding]) -> list[str]:
    """Remove bindings, taps with theirs, and name their sources, each once and in order."""
    for binding in bindings:
        tap = context.catalogue.tap(binding.vhost, "exchange", binding.source)
        if tap is not None and tap.binding == binding:
            context.catalogue.remove_tap(tap)
        context.catalogue.remove_binding(binding)
        context.changes.routing_changed = True
    return list(dict.fromkeys(binding.source for binding in bindings))


def _delete_unbound(context: ApplyContext, vhost: str, sources: list[str]) -> None:
    """Delete those auto-delete exchanges that have just lost their last binding as source.

    A work list, not recursion: a chain of auto-delete exchanges may be longer than Python's stack.
    """
    catalogue = context.catalogue
    pending = list(sources)
    while pending:
        name = pending.pop()
        exchange = catalogue.exchange(vhost, name)
        if exchange is None or not exchange.auto_delete or catalogue.has_bindings_from(vhost, name):
            continue
        pending.extend(_unbind_all(context, catalogue.bindings_to(vhost, "exchange", name)))
        _remove_exchange(context, vhost, name)


def _remove_exchange(context: ApplyContext, vhost: str, name: str) -> None:
    """Remove an exchange without bindings, and what it delays."""
    store = context.catalogue.store(vhost, name)
    if store is not None:
        context.catalogue.remove_queue(store)
        context.changes.queues_removed.append(store)
    context.catalogue.remove_exchange(vhost, name)
