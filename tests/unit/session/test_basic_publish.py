from __future__ import annotations

import itertools
import sys

import msgspec
import pytest

from broker.amqp import fields, spec
from broker.amqp.assembler import Assembler, MethodCommand, Publish
from broker.amqp.content import decode_properties, facts_of, raw_headers
from broker.errors import AmqpError
from broker.metadata import commands
from broker.session.basic_publish import MANY_QUEUES, WORK_MAX, check_expiration
from broker.session.effects import PublishTo
from broker.session.facts import SessionLimits
from tests.unit.session.rig import Client, World, command, publish


@pytest.fixture
def client() -> Client:
    client = Client(World()).open()
    for name in "qrs":
        client.call(spec.QueueDeclare(queue=name))
    return client


def close_text(lines: list[str]) -> str:
    assert len(lines) == 1
    return lines[0].split(" - ", 1)[1].rsplit(" failed_class_id=60 failed_method_id=40", 1)[0]


def depths(client: Client) -> dict[str, int]:
    world = client.world
    return {q.name: world.fifos[q.uid].stat().ready for q in world.catalogue.queues("/")}


def test_unroutable_is_returned_before_it_is_acked(client: Client) -> None:
    """Rows: 1.10 mandatory; 1.10 when acked"""
    client.call(spec.ConfirmSelect())
    assert client.feed(publish("gone", mandatory=True), publish("gone")) == [
        "1 basic.return reply_code=312 reply_text=NO_ROUTE routing_key=gone 'x'",
        "1 basic.ack delivery_tag=2 multiple",
    ]


def test_missing_exchange_is_404(client: Client) -> None:
    assert close_text(client.feed(publish(exchange="x"))) == "no exchange 'x' in vhost '/'"


def test_internal_exchange_is_403(client: Client) -> None:
    """Rows: 1.2 internal"""
    client.call(spec.ExchangeDeclare(exchange="i", type="fanout", internal=True))
    text = close_text(client.feed(publish(exchange="i")))
    assert text == "cannot publish to internal exchange 'i' in vhost '/'"


def test_immediate_is_540(client: Client) -> None:
    """Rows: 1.10 immediate"""
    client.feed(publish(), publish(immediate=True))
    assert client.error is not None
    assert (client.error.code, client.error.text) == (540, "immediate=true")


def test_no_write_permission_is_403_and_names_amq_default(client: Client) -> None:
    client.world.apply(commands.SetPermissions("guest", "/", ".*", "^x$", ".*"))
    text = close_text(client.feed(publish()))
    assert text == "write access to exchange 'amq.default' in vhost '/' refused for user 'guest'"


def test_permission_taken_away_counts_at_once_for_cached_routes(client: Client) -> None:
    assert client.feed(publish()) == []
    client.world.apply(commands.ClearPermissions("guest", "/"))
    assert "refused for user 'guest'" in close_text(client.feed(publish()))


def test_cached_route_follows_bindings(client: Client) -> None:
    def bind(name: str) -> spec.QueueBind:
        return spec.QueueBind(queue=name, exchange="amq.fanout")

    client.call(bind("q"))
    client.feed(publish("k", "amq.fanout"))
    client.call(bind("r"))
    client.feed(publish("k", "amq.fanout"))
    assert depths(client) == {"q": 2, "r": 1, "s": 0}


def test_confirm_waits_for_every_queue(client: Client) -> None:
    """Rows: 1.10 when acked"""
    client.call(
        spec.ConfirmSelect(),
        spec.QueueBind(queue="q", exchange="amq.fanout"),
        spec.QueueBind(queue="r", exchange="amq.fanout"),
    )
    client.world.is_held = True
    client.feed(publish("k", "amq.fanout"), publish("k", "amq.fanout"))
    client.world.let_go(1)
    assert client.take() == []
    client.world.let_go(1)
    assert client.take() == ["1 basic.ack delivery_tag=2 multiple"]


def test_a_queue_that_refuses_means_nack(client: Client) -> None:
    """Rows: 1.10 nack"""
    client.call(spec.ConfirmSelect())
    queue = client.world.catalogue.queue("/", "r")
    assert queue is not None
    client.world.refusing.add(queue.uid)
    assert client.feed(publish("q"), publish("r"), publish("q")) == [
        "1 basic.nack delivery_tag=2",
        "1 basic.ack delivery_tag=3 multiple",
    ]


def test_channels_in_one_chunk_are_kept_apart(client: Client) -> None:
    client.open(2).call(spec.ConfirmSelect(), channel=2)
    client.world.log.clear()
    assert client.feed(publish(), publish(channel=2), publish()) == ["2 basic.ack delivery_tag=1"]
    batches = [(e.channel & 0xFFFF, e.seqnos, len(e.messages)) for e in client.world.log]
    assert batches == [(1, None, 2), (2, [1], 1)]


@pytest.mark.parametrize(
    ("expiration", "why"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        ("1.5", '{leftover_string,".5"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("9" * 200, f"{{value_too_large,{'9' * 200}}}"),
    ],
)
def test_bad_expiration_is_406(expiration: str, why: str) -> None:
    """Rows: 1.4 per-message TTL"""
    with pytest.raises(AmqpError) as raised:
        check_expiration(expiration)
    assert raised.value.text == f"invalid expiration '{expiration}': {why}"


def test_expiration_is_checked_on_publish(client: Client) -> None:
    assert client.feed(publish(expiration="60000")) == []
    assert close_text(client.feed(publish(expiration="x"))) == "invalid expiration 'x': no_integer"


def test_user_id_must_be_the_logged_in_user(client: Client) -> None:
    """Rows: 1.11 user-id"""
    assert client.feed(publish(user_id="guest")) == []
    text = close_text(client.feed(publish(user_id="eve")))
    assert text == "user_id property set to 'eve' but authenticated user was 'guest'"


def test_impersonator_may_set_any_user_id() -> None:
    """Rows: 1.11 user-id"""
    client = Client(World(), impersonator=True).open()
    client.call(spec.QueueDeclare(queue="q"))
    assert client.feed(publish(user_id="eve")) == []


def test_cc_and_bcc_route_and_bcc_is_removed(client: Client) -> None:
    """Rows: 1.11 CC / BCC"""
    client.world.log.clear()
    client.feed(publish("q", headers={"CC": ["r", "q", 7], "BCC": ["s"], "keep": 1}))
    assert depths(client) == {"q": 1, "r": 1, "s": 1}
    effects = [e for e in client.world.log if isinstance(e, PublishTo)]
    for effect in effects:
        headers = decode_properties(effect.messages[0]).headers
        assert headers == {"CC": ["r", "q", 7], "keep": 1}


def test_cc_that_is_no_list_is_406(client: Client) -> None:
    """Rows: 1.11 CC / BCC"""
    text = close_text(client.feed(publish(headers={"CC": "r"})))
    assert text == 'invalid message: {unacceptable_type_in_header,"CC",longstr}'


def test_too_many_cc_keys_are_406() -> None:
    client = Client(World(), limits=SessionLimits(cc_keys=2)).open()
    assert client.feed(publish(headers={"CC": ["a"], "BCC": ["b"]})) == []
    text = close_text(client.feed(publish(headers={"CC": ["a", "b"], "BCC": ["c"]})))
    assert text == "invalid message: more than 2 CC and BCC keys"


def test_headers_exchange_routes_each_message_by_its_headers(client: Client) -> None:
    arguments: dict[str, object] = {"x-match": "all", "kind": "a"}
    client.call(spec.QueueBind(queue="q", exchange="amq.headers", arguments=arguments))
    client.feed(
        publish("k", "amq.headers", headers={"kind": "a"}),
        publish("k", "amq.headers", headers={"kind": "b"}),
        publish("k", "amq.headers"),
    )
    assert depths(client)["q"] == 1


def test_topic_permission_is_checked(client: Client) -> None:
    command = commands.SetTopicPermissions("guest", "/", "amq.topic", "^a", "^a")
    client.world.apply(command)
    assert client.feed(publish("a.b", "amq.topic")) == []
    text = close_text(client.feed(publish("b", "amq.topic")))
    assert text == (
        "write access to topic 'b' in exchange 'amq.topic' in vhost '/' refused for user 'guest'"
    )


def test_what_the_assembler_gives_flows_through_in_runs(client: Client) -> None:
    """End to end with the real codec: identical publishes form one run."""
    one = publish(body=b"hello")
    method = spec.BasicPublish(routing_key="q")
    from broker.amqp.frames import method_frame  # noqa: PLC0415

    data = (method_frame(1, method) + one.message.content) * 20
    assembler = Assembler(frame_max=131_072, max_message_size=1 << 27)
    client.call(spec.ConfirmSelect())
    assert client.feed(*assembler.feed(data)) == ["1 basic.ack delivery_tag=20 multiple"]
    assert depths(client)["q"] == 20


def test_publish_keeps_its_place_between_methods(client: Client) -> None:
    lines = client.feed(
        publish(),
        MethodCommand(1, spec.QueuePurge(queue="q")),
        publish(),
        MethodCommand(1, spec.QueuePurge(queue="q")),
    )
    assert lines == ["1 queue.purge-ok message_count=1"] * 2


def test_bcc_stays_with_the_message_for_dead_lettering(client: Client) -> None:
    """Rows: 1.11 CC / BCC"""
    client.world.log.clear()
    client.feed(publish("q", headers={"BCC": ["r", 7, "s"]}), publish("q"))
    (first, *_), (plain,) = (
        [m for e in effects_of(client) for m in e.messages if bool(m.bcc) is has_bcc]
        for has_bcc in (True, False)
    )
    assert first.bcc == ("r", "s")
    assert decode_properties(first).headers == {}
    assert plain.bcc == ()


def effects_of(client: Client) -> list[PublishTo]:
    return [e for e in client.world.log if isinstance(e, PublishTo)]


def without_doubles(name: str, **arguments: object) -> spec.QueueDeclare:
    wanted = {"x-message-deduplication": True}
    wanted |= {key.replace("_", "-"): value for key, value in arguments.items()}
    return spec.QueueDeclare(queue=name, arguments=wanted)


def keys_sent(client: Client) -> dict[str, list[str]]:
    return {e.queue.name: [m.dedup for m in e.messages] for e in effects_of(client)}


def test_queues_that_drop_doubles_get_the_key_of_the_header_they_name(client: Client) -> None:
    """One publish, three copies, one number; what drops no doubles gets no key.

    Rows: 1.11 message dedup
    """
    client.call(
        without_doubles("d"),
        without_doubles("e", x_deduplication_header="id"),
        *[spec.QueueBind(queue=name, exchange="amq.fanout") for name in "dqe"],
        spec.ConfirmSelect(),
    )
    client.world.log.clear()
    both = {"x-deduplication-header": "one", "id": 7}
    lines = client.feed(
        publish("", "amq.fanout", headers=both),
        publish("", "amq.fanout", headers={"id": "7"}),
        publish("", "amq.fanout"),
    )
    assert lines == ["1 basic.ack delivery_tag=3 multiple"]
    assert keys_sent(client) == {"d": ["one", "", ""], "e": ["\0" + "7", "7", ""], "q": [""] * 3}
    assert [e.seqnos for e in effects_of(client)] == [[1, 2, 3]] * 3


def test_keys_against_doubles_are_there_at_commit_too(client: Client) -> None:
    client.call(without_doubles("d"), spec.TxSelect())
    client.feed(publish("d", headers={"x-deduplication-header": "one"}))
    client.world.log.clear()
    client.call(spec.TxCommit())
    assert keys_sent(client) == {"d": ["one"]}


def test_a_missing_reply_consumer_is_found_before_a_wrong_user_id(client: Client) -> None:
    text = close_text(client.feed(publish(reply_to="amq.rabbitmq.reply-to", user_id="eve")))
    assert text == "fast reply consumer does not exist"


def test_other_headers_keep_their_types_when_bcc_is_taken_out(client: Client) -> None:
    """A Java consumer tells a long from an int."""
    table = b"\x01nl" + bytes(7) + b"\x05" + b"\x03BCCA\x00\x00\x00\x06S\x00\x00\x00\x01s"
    raw = b"\x20\x00" + len(table).to_bytes(4, "big") + table
    message = publish("q").message
    header = b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big") + raw
    frame = b"\x02\x00\x01" + len(header).to_bytes(4, "big") + header + b"\xce"
    content = frame + message.content[message.header_size + 8 :]
    message = msgspec.structs.replace(message, content=content, header_size=len(header))
    client.world.log.clear()
    client.feed(Publish(1, False, False, message, facts_of(raw)))
    (first, _) = effects_of(client)
    assert raw_headers(first.messages[0])[4:] == b"\x01nl" + bytes(7) + b"\x05"


def test_each_message_to_a_random_exchange_is_routed_anew(client: Client) -> None:
    client.call(spec.ExchangeDeclare(exchange="any", type="x-random"))
    client.call(*[spec.QueueBind(queue=name, exchange="any") for name in "qrs"])
    client.feed(*[publish("k", "any") for _ in range(60)])
    assert sum(depths(client).values()) == 60
    assert min(depths(client).values()) > 5


def test_long_keys_against_doubles_are_shortened(client: Client) -> None:
    client.call(without_doubles("d"))
    client.world.log.clear()
    client.feed(
        *[publish("d", headers={"x-deduplication-header": "k" * n}) for n in (64, 65, 66, 65)]
    )
    short, one, other, again = keys_sent(client)["d"]
    assert short == "k" * 64
    assert len(one) < 64
    assert one == again != other


def dear(count: int) -> list[Publish]:
    """Messages that take more steps of routing than are taken in one go."""
    return [publish("q", headers={"CC": ["-"] * WORK_MAX}) for _ in range(count)]


def test_a_read_stops_behind_messages_that_are_expensive_to_route(client: Client) -> None:
    client.call(spec.QueueDeclare(queue="q"))
    commands = [publish("q"), *dear(2), publish("q")]
    session = client.session
    effects = session.handle(commands, 0)
    assert session.rest == commands[2:]
    assert sum(len(each.messages) for each in effects) == 2  # type: ignore[attr-defined]
    session.handle(session.rest, 0)
    assert session.rest == commands[3:]
    session.handle(session.rest, 0)
    assert not session.rest


@pytest.mark.parametrize("count", [MANY_QUEUES, MANY_QUEUES + 1])
def test_messages_for_many_queues_are_counted_and_batched_all_the_same(
    client: Client, count: int
) -> None:
    for number in range(count):
        client.call(spec.QueueDeclare(queue=f"q{number}"))
        client.call(spec.QueueBind(queue=f"q{number}", exchange="amq.fanout"))
    session = client.session
    effects = session.handle([publish("", "amq.fanout")] * 100, 0)
    if count <= MANY_QUEUES:
        assert not session.rest
    else:
        assert 100 - len(session.rest) <= WORK_MAX // MANY_QUEUES
    assert {len(each.messages) for each in effects} == {100 - len(session.rest)}  # type: ignore[attr-defined]


def test_a_read_stops_behind_routes_that_take_long_to_find(client: Client) -> None:
    client.call(spec.ExchangeDeclare(exchange="t", type="topic"), spec.QueueDeclare(queue="q"))
    for words in itertools.product("a*", repeat=7):
        key = ".".join(words) + ".#"
        client.call(spec.QueueBind(queue="q", exchange="t", routing_key=key))
    session = client.session
    session.handle([publish(f"a.a.a.a.a.a.a.{number}", "t") for number in range(20)], 0)
    assert len(session.rest) == 19
    known = [publish("a.a.a.a.a.a.a.0", "t")] * 20
    session.handle(known, 0)
    assert not session.rest, "a route that is known costs nothing"


def test_expensive_messages_behind_a_question_run_bit_by_bit_and_in_order(client: Client) -> None:
    world, session = client.world, client.session
    world.is_held = True
    declare = command(spec.ExchangeDeclare(exchange="x", type="fanout"))
    client.feed(declare, *dear(3), publish("q", body=b"last"))
    world.is_held = False
    world.let_go()
    assert (depths(client)["q"], len(session.unfinished)) == (1, 1)
    client.feed(publish("q", body=b"later"))
    rounds = 0
    while session.unfinished:
        rounds += 1
        world.run(client, session.go_on(0))
    assert (rounds, depths(client)["q"], session.has_held) == (3, 5, False)


def test_a_session_keeps_no_message_that_it_has_handed_on(client: Client) -> None:
    """An idle connection would keep its last messages, however large."""
    message = publish("q", body=bytes(1_000))
    effects = client.session.handle([message, message], 0)
    assert len(effects) == 1
    held = sys.getrefcount(message.message)
    del effects
    left = sys.getrefcount(message.message)
    assert left == held - 2


def test_a_run_is_what_goes_to_the_same_queues_whatever_is_in_it(client: Client) -> None:
    """Each message has properties, a size and a key of its own: a socket read is one batch."""
    client.call(spec.QueueBind(queue="q", exchange="amq.topic", routing_key="k.#"))
    client.call(spec.QueueBind(queue="r", exchange="amq.topic", routing_key="other"))
    for number in range(5):  # the first of a key is looked up, and opens a run of its own
        client.feed(publish(f"k.{number}", exchange="amq.topic"))
    some = [
        publish(
            f"k.{number}",
            exchange="amq.topic",
            body=bytes(number),
            message_id=str(number),
            delivery_mode=1 + number % 2,
            priority=number,
            headers={"trace": "x" * number},
            expiration=str(100_000 + number),
        )
        for number in range(5)
    ]
    effects = client.session.handle([*some, publish("other", exchange="amq.topic"), *some], 0)
    published = [each for each in effects if isinstance(each, PublishTo)]
    assert [(each.queue.name, len(each.messages)) for each in published] == [("q", 10), ("r", 1)]
    assert published[0].messages == [each.message for each in some] * 2
    assert [each.ttl_ms for each in published[0].messages[:5]] == [100_000 + n for n in range(5)]


def test_what_is_not_plain_ends_a_run_and_is_refused(client: Client) -> None:
    good = publish("q", user_id="guest")
    effects = client.session.handle([publish("q"), good, good, publish("q", user_id="eve")], 0)
    (batch,) = [each for each in effects if isinstance(each, PublishTo)]
    assert len(batch.messages) == 3
    assert "user_id property set to 'eve'" in b"".join(client.session.out).decode("latin-1")


def test_headers_are_decoded_once_by_all_who_ask(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CC, a headers exchange and a queue that drops doubles each look at them."""
    arguments = {"x-message-deduplication": True}
    client.call(spec.QueueDeclare(queue="once", arguments=arguments))
    client.call(spec.QueueBind(queue="once", exchange="amq.headers", arguments={"a": 1}))
    calls = []
    decode = fields.decode_table
    monkeypatch.setattr(
        fields, "decode_table", lambda *given: calls.append(given) or decode(*given)
    )
    headers = {"a": 1, "CC": ["k"], "x-deduplication-header": "7"}
    client.feed(publish("k", exchange="amq.headers", headers=headers))
    assert len(calls) == 1
    assert depths(client)["once"] == 1
