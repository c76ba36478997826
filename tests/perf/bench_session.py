"""The cost of one message in a session, without carrying out its effects.

    python -m tests.perf.bench_session

Publishing starts from the assembler's commands, delivering ends with the bytes in `out`.
Best of several rounds, in microseconds a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from broker.amqp import spec
from broker.amqp.assembler import Ack, Assembler
from broker.amqp.frames import method_frame
from broker.message import Delivery
from tests.unit.session.rig import Client, World, publish

CHUNK = 200
ROUNDS = 300


def best(work: Callable[[], object], messages: int) -> float:
    lowest = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        lowest = min(lowest, time.perf_counter() - start)
    return lowest / messages * 1e6


def fresh(*, confirm: bool = False) -> Client:
    client = Client(World()).open()
    for number in range(8):
        client.call(spec.QueueDeclare(queue=f"q{number}"))
        client.call(spec.QueueBind(queue=f"q{number}", exchange="amq.fanout"))
        client.call(spec.QueueBind(queue=f"q{number}", exchange="amq.direct", routing_key="two"))
    client.call(spec.QueueDelete(queue="q7"))
    if confirm:
        client.call(spec.ConfirmSelect())
    return client


def commands(keys: list[str], exchange: str = "") -> list[object]:
    assembler = Assembler(frame_max=131_072, max_message_size=1 << 27)
    content = publish(body=b"x" * 100).message.content
    data = b"".join(
        method_frame(1, spec.BasicPublish(exchange=exchange, routing_key=keys[n % len(keys)]))
        + content
        for n in range(CHUNK)
    )
    return assembler.feed(data)


def publishing(keys: list[str], *, confirm: bool, exchange: str = "") -> float:
    client = fresh(confirm=confirm)
    some = commands(keys, exchange)
    session = client.session

    def work() -> None:
        for effect in session.handle(some, 0):
            if effect.seqnos is not None:
                session.confirmed(effect.channel, effect.seqnos)
        session.flush()
        session.out.clear()

    return best(work, CHUNK)


def delivering(ack_every: int, *, no_ack: bool = False) -> tuple[float, float]:
    client = fresh()
    client.call(spec.BasicConsume(queue="q0", consumer_tag="ctag1.1234", no_ack=no_ack))
    session = client.session
    message = publish("q0", body=b"x" * 100).message
    batch = [Delivery(number, 0, message) for number in range(1, CHUNK + 1)]
    key = session._channels[1].key
    deliver_s = ack_s = float("inf")
    tag = 0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        session.deliver(key, "ctag1.1234", batch)
        b"".join(session.out)
        session.out.clear()
        deliver_s = min(deliver_s, time.perf_counter() - start)
        if no_ack:
            continue
        acks = [Ack(1, tag + n, ack_every > 1) for n in range(ack_every, CHUNK + 1, ack_every)]
        tag += CHUNK
        start = time.perf_counter()
        session.handle(acks, 0)
        ack_s = min(ack_s, time.perf_counter() - start)
    return deliver_s / CHUNK * 1e6, ack_s / CHUNK * 1e6


def main() -> None:
    print(f"publish, one key                  {publishing(['q0'], confirm=False):6.3f} us")
    print(f"publish, one key, confirms        {publishing(['q0'], confirm=True):6.3f} us")
    keys = [f"q{n}" for n in range(7)]
    print(f"publish, seven keys in turn       {publishing(keys, confirm=False):6.3f} us")
    print(f"publish, seven keys, confirms     {publishing(keys, confirm=True):6.3f} us")
    fanout = publishing(["k"], confirm=True, exchange="amq.fanout")
    print(f"publish, seven queues, confirms   {fanout:6.3f} us")
    deliver, acked = delivering(50)
    print(f"deliver                           {deliver:6.3f} us")
    print(f"ack, multiple of 50               {acked:6.3f} us")
    print(f"ack, each                         {delivering(1)[1]:6.3f} us")
    print(f"deliver, no_ack                   {delivering(50, no_ack=True)[0]:6.3f} us")


if __name__ == "__main__":
    main()
