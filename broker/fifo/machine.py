"""The queue machine: a queue that takes numbered commands of publisher sessions.

A Raft entry, a forwarded operation and a replicated one all end here: `apply_batch`,
`apply_entry` or `apply_offer`. Each applies what is new, answers everything, and serves the
consumers once; the results lie in `take_effects`.

This is the one place that knows which command is answered how: `sessions.VALUED` commands by a
`Reply`, the others by a `Verdict`; an enqueue's verdict waits where the ledger must be safe first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.fifo import ledger
from broker.fifo.commands import (
    Batch,
    Cancel,
    Checkout,
    Discard,
    Enqueue,
    Get,
    Offer,
    Purge,
    Release,
    Requeue,
    SessionCommand,
    SetActive,
    SetPrefetch,
    Settle,
    Skip,
    decode_batch,
)
from broker.fifo.config import QueueConfig
from broker.fifo.effects import Reply
from broker.fifo.queue import Queue


class QueueMachine(Queue):
    """One queue with its publisher sessions. Batch in, batch out.

    Args:
        config: How this queue behaves; never changes while the machine lives.

    Attributes:
        is_pump_due: The last `apply_*` stopped at `burst_max`: call `pump` soon.
    """

    __slots__ = ("is_pump_due",)

    def __init__(self, config: QueueConfig) -> None:
        super().__init__(config)
        self.is_pump_due = False

    def apply_batch(self, batch: Batch) -> None:
        """Apply a Raft entry's commands in order, then serve the consumers once."""
        for command in batch.commands:
            if isinstance(command, Offer):
                self._apply_offer(command, batch.now_ms)
            else:
                self.end_boot(command.node, command.boot)
        self.is_pump_due = self.pump()

    def apply_entry(self, data: bytes) -> None:
        """Apply a batch that `commands.encode_batch` wrote.

        Raises:
            msgspec.DecodeError: The bytes are no batch of a version known here: a bug, or a
                newer node's entry. The replica must stop, not skip it.
        """
        self.apply_batch(decode_batch(data))

    def apply_offer(self, offer: Offer, now_ms: int) -> None:
        """Apply one session's offer, then serve the consumers once.

        Args:
            offer: Numbered commands; what was applied before is only answered.
            now_ms: Milliseconds since the epoch.
        """
        self._apply_offer(offer, now_ms)
        self.is_pump_due = self.pump()

    def mark_durable(self, upto_number: int) -> None:
        """Say that every message up to a number is safe: its owed verdict is due.

        Args:
            upto_number: The last safe message's number. Only needed with a ledger.
        """
        self.sessions.mark_durable(upto_number, self.effects)

    def _apply_offer(self, offer: Offer, now_ms: int) -> None:
        admitted = self.sessions.admit(offer, self.effects)
        if admitted is None:
            return
        number, commands, skipped = admitted
        if skipped is not None:
            self._record_skipped(offer.session, *skipped)
        for command in commands:
            number = self._apply(offer.session, number, command, now_ms)
        self.sessions.advance(offer.session, number)

    def _apply(self, session: str, number: int, command: SessionCommand, now_ms: int) -> int:
        """Apply one command; return the number after it."""
        if isinstance(command, Enqueue):
            return self._apply_enqueue(session, number, command, now_ms)
        kind = type(command)
        valued = _VALUED.get(kind)
        if valued is not None:
            value = valued(self, command)
            self.sessions.reply(session, number, value)
            self.effects.replies.append(Reply(session, number, value))
            return number + 1
        last, ok = number, True
        if isinstance(command, Skip):
            last = number + command.count - 1
            self._record_skipped(session, number, last)
        else:
            ok = _PLAIN[kind](self, command) is not False
            if not ok:
                self.sessions.reject(session, number, number)
        self.effects.add_verdict(session, number, last, ok=ok)
        return last + 1

    def _apply_enqueue(self, session: str, number: int, command: Enqueue, now_ms: int) -> int:
        messages = command.messages
        if not messages:
            return number
        self.enqueue(messages, now_ms, redelivered=command.redelivered)
        after = number + len(messages)
        mode = self.config.ledger
        if mode == "all" or (mode == "persistent" and any(m.persistent for m in messages)):
            self.sessions.owe(session, number, after - 1, self.next_number - 1)
        else:
            self.effects.add_verdict(session, number, after - 1, ok=True)
        return after

    def _record_skipped(self, session: str, first: int, last: int) -> None:
        if self.config.ledger == "all":
            self.effects.ledger.append(ledger.Skipped(session, first, last))


def _checkout(machine: Queue, command: Checkout) -> object:
    return machine.checkout(
        command.holder,
        command.tag,
        no_ack=command.no_ack,
        exclusive=command.exclusive,
        prefetch=command.prefetch,
        priority=command.priority,
        arguments=command.arguments,
    )


def _cancel(machine: Queue, command: Cancel) -> object:
    machine.cancel(command.holder, command.tag)
    return None  # an unknown tag is answered alike


def _get(machine: Queue, command: Get) -> object:
    return machine.get(command.holder, no_ack=command.no_ack)


def _purge(machine: Queue, _command: Purge) -> object:
    return machine.purge()


def _settle(machine: Queue, command: Settle) -> bool:
    return machine.settle(command.holder, command.tag, command.numbers)


def _requeue(machine: Queue, command: Requeue) -> bool:
    return machine.requeue(command.holder, command.tag, command.numbers)


def _discard(machine: Queue, command: Discard) -> bool:
    return machine.discard(command.holder, command.tag, command.numbers)


def _release(machine: Queue, command: Release) -> None:
    machine.release(command.holder)


def _set_active(machine: Queue, command: SetActive) -> None:
    machine.set_active(command.holder, command.tag, active=command.active)


def _set_prefetch(machine: Queue, command: SetPrefetch) -> None:
    machine.set_prefetch(command.holder, command.tag, command.prefetch)


# Any: the key is the type of the command the function takes, which typing cannot say of a dict.
_VALUED: Final[dict[type, Callable[[Queue, Any], object]]] = {
    Checkout: _checkout,
    Cancel: _cancel,
    Get: _get,
    Purge: _purge,
}
_PLAIN: Final[dict[type, Callable[[Queue, Any], bool | None]]] = {
    Settle: _settle,
    Requeue: _requeue,
    Discard: _discard,
    Release: _release,
    SetActive: _set_active,
    SetPrefetch: _set_prefetch,
}
