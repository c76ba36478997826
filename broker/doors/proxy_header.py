r"""The header of the PROXY protocol, versions 1 and 2: who a proxy's client is. Pure.

    PROXY TCP4 192.0.2.7 192.0.2.1 40000 5672\r\n     version 1: one line of at most 107 octets
    \r\n\r\n\0\r\nQUIT\n 21 11 000C ...              version 2: 16 octets, addresses, TLVs

What says nothing of a client (UNKNOWN, LOCAL, a family without addresses) leaves the socket's own
ends. TLVs are stepped over.

Source: "The PROXY protocol", HAProxy, versions 1 & 2 (2020/03/05), sections 2.1 and 2.2.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
"""The first octets of version 2; nothing else that comes to a port begins so."""

LINE_BYTES_MAX: Final = 107
MORE_BYTES_MAX: Final = 8_192
"""What may follow the first 16 octets of version 2. Proxies send at most some hundred."""

_LINE: Final = b"PROXY "
_END: Final = b"\r\n"
_HEAD: Final = 16
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED: Final = 0x00
_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}
"""TCP over IPv4 and IPv6 -> octets of an address."""
_UNIX: Final = {0x31: 216}
_TLV_HEAD: Final = 3
_FIELDS: Final = 6
_PORT: Final = re.compile(r"0|[1-9][0-9]{0,4}")
_PORT_MAX: Final = 65_535
_FAMILIES: Final = {"TCP4": 4, "TCP6": 6}


class Ends(NamedTuple):
    """The two ends of a connection as its client sees them.

    Attributes:
        peer_host: The client's address.
        peer_port: The client's port.
        host: The address that it connected to.
        port: Likewise.
    """

    peer_host: str
    peer_port: int
    host: str
    port: int


class Header(NamedTuple):
    """A whole header.

    Attributes:
        ends: What it says; None: the socket's own ends count.
        size: Its octets; what follows is the client's.
    """

    ends: Ends | None
    size: int


class MalformedHeader(ValueError):
    """The octets are no header; the text says why."""


def read_header(data: bytes) -> Header | None:
    """Read the header at the beginning of a connection.

    Args:
        data: All that came so far.

    Returns:
        None while octets are missing.

    Raises:
        MalformedHeader: No octets that may follow make it one.
    """
    if _begins(data, _LINE):
        return _read_line(data)
    if _begins(data, SIGNATURE):
        return _read_binary(data)
    raise MalformedHeader("the connection does not begin with a PROXY header")


def _begins(data: bytes, with_: bytes) -> bool:
    return data[: len(with_)] == with_[: len(data)]


def _read_line(data: bytes) -> Header | None:
    end = data.find(_END, 0, LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= LINE_BYTES_MAX:
            raise MalformedHeader(f"its line is longer than {LINE_BYTES_MAX} octets")
        return None
    fields = data[:end].decode("latin-1").split(" ")
    size = end + len(_END)
    if fields[1] == "UNKNOWN":
        return Header(None, size)
    if len(fields) != _FIELDS or fields[1] not in _FAMILIES:
        raise MalformedHeader("its line is not PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT")
    source, destination = (_address(text, _FAMILIES[fields[1]]) for text in fields[2:4])
    peer_port, port = (_port(text) for text in fields[4:])
    return Header(Ends(source, peer_port, destination, port), size)


def _address(text: str, version: int) -> str:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        found = None
    if found is None or found.version != version or "%" in text:
        raise MalformedHeader(f"an address in its line is none of IPv{version}")
    return _shown(found)


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Write an address as the socket would: an IPv4 client of an IPv6 listener is one of IPv4."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _port(text: str) -> int:
    if _PORT.fullmatch(text) is None or int(text) > _PORT_MAX:
        raise MalformedHeader("a port in its line is none")
    return int(text)


def _read_binary(data: bytes) -> Header | None:
    if len(data) > len(SIGNATURE) and data[len(SIGNATURE)] not in (_LOCAL, _PROXY):
        raise MalformedHeader("its version or command is unknown")
    if len(data) < _HEAD:
        return None
    command, family = data[12], data[13]
    more = int.from_bytes(data[14:_HEAD])
    if more > MORE_BYTES_MAX:
        raise MalformedHeader(f"it is longer than {_HEAD + MORE_BYTES_MAX} octets")
    if len(data) < _HEAD + more:
        return None
    body = data[_HEAD : _HEAD + more]
    if command == _LOCAL:
        return Header(None, _HEAD + more)
    width = _ADDRESS_BYTES.get(family)
    if width is None:
        if family not in (_UNSPECIFIED, *_UNIX):
            raise MalformedHeader("its client does not come over TCP")
        if family in _UNIX:
            _check_tlvs(body, _UNIX[family])
        return Header(None, _HEAD + more)
    _check_tlvs(body, 2 * width + 4)
    ports = body[2 * width :]
    return Header(
        Ends(
            _shown(ipaddress.ip_address(body[:width])),
            int.from_bytes(ports[:2]),
            _shown(ipaddress.ip_address(body[width : 2 * width])),
            int.from_bytes(ports[2:4]),
        ),
        _HEAD + more,
    )


def _check_tlvs(body: bytes, start: int) -> None:
    """Step over what follows the addresses.

    Raises:
        MalformedHeader: It does not end where the header does.
    """
    if start > len(body):
        raise MalformedHeader("it is too short for its addresses")
    while start < len(body):
        start += _TLV_HEAD + int.from_bytes(body[start + 1 : start + _TLV_HEAD])
    if start > len(body):
        raise MalformedHeader("a TLV in it does not end with it")
