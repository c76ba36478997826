"""Runs a load: opens connections, publishes at the asked rate or as fast as it goes, reports."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from broker.cli.perf import report, wire
from broker.cli.perf.connection import Address, PerfConnection, PerfError
from broker.cli.perf.distinct import Distinct

_BATCH_MESSAGES = 256
_BATCH_BYTES = 256 * 1024
_TICK_S = 0.001
_DRAIN_S = 10.0
_DRAIN_POLL_S = 0.02


class LoadPlan(NamedTuple):
    """The load to run: one field for each option of `warrenmq perf`.

    Attributes:
        skip_s: Latencies of so many first seconds do not count.
        tls: For uris of amqps://; None checks no certificate.
    """

    uris: tuple[str, ...] = ("amqp://127.0.0.1:5672",)
    producers: int = 1
    consumers: int = 1
    queues: tuple[str, ...] = ("perf-test",)
    predeclared: bool = False
    purges: bool = False
    durable: bool = False
    auto_delete: bool = True
    queue_arguments: Mapping[str, object] = {}
    consumer_arguments: Mapping[str, object] = {}
    exchange: str = ""
    exchange_type: str = "direct"
    routing_key: str | None = None
    binding_key: str | None = None
    routing_keys: int = 0
    is_distinct: bool = False
    size_varies: bool = False
    size_bytes: int = 12
    persistent: bool = False
    mandatory: bool = False
    confirm: int = 0
    confirm_batch: int = 0
    tx_size: int = 0
    prefetch: int = 0
    autoack: bool = False
    multi_ack_every: int = 1
    acks_singly: bool = False
    rate_per_s: float = 0.0
    seconds: float = 0.0
    skip_s: float = 0.0
    messages_per_producer: int = 0
    messages_per_consumer: int = 0
    interval_s: float = 1.0
    run_id: str = "test"
    tls: ssl.SSLContext | None = None


async def run(plan: LoadPlan, say: Callable[[str], None]) -> dict[str, object]:
    """Run a plan.

    Args:
        plan: What to do.
        say: Takes perf-test's line each interval.

    Returns:
        The summary: counts, rates per second and latencies in microseconds.

    Raises:
        PerfError: A connection failed.
    """
    load = _Load(plan, say)
    try:
        return await load.run()
    finally:
        await load.close()


class _Messages(Protocol):
    """The messages that a producer sends."""

    def batch(self, now_ns: int, count: int) -> bytes:
        """The frames of some messages sent at a time."""
        ...


def _messages(plan: LoadPlan, number: int, frame_max: int) -> _Messages:
    """The messages of a plan's producer."""
    key = plan.routing_key or plan.queues[number % len(plan.queues)]
    if plan.is_distinct:
        return Distinct(
            plan.exchange,
            key,
            plan.size_bytes,
            frame_max,
            rng=random.Random(number),  # noqa: S311 - no secret
            epoch_s=int(time.time_ns() // 1_000_000_000),
            keys=plan.routing_keys,
            persistent=plan.persistent,
            varies=plan.size_varies,
        )
    return wire.Template(
        plan.exchange,
        key,
        plan.size_bytes,
        frame_max,
        persistent=plan.persistent,
        mandatory=plan.mandatory,
    )


class _Load:
    def __init__(self, plan: LoadPlan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.say = say
        self.producers: list[PerfConnection] = []
        self.consumers: list[PerfConnection] = []
        self.latencies_ns: list[int] = []
        self.confirm_latencies_ns: list[int] = []

    async def run(self) -> dict[str, object]:
        plan = self.plan
        await self._declare()
        for i in range(plan.consumers):
            self.consumers.append(await self._consumer(i))
        for i in range(plan.producers):
            self.producers.append(await self._connection(i, "producer"))
            if plan.confirm:
                await self.producers[-1].call(wire.confirm_select(), wire.CONFIRM_SELECT_OK)
            elif plan.tx_size:
                await self.producers[-1].call(wire.tx_select(), wire.TX_SELECT_OK)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            reporter = tasks.create_task(self._report(started))
            senders = [tasks.create_task(self._produce(i, c)) for i, c in enumerate(self.producers)]
            await self._wait(senders)
            summary = self._summary(time.perf_counter() - started)
            for task in (reporter, *senders):
                task.cancel()  # a broker that reads nothing would keep a sender for ever
        self._check()
        return summary

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self.producers + self.consumers))

    async def _wait(self, senders: list[asyncio.Task[None]]) -> None:
        plan = self.plan
        deadline = time.perf_counter() + plan.seconds if plan.seconds else None
        drained_by: float | None = None
        skip_until: float | None = time.perf_counter() + plan.skip_s
        while deadline is None or time.perf_counter() < deadline:
            if skip_until is not None and time.perf_counter() >= skip_until:
                skip_until = None
                self._drop_latencies()
            self._check()
            if self._consumers_done():
                return
            if senders and all(task.done() for task in senders):
                drained_by = drained_by or time.perf_counter() + _DRAIN_S
                if self._is_drained() or time.perf_counter() > drained_by:
                    return
            await asyncio.sleep(_DRAIN_POLL_S)

    def _consumers_done(self) -> bool:
        # All together: of consumers that share a queue, one may get more than its part.
        wanted = self.plan.messages_per_consumer * len(self.consumers)
        return bool(wanted) and sum(c.received for c in self.consumers) >= wanted

    def _is_drained(self) -> bool:
        sent = sum(c.published for c in self.producers)
        answered = sum(c.confirmed + c.nacked for c in self.producers)
        if self.plan.confirm and answered < sent:
            return False
        if self.plan.messages_per_consumer:
            return False
        return not self.consumers or sum(c.received for c in self.consumers) >= sent

    def _check(self) -> None:
        for connection in self.producers + self.consumers:
            if connection.failure:
                raise PerfError(connection.failure)

    async def _connection(self, number: int, role: str, ack_every: int = 0) -> PerfConnection:
        acks_singly = bool(ack_every) and self.plan.acks_singly
        connection = PerfConnection(ack_every, acks_singly=acks_singly)
        uris = self.plan.uris
        name = f"perf-test-{role}-{number}"
        await connection.open(Address(uris[number % len(uris)]), name, self.plan.tls)
        return connection

    async def _declare(self) -> None:
        plan = self.plan
        places = range(min(len(plan.uris), len(plan.queues)))
        setups = [await self._connection(place, "configuration") for place in places]
        try:
            if plan.exchange and not plan.predeclared:
                declare = wire.exchange_declare(
                    plan.exchange, plan.exchange_type, durable=plan.durable
                )
                await setups[0].call(declare, wire.EXCHANGE_DECLARE_OK)
            for number, queue in enumerate(plan.queues):
                setup = setups[number % len(setups)]  # a classic queue is where it was declared
                declare = wire.queue_declare(
                    queue,
                    durable=plan.durable,
                    auto_delete=plan.auto_delete,
                    passive=plan.predeclared,
                    arguments=plan.queue_arguments,
                )
                await setup.call(declare, wire.QUEUE_DECLARE_OK)
                if plan.purges and plan.queue_arguments.get("x-queue-type") != "stream":
                    await setup.call(wire.queue_purge(queue), wire.QUEUE_PURGE_OK)
                if plan.exchange and not plan.predeclared:
                    key = plan.binding_key or plan.routing_key or queue
                    bind = wire.queue_bind(queue, plan.exchange, key)
                    await setup.call(bind, wire.QUEUE_BIND_OK)
        finally:
            await asyncio.gather(*(setup.close() for setup in setups))

    async def _consumer(self, number: int) -> PerfConnection:
        plan = self.plan
        ack_every = 0 if plan.autoack else plan.multi_ack_every
        if plan.prefetch and ack_every:
            ack_every = max(1, min(ack_every, plan.prefetch))
        # Behind the producers in turn, so that a lone one's messages go from node to node.
        connection = await self._connection(number + plan.producers, "consumer", ack_every)
        if plan.prefetch:
            await connection.call(wire.qos(plan.prefetch), wire.BASIC_QOS_OK)
        queue = plan.queues[number % len(plan.queues)]
        consume = wire.consume(queue, no_ack=plan.autoack, arguments=plan.consumer_arguments)
        await connection.call(consume, wire.BASIC_CONSUME_OK)
        return connection

    async def _produce(self, number: int, connection: PerfConnection) -> None:
        plan = self.plan
        messages = _messages(plan, number, connection.frame_max)
        batch_max = max(1, min(_BATCH_MESSAGES, _BATCH_BYTES // max(1, plan.size_bytes)))
        limit = plan.messages_per_producer
        started = time.perf_counter()
        while not connection.failure:
            if limit and connection.published >= limit:
                return
            await connection.can_write.wait()
            count = self._allowed(connection, batch_max, started)
            if limit:
                count = min(count, limit - connection.published)
            if count <= 0:
                await self._pause(connection, started)
                continue
            now_ns = time.perf_counter_ns()
            connection.published_batch(count, now_ns)
            connection.write(messages.batch(now_ns, count))
            if plan.tx_size:
                await asyncio.sleep(0)  # a commit is a write of its own, as of any client
                await connection.call(wire.tx_commit(), wire.TX_COMMIT_OK)
                connection.committed(time.perf_counter_ns())
            await asyncio.sleep(0)

    def _allowed(self, connection: PerfConnection, batch_max: int, started: float) -> int:
        count = batch_max
        if self.plan.confirm:
            unanswered = connection.published - connection.confirmed - connection.nacked
            count = min(count, self.plan.confirm - unanswered)
            if self.plan.confirm_batch and unanswered:
                return 0
        elif self.plan.tx_size:
            count = min(count, self.plan.tx_size)
        if self.plan.rate_per_s:
            due = int((time.perf_counter() - started) * self.plan.rate_per_s) + 1
            count = min(count, due - connection.published)
        return count

    async def _pause(self, connection: PerfConnection, started: float) -> None:
        """Until the next message is due, or a confirm makes room."""
        if self.plan.rate_per_s:
            due_at = started + connection.published / self.plan.rate_per_s
            await asyncio.sleep(min(0.1, max(_TICK_S, due_at - time.perf_counter())))
            return
        connection.moved.clear()
        try:
            async with asyncio.timeout(0.1):
                await connection.moved.wait()
        except TimeoutError:
            return

    async def _report(self, started: float) -> None:
        sent_before = received_before = 0
        then = started
        while True:
            await asyncio.sleep(self.plan.interval_s)
            now = time.perf_counter()
            sent = sum(c.published for c in self.producers)
            received = sum(c.received for c in self.consumers)
            latencies, confirms = self._take_latencies()
            line = report.interval_line(
                self.plan.run_id,
                now - started,
                (sent - sent_before) / (now - then),
                (received - received_before) / (now - then),
                latencies,
                confirms,
            )
            self.say(line)
            sent_before, received_before, then = sent, received, now

    def _take_latencies(self) -> tuple[list[int], list[int]]:
        latencies: list[int] = []
        confirms: list[int] = []
        for connection in self.consumers:
            latencies += connection.latencies_ns
            connection.latencies_ns = []
        for connection in self.producers:
            if self.plan.confirm:
                confirms += connection.confirm_latencies_ns
            connection.confirm_latencies_ns = []
        self.latencies_ns += latencies
        self.confirm_latencies_ns += confirms
        return latencies, confirms

    def _drop_latencies(self) -> None:
        self._take_latencies()
        self.latencies_ns.clear()
        self.confirm_latencies_ns.clear()

    def _summary(self, elapsed_s: float) -> dict[str, object]:
        self._take_latencies()
        sent = sum(c.published for c in self.producers)
        received = sum(c.received for c in self.consumers)
        confirmed = sum(c.confirmed for c in self.producers)
        return {
            "id": self.plan.run_id,
            "seconds": round(elapsed_s, 3),
            "sent": sent,
            "received": received,
            "confirmed": confirmed,
            "nacked": sum(c.nacked for c in self.producers),
            "returned": sum(c.returned for c in self.producers),
            "sent_per_s": round(sent / elapsed_s),
            "received_per_s": round(received / elapsed_s),
            "confirmed_per_s": round(confirmed / elapsed_s),
            "consumer_latency_us": report.named(self.latencies_ns),
            "confirm_latency_us": report.named(self.confirm_latencies_ns),
        }
