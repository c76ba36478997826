"""A machine with two living nodes and vhost "/", to begin most tests with."""

from __future__ import annotations

from broker.errors import Refusal
from broker.metadata import commands
from broker.metadata.machine import MetadataMachine

ONE, TWO = "rabbit@node1", "rabbit@node2"
BOOT_ONE, BOOT_TWO = "1" * 16, "2" * 16


class Asker:
    """Proposes commands one after another, as one boot."""

    def __init__(self, machine: MetadataMachine, boot: str = BOOT_ONE, *, index: int = 0) -> None:
        self.machine = machine
        self.boot = boot
        self.index = index
        self.number = 0
        self.log: list[bytes] = []

    def ask(self, command: commands.AnyCommand, *, boot: str | None = None) -> object:
        self.index += 1
        self.number += 1
        data = commands.encode_request(boot or self.boot, self.number, self.number, command)
        self.log.append(data)
        return self.machine.apply(self.index, data)

    def queue(self, name: str, **changes: object) -> object:
        fields: dict[str, object] = {
            "vhost": "/",
            "name": name,
            "durable": True,
            "auto_delete": False,
            "exclusive_owner": None,
            "arguments": {},
            "home": ONE,
        }
        return self.ask(commands.DeclareQueue(**{**fields, **changes}))

    def exchange(self, name: str, type_: str = "fanout", **changes: object) -> object:
        fields: dict[str, object] = {
            "vhost": "/",
            "name": name,
            "type": type_,
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
        return self.ask(commands.DeclareExchange(**{**fields, **changes}))

    def bind(self, source: str, destination: str, key: str = "", **changes: object) -> object:
        fields: dict[str, object] = {
            "vhost": "/",
            "source": source,
            "kind": "queue",
            "destination": destination,
            "routing_key": key,
            "arguments": {},
        }
        return self.ask(commands.Bind(**{**fields, **changes}))

    def unbind(self, source: str, destination: str, key: str = "", **changes: object) -> object:
        fields: dict[str, object] = {
            "vhost": "/",
            "source": source,
            "kind": "queue",
            "destination": destination,
            "routing_key": key,
            "arguments": {},
        }
        return self.ask(commands.Unbind(**{**fields, **changes}))


def founded() -> Asker:
    """Bootstrap and boot of both nodes."""
    asker = Asker(MetadataMachine())
    nodes = ((ONE, "127.0.0.1:1"), (TWO, "127.0.0.1:2"))
    asker.ask(commands.Bootstrap("cluster-1", "warren", nodes))
    asker.ask(commands.BootNode(ONE, BOOT_ONE, "127.0.0.1:1"))
    asker.ask(commands.BootNode(TWO, BOOT_TWO, "127.0.0.1:2"))
    asker.machine.take_changes()
    return asker


def refusal(result: object) -> tuple[int, str]:
    """Code and text of what must be a refusal."""
    assert isinstance(result, Refusal), result
    return int(result.code), result.text
