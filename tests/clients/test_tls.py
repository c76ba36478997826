"""Clients over TLS: Celery with and without certificates, and a certificate replaced under load."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from tests.certificates import Authority, Pair
from tests.clients.celery_program import PATIENCE_S, QUIET, caller, task, worker
from tests.clients.place import name
from tests.machine import lateness
from tests.nodes import wait_until
from tests.tls_place import TlsPlace

SEVERAL_RECORDS = 100_000
"""Characters; a TLS record holds 16 KiB."""


COMPLAINTS = r"\[(error|warning)\]|handshake failed"


def listed(place: TlsPlace) -> list[dict[str, Any]]:
    """The connections that the HTTP API lists, without those that have no facts yet."""
    return [each for each in place.node.api("GET", "/connections") if each.get("user")]


@pytest.mark.usefixtures("forgiven")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:(celery|kombu|amqp|vine).*")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # py-amqp leaves sockets to the collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_celery_with_and_without_a_certificate(tls_place: TlsPlace, tmp_path: Path) -> None:
    """The worker logs in with its certificate alone; callers have a password, with and without one.

    Rows: 1.1 TLS
    """
    place, node = tls_place, tls_place.node
    told = place.lines(COMPLAINTS)
    node.api("PUT", "/users/celery-worker", {"password_hash": "", "tags": ""})
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    node.api("PUT", "/permissions/%2F/celery-worker", rights)
    urls = f"amqps://guest:guest@localhost:{place.port}/"
    bare = {
        "ca_certs": str(place.authority.certfile),
        "cert_reqs": ssl.CERT_REQUIRED,
        "server_hostname": "localhost",
    }

    def certified(pair: Pair) -> dict[str, object]:
        return {**bare, "certfile": str(pair.certfile), "keyfile": str(pair.keyfile)}

    of_the_worker = {
        "broker_use_ssl": certified(place.authority.pair("celery-worker")),
        "broker_login_method": "EXTERNAL",
        "broker_heartbeat": 4,
    }
    queue = name("celery.tls")
    before = {each["name"] for each in listed(place)}  # of tests before, which are still closing
    with worker(urls, queue, tmp_path / "log", *QUIET, settings=of_the_worker):
        ours = [each for each in listed(place) if each["name"] not in before]
        assert ours
        for each in ours:
            assert (each["user"], each["auth_mechanism"]) == ("celery-worker", "EXTERNAL")
            assert (each["ssl"], each["peer_cert_subject"]) == (True, "CN=celery-worker,O=Shop")
            assert (each["client_properties"]["product"], each["timeout"]) == ("py-amqp", 4)
        for options, subject in (
            (bare, None),
            (certified(place.authority.pair("celery-caller")), "CN=celery-caller,O=Shop"),
        ):
            known = {each["name"] for each in listed(place)}
            with caller(urls, queue, settings={"broker_use_ssl": options}) as app:
                results = [task(app, "add", number, 1).delay() for number in range(20)]
                got = [each.get(timeout=PATIENCE_S) for each in results]
                assert got == list(range(1, 21))
                half = "x" * SEVERAL_RECORDS
                assert task(app, "add", half, half).delay().get(timeout=PATIENCE_S) == half + half
                with pytest.raises(ValueError, match="as told"):
                    task(app, "fail").delay().get(timeout=PATIENCE_S)
                answers = app.control.ping(timeout=5.0, limit=1)
                assert answers == [{f"{queue}@test": {"ok": "pong"}}]
                theirs = [each for each in listed(place) if each["user"] == "guest"]
                assert all(each["ssl"] for each in theirs)
                new = {each["peer_cert_subject"] for each in theirs if each["name"] not in known}
                assert new == {subject}

    def is_gone() -> bool:
        return all(each["user"] != "celery-worker" for each in listed(place))

    wait_until(is_gone, "the worker's connections are gone", 15)
    assert place.lines(COMPLAINTS) == told
    with node.connect() as connection:
        connection.channel().queue_delete(queue)


class Load:
    """Confirmed publishes of several tasks to one queue, and its consumer, on two connections."""

    def __init__(self) -> None:
        self.confirmed: list[int] = []
        self.got: list[int] = []
        self._numbers = itertools.count()
        self._is_over = False

    async def run(self, url: str, context: ssl.SSLContext) -> None:
        """Publish until `stop`, then wait for the rest.

        Raises:
            aio_pika.exceptions.AMQPError: A connection ended; these do not reconnect.
        """
        publisher = await aio_pika.connect(url, ssl_context=context)
        consumer = await aio_pika.connect(url, ssl_context=context)
        async with publisher, consumer:
            channel = await consumer.channel()
            await channel.set_qos(50)
            queue = await channel.declare_queue(exclusive=True)
            await queue.consume(self._take)
            exchange = (await publisher.channel()).default_exchange
            await asyncio.gather(*(self._publish(exchange, queue.name) for _ in range(8)))
            async with asyncio.timeout(15 * lateness()):
                while len(self.got) < len(self.confirmed):
                    await asyncio.sleep(0.02)  # polling what the other task does

    async def goes_on(self) -> None:
        """Several hundred more are confirmed."""
        wanted = len(self.confirmed) + 300
        async with asyncio.timeout(15 * lateness()):
            while len(self.confirmed) < wanted:
                await asyncio.sleep(0.02)  # polling what the other tasks do

    def stop(self) -> None:
        self._is_over = True

    async def _publish(self, exchange: aio_pika.abc.AbstractExchange, key: str) -> None:
        while not self._is_over:
            number = next(self._numbers)
            body = number.to_bytes(8) + bytes(20_000)
            await exchange.publish(aio_pika.Message(body), key)
            self.confirmed.append(number)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        assert not message.redelivered
        self.got.append(int.from_bytes(message.body[:8]))
        await message.ack()


def test_certificates_are_replaced_under_load(tls_place: TlsPlace, tmp_path: Path) -> None:
    """The node's own, then the authority of its clients: load goes on, new clients meet the new.

    Rows: 1.1 TLS
    """
    place, following = tls_place, Authority(tmp_path, "following")
    old_till, new_till = place.authority.pair("old-till"), following.pair("new-till")
    files = (place.server.keyfile, place.server.certfile, place.authority.certfile)
    kept = [each.read_bytes() for each in files]
    new = following.pair("server")

    def is_let_in(pair: Pair) -> bool:
        try:
            place.issuer(following, pair=pair)
        except (ssl.SSLError, ConnectionError):
            return False
        return True

    async def comes(claim: Callable[[], bool], what: str) -> None:
        await asyncio.to_thread(wait_until, claim, what, 20)

    async def replace(load: Load) -> None:
        await load.goes_on()
        files[0].write_bytes(new.keyfile.read_bytes())
        files[1].write_bytes(new.certfile.read_bytes())
        # every new client is served on the way there, by the old or by the new one
        await comes(lambda: place.issuer(following) == "following", "the node's new certificate")
        await load.goes_on()
        assert is_let_in(old_till)
        assert not is_let_in(new_till)
        files[2].write_bytes(following.certfile.read_bytes())
        await comes(lambda: is_let_in(new_till), "clients of the new authority are let in")
        assert not is_let_in(old_till)
        await load.goes_on()

    async def under_load() -> Load:
        load = Load()
        async with asyncio.TaskGroup() as tasks:
            url = f"amqps://guest:guest@localhost:{place.port}/"
            tasks.create_task(load.run(url, place.authority.context(old_till, following)))
            await replace(load)
            load.stop()
        return load

    try:
        load = asyncio.run(under_load())
    finally:
        for path, content in zip(files, kept, strict=True):
            path.write_bytes(content)
        wait_until(lambda: place.issuer(following) == "authority", "all is as before", 20)
    assert sorted(load.got) == sorted(load.confirmed) == list(range(len(load.confirmed)))
    assert not place.lines("not reloaded")
