"""Runs the transcripts of this folder: what a session writes, and what it asks of its shell.

    send [connection=1] [channel=1] [effects]      body: one command a line, all in one chunk
    steps [connection=1]                           the same, each command a chunk of its own
    hold / let-go [COUNT]                          effects wait; carry out the oldest
    refuse QUEUE                                   a queue rejects what is published to it
    permissions CONFIGURE WRITE READ               of user guest in "/"
    end-boot NODE

A line of `send` is a method as `class.method field=value flag`, or `publish KEY [exchange=]
[body=] [mandatory] [immediate] [property=]`, or `open`. Connections are made when first used.
With `effects`, what the session asked for is printed below a line `--`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from broker.amqp import spec
from broker.amqp.assembler import Command
from broker.metadata import commands
from broker.session.effects import Effect, QueueRequest
from tests.golden.datadriven import Case, run
from tests.unit.session.rig import _NAMES, Client, World, command, publish

_KINDS = {name: kind for kind, name in _NAMES.items()}
_SKIPPED = {"token", "queue", "checkout", "command", "channel_id", "messages", "error", "message"}


def value_of(text: str) -> object:
    return int(text) if text.lstrip("-").isdigit() else text


def parse_line(line: str, channel: int) -> Command:
    name, *words = shlex.split(line)
    flags = {word: True for word in words if "=" not in word}
    options = {k: value_of(v) for k, v in (w.split("=", 1) for w in words if "=" in w)}
    if name == "publish":
        key, *_ = words
        del flags[key]
        body = str(options.pop("body", "x")).encode()
        names = {"expiration", "user_id", "reply_to"}
        options = {k: str(v) if k in names else v for k, v in options.items()}
        return publish(key, body=body, channel=channel, **flags, **options)
    if name == "open":
        name = "channel.open"
    if "queue_type" in options:
        options["arguments"] = {"x-queue-type": options.pop("queue_type")}
    return command(_KINDS[name](**flags, **options), channel)


def show_effect(effect: Effect) -> str:
    asked = effect.command if isinstance(effect, QueueRequest) else effect
    words = [type(asked).__name__]
    queue = getattr(effect, "queue", None)
    if queue is not None:
        words.append(queue.name)
    elif isinstance(effect, QueueRequest):
        words.append(f"queue_uid={effect.queue_uid}")
    if hasattr(asked, "messages"):
        words.append(f"messages={len(asked.messages)}")
    if hasattr(asked, "command"):
        words.append(type(asked.command).__name__)
    if hasattr(asked, "checkout"):
        words.append(f"prefetch={asked.checkout.prefetch}")
    for field in asked.__struct_fields__:
        value = getattr(asked, field)
        if field == "channel":
            value &= 0xFFFF
        if field not in _SKIPPED and value not in (None, "", False):
            words.append(f"{field}={value}")
    if isinstance(effect, QueueRequest) and effect.token:
        words.append("awaited")
    return " ".join(words)


class TranscriptSession:
    def __init__(self) -> None:
        self.world = World()

    def client(self, connection: int) -> Client:
        return self.world.clients.get(connection) or Client(self.world, connection)

    def handle(self, case: Case) -> str:
        run_case = getattr(self, "_" + case.command.replace("-", "_"))
        return "\n".join(run_case(case))

    def written(self) -> list[str]:
        lines: list[str] = []
        many = len(self.world.clients) > 1
        for number, client in self.world.clients.items():
            head = f"connection {number}: " if many else ""
            lines += [head + line for line in client.take()]
            if client.error is not None:
                error = client.error
                lines.append(
                    f"{head}close the connection: {error.code} {error.reply_text} "
                    f"({error.class_id}, {error.method_id})"
                )
                client.error = None
        return lines

    def _send(self, case: Case) -> list[str]:
        client = self.client(int(case.options.get("connection", 1)))
        channel = int(case.options.get("channel", 1))
        self.world.log.clear()
        some = [parse_line(line, channel) for line in case.body.splitlines()]
        self.world.run(client, client.session.handle(some, 0))
        lines = self.written()
        if "effects" in case.words:
            lines += ["--", *map(show_effect, self.world.log)]
        return lines

    def _steps(self, case: Case) -> list[str]:
        lines: list[str] = []
        for line in case.body.splitlines():
            lines += self._send(case._replace(body=line))
        return lines

    def _hold(self, case: Case) -> list[str]:
        self.world.is_held = True
        return []

    def _let_go(self, case: Case) -> list[str]:
        if case.words:
            self.world.let_go(int(case.words[0]))
        else:
            self.world.is_held = False
            self.world.let_go()
        return self.written()

    def _refuse(self, case: Case) -> list[str]:
        queue = self.world.catalogue.queue("/", case.words[0])
        assert queue is not None
        self.world.refusing.add(queue.uid)
        return []

    def _permissions(self, case: Case) -> list[str]:
        self.world.apply(commands.SetPermissions("guest", "/", *case.words))
        return []

    def _end_boot(self, case: Case) -> list[str]:
        node = self.world.catalogue.node(case.words[0])
        assert node is not None
        assert node.boot is not None
        self.world.apply(commands.EndBoot(node.name, node.boot))
        return self.written()


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parent.glob("*.txt")), ids=lambda path: path.stem
)
def test_transcript(path: Path) -> None:
    run(path, TranscriptSession().handle)


def test_every_method_a_client_may_send_has_a_name() -> None:
    assert {"basic.publish", "tx.select", "exchange.unbind"} <= set(_KINDS)
    assert _KINDS["queue.declare"] is spec.QueueDeclare
