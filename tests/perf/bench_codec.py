"""Microseconds a message in the codec's hot loops: `python -m tests.perf.bench_codec`.

Prints the best of several rounds, so that a busy machine disturbs least. 100-byte bodies in chunks
of 100 messages, exchange "" and routing key "amqp-load-0", as a load generator sends them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from broker.amqp import content, spec
from broker.amqp.assembler import Assembler, Publish
from broker.amqp.frames import encode_deliveries, method_frame
from broker.message import Delivery, Message

COUNT = 100
ROUNDS = 300


def chunk_of(*, bodies: list[int], properties: list[content.Properties]) -> bytes:
    publish = method_frame(1, spec.BasicPublish("", "amqp-load-0"))
    return b"".join(
        publish + content.build_message("", "", each, bytes(size)).content
        for size, each in zip(bodies, properties, strict=True)
    )


def real_properties(number: int) -> content.Properties:
    """As many clients send them: id, time and trace of its own for each message."""
    return content.Properties(
        content_type="application/json",
        headers={"traceparent": f"00-{number:032x}-{number:016x}-01"},
        delivery_mode=2,
        correlation_id=f"{number:08x}",
        message_id=f"{number:036x}",
        timestamp=1_770_000_000 + number,
    )


def best(run: Callable[[], object]) -> float:
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        run()
        found.append(time.perf_counter_ns() - start)
    return min(found) / COUNT / 1000


def main() -> None:
    plain = content.Properties(delivery_mode=1)
    chunks = {
        "publish, repeated": chunk_of(bodies=[100] * COUNT, properties=[plain] * COUNT),
        "publish, sizes differ": chunk_of(
            bodies=[100 + i % 7 for i in range(COUNT)], properties=[plain] * COUNT
        ),
        "publish, message ids differ": chunk_of(
            bodies=[100] * COUNT,
            properties=[content.Properties(message_id=f"{i:032}") for i in range(COUNT)],
        ),
        "publish, as real ones are": chunk_of(
            bodies=[100 + i % 7 for i in range(COUNT)],
            properties=[real_properties(i) for i in range(COUNT)],
        ),
        "ack": b"".join(method_frame(1, spec.BasicAck(i)) for i in range(COUNT)),
    }
    assembler = Assembler(frame_max=131_072, max_message_size=1 << 27)
    for name, chunk in chunks.items():
        print(f"{name:32} {best(lambda chunk=chunk: assembler.feed(chunk)):.2f} us")
    print(f"{'publish, 1 KiB':32} ", end="")
    big = chunk_of(bodies=[1024] * COUNT, properties=[plain] * COUNT)
    print(f"{best(lambda: assembler.feed(big)):.2f} us")

    commands = assembler.feed(chunks["publish, repeated"])
    deliveries = [
        Delivery(i, 0, command.message)
        for i, command in enumerate(commands)
        if isinstance(command, Publish)
    ]
    decode = msgspec.msgpack.Decoder(Message).decode
    read = [
        Delivery(each.number, 0, decode(msgspec.msgpack.encode(each.message)))
        for each in deliveries
    ]
    for name, channel, batch in (
        ("deliver, same channel", 1, deliveries),
        ("deliver, other channel", 2, deliveries),
        ("deliver, read from disk", 1, read),
    ):

        def run(channel: int = channel, batch: list[Delivery] = batch) -> bytes:
            out: list[bytes] = []
            encode_deliveries(channel, b"ctag", 1, batch, 131_072, out)
            return b"".join(out)

        print(f"{name:32} {best(run):.2f} us (join included)")


if __name__ == "__main__":
    main()
