"""confirm.select and the tx class: the two modes a channel can be switched to, never both.

Transactions are the simple form: publishes are routed when they are published and enqueued at
commit; acknowledgements leave the ledger at once and reach the queues at commit; rollback puts
them back. commit-ok waits for a verdict of every queue on every message and for the outcome of
every settle (docs/protocol-rules.md P18). Atomic per queue only, and there up to 1 MiB or 1,000
messages (P13); for what a named publisher sends to a stream, up to `UNIT_BYTES_MAX`.

Source:
    rabbit_channel.erl, handle_method confirm.select and tx.*.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.amqp import spec
from broker.errors import AmqpError, Refusal, ReplyCode, quoted
from broker.fifo.command_sizes import pieces
from broker.message import Message
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.session.basic_consume import unpark
from broker.session.basic_publish import write_return
from broker.session.channel import Channel, Commit, HeldPublishes, Transaction
from broker.session.confirms import Confirms
from broker.session.effects import PublishTo
from broker.streams.publishers import is_named

UNIT_BYTES_MAX: Final = 32 << 20
"""Of what a named publisher sends to a stream in one transaction: its node holds all of it until it
is stored, and one that is larger than `broker.fifo.command_sizes.HELD_BYTES_MAX` alone. The leader
encodes it in one turn of the loop (docs/decisions/0068)."""


class _Batch(NamedTuple):
    """What a transaction brings one queue."""

    queue: Queue
    messages: list[Message]


def confirm_select(channel: Channel, method: spec.ConfirmSelect) -> None:
    """confirm.select; a second time changes nothing.

    Raises:
        AmqpError: 406 on a transactional channel.
    """
    if channel.transaction is not None:
        text = "cannot switch from tx to confirm mode"
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    if channel.confirms is None:
        channel.context.flush_batches()  # what was published before has no numbers
        channel.confirms = Confirms()
    if not method.no_wait:
        channel.send(spec.ConfirmSelectOk())


def tx_select(channel: Channel, method: spec.TxSelect) -> None:
    """tx.select; a second time changes nothing.

    Raises:
        AmqpError: 406 on a confirm channel.
    """
    del method
    if channel.confirms is not None:
        text = "cannot switch from confirm to tx mode"
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    if channel.transaction is None:
        channel.transaction = Transaction()
    channel.send(spec.TxSelectOk())


def tx_commit(channel: Channel, method: spec.TxCommit) -> None:
    """tx.commit: enqueue, settle, then commit-ok when every queue has answered.

    Raises:
        AmqpError: 406 when the channel is not transactional, or later when a queue refused or a
            settle was lost to a failover.
    """
    transaction = _transaction(channel)
    del method
    channel.transaction = Transaction()
    batches = _by_queue(transaction)
    units = _units(batches)
    _write_returns(channel, transaction)
    missing = _emit_publishes(channel, batches, units)

    def settled(result: object) -> None:
        if not commit_verdict(channel, 1, ok=not isinstance(result, Refusal)):
            channel.wait()

    for kind, entries in transaction.taken:
        taken = [(source, [number]) for _, source, number in entries]
        missing += channel.give(kind, taken, settled)
    unpark(channel)
    if not missing:
        channel.send(spec.TxCommitOk())
        return
    channel.commit = Commit(missing)
    channel.wait()


def _by_queue(transaction: Transaction) -> list[_Batch]:
    """What each queue gets, in publish order."""
    found: dict[int, _Batch] = {}
    for held in transaction.publishes:
        for messages, queues in held.copies:
            for queue in queues:
                batch = found.get(queue.uid)
                if batch is None:
                    found[queue.uid] = _Batch(queue, messages.copy())
                else:
                    batch.messages.extend(messages)
    return list(found.values())


def _units(batches: list[_Batch]) -> set[int]:
    """The uids of the streams that get a unit.

    Raises:
        AmqpError: 406 for one that is too large to be stored whole.
    """
    found: set[int] = set()
    for queue, messages in batches:
        if queue.type != "stream" or not any(map(is_named, messages)):
            continue
        found.add(queue.uid)
        if sum([len(message.content) for message in messages]) > UNIT_BYTES_MAX:
            where = quoted("queue", queue.name, queue.vhost)
            text = f"a unit for {where} is larger than {UNIT_BYTES_MAX} bytes"
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    return found


def _write_returns(channel: Channel, transaction: Transaction) -> None:
    """Return what is mandatory and was routed nowhere, or only to queues that are gone by now.

    Source:
        RabbitMQ 3.10.8, rabbit_channel.erl: deliver_to_queues looks the queues of a transaction
        up at commit. 3.13 returns only what was routed nowhere.
    """
    for publish in transaction.publishes:
        if publish.is_mandatory and not _has_queue(channel.context.catalogue, publish):
            for original in publish.originals:
                write_return(channel, original)


def _has_queue(catalogue: Catalogue, publish: HeldPublishes) -> bool:
    """True if one of the queues exists; an exchange's history is none that a client routes to."""
    return any(
        catalogue.queue_by_uid(queue.uid) is not None
        for _, queues in publish.copies
        for queue in queues
        if queue.keeps_for is None or queue.delays_for is not None
    )


def _emit_publishes(channel: Channel, batches: list[_Batch], units: set[int]) -> int:
    """Enqueue what a transaction has held; return how many verdicts that brings.

    In pieces (P13): a queue's node may be able to hold some of it before the rest (P12). What a
    named publisher sends to a stream is a unit, and goes in one go.
    """
    missing = 0
    for queue, messages in batches:
        count = len(messages)
        missing += count
        seqnos = list(range(1, count + 1))
        if queue.uid in units:
            channel.emit(PublishTo(channel.key, queue, messages, seqnos, is_unit=True))
            continue
        first = 0
        for piece, _ in pieces(messages):
            after = first + len(piece)
            channel.emit(PublishTo(channel.key, queue, piece, seqnos[first:after]))
            first = after
    return missing


def commit_verdict(channel: Channel, count: int, *, ok: bool) -> bool:
    """Note verdicts or outcomes for a pending commit. True if it is over, commands may go on.

    Raises:
        AmqpError: 406 when the commit is over and a queue had refused or lost a settle.
    """
    commit = channel.commit
    assert commit is not None
    commit.missing -= count
    commit.failed = commit.failed or not ok
    if commit.missing > 0:
        return False
    channel.commit = None
    channel.resume()
    if commit.failed:
        text = "partial tx completion"
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED, text, spec.TxCommit.class_id, spec.TxCommit.method_id
        )
    channel.send(spec.TxCommitOk())
    return True


def tx_rollback(channel: Channel, method: spec.TxRollback) -> None:
    """tx.rollback: forget the publishes, put the acknowledged deliveries back.

    Raises:
        AmqpError: 406 when the channel is not transactional.
    """
    transaction = _transaction(channel)
    del method
    channel.transaction = Transaction()
    entries = [entry for _, taken in transaction.taken for entry in taken]
    if entries:
        channel.unacked.restore(entries, channel.context.now_ms)
    channel.send(spec.TxRollbackOk())
    unpark(channel)


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "channel is not transactional")
    return channel.transaction
