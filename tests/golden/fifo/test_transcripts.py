"""Runs the transcripts of this folder against a queue machine.

Commands: new [requeue=] [credit=] [ledger=] [burst=] [order=] [levels=] [single] and what rules
takes, rules [ttl=] [length=] [bytes=] [overflow=] [limit=] [dead] [hold], time MS, bury NUMBERS...,
drop NUMBERS..., dead (tells of the held dead again), enqueue COUNT [size=] [persistent=] [ttl=]
[priority=], checkout TAG [prefetch=] [priority=] [no_ack] [exclusive], cancel TAG,
settle|requeue|discard TAG NUMBERS..., release CHANNEL, active TAG yes|no, prefetch TAG N, get
[no_ack], purge, stat, snapshot (restores a new machine from the old one's snapshot), redeliver,
offer SESSION FIRST COUNT [lowest=], durable POSITION, end-boot NODE BOOT. A tag is of channel
`n/1/1/1` unless it is written CHANNEL:TAG. Each prints its answer and the effects that follow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.fifo.commands import (
    Cancel,
    Checkout,
    CommandBatch,
    Discard,
    Drop,
    Enqueue,
    Get,
    Purge,
    Release,
    Requeue,
    SetActive,
    SetPrefetch,
    Settle,
)
from broker.fifo.config import QueueConfig
from broker.fifo.effects import Effects
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.message import Delivery, Message
from tests.golden import datadriven

CHANNEL = "n/1/1/1"


def _key(word: str) -> tuple[str, str]:
    channel_id, colon, tag = word.rpartition(":")
    return (channel_id if colon else CHANNEL, tag)


def _shown(delivery: Delivery) -> str:
    again = "" if not delivery.delivery_count else f"(again {delivery.delivery_count})"
    return f"{delivery.number}{again}"


def _messages(count: int, options: dict[str, str]) -> list[Message]:
    size = int(options.get("size", "1"))
    content = b"h" * 14 + b"b" * size
    facts = {"ttl_ms": int(options.get("ttl", "-1")), "priority": int(options.get("priority", "0"))}
    return [Message("", "q", content, 1, 14, size, "persistent" in options, **facts)] * count


def _rules(words: list[str], options: dict[str, str]) -> Rules:
    def number(name: str) -> int | None:
        return int(options[name]) if name in options else None

    return Rules(
        message_ttl_ms=number("ttl"),
        max_length=number("length"),
        max_length_bytes=number("bytes"),
        overflow=options.get("overflow", "drop-head"),
        delivery_limit=number("limit"),
        is_dead_lettered="dead" in words,
        is_held="hold" in words,
    )


class Player:
    """Plays the commands of one transcript."""

    def __init__(self) -> None:
        self.machine = QueueMachine(QueueConfig(name="q"))

    def __call__(self, case: datadriven.Case) -> str:
        words = case.words
        handler = getattr(self, "do_" + case.command.replace("-", "_"))
        answer = handler(words, case.options)
        more = ""
        while self.machine.pump():
            more = "stopped at the burst limit, pumped on"
        lines = [answer, more, *self._effects(self.machine.take_effects())]
        return "\n".join(line for line in lines if line)

    def _effects(self, effects: Effects) -> list[str]:
        lines = [f"ledger {type(r).__name__} {getattr(r, 'numbers', r)}" for r in effects.ledger]
        for reason, items, is_held in effects.dead:
            names = " ".join(_shown(item) for item in items)
            lines.append(f"{'holds ' if is_held else ''}dead of {reason}: {names}")
        lines += [f"reply {r.session} {r.number}: {r.value}" for r in effects.replies]
        for (channel_id, tag), items in effects.deliveries.items():
            name = tag if channel_id == CHANNEL else f"{channel_id}:{tag}"
            lines.append(f"{name} <- {' '.join(_shown(item) for item in items)}")
        for v in effects.verdicts:
            lines.append(f"{v.session} {v.first}-{v.last} {'ok' if v.ok else 'refused'}")
        lines += [f"{session} lost" for session in effects.session_lost]
        lines += [f"{o.session} expected {o.expected}" for o in effects.out_of_sequence]
        return lines

    def do_new(self, words, options):
        self.machine = QueueMachine(
            QueueConfig(
                name="q",
                requeue=options.get("requeue", "original"),
                ledger=options.get("ledger", "none"),
                credit_max=int(options["credit"]) if "credit" in options else None,
                rules=_rules(words, options),
                order=options.get("order", "fifo"),
                priority_max=int(options.get("levels", "0")),
                is_single_active="single" in words,
                burst_max=int(options.get("burst", "0")),
            )
        )
        return ""

    def do_enqueue(self, words, options):
        count = int(words[0])
        first = self.machine.next_number
        refused = self.machine.enqueue(_messages(count, options))
        numbers = f"numbers {first}-{self.machine.next_number - 1}"
        return f"{numbers}, refused {len(refused)} of {count}" if refused else numbers

    def do_rules(self, words, options):
        self.machine.set_rules(_rules(words, options))
        return ""

    def do_time(self, words, _options):
        self.machine.set_time(int(words[0]))
        while self.machine.pump():
            pass
        due_ms = self.machine.due_ms()
        return "" if due_ms is None else f"due at {due_ms}"

    def do_bury(self, words, _options):
        return f"buried {self.machine.drop_dead_lettered([int(word) for word in words])}"

    def do_drop(self, words, _options):
        return f"dropped {self.machine.apply_command(Drop([int(word) for word in words]))}"

    def do_dead(self, _words, _options):
        self.machine.messages.redeliver_dead()
        return ""

    def do_checkout(self, words, options):
        refusal = self.machine.apply_command(
            Checkout(
                *_key(words[0]),
                no_ack="no_ack" in words,
                exclusive="exclusive" in words,
                prefetch=int(options.get("prefetch", "0")),
                priority=int(options.get("priority", "0")),
            )
        )
        return "" if refusal is None else f"{refusal.code.value} {refusal.text}"

    def do_cancel(self, words, _options):
        self.machine.apply_command(Cancel(*_key(words[0])))
        return ""

    def do_settle(self, words, _options):
        self.machine.apply_command(Settle(*_key(words[0]), [int(word) for word in words[1:]]))
        return ""

    def do_requeue(self, words, _options):
        self.machine.apply_command(Requeue(*_key(words[0]), [int(word) for word in words[1:]]))
        return ""

    def do_discard(self, words, _options):
        self.machine.apply_command(Discard(*_key(words[0]), [int(word) for word in words[1:]]))
        return ""

    def do_release(self, words, _options):
        self.machine.apply_command(Release(words[0]))
        return ""

    def do_active(self, words, _options):
        self.machine.apply_command(SetActive(*_key(words[0]), active=words[1] == "yes"))
        return ""

    def do_prefetch(self, words, _options):
        self.machine.apply_command(SetPrefetch(*_key(words[0]), int(words[1])))
        return ""

    def do_get(self, words, _options):
        delivery, remaining = self.machine.apply_command(Get(CHANNEL, no_ack="no_ack" in words))
        return f"{'nothing' if delivery is None else _shown(delivery)}, {remaining} remain"

    def do_purge(self, _words, _options):
        return f"purged {self.machine.apply_command(Purge())}"

    def do_stat(self, _words, _options):
        stat = self.machine.stat()
        return f"ready {stat.ready} unacked {stat.unacked} consumers {stat.consumers}"

    def do_snapshot(self, _words, _options):
        parts = self.machine.snapshot()
        self.machine = QueueMachine(self.machine.config)
        self.machine.restore(parts)
        return ""

    def do_redeliver(self, _words, _options):
        self.machine.redeliver_checked_out()
        return ""

    def do_offer(self, words, options):
        session, first, count = words[0], int(words[1]), int(words[2])
        lowest = int(options.get("lowest", "1"))
        command = Enqueue(_messages(count, options))
        self.machine.apply_batch(CommandBatch(session, lowest, first, [command]), 0)
        return f"ready {self.machine.stat().ready}"

    def do_durable(self, words, _options):
        self.machine.mark_durable(int(words[0]))
        return ""

    def do_end_boot(self, words, _options):
        self.machine.end_boot(words[0], words[1])
        return ""


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.txt")), ids=lambda p: p.stem)
def test_transcript(path):
    datadriven.run(path, Player())
