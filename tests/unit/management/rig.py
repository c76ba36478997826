"""The API over a real group 0 machine, with fakes for the serving node and for other nodes."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

from aiohttp import ClientSession
from yarl import URL

from broker.cluster.detector import PeerState
from broker.cluster.feature_gate import FeatureGate
from broker.config import Listener, Settings
from broker.counters import MessageCounts, NodeCounts
from broker.management.app import ManagementServer
from broker.management.control import NodeError
from broker.management.listener import HEAD_TIMEOUT_S, ApiListener
from broker.management.operations.registry import Operations
from broker.metadata import commands
from broker.metadata.access import Access
from broker.passwords import hash_password
from broker.server.alarm_watch import AlarmWatch, Gauge
from broker.server.alarms import Board
from broker.server.entrance.doors import Doors
from broker.server.events.exchange import EventExchange
from broker.server.loop_watch import LoopWatch
from broker.session.facts import SessionLimits
from broker.session.traced_vhosts import TracedVhosts
from broker.storage.commit_stats import JournalStats
from tests.unit.metadata.cluster import BOOT_ONE, ONE, founded

SALT = b"salt"


class Queues:
    """Nothing is served here; a delete goes straight to group 0."""

    def __init__(self, asker) -> None:
        self.asker = asker
        self.stats: dict[int, object] = {}
        self.details: dict[int, object] = {}
        self.held = []
        self.syncing: dict[int, int] = {}
        self.mirrored = self

    def sync(self, uid):
        self.syncing[uid] = 0
        return True

    def cancel_sync(self, uid):
        return self.syncing.pop(uid, None) is not None

    def ring_info(self, queue):
        return SimpleNamespace(syncing=self.syncing.get(queue.uid))

    def served_here(self):
        return [q for q in self.asker.machine.catalogue.queues() if q.uid in self.stats]

    def stat_here(self, uid, done, *, is_declare=False):
        done(self.stats.get(uid))

    def local_quorum(self):
        return []

    def local_streams(self):
        return []

    reading = SimpleNamespace(kept_bytes=0)

    def damaged_here(self):
        return []

    def local_replicas(self):
        return []

    def count_here(self, uid):
        return self.stats.get(uid)

    def levels_here(self, uid):
        return self.stats.get(uid)

    def details_here(self, uid, _now_ms):
        return self.details.get(uid)

    def counts_here(self, _uid):
        return MessageCounts()

    def remotes(self):
        return [
            SimpleNamespace(record=SimpleNamespace(uid=uid), is_in_flow=True) for uid in self.held
        ]

    def delete(self, queue, done, *, if_unused, if_empty, by):
        self.asker.ask(commands.DeleteQueue(queue.uid))
        done(0)


class Cluster:
    """The other half of a node, alone in the world."""

    def __init__(self, asker) -> None:
        catalogue = asker.machine.catalogue
        self.asker = asker
        gate = FeatureGate(SimpleNamespace(node=ONE, serve=lambda *_: None), catalogue)
        self.metadata = SimpleNamespace(catalogue=catalogue, leader=ONE, applied_index=0, gate=gate)
        self.file = SimpleNamespace(identity=SimpleNamespace(cluster_id="cluster-1"))
        self.links = SimpleNamespace(address="127.0.0.1:1")
        self.settings = SimpleNamespace(secret=b"of this cluster")
        self.peers = SimpleNamespace(up=list, verdict=lambda _node: PeerState.UNKNOWN)
        self.host = SimpleNamespace(group=lambda _uid: None)

    async def propose(self, command, *, by):
        return self.asker.ask(command)


class NoPeers:
    """A node alone."""

    def up(self) -> list[str]:
        return []


class NoLinks:
    def on(self, _kind, _handler):
        pass

    def send(self, *_):
        return False


class Control:
    """A `NodeControl`."""

    def __init__(self, settings: Settings) -> None:
        asker = founded()
        self.asker = asker
        self.settings = settings
        self.name = ONE
        self.started_ms = 0
        self.memory_at_start_bytes = 0
        self.is_beginning = False
        self.clock: Any = SimpleNamespace(
            now_ms=lambda: 5_000, now_us=lambda: 5_000_000, monotonic_ms=lambda: 5_000
        )
        self.cluster: Any = Cluster(asker)
        self.service = None
        self.doors = Doors()
        self.loop_watch = LoopWatch()
        self.journal: Any = SimpleNamespace(stats=JournalStats())
        self.calls: list[str] = []
        catalogue = asker.machine.catalogue
        self.serving: Any = SimpleNamespace(
            catalogue=catalogue,
            access=Access(catalogue),
            listener=SimpleNamespace(
                connections={}, ports=[5672], tls_ports=[], is_open=True, is_short_of_files=False
            ),
            queues=Queues(asker),
            context=SimpleNamespace(
                traced=TracedVhosts(self.clock),
                counts=NodeCounts(),
                place=lambda *_: (ONE, (ONE,)),
                node=ONE,
                boot=BOOT_ONE,
                limits=SessionLimits(),
                new_name=lambda: "x",
            ),
            is_valid=lambda: True,
            is_drained=False,
        )
        board = Board(ONE)
        context = self.serving.context
        context.alarms, context.traced = board, TracedVhosts(self.clock)
        context.events = EventExchange(
            "/", catalogue, self.cluster, self.serving.queues, self.serving, self.clock
        )
        self.serving.alarms = AlarmWatch(
            board, settings, self.clock, Gauge(settings), NoLinks(), NoPeers(), lambda: None
        )

    def why_not_ready(self):
        return "" if self.serving is not None else "the broker is stopped"

    async def stop_app(self):
        self.calls.append("stop_app")
        self.serving = None

    async def start_app(self):
        self.calls.append("start_app")

    async def reset(self):
        raise NodeError("reset needs the broker stopped: run stop_app first")

    async def join_cluster(self, node):
        self.calls.append(f"join {node}")
        return f"join {node}" not in self.calls[:-1]

    async def forget(self, node, by):
        return await self.cluster.propose(commands.ForgetNode(node), by=by)


class Answer:
    def __init__(self, status: int, headers: Any, text: str) -> None:
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Rig:
    """A server on a free port, and the users guest (administrator), mon, man and nobody."""

    def __init__(
        self,
        settings: Settings | None = None,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        control: Control | None = None,
    ) -> None:
        self.control = control or Control(settings or Settings(node_name=ONE))
        self.catalogue = self.control.asker.machine.catalogue
        ask = self.control.asker.ask
        for name, tags in (
            ("guest", ("administrator",)),
            ("mon", ("monitoring",)),
            ("man", ("management",)),
            ("nobody", ()),
        ):
            ask(commands.AddUser(name, hash_password(name, SALT), tags=tags))
        self.operations = Operations(self.control)
        server = ManagementServer(self.control, self.operations)
        self.listings, self.live = server.listings, server.live
        self.server = ApiListener(
            server.application(), self.control.doors.management, server.origins, head_timeout_s
        )
        self.session: ClientSession | None = None

    async def __aenter__(self) -> Rig:
        await self.server.start(Listener("127.0.0.1", 0))
        self.session = ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self.server.stop()

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str | None = "guest",
        password: str | None = None,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request; the path is sent exactly as it stands."""
        sent = dict(headers or {})
        if user is not None:
            token = f"{user}:{user if password is None else password}"
            sent["Authorization"] = "Basic " + base64.b64encode(token.encode()).decode()
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        url = URL(f"http://127.0.0.1:{self.server.port}{path}", encoded=True)
        async with self.session.request(method, url, data=data, headers=sent) as answer:
            return Answer(answer.status, answer.headers, await answer.text())
