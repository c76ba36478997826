"""Runs the transcripts of this folder: the bytes of chunks, part by part.

Command: chunk [filter=BYTES]; each line of its input is a message: EXCHANGE KEY BODY [NAME=VALUE
...], names being properties, or headers if they begin with x-. The answer is read by the drawing in
broker/streams/chunk.py, with nothing of its code.
"""

from __future__ import annotations

import shlex
import struct
from pathlib import Path

import pytest

from broker.amqp.content import Properties, build_message
from broker.message import Message
from broker.streams.chunk import Chunk, encode_chunk
from tests.golden import datadriven


def _message(line: str) -> Message:
    exchange, key, body, *pairs = shlex.split(line)
    properties = Properties()
    for name, value in [pair.split("=", 1) for pair in pairs]:
        if name.startswith("x-"):
            properties.headers = {**(properties.headers or {}), name: value}
        else:
            setattr(properties, name, int(value) if value.isdigit() else value)
    return build_message(exchange, key, properties, body.encode())


class _Parts:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.lines: list[str] = []

    def take(self, name: str, size: int) -> bytes:
        part, self.data = self.data[:size], self.data[size:]
        if size:
            text = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
            self.lines.append(f"{name:14} {part.hex(' ', -4)}  {text}")
        return part


def play(case: datadriven.Case) -> str:
    messages = [_message(line) for line in case.body.splitlines()]
    data = encode_chunk(
        messages,
        first_offset=4096,
        timestamp_ms=1_700_000_000_123,
        term=7,
        filter_size=int(case.options.get("filter", 16)),
    )
    assert Chunk.parse(data).count == len(messages)
    parts = _Parts(data)
    head = parts.take("head", 48)
    parts.take("bloom", head[44])
    parts.take("crc of head", 4)
    templates, template_bytes, own, own_bytes, values, value_bytes, _ = struct.unpack(
        "<7I", parts.take("counts", 28)
    )
    parts.take("bodies at", 4 * len(messages) + 4)
    parts.take("own at", 4 * own + 4 if own else 0)
    parts.take("table sizes", 4 * own)
    parts.take("filters", 4 * len(messages) if values else 0)
    parts.take("kinds", 2 * len(messages))
    parts.take(f"{templates} templates", template_bytes)
    parts.take("own", own_bytes)
    parts.take("filter values", value_bytes)
    parts.take("bodies", len(parts.data))
    return "\n".join(parts.lines)


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.txt")), ids=lambda p: p.stem)
def test_transcript(path: Path) -> None:
    datadriven.run(path, play)
