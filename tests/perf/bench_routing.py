"""The cost of routing, and of declaring and deleting 10,000 queues and bindings.

    python -m tests.perf.bench_routing

Route: the catalogue alone, 10,000 different keys. Publish: a session that routes each key for the
first time (its cache holds 4,096 keys) or again. Best of several rounds, in microseconds a message;
declares, bindings and deletes once each, in microseconds apiece.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from broker.amqp import spec
from broker.amqp.assembler import Assembler, Command
from broker.amqp.frames import method_frame
from broker.metadata import commands
from tests.unit.metadata.cluster import Asker, founded
from tests.unit.session.rig import Client, World, publish

COUNT = 10_000
ROUNDS = 5

PATTERNS: dict[str, Callable[[int], str]] = {
    "a.kN.*": lambda n: f"a.k{n}.*",
    "#.kN.#": lambda n: f"#.k{n}.#",
    "four kinds": lambda n: (f"a.*.b{n}", f"a.k{n}.#", f"*.k{n}.b{n}", f"#.e{n}")[n % 4],
}


def once(what: str, work: Callable[[], object], count: int = COUNT) -> None:
    start = time.perf_counter()
    work()
    print(f"{what:42s} {(time.perf_counter() - start) / count * 1e6:7.2f} us")


def best(what: str, work: Callable[[], object], count: int = COUNT) -> None:
    lowest = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        lowest = min(lowest, time.perf_counter() - start)
    print(f"{what:42s} {lowest / count * 1e6:7.2f} us")


def metadata() -> None:
    asker = founded()
    once("declare a queue", lambda: [asker.queue(f"q{n}") for n in range(COUNT)])
    for kind in ("direct", "fanout", "x-modulus-hash"):
        asker.exchange(kind, kind)
        work = _binding(asker, kind, lambda n: f"k{n}")
        once(f"bind, {kind}", work)
    catalogue = asker.machine.catalogue
    for name, pattern in PATTERNS.items():
        asker.exchange(name, "topic")
        once(f"bind, topic {name}", _binding(asker, name, pattern))
        keys = [f"a.k{n}.b{n}" for n in range(COUNT)]
        best(
            f"route, topic {name}",
            lambda name=name, keys=keys: [catalogue.route("/", name, key) for key in keys],
        )
    best("route, direct", lambda: [catalogue.route("/", "direct", f"k{n}") for n in range(COUNT)])
    uids = [queue.uid for queue in catalogue.queues("/")]
    once(
        "delete a queue with six bindings",
        lambda: [asker.ask(commands.DeleteQueue(uid)) for uid in uids],
    )


def _binding(asker: Asker, exchange: str, key: Callable[[int], str]) -> Callable[[], object]:
    return lambda: [asker.bind(exchange, f"q{n}", key(n)) for n in range(COUNT)]


def sessions() -> None:
    world = World()
    client = Client(world).open()
    client.call(spec.ExchangeDeclare(exchange="t", type="topic"))
    client.call(spec.QueueDeclare(queue="q"))
    for number in range(COUNT):
        client.call(spec.QueueBind(queue="q", exchange="t", routing_key=f"a.k{number}.*"))
    world.is_held = True
    assembler = Assembler(frame_max=131_072, max_message_size=1 << 27)
    content = publish(body=b"x" * 100).message.content

    def publishes(count: int) -> Sequence[Command]:
        frames = (
            method_frame(1, spec.BasicPublish(exchange="t", routing_key=f"a.k{n}.b")) + content
            for n in range(count)
        )
        return assembler.feed(b"".join(frames))

    def handle(some: Sequence[Command]) -> None:
        while some:
            client.session.handle(some, 0)
            some = client.session.rest

    def handled(some: Sequence[Command]) -> Callable[[], object]:
        return lambda: handle(some)

    best("publish, topic, 10,000 keys in turn", handled(publishes(COUNT)))
    best("publish, topic, 1,000 keys in turn", handled(publishes(1_000)), 1_000)


def main() -> None:
    metadata()
    sessions()


if __name__ == "__main__":
    main()
