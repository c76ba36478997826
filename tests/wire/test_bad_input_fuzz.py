"""Random sessions, and sessions with a few wrong octets, against a real node.

What must hold: the node goes on serving, and nothing of it ever ends with an unforeseen error.
`WIRE_FUZZ_SESSIONS` and `WIRE_FUZZ_SEED` make it run longer or elsewhere.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.nodes import Node, wait_until
from tests.wire.raw import (
    BODY,
    HEADER,
    Raw,
    content_header,
    frame,
    long,
    open_vhost,
    publish,
    start_ok,
    tune_ok,
)
from tests.wire.test_bad_input import serves

SESSIONS = int(os.environ.get("WIRE_FUZZ_SESSIONS", "500"))
SESSIONS_LONG = 3 * SESSIONS
SEED = int(os.environ.get("WIRE_FUZZ_SEED", "1"))
SERVES_EVERY = 100
HANDSHAKE = HEADER + start_ok() + tune_ok() + open_vhost()
QUEUES = ["fuzz", "fuzz.2", "", "amq.rabbitmq.reply-to", "x" * 255]
EXCHANGES = ["fuzz.e", "fuzz.f", "", "amq.topic", "none"]
ARGUMENTS: list[dict[str, object]] = [
    {},
    {"x-max-priority": 5},
    {"x-queue-type": "quorum"},
    {"x-message-ttl": "soon"},
    {"x-expires": 60_000, "x-dead-letter-exchange": ""},
    {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": 1},
    {"x-message-ttl": 5, "x-dead-letter-exchange": "fuzz.e", "x-max-length": 2},
    {"x-overflow": "reject-publish", "x-max-length-bytes": 0},
    {"x-message-deduplication": True, "x-cache-size": 2},
    {"x-delayed-type": "topic", "alternate-exchange": "fuzz.f"},
]
TYPES = ["fanout", "topic", "headers", "x-random", "x-delayed-message", "x-consistent-hash"]
TYPES += ["x-recent-history", "x-modulus-hash", "none"]
PROPERTIES = [
    b"\0\0",
    b"\x10\0\x02",
    b"\x20\0" + long(b"\x02CCA" + long(b"S" + long(b"a.b"))),
    b"\x01\0\x02-1",
    b"\x11\0\x02\x011",
    b"\x20\0" + long(b"\x07x-delayI\0\0\0\x01"),
    b"\x20\0" + long(b"\x16x-deduplication-headerS" + long(b"one")),
]


class Commands:
    """Draws commands, nearly right ones."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def methods(self) -> list[Callable[[], spec.Method]]:
        one, coin = self._rng.choice, lambda: self._rng.random() < 0.5
        number, tag = self._rng.randrange, lambda: f"tag{self._rng.randrange(3)}"
        return [
            spec.ChannelOpen,
            lambda: spec.ChannelClose(200, "bye"),
            spec.ChannelCloseOk,
            lambda: spec.ChannelFlow(coin()),
            lambda: spec.QueueDeclare(
                one(QUEUES), coin(), coin(), coin(), coin(), coin(), one(ARGUMENTS)
            ),
            lambda: spec.QueueDelete(one(QUEUES), coin(), coin(), coin()),
            lambda: spec.QueuePurge(one(QUEUES), coin()),
            lambda: spec.QueueBind(one(QUEUES), one(EXCHANGES), "a.#", coin()),
            lambda: spec.QueueUnbind(one(QUEUES), one(EXCHANGES), "a.#"),
            lambda: spec.ExchangeDeclare(
                one(EXCHANGES), one(TYPES), coin(), coin(), arguments=one(ARGUMENTS)
            ),
            lambda: spec.ExchangeDelete(one(EXCHANGES), coin(), coin()),
            lambda: spec.ExchangeBind(one(EXCHANGES), one(EXCHANGES), "a.#", coin()),
            lambda: spec.BasicQos(number(2), number(4), coin()),
            lambda: spec.BasicConsume(one(QUEUES), tag(), coin(), coin(), coin(), coin()),
            lambda: spec.BasicCancel(tag(), coin()),
            lambda: spec.BasicGet(one(QUEUES), coin()),
            lambda: spec.BasicAck(number(5), coin()),
            lambda: spec.BasicNack(number(5), coin(), coin()),
            lambda: spec.BasicReject(number(5), coin()),
            lambda: spec.BasicRecover(coin()),
            spec.ConfirmSelect,
            spec.TxSelect,
            spec.TxCommit,
            spec.TxRollback,
        ]

    def draw(self) -> bytes:
        """One command on one of two channels; a publish now and then."""
        channel = self._rng.choice([1, 1, 1, 2])
        if self._rng.random() < 0.2:
            content = content_header(channel, 3, properties=self._rng.choice(PROPERTIES))
            key, exchange = self._rng.choice(QUEUES), self._rng.choice(EXCHANGES)
            return publish(channel, key, exchange) + content + frame(BODY, channel, b"abc")
        return method_frame(channel, self._rng.choice(self.methods())())

    def session(self) -> bytes:
        """A handshake and commands; in every other one some octets are wrong."""
        drawn = b"".join(self.draw() for _ in range(self._rng.randrange(1, 30)))
        data = bytearray(HANDSHAKE + method_frame(1, spec.ChannelOpen()) + drawn)
        if self._rng.random() < 0.5:
            lowest = 0 if self._rng.random() < 0.2 else len(HANDSHAKE)
            for _ in range(self._rng.randrange(1, 4)):
                self._spoil(data, self._rng.randrange(lowest, len(data)))
                lowest = min(lowest, len(data) - 1)
        return bytes(data)

    def _spoil(self, data: bytearray, at: int) -> None:
        how = self._rng.randrange(4)
        if how == 0:
            data[at] = self._rng.randrange(256)
        elif how == 1:
            del data[at + 1 : at + self._rng.randrange(2, 9)]
        elif how == 2:
            data[at:at] = self._rng.randbytes(self._rng.randrange(1, 9))
        else:
            del data[at + 1 :]


@pytest.fixture(scope="module")
def fuzzed_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    one = Node("fuzzed", tmp_path_factory.mktemp("fuzzed"))
    try:
        one.start()
        yield one
    finally:
        one.end()


@pytest.mark.parametrize(
    ("seed", "sessions"),
    [(SEED, SESSIONS), pytest.param(SEED + 1, SESSIONS_LONG, marks=pytest.mark.soak)],
)
def test_nonsense_does_no_harm(fuzzed_node: Node, seed: int, sessions: int) -> None:
    commands = Commands(random.Random(seed))
    for number in range(sessions):
        data = commands.session()
        cut = number % len(data)
        with Raw(fuzzed_node.amqp_port) as raw:
            raw.send(data[:cut])
            raw.send(data[cut:])
        if number % SERVES_EVERY == 0:
            serves(fuzzed_node)
    serves(fuzzed_node)
    for what in ("connections", "channels", "consumers"):
        wait_until(lambda: fuzzed_node.api("GET", f"/{what}") == [], f"no {what} are left")  # noqa: B023
    wait_until(
        lambda: not any(each["exclusive"] for each in fuzzed_node.api("GET", "/queues")),
        "no exclusive queues are left",
    )
    held = sum(each["messages_unacknowledged"] for each in fuzzed_node.api("GET", "/queues"))
    assert held == 0
    log = fuzzed_node.log_path.read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
