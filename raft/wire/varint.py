"""Protobuf's variable-length integers, for what is read and written without its library. Pure."""

from __future__ import annotations

from typing import Final

_MORE: Final = 128
_SMALL: Final = tuple(bytes((number,)) for number in range(_MORE))


def varint(number: int) -> bytes:
    """Return the bytes of a number from 0 on."""
    if number < _MORE:
        return _SMALL[number]
    encoded = bytearray()
    while number >= _MORE:
        encoded.append(number & (_MORE - 1) | _MORE)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it.

    Raises:
        IndexError: The data ends within it.
    """
    byte = data[position]
    position += 1
    if byte < _MORE:
        return byte, position
    value, shift = byte & (_MORE - 1), 7
    while byte >= _MORE:
        byte = data[position]
        position += 1
        value |= (byte & (_MORE - 1)) << shift
        shift += 7
    return value, position
