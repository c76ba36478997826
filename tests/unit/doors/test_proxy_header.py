"""Headers of the PROXY protocol: whole ones, parts of one, and what is none."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.doors.proxy_header import (
    LINE_BYTES_MAX,
    MORE_BYTES_MAX,
    SIGNATURE,
    Ends,
    Header,
    MalformedHeader,
    read_header,
)

CLIENT = Ends("192.0.2.7", 40_000, "192.0.2.1", 5672)
CLIENT_6 = Ends("2001:db8::7", 40_000, "2001:db8::1", 5672)
LINE = b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 5672\r\n"


def addresses(ends: Ends) -> bytes:
    packed = (ipaddress.ip_address(each).packed for each in (ends.peer_host, ends.host))
    return b"".join(packed) + ends.peer_port.to_bytes(2) + ends.port.to_bytes(2)


def binary(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(body).to_bytes(2) + body


def tlv(kind: int, value: bytes) -> bytes:
    return bytes((kind,)) + len(value).to_bytes(2) + value


WHOLE = {
    "version 1": (LINE, CLIENT),
    "version 1, IPv6": (b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 5672\r\n", CLIENT_6),
    "version 1, unknown": (b"PROXY UNKNOWN\r\n", None),
    "version 1, unknown with more": (b"PROXY UNKNOWN ff ff 1 2 whatever\r\n", None),
    "version 2": (binary(0x21, 0x11, addresses(CLIENT)), CLIENT),
    "version 2, IPv6": (binary(0x21, 0x21, addresses(CLIENT_6)), CLIENT_6),
    "version 2, IPv4 in IPv6": (
        binary(0x21, 0x21, addresses(Ends("::ffff:192.0.2.7", 40_000, "::ffff:192.0.2.1", 5672))),
        CLIENT,
    ),
    "version 2, TLS's names behind it": (
        binary(0x21, 0x11, addresses(CLIENT) + tlv(0x20, b"\1\0\0\0\0" + tlv(0x22, b"till-1"))),
        CLIENT,
    ),
    "version 2, local": (binary(0x20, 0x00, b""), None),
    "version 2, local with addresses": (binary(0x20, 0x11, addresses(CLIENT)), None),
    "version 2, no family": (binary(0x21, 0x00, b"anything"), None),
    "version 2, a socket of this machine": (binary(0x21, 0x31, bytes(216)), None),
}


@pytest.mark.parametrize(("data", "ends"), WHOLE.values(), ids=WHOLE)
def test_a_whole_header_says_who_the_client_is_and_leaves_what_follows(
    data: bytes, ends: Ends | None
):
    assert read_header(data + b"AMQP\0\0\x09\1") == Header(ends, len(data))


@pytest.mark.parametrize("data", [data for data, _ in WHOLE.values()], ids=WHOLE)
def test_a_part_of_a_header_waits_for_the_rest(data: bytes):
    assert [read_header(data[:size]) for size in range(len(data))] == [None] * len(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"AMQP\0\0\x09\1", "does not begin with a PROXY header"),
        (b"\x16\x03\x01", "does not begin with a PROXY header"),
        (b"PROXY TCP4" + b" " * LINE_BYTES_MAX, "longer than 107 octets"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 40000\r\n", "its line is not PROXY TCP4|TCP6"),
        (b"PROXY UDP4 192.0.2.7 192.0.2.1 1 2\r\n", "its line is not PROXY TCP4|TCP6"),
        (b"PROXY \r\n", "its line is not PROXY TCP4|TCP6"),
        (b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n", "none of IPv4"),
        (b"PROXY TCP6 fe80::1%lo ::1 1 2\r\n", "none of IPv6"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 65536 2\r\n", "a port in its line is none"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 +1 2\r\n", "a port in its line is none"),
        (SIGNATURE + b"\x31", "its version or command is unknown"),
        (SIGNATURE + b"\x22", "its version or command is unknown"),
        (SIGNATURE + b"\x21\x11" + (MORE_BYTES_MAX + 1).to_bytes(2), "longer than 8208 octets"),
        (binary(0x21, 0x11, bytes(11)), "too short for its addresses"),
        (binary(0x21, 0x12, bytes(12)), "does not come over TCP"),
        (binary(0x21, 0x11, bytes(12) + b"\x20\0\5abc"), "a TLV in it does not end with it"),
        (binary(0x21, 0x11, bytes(12) + b"\x20"), "a TLV in it does not end with it"),
    ],
)
def test_what_is_no_header_says_why(data: bytes, why: str):
    with pytest.raises(MalformedHeader, match=why.replace("|", r"\|")):
        read_header(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE]))
def test_noise_is_read_refused_or_waited_for_and_never_fails_otherwise(noise: bytes, begin: bytes):
    try:
        found = read_header(begin + noise)
    except MalformedHeader:
        return
    assert found is None or found.size <= len(begin + noise)
