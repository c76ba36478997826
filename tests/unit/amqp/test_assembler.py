"""Bytes to commands: the fast ways, the general way, and every framing fault.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from broker.amqp import spec
from broker.amqp.assembler import Ack, Assembler, Command, Fault, MethodCommand, Publish
from broker.amqp.content import Properties, PropertyFacts, build_message
from broker.amqp.frames import FRAME, HEARTBEAT, body_of, content_frames, method_frame
from broker.amqp.partial import MESSAGE_SIZE_CAP, SQUEEZED_FRAMES
from broker.errors import ReplyCode


def fresh(*, frame_max: int = 4096, max_message_size: int = 10_000) -> Assembler:
    return Assembler(frame_max=frame_max, max_message_size=max_message_size)


def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return FRAME.pack(kind, channel, len(payload)) + payload + bytes((end,))


def publish(
    body: bytes = b"hello",
    *,
    channel: int = 1,
    properties: Properties | None = None,
    frame_max: int = 4096,
    key: str = "key",
) -> bytes:
    method = spec.BasicPublish("ex", key, mandatory=True)
    message = build_message(
        "", "", properties or Properties(), body, channel=channel, frame_max=frame_max
    )
    return method_frame(channel, method) + message.content


PUBLISH = method_frame(1, spec.BasicPublish("", "q"))


def header(size: int, *, channel: int = 1, class_id: int = 60, weight: int = 0) -> bytes:
    payload = class_id.to_bytes(2, "big") + weight.to_bytes(2, "big") + size.to_bytes(8, "big")
    return frame(2, channel, payload + b"\0\0")


def body(payload: bytes, *, channel: int = 1) -> bytes:
    return frame(3, channel, payload)


def only_fault(commands: list[Command]) -> tuple[int, ReplyCode, str]:
    assert len(commands) == 1
    assert isinstance(commands[0], Fault)
    return commands[0].channel, commands[0].error.code, commands[0].error.text


def published(commands: list[Command]) -> list[bytes]:
    return [body_of(each.message) for each in commands if isinstance(each, Publish)]


# What is sound


def test_a_publish_in_one_chunk_keeps_its_content_bytes() -> None:
    raw = publish(properties=Properties(delivery_mode=2, priority=3))
    [command] = fresh().feed(raw)
    assert isinstance(command, Publish)
    assert (command.channel, command.mandatory, command.immediate) == (1, True, False)
    assert command.properties == PropertyFacts(persistent=True, priority=3)
    message = command.message
    assert (message.exchange, message.routing_key, message.channel) == ("ex", "key", 1)
    assert raw.endswith(message.content)
    assert (message.header_size, message.body_size, message.persistent) == (16, 5, True)


def test_repeated_publishes_are_each_their_own() -> None:
    bodies = [bytes((i,)) * 5 for i in range(20)]
    commands = fresh().feed(b"".join(map(publish, bodies)))
    assert published(commands) == bodies


def test_a_repeat_with_another_end_octet_is_a_fault() -> None:
    raw = publish() * 3
    commands = fresh().feed(raw + publish()[:-1] + b"\0")
    assert published(commands) == [b"hello"] * 3
    assert only_fault(commands[3:])[1] is ReplyCode.FRAME_ERROR


def of_its_own(number: int, *, priority: int = 4, key: str = "key", channel: int = 1) -> bytes:
    """A publish with id, time and trace of its own, of one shape with all others."""
    properties = Properties(
        content_type="text/plain",
        headers={"trace": f"{number:04}", "n": float(number), "in": {"it": 7}},
        delivery_mode=2,
        priority=priority,
        message_id=f"id-{number:04}",
        timestamp=number,
    )
    body = b"body" * (number % 3 + 1)
    return publish(body, channel=channel, properties=properties, key=key)


def test_publishes_of_one_shape_are_each_their_own() -> None:
    raws = [*map(of_its_own, range(20)), *[of_its_own(3)] * 5, *map(of_its_own, range(20, 25))]
    assembler = fresh()
    commands = [
        command
        for start in range(0, len(raws), 10)
        for command in assembler.feed(b"".join(raws[start : start + 10]))
    ]
    assert [each.message.content for each in commands if isinstance(each, Publish)] == [
        raw[len(method_frame(1, spec.BasicPublish("ex", "key", mandatory=True))) :] for raw in raws
    ]
    assert {each.message.priority for each in commands if isinstance(each, Publish)} == {4}


def test_what_decides_something_ends_a_shape() -> None:
    raws = [of_its_own(1), of_its_own(2), of_its_own(3, priority=5), of_its_own(4, key="yek")]
    commands = [each for each in fresh().feed(b"".join(raws)) if isinstance(each, Publish)]
    assert [each.message.priority for each in commands] == [4, 4, 5, 4]
    assert [each.message.routing_key for each in commands] == ["key", "key", "key", "yek"]


def test_a_shape_takes_no_body_over_the_limit() -> None:
    assembler = fresh(max_message_size=8)
    commands = assembler.feed(b"".join(map(of_its_own, range(3))))
    assert [type(each) for each in commands] == [Publish, Publish, Fault]


def test_a_shape_of_a_channel_in_mid_content_is_seen() -> None:
    commands = fresh().feed(of_its_own(1) + of_its_own(2) + PUBLISH + header(5) + of_its_own(3))
    assert published(commands) == [b"body" * 2, b"body" * 3]
    assert only_fault(commands[2:])[1] is ReplyCode.UNEXPECTED_FRAME


def test_a_shape_of_a_channel_in_mid_content_is_seen_behind_another_channels_publish() -> None:
    began = method_frame(2, spec.BasicPublish("", "q")) + header(5, channel=2)
    second = of_its_own(1, channel=2), of_its_own(2, channel=2), of_its_own(3, channel=2)
    commands = fresh().feed(b"".join((*second[:2], began, publish(b"one"), second[2])))
    assert published(commands) == [b"body" * 2, b"body" * 3, b"one"]
    assert only_fault(commands[3:])[:2] == (2, ReplyCode.UNEXPECTED_FRAME)


def test_a_repeat_of_a_channel_in_mid_content_is_seen() -> None:
    """The publish template must not swallow a method where a body is due."""
    commands = fresh().feed(publish() * 3 + PUBLISH + header(5) + publish())
    assert published(commands) == [b"hello"] * 3
    assert only_fault(commands[3:])[1] is ReplyCode.UNEXPECTED_FRAME


def test_names_are_shared_between_messages() -> None:
    first, second = fresh().feed(publish(b"a") + publish(b"bb"))
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert first.message.exchange is second.message.exchange
    assert first.message.routing_key is second.message.routing_key


def test_many_frames_and_empty_ones_make_one_content() -> None:
    raw = PUBLISH + header(6) + body(b"abc") + body(b"") + body(b"def")
    [command] = fresh().feed(raw)
    assert isinstance(command, Publish)
    assert command.message.content == header(6) + body(b"abc") + body(b"def")


def test_a_body_of_nothing_is_complete_with_its_header() -> None:
    [first, second] = fresh().feed((PUBLISH + header(0)) * 2)
    assert first == second
    assert published([first]) == [b""]


def test_contents_of_two_channels_may_interleave() -> None:
    other = method_frame(2, spec.BasicPublish("", "q"))
    raw = PUBLISH + other + header(1) + header(1, channel=2) + body(b"b", channel=2) + body(b"a")
    commands = fresh().feed(raw)
    assert [command.channel for command in commands] == [2, 1]
    assert published(commands) == [b"b", b"a"]


def test_acks_and_other_methods() -> None:
    declare = spec.QueueDeclare("q", durable=True)
    raw = method_frame(1, spec.BasicAck(7, True)) + method_frame(2, declare) + HEARTBEAT
    assert fresh().feed(raw) == [Ack(1, 7, True), MethodCommand(2, declare)]


def test_channel_zero_methods_are_flagged() -> None:
    assembler = fresh()
    assembler.feed(publish() + HEARTBEAT)
    assert not assembler.has_channel_zero
    close = spec.ConnectionClose(200, "bye")
    assert assembler.feed(method_frame(0, close)) == [MethodCommand(0, close)]
    assert assembler.has_channel_zero


def test_partial_bytes_are_counted_and_given_back() -> None:
    assembler = fresh()
    assembler.feed(PUBLISH + header(200) + body(bytes(100)))
    assert assembler.partial_bytes == len(header(200) + body(bytes(100)))
    assembler.feed(body(bytes(100)))
    assert assembler.partial_bytes == 0


def test_a_body_in_tiny_frames_is_kept_in_larger_ones() -> None:
    """Kept as they came, 112 MiB in frames of 32 bytes were more than a link carries."""
    assembler = fresh(max_message_size=1 << 20)
    assembler.feed(PUBLISH.replace(b"\0\1", b"\0\5", 1) + header(700_000, channel=5))
    data = bytes(range(250)) * 2800
    pieces = [data[i : i + 1] for i in range(20_000)]
    pieces += [data[i : i + 32] for i in range(20_000, 660_000, 32)]
    pieces += [data[i : i + 4000] for i in range(660_000, 700_000, 4000)]
    commands: list[Command] = []
    for piece in pieces:
        commands += assembler.feed(body(piece, channel=5))
        assert assembler.partial_bytes <= 750_000 + 9 * SQUEEZED_FRAMES
    (command,) = commands
    assert isinstance(command, Publish)
    message = command.message
    assert len(message.content) <= message.body_size * 9 // 8 + 9 * SQUEEZED_FRAMES
    assert body_of(message) == data
    assert body_of(replace(message, content=content_frames(message, 7, 4096))) == data
    assert content_frames(message, 5, 131_072) is message.content
    assert assembler.partial_bytes == 0


def test_a_body_in_ordinary_frames_is_kept_as_it_came() -> None:
    assembler = fresh(max_message_size=1 << 20)
    pieces = [body(bytes(64)) for _ in range(2 * SQUEEZED_FRAMES)]
    whole = header(2 * 64 * SQUEEZED_FRAMES) + b"".join(pieces)
    (command,) = assembler.feed(PUBLISH + whole)
    assert isinstance(command, Publish)
    assert command.message.content == whole


def test_close_ok_abandons_a_content() -> None:
    assembler = fresh()
    close_ok = method_frame(1, spec.ChannelCloseOk())
    commands = assembler.feed(PUBLISH + header(200) + body(b"x") + close_ok)
    assert commands == [MethodCommand(1, spec.ChannelCloseOk())]
    assert assembler.partial_bytes == 0


def test_a_frame_of_frame_max_is_taken_and_one_octet_more_is_not() -> None:
    """RabbitMQ's limit on the payload is frame_max itself, eight bytes of leniency included."""
    assert published(fresh().feed(PUBLISH + header(4096) + body(bytes(4096)))) == [bytes(4096)]
    commands = fresh().feed(PUBLISH + header(4097) + body(bytes(4097)))
    assert only_fault(commands)[2] == "type 3, all octets = <<>>: {frame_too_large,4097,4088}"


# What is not


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        pytest.param(
            FRAME.pack(1, 1, 0xFFFFFFFF),
            ReplyCode.FRAME_ERROR,
            "type 1, all octets = <<>>: {frame_too_large,4294967295,4088}",
            id="10, 11: size over frame_max, at once",
        ),
        pytest.param(
            frame(8, 0, b"", end=0x41),
            ReplyCode.FRAME_ERROR,
            "type 8, all octets = <<>>: {invalid_frame_end_marker,65}",
            id="12: wrong end octet",
        ),
        pytest.param(
            method_frame(1, spec.BasicAck(1))[:-1] + b"A",
            ReplyCode.FRAME_ERROR,
            "type 1, all octets = <<0,60,0,80,0,0,0,0,0,0,0,1,0>>: {invalid_frame_end_marker,65}",
            id="12: of an ack",
        ),
        pytest.param(
            frame(9, 1, b"abc"),
            ReplyCode.FRAME_ERROR,
            'type 9, all octets = <<"abc">>: unknown_frame',
            id="13: unknown type",
        ),
        pytest.param(
            header(5, channel=0), ReplyCode.UNEXPECTED_FRAME, None, id="14: header on channel 0"
        ),
        pytest.param(
            body(b"x" * 20, channel=0),
            ReplyCode.UNEXPECTED_FRAME,
            'type 3, first 16 octets = <<"xxxxxxxxxxxxxxxx">>',
            id="14: body on channel 0",
        ),
        pytest.param(
            frame(8, 1, b""),
            ReplyCode.UNEXPECTED_FRAME,
            "type 8, all octets = <<>>",
            id="15: heartbeat on a channel",
        ),
        pytest.param(
            frame(8, 0, b"\1"),
            ReplyCode.FRAME_ERROR,
            "type 8, all octets = <<1>>: unknown_frame",
            id="16: heartbeat with payload",
        ),
        pytest.param(
            frame(1, 1, b"\x00\x3c\x00\x63"),
            ReplyCode.COMMAND_INVALID,
            "unknown method {60,99}",
            id="19: unknown method",
        ),
        pytest.param(
            frame(1, 1, b"\x00\x3c\x00\x50\x00"),
            ReplyCode.FRAME_ERROR,
            "cannot decode <<0>>",
            id="20: cut method",
        ),
        pytest.param(
            frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x00\x00\x07") + header(0),
            ReplyCode.FRAME_ERROR,
            "cannot decode <<0,0,0,0,0,7>>",
            id="20: publish with trailing byte",
        ),
        pytest.param(
            frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x01\xff\x00") + header(0),
            ReplyCode.FRAME_ERROR,
            "Malformed UTF-8 in shortstr",
            id="21: routing key not UTF-8",
        ),
        pytest.param(
            PUBLISH + header(5, class_id=50),
            ReplyCode.UNEXPECTED_FRAME,
            "expected content header for class 60, got one for class 50 instead",
            id="29: header of another class",
        ),
        pytest.param(
            PUBLISH + header(5, weight=1), ReplyCode.UNEXPECTED_FRAME, None, id="29: weight"
        ),
        pytest.param(
            PUBLISH + PUBLISH,
            ReplyCode.UNEXPECTED_FRAME,
            "expected content header for class 60, got non content header frame instead",
            id="30: method where a header is due",
        ),
        pytest.param(
            PUBLISH + body(b"x"),
            ReplyCode.UNEXPECTED_FRAME,
            "expected content header for class 60, got non content header frame instead",
            id="30: body where a header is due",
        ),
        pytest.param(
            PUBLISH + header(5) + header(5),
            ReplyCode.UNEXPECTED_FRAME,
            "expected content body, got non content body frame instead",
            id="30: header where a body is due",
        ),
        pytest.param(
            PUBLISH + header(5) + method_frame(1, spec.BasicAck(1)),
            ReplyCode.UNEXPECTED_FRAME,
            "expected content body, got non content body frame instead",
            id="30: ack where a body is due",
        ),
        pytest.param(
            body(b"x"),
            ReplyCode.UNEXPECTED_FRAME,
            "expected method frame, got non method frame instead",
            id="30: body out of nowhere",
        ),
        pytest.param(
            PUBLISH + header(5) + body(b"sixsix"),
            ReplyCode.FRAME_ERROR,
            "content body frame exceeds remaining content size",
            id="31: more body than announced",
        ),
        pytest.param(
            PUBLISH + header(5) + body(b"") * 17,
            ReplyCode.FRAME_ERROR,
            "more than 16 empty content body frames in a row",
            id="33: endless empty bodies",
        ),
        pytest.param(
            PUBLISH + frame(2, 1, b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x02"),
            ReplyCode.FRAME_ERROR,
            "cannot decode content header: undefined property flags 2",
            id="34: undefined flags",
        ),
        pytest.param(
            PUBLISH + frame(2, 1, b"\x00\x3c\x00\x00"),
            ReplyCode.FRAME_ERROR,
            "type 2, all octets = <<0,60,0,0>>: unknown_frame",
            id="34: header cut",
        ),
    ],
)
def test_faults(raw: bytes, code: ReplyCode, text: str | None) -> None:
    _, found, words = only_fault(fresh().feed(raw))
    assert found is code
    if text is not None:
        assert words == text
    byte_by_byte = fresh()
    commands = [each for i in range(len(raw)) for each in byte_by_byte.feed(raw[i : i + 1])]
    assert only_fault(commands)[1:] == (code, words)


def test_sixteen_empty_bodies_are_borne() -> None:
    raw = PUBLISH + header(2) + (body(b"") * 16 + body(b"x")) * 2
    assert published(fresh().feed(raw)) == [b"xx"]


def test_a_size_no_one_sent_takes_no_memory() -> None:
    """Case 11: the fault comes with the frame header, not after the bytes."""
    assembler = fresh()
    assert assembler.feed(b"\x01\x00\x01\xff\xff\xff") == []
    assert only_fault(assembler.feed(b"\xff"))[1] is ReplyCode.FRAME_ERROR


def test_too_large_a_message_is_refused_at_its_header_and_dropped() -> None:
    """Case 32: the channel closes, nothing is buffered, the connection reads on."""
    assembler = fresh(max_message_size=100)
    commands = assembler.feed(PUBLISH + header(300))
    assert only_fault(commands) == (
        1,
        ReplyCode.PRECONDITION_FAILED,
        "message size 300 is larger than configured max size 100",
    )
    assert assembler.feed(body(bytes(200))) == []
    assert assembler.partial_bytes == 0
    assert assembler.feed(body(bytes(100))) == []
    assert published(assembler.feed(publish())) == [b"hello"]


def test_the_largest_limit_has_its_own_words() -> None:
    commands = fresh(max_message_size=MESSAGE_SIZE_CAP).feed(PUBLISH + header(1 << 63))
    text = f"message size {1 << 63} is larger than max size {MESSAGE_SIZE_CAP}"
    assert only_fault(commands)[2] == text


def test_after_a_hard_fault_only_close_and_close_ok_come_out() -> None:
    """Case 37."""
    close_ok = method_frame(0, spec.ConnectionCloseOk())
    rest = publish() + method_frame(0, spec.ConnectionTuneOk()) + frame(9, 3, b"") + close_ok
    for raw in (frame(9, 1, b"x") + rest, frame(9, 1, b"x")):
        assembler = fresh()
        commands = assembler.feed(raw)
        if raw.endswith(b"x\xce"):
            commands += assembler.feed(rest)
        assert isinstance(commands[0], Fault)
        assert commands[1:] == [MethodCommand(0, spec.ConnectionCloseOk())]


def test_after_lost_frame_boundaries_nothing_comes_out() -> None:
    assembler = fresh()
    assembler.feed(frame(8, 0, b"", end=0))
    assert assembler.feed(method_frame(0, spec.ConnectionCloseOk())) == []


def test_refusing_drops_what_was_buffered() -> None:
    assembler = fresh()
    assembler.feed(PUBLISH + header(200) + body(bytes(100)))
    assembler.refuse()
    assert assembler.partial_bytes == 0
    assert assembler.feed(body(bytes(100)) + publish()) == []


def test_refusing_holds_for_publishes_of_a_known_shape() -> None:
    assembler = fresh()
    assert len(assembler.feed(b"".join(map(of_its_own, range(3))))) == 3
    assert len(assembler.feed(of_its_own(4))) == 1
    assembler.refuse()
    assert assembler.feed(of_its_own(5)) == []


def test_chunks_of_a_known_shape_are_seen_with_every_broken_octet() -> None:
    """A chunk with one octet changed, or with something behind it: as if it came byte by byte."""
    known, raw = b"".join(map(of_its_own, range(3))), of_its_own(4) + of_its_own(5)
    ack = method_frame(1, spec.BasicAck(9))
    chunks = [raw, raw + ack, raw + publish(b"other"), raw[:-9], raw + raw[:40], ack + raw]
    for place in range(len(raw)):
        chunks += [raw[:place] + bytes([raw[place] ^ flip]) + raw[place + 1 :] for flip in (1, 255)]
    for chunk in chunks:
        whole, split = fresh(), fresh()
        whole.feed(known)
        split.feed(known)
        at_once = whole.feed(chunk) + whole.feed(ack)
        rest = chunk + ack
        one_by_one = [each for i in range(len(rest)) for each in split.feed(rest[i : i + 1])]
        assert list(map(repr, at_once)) == list(map(repr, one_by_one)), chunk


def test_the_fast_ways_see_every_broken_octet() -> None:
    """A chunk of complete publishes and acks, one octet changed: as if it came byte by byte."""
    ack = method_frame(1, spec.BasicAck(9))
    raw = publish() * 2 + ack + publish(b"other") + b"".join(map(of_its_own, range(3)))
    for place in range(len(raw)):
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(raw)
            broken[place] ^= flip
            whole, split = fresh(), fresh()
            at_once = whole.feed(bytes(broken))
            one_by_one = [each for i in range(len(raw)) for each in split.feed(broken[i : i + 1])]
            assert list(map(repr, at_once)) == list(map(repr, one_by_one)), (place, flip)


def test_a_header_over_frame_max_is_a_fault_in_a_whole_publish_too() -> None:
    raw = publish(properties=Properties(headers={"k": "v" * 5000}))
    assert "{frame_too_large," in only_fault(fresh().feed(raw))[2]
