"""Changes of group 0 and of the own boot while a node begins to serve."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker import node as node_module
from broker.config import Listener, Settings
from broker.metadata import commands
from broker.metadata.results import Changes
from broker.node import Node
from broker.server import serving as serving_module
from broker.server.alarms import AlarmLimits, limits_of
from broker.server.serving import Serving

LIMITS = limits_of(Settings(vm_memory_high_watermark_bytes=0))


class SlowServing:
    """A serving half; `meanwhile` happens between its look at the catalogue and its start."""

    def __init__(self, boot: str, meanwhile: Any) -> None:
        self.context = SimpleNamespace(boot=boot)
        self.alarms = SimpleNamespace(limits=LIMITS, follow_store=lambda *_: None)
        self.heard: list[Changes] = []
        self.is_dropped = False
        self._meanwhile = meanwhile

    async def start(self, _tasks: object) -> None:
        self._meanwhile()

    async def open(self) -> None:
        pass

    def applied(self, changes: Changes) -> None:
        self.heard.append(changes)

    def drop_boot(self) -> None:
        self.is_dropped = True

    async def stop(self, _text: str) -> None:
        pass


def begin(monkeypatch: pytest.MonkeyPatch, meanwhile: Any) -> tuple[Node, SlowServing]:
    member = SimpleNamespace(
        cluster=SimpleNamespace(boot="1"), journal=None, store=None, service=None, tasks=None
    )
    node = Node(Settings())
    serving = SlowServing("1", lambda: meanwhile(node, member))
    monkeypatch.setattr(node_module, "Serving", lambda *_arguments: serving)
    asyncio.run(node._begin_serving(member))  # type: ignore[arg-type]
    return node, serving


def test_what_was_applied_meanwhile_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """P6: nobody forwards a change to a serving half that has not started."""
    node, serving = begin(monkeypatch, lambda node, _member: node._applied(Changes()))
    assert node.serving is serving
    assert [each.restored for each in serving.heard] == [True]


def test_a_boot_that_ended_meanwhile_serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """P1: whoever heard of the end had nothing to drop yet."""

    def reboot(node: Node, member: SimpleNamespace) -> None:
        member.cluster.boot = "2"
        node._boot_ended("1", "2")

    node, serving = begin(monkeypatch, reboot)
    assert serving.is_dropped
    assert node.serving is None


def test_limits_set_at_run_time_outlive_the_boot_and_not_stop_app(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, serving = begin(monkeypatch, lambda *_: None)
    given: list[AlarmLimits | None] = []

    def again(*arguments: Any) -> SlowServing:
        given.append(arguments[-1])
        return serving

    async def live() -> None:
        cluster = SimpleNamespace(boot="1", retire=_retire)
        member = SimpleNamespace(
            cluster=cluster, journal=None, store=None, service=None, tasks=None
        )
        await node._serve_again(serving)  # type: ignore[arg-type]
        await node._begin_serving(member)  # type: ignore[arg-type]
        await node.stop_app()
        await node._begin_serving(member)  # type: ignore[arg-type]

    async def _retire() -> None:
        pass

    monkeypatch.setattr(node_module, "Serving", again)
    asyncio.run(live())
    assert given == [LIMITS, None]


def test_replicas_are_begun_a_few_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' heartbeats and group 0 go on meanwhile."""
    monkeypatch.setattr(serving_module, "BEGIN_SLICE_S", 0.0)
    seen: list[str] = []
    serving = SimpleNamespace(
        catalogue=SimpleNamespace(queue_uids={1: None, 2: None, 3: None}.keys),
        queues=SimpleNamespace(begin_replica=lambda uid: seen.append(f"begins {uid}")),
    )

    async def others() -> None:
        for _ in range(3):
            seen.append("other work")
            await asyncio.sleep(0)

    async def live() -> None:
        await asyncio.gather(Serving._begin_replicas(serving), others())  # type: ignore[arg-type]

    asyncio.run(live())
    assert seen == ["begins 1", "other work", "begins 2", "other work", "begins 3", "other work"]


def test_a_taken_port_leaves_nothing_behind(tmp_path: Path) -> None:
    """The next start_app opens the same queues again."""

    async def live() -> None:
        taken = socket.create_server(("127.0.0.1", 0))
        listeners = tuple(Listener("127.0.0.1", port) for port in (0, taken.getsockname()[1]))
        node = Node(
            Settings(
                data_dir=str(tmp_path),
                amqp_listeners=listeners,
                cluster_listener=Listener("127.0.0.1", 0),
            )
        )
        async with asyncio.TaskGroup() as node._tasks:
            with pytest.raises(OSError, match="in use"):
                await node.start_app()
            assert node.cluster is not None
            assert node.service is not None
            for kind in ("quorum", "classic"):
                arguments: dict[str, object] = {"x-queue-type": kind}
                await node.cluster.propose(
                    commands.DeclareQueue("/", kind, True, False, None, arguments, node.name)
                )
            before = [group.id for group in node.cluster.host.groups()]
            with pytest.raises(OSError, match="in use"):
                await node.start_app()
            assert [group.id for group in node.cluster.host.groups()] == before
            assert node.service._queues is None
            taken.close()
            await node.start_app()
            assert node.serving is not None
            assert len(node.serving.queues.local_quorum()) == 1
            await node._stop()

    asyncio.run(live())
