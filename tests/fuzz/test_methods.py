"""Random sequences of well-framed methods on a real session.

Group 0, the queues and the other connection are the real machines in miniature (`rig.World`);
effects are carried out at once, or held and let go at random, so that answers come late. What
must hold, whatever is sent:

1. nothing is raised;
2. what closes a channel or the connection is one of RabbitMQ's reply codes, soft ones for
   channels and hard ones for connections, and its text begins with the code's name;
3. a channel that was closed leaves nothing: no consumer, no delivery, no held command; a
   connection that ended leaves nothing at the queues either.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.amqp import spec
from broker.amqp.assembler import Command, Fault
from broker.errors import AmqpError, ReplyCode
from broker.session.facts import SessionLimits
from broker.session.session import _HANDLERS
from tests.unit.session.rig import Client, World, command, connection_and_key, publish

SOFT = {311, 312, 313, 403, 404, 405, 406}
HARD = {320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541}
CLOSE = re.compile(r"(\d) channel\.close reply_code=(\d+) reply_text=([A-Z_]+) - ")

queue_names = [
    "a",
    "a",
    "b",
    "b",
    "c",
    "qq",
    "qq",
    "",
    "amq.x",
    "nope",
    "amq.rabbitmq.reply-to",
    "amq.gen-\r\n",
]
exchange_names = ["amq.fanout", "amq.topic", "amq.headers", "x", "x", "late", "late", "y"]
exchange_names += ["", "amq.rabbitmq.trace"]
types = ["direct", "fanout", "topic", "headers", "x-random", "x-consistent-hash", "odd"]
types += ["x-delayed-message", "x-recent-history", "x-modulus-hash"]
keys = ["", "a", "a.b", "#.#.#", "*.#", "1", "amq.rabbitmq.reply-to.AAAA.k"]


def weighted(*some: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of these, each as often as its weight says (`one_of` drops repetitions)."""
    choices = [strategy for weight, strategy in some for _ in range(weight)]
    return st.integers(0, len(choices) - 1).flatmap(lambda at: choices[at])


values = st.sampled_from([0, 1, -1, 5, 1 << 40, True, "", "lazy", "quorum", "x", None, [], {}, 1.5])
typical = st.sampled_from(
    [
        {"x-queue-type": "quorum"},
        {"x-queue-type": "quorum", "x-single-active-consumer": True},
        {"x-message-deduplication": True},
        {"x-delayed-type": "topic"},
        {"alternate-exchange": "x"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a"},
        {"x-match": "any", "k": 1},
    ]
)
wild = st.dictionaries(
    st.sampled_from(
        [
            *("x-expires", "x-message-ttl", "x-max-length", "x-max-priority", "x-overflow"),
            *("x-queue-type", "x-queue-mode", "x-priority", "x-stream-offset", "x-match"),
            *("x-cancel-on-ha-failover", "x-single-active-consumer", "x-delayed-type", "odd"),
        ]
    ),
    values,
    max_size=3,
)
arguments = weighted((5, st.just({})), (2, typical), (1, wild))
by_name: dict[str, st.SearchStrategy[Any]] = {
    "queue": st.sampled_from(queue_names),
    "exchange": st.sampled_from(exchange_names),
    "source": st.sampled_from(exchange_names),
    "destination": st.sampled_from(exchange_names),
    "routing_key": st.sampled_from(keys + queue_names),
    "type": st.sampled_from(types),
    "consumer_tag": st.sampled_from(["", "t", "u", "v"]),
    "delivery_tag": st.sampled_from([0, 1, 2, 3, 4, 1 << 63]),
    "prefetch_count": st.integers(0, 4),
    "prefetch_size": st.sampled_from([0] * 19 + [1]),
    "passive": st.sampled_from([False] * 4 + [True]),
    "no_wait": st.sampled_from([False] * 4 + [True]),
    "exclusive": st.sampled_from([False] * 4 + [True]),
    "requeue": st.sampled_from([True] * 9 + [False]),
    "active": st.sampled_from([True] * 9 + [False]),
    "immediate": st.just(False),
}
by_type: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.sampled_from([0, 1, 200, 404]),
    str: st.sampled_from(["", "text"]),
    bytes: st.just(b""),
    dict: arguments,
}


def any_of(kind: type[spec.Method]) -> st.SearchStrategy[spec.Method]:
    """This method with any arguments."""
    blank = kind()
    drawn = {
        name: by_name.get(name, by_type[type(getattr(blank, name))])
        for name in kind.__struct_fields__
    }
    return st.builds(kind, **drawn)


OFTEN = [
    spec.QueueDeclare,
    spec.QueueBind,
    spec.ExchangeDeclare,
    spec.BasicConsume,
    spec.BasicGet,
    spec.BasicAck,
    spec.BasicNack,
    spec.TxCommit,
]
MEANT = [*_HANDLERS, spec.BasicAck, spec.ChannelClose, spec.ChannelCloseOk]
OTHERS = [
    kind
    for kind in spec.METHODS.values()
    if kind not in MEANT and kind.class_id != spec.ConnectionOpen.class_id
]
"""Second opens, and what only servers say."""

methods = weighted(
    (30, st.sampled_from([*MEANT, *OFTEN, *OFTEN]).flatmap(any_of)),
    (1, st.sampled_from(OTHERS).flatmap(any_of)),
)
channels = st.sampled_from([1, 1, 1, 2, 3])
headers = st.sampled_from(
    [
        *[None] * 12,
        {},
        {"CC": ["a"]},
        {"BCC": ["b", 3], "k": 1},
        {"CC": 1},
        {"x-delay": 5},
        {"x-delay": -1},
        {"x-deduplication-header": "one"},
    ]
)
publishes = st.builds(
    publish,
    routing_key=by_name["routing_key"],
    exchange=by_name["exchange"],
    mandatory=st.booleans(),
    immediate=st.sampled_from([False] * 19 + [True]),
    channel=channels,
    headers=headers,
    expiration=st.sampled_from([*[None] * 12, "0", "10", "x"]),
    user_id=st.sampled_from([*[None] * 12, "guest", "eve"]),
    reply_to=st.sampled_from([*[None] * 12, "amq.rabbitmq.reply-to"]),
)
faults = st.builds(
    lambda channel: Fault(channel, AmqpError(ReplyCode.PRECONDITION_FAILED, "too large", 60, 40)),
    channels,
)
commands_ = weighted((40, st.builds(command, methods, channels)), (20, publishes), (1, faults))
chunks = st.lists(st.lists(commands_, min_size=1, max_size=5), min_size=4, max_size=16)
timing = st.lists(st.sampled_from(["run", "run", "hold", "one", "wait", "pause"]), max_size=16)


SETTING = [
    *[spec.QueueDeclare(queue=name) for name in "ab"],
    spec.QueueDeclare("qq", durable=True, arguments={"x-queue-type": "quorum"}),
    spec.ExchangeDeclare("x", "fanout"),
    spec.ExchangeDeclare("late", "x-delayed-message", arguments={"x-delayed-type": "fanout"}),
    *[spec.QueueBind("a", exchange, "a") for exchange in ("x", "late", "amq.topic")],
]
"""What is there before anything is sent."""


def play(script: list[list[Command]], times: list[str]) -> None:
    """Send chunks, with something happening between them, and look at what came of it."""
    world = World()
    client = Client(world, limits=SessionLimits(consumers_per_channel=3, held_commands=20))
    for number in (1, 2, 3):
        client.open(number)
    assert len(client.call(*SETTING)) == len(SETTING)
    for at, chunk in enumerate(script):
        hear(client, client.feed(*chunk))
        happen(world, client, times[at] if at < len(times) else "run")
        hear(client, client.take())
        for number, channel in list(client.session._channels.items()):
            if channel.is_closing:
                again = (spec.ChannelCloseOk(), spec.ChannelOpen())
                hear(client, client.call(*again, channel=number))
        if client.error is not None:
            break
    world.is_held = False
    world.let_go()
    hear(client, client.take())
    nothing_is_left(world, client)


def happen(world: World, client: Client, what: str) -> None:
    world.is_held = what in ("hold", "one")
    if what == "one":
        world.let_go(1)
    elif what == "run":
        world.let_go()
    elif what == "wait":
        client.now_ms += 1_800_001
        world.run(client, client.session.tick(client.now_ms))
    elif what == "pause":
        for active in (False, True):
            world.run(client, client.session.set_active(active=active))


def hear(client: Client, lines: list[str]) -> None:
    """What closes is defined, and a closed channel is empty."""
    for line in lines:
        found = CLOSE.match(line)
        if found is not None:
            code = int(found[2])
            assert code in SOFT, line
            assert ReplyCode(code).name == found[3], line
        assert "channel.close reply_code" not in line or found is not None, line
    if client.error is not None:
        assert client.error.code in HARD, client.error
    for channel in client.session._channels.values():
        if channel.is_closing:
            assert not channel.consumers
            assert not channel.held
            assert not channel.unacked.count
            assert not channel.window.has_parked
            assert channel.transaction is channel.confirms is channel.commit is None


def nothing_is_left(world: World, client: Client) -> None:
    world.run(client, client.session.close_channels())
    context = client.session._context
    assert client.session.channel_count == 0
    assert not context.questions
    assert not context.publishes
    assert not context.settles
    assert (context.held_commands, context.held_bytes) == (0, 0)
    for fifo in world.fifos.values():
        assert not [c for c in fifo.consumers if connection_and_key(c.channel_id)[0] == 1]
        assert not fifo.stat().unacked


checked = given(chunks, timing)
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.timeout(600)
@quick
@checked
def test_hundreds_of_sequences_end_in_defined_errors(
    script: list[list[Command]], times: list[str]
) -> None:
    play(script, times)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@settings(quick, max_examples=10_000)
@checked
def test_ten_thousand_sequences_end_in_defined_errors(
    script: list[list[Command]], times: list[str]
) -> None:
    play(script, times)
