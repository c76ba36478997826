"""The assembler against splitting, and against garbage."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp import content, fields, methods, spec
from broker.amqp.assembler import Assembler, Command, Fault, MethodCommand, Publish
from broker.amqp.frames import FRAME, HEARTBEAT, method_frame
from broker.errors import AmqpError
from broker.message import Message

CHANNELS = st.sampled_from([1, 1, 1, 2, 3])
names = st.sampled_from(["", "q", "amq.topic", "a.b.c", "ключ"])
tables = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)
properties = st.builds(
    content.Properties,
    headers=st.none() | tables,
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.none() | st.integers(0, 255),
    message_id=st.none() | st.text(max_size=10),
    expiration=st.sampled_from([None, "100"]),
)
routing_headers = st.dictionaries(
    st.sampled_from(["CC", "BCC", "CCC", "xCC"]) | st.text(max_size=3),
    st.sampled_from([["k"], "\x02CC", {"CC": []}, None, b"\xff", 7, [[{"BCC": [1]}]]]),
    max_size=3,
)
all_properties = st.builds(
    content.Properties,
    content_type=st.none() | st.text(max_size=20),
    content_encoding=st.none() | st.text(max_size=3),
    headers=st.none() | tables | routing_headers,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | st.text(max_size=20),
    reply_to=st.sampled_from([None, "", "q", content.DIRECT_REPLY_TO]),
    expiration=st.sampled_from([None, "", "0", "100", "+5", "-1", "9" * 18, "9" * 40, "x"]),
    message_id=st.none() | st.text(max_size=20),
    timestamp=st.none() | st.integers(0, (1 << 64) - 1),
    type=st.none() | st.text(max_size=3),
    user_id=st.none() | st.text(max_size=3),
    app_id=st.none() | st.text(max_size=3),
    cluster_id=st.none() | st.text(max_size=3),
).map(content.encode_properties)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Properties with octets changed, removed or put in."""
    raw = bytearray(draw(all_properties))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 4))] = draw(
            st.binary(max_size=4) | st.sampled_from([b"\xff" * 4, b"\0\0\0\1", b"F", b"A", b"S"])
        )
    return bytes(raw)


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return FRAME.pack(kind, channel, len(payload)) + payload + end


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    channel = draw(CHANNELS)
    method = spec.BasicPublish(draw(names), draw(names), draw(st.booleans()), draw(st.booleans()))
    message = content.build_message(
        "",
        "",
        draw(properties),
        bytes(draw(st.sampled_from([0, 1, 10, 10, 10, 300, 5000]))),
        channel=channel,
        frame_max=draw(st.sampled_from([64, 4096])),
    )
    return (method_frame(channel, method) + message.content) * draw(st.sampled_from([1, 1, 3]))


def with_own_values(draw: st.DrawFn, raw: bytes) -> bytes:
    """The same properties with any octets where values decide nothing."""
    octets = bytearray(raw)
    for start, end in content.free_spans(raw):
        octets[start:end] = draw(st.binary(min_size=end - start, max_size=end - start))
    return bytes(octets)


@st.composite
def alike(draw: st.DrawFn) -> bytes:
    """Publishes of one publisher: most have the same shape."""
    channel = draw(CHANNELS)
    method = method_frame(channel, spec.BasicPublish(draw(names), draw(names)))
    raw = draw(all_properties)
    found = []
    for _ in range(draw(st.integers(2, 5))):
        body = bytes(draw(st.sampled_from([1, 10, 10, 300, 4000])))
        header = content._header_frame(channel, len(body), with_own_values(draw, raw))
        found.append(method + header + frame(3, channel, body))
    return b"".join(found)


@st.composite
def nearly_alike(draw: st.DrawFn) -> bytes:
    """The same with one octet changed."""
    octets = bytearray(draw(alike()))
    octets[draw(st.integers(0, len(octets) - 1))] = draw(st.integers(0, 255))
    return bytes(octets)


acks = st.builds(
    lambda channel, tag, multiple: method_frame(channel, spec.BasicAck(tag, multiple)),
    CHANNELS,
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
)
others = st.builds(
    lambda channel, name, arguments: method_frame(
        channel, spec.QueueDeclare(name, arguments=arguments)
    ),
    CHANNELS,
    names,
    tables,
)
closes = st.sampled_from(
    [
        method_frame(0, spec.ConnectionClose(200, "bye")),
        method_frame(0, spec.ConnectionCloseOk()),
        method_frame(1, spec.ChannelCloseOk()),
    ]
)
begun = st.builds(
    lambda channel, name: (
        method_frame(channel, spec.BasicPublish("", name))
        + content._header_frame(channel, 5, b"\0\0")
    ),
    CHANNELS,
    names,
)
broken = st.one_of(
    begun,
    begun,
    st.builds(frame, st.integers(0, 9), st.sampled_from([0, 1, 2, 2000]), st.binary(max_size=40)),
    st.builds(lambda raw: frame(3, 1, raw), st.binary(max_size=20)),
    st.builds(
        lambda size, raw: frame(2, 1, b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + raw),
        st.sampled_from([0, 5, 5001, 1 << 63]),
        st.sampled_from(
            [b"\x00\x00", b"\x80\x00\x01a", b"\x00\x01", b"\x20\x00\x00\x00\x00\x02ab"]
        ),
    ),
    st.builds(lambda raw: frame(1, 1, b"\x00\x3c\x00\x28" + raw), st.binary(max_size=12)),
    st.builds(lambda raw: frame(1, 1, b"\x00\x32\x00\x0a" + raw), st.binary(max_size=12)),
    st.builds(lambda end: frame(8, 0, b"", end), st.binary(min_size=1, max_size=1)),
    st.just(FRAME.pack(1, 1, 0xFFFFFFFF)),
    st.binary(max_size=30),
)
sound = st.one_of(publishes(), publishes(), alike(), acks, others, st.just(HEARTBEAT))
streams = st.lists(sound, max_size=8).map(b"".join)
rough_streams = st.lists(st.one_of(sound, sound, nearly_alike(), broken, closes), max_size=10).map(
    b"".join
)


def fresh() -> Assembler:
    return Assembler(frame_max=4096, max_message_size=5000)


def seen(commands: list[Command]) -> list[object]:
    """Commands in a form that compares errors by what they say."""
    return [
        (c.channel, c.error.code, c.error.text, c.error.class_id, c.error.method_id)
        if isinstance(c, Fault)
        else (type(c).__name__, msgspec.structs.astuple(c))
        for c in commands
    ]


def fed(stream: bytes, cuts: list[int]) -> tuple[list[object], int]:
    assembler = fresh()
    found: list[Command] = []
    start = 0
    for cut in [*sorted(cuts), len(stream)]:
        found += assembler.feed(stream[start:cut])
        start = max(start, cut)
    return seen(found), assembler.partial_bytes


@settings(deadline=None, max_examples=300)
@given(stream=rough_streams, data=st.data())
def test_any_splitting_gives_the_same_commands(stream: bytes, data: st.DataObject) -> None:
    whole = fed(stream, [])
    assert fed(stream, list(range(len(stream)))) == whole
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert fed(stream, cuts) == whole


@settings(deadline=None, max_examples=300)
@given(stream=rough_streams, data=st.data())
def test_stopping_at_each_content_frame_gives_the_same_commands(
    stream: bytes, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assembler = fresh()
    found: list[Command] = []
    start = 0
    for cut in [*sorted(cuts), len(stream)]:
        rest: bytes | None = stream[start:cut]
        start = max(start, cut)
        while rest is not None:
            commands, rest = assembler.feed_to_content(rest)
            found += commands
            assert rest is None or sum(isinstance(each, Publish) for each in commands) <= 1
    assert (seen(found), assembler.partial_bytes) == fed(stream, [])


@settings(deadline=None, max_examples=200)
@given(stream=streams)
def test_sound_streams_have_no_faults_and_keep_every_content(stream: bytes) -> None:
    commands = fresh().feed(stream)
    assert not any(isinstance(command, Fault) for command in commands)
    for command in commands:
        if isinstance(command, Publish):
            message = command.message
            assert message.content in stream
            assert content.facts_of(content.raw_properties(message)) == command.properties
            content.decode_properties(message)


@settings(deadline=None, max_examples=1500)
@given(
    raw=st.one_of(all_properties, mutated(), mutated(), st.binary(max_size=60)),
    before=st.binary(max_size=3),
    behind=st.binary(max_size=40),
)
def test_stepping_over_properties_and_looking_at_each_agree(
    raw: bytes, before: bytes, behind: bytes
) -> None:
    """Whatever lies around them: the same facts, or the same refusal."""
    try:
        thorough: object = content.facts_of(raw)
    except AmqpError as error:
        thorough = (error.code, error.text)
    try:
        start = len(before)
        fast: object = content.facts_at(before + raw + behind, start, start + len(raw))
    except AmqpError as error:
        fast = (error.code, error.text)
    assert fast == thorough
    if isinstance(fast, content.PropertyFacts):
        check_against_all_properties(fast, raw)


@settings(deadline=None, max_examples=500)
@given(raw=all_properties, data=st.data())
def test_values_that_decide_nothing_may_be_any(raw: bytes, data: st.DataObject) -> None:
    other = with_own_values(data.draw, raw)
    assert content.facts_of(other) == content.facts_of(raw)
    assert content.free_spans(other) == content.free_spans(raw)


def check_against_all_properties(facts: content.PropertyFacts, raw: bytes) -> None:
    """What the full decoder says of accepted bytes."""
    header = content._header_frame(1, 0, raw)
    message = Message("", "", header, 1, len(header) - 8, 0, persistent=False)
    found = content.decode_properties(message)
    headers = found.headers or {}
    assert facts.persistent is (found.delivery_mode == 2)
    assert facts.priority == (found.priority or 0)
    assert facts.expiration == found.expiration
    assert facts.ttl_ms == content.ttl_of(found.expiration)
    assert facts.user_id == found.user_id
    assert facts.asks_direct_reply is (found.reply_to == content.DIRECT_REPLY_TO)
    assert facts.has_routing_headers is ("CC" in headers or "BCC" in headers)


@settings(deadline=None, max_examples=40)
@given(depth=st.integers(28, 36), is_array=st.booleans(), count=st.integers(16_370, 16_400))
def test_the_bounds_of_tables_are_the_same_for_both(depth: int, is_array: bool, count: int) -> None:
    nested: object = []
    for _ in range(depth):
        nested = [nested] if is_array else {"a": nested}
    for table in ({"a": nested}, {"a": [None] * count}):
        raw = content.encode_properties(content.Properties(headers=table))
        found: list[object] = []
        for read in (content.facts_of, lambda raw: content.facts_at(raw, 0, len(raw))):
            try:
                found.append(read(raw))
            except AmqpError as error:
                found.append((error.code, error.text))
        assert found[0] == found[1]


@settings(deadline=None, max_examples=300)
@given(garbage=st.binary(max_size=400))
def test_garbage_gives_commands_or_a_fault(garbage: bytes) -> None:
    fresh().feed(garbage)


@settings(deadline=None, max_examples=300)
@given(stream=rough_streams)
def test_after_a_hard_fault_only_close_and_close_ok_come(stream: bytes) -> None:
    commands = fresh().feed(stream)
    hard = [i for i, c in enumerate(commands) if isinstance(c, Fault) and not c.error.is_soft]
    assert len(hard) <= 1
    for command in commands[hard[0] + 1 :] if hard else []:
        assert isinstance(command, MethodCommand)
        assert isinstance(command.method, spec.ConnectionClose | spec.ConnectionCloseOk)


@settings(deadline=None, max_examples=300)
@given(payload=st.binary(max_size=60), ids=st.sampled_from(sorted(spec.METHODS)))
def test_method_garbage_decodes_or_is_an_amqp_error(payload: bytes, ids: tuple[int, int]) -> None:
    raw = ids[0].to_bytes(2, "big") + ids[1].to_bytes(2, "big") + payload
    try:
        method = methods.decode(raw)
    except AmqpError:
        return
    again = methods.decode(methods.encode(method))
    assert repr(again) == repr(method)


@settings(deadline=None, max_examples=300)
@given(raw=st.binary(max_size=80))
def test_walking_a_table_and_decoding_it_agree(raw: bytes) -> None:
    table = len(raw).to_bytes(4, "big") + raw
    try:
        end: object = fields.check_table(table, 0, len(table))
    except AmqpError as error:
        end = error.code
    try:
        decoded: object = fields.decode_table(table)[1]
    except AmqpError as error:
        decoded = error.code
    assert end == decoded


@given(table=tables)
def test_tables_round_trip(table: dict[str, object]) -> None:
    raw = fields.encode_table(table)
    assert fields.decode_table(raw) == (table, len(raw))
    assert fields.encode_table(fields.decode_table(raw)[0]) == raw
