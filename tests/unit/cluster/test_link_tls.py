"""TLS between nodes, over loopback: who is let in, what is said to others, and reloaded files."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.cli.certificates.folder import CertificateFolder
from broker.cluster.admission.enquiry import Applicant, NotAdmitted, enquire
from broker.cluster.authentication.link_certificates import LinkCertificates
from broker.cluster.authentication.link_tls import LinkFiles, Mode, names
from broker.cluster.links import Links
from broker.cluster.outbound import CONTROL, DATA
from tests.certificates import Authority
from tests.unit.cluster.test_links import A, B, Net, network

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = dt.datetime.now(dt.UTC)
SECRET = b"s"


def folder(path: Path, now: dt.datetime = NOW, days: int = 365) -> CertificateFolder:
    made = CertificateFolder(path, now)
    made.make([A, B], days)
    return made


def certificates(folder: Path, node: str, mode: Mode = Mode.REQUIRED) -> LinkCertificates:
    own = folder / node
    return LinkCertificates(
        mode, LinkFiles(str(own / "node.pem"), "", "", str(own / "authorities.pem"))
    )


def are_joined(a: Links, b: Links) -> bool:
    return all(x.is_up(y.node, s) for x, y in ((a, b), (b, a)) for s in (CONTROL, DATA))


def encrypted(links: Links) -> set[bool]:
    """Whether the streams that other nodes sent on have TLS."""
    return {each._call.connection.certificate is not None for each in links._inbound.values()}


@asynccontextmanager
async def two(
    a: LinkCertificates | None, b: LinkCertificates | None
) -> AsyncIterator[tuple[Net, Links, Links]]:
    async with network() as net:
        first = await net.node(A, "boot-a", tls=a)
        second = await net.node(B, "boot-b", tls=b)
        first.connect(B, second.address)
        second.connect(A, first.address)
        yield net, first, second


class Hints(logging.Handler):
    """What the log says of what nobody has proven."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.came = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "link.unproven":
            self.told.append(record.__dict__["what"])
            self.came.set()


async def refused(a: LinkCertificates | None, b: LinkCertificates | None) -> str:
    """What the log says first of two nodes that do not let each other in."""
    hints = Hints()
    logger = logging.getLogger("broker.cluster.links")
    logger.addHandler(hints)
    try:
        async with two(a, b) as (_net, first, second), asyncio.timeout(10):
            await hints.came.wait()
            assert not first.is_up(B)
            assert not second.is_up(A)
    finally:
        logger.removeHandler(hints)
    return hints.told[0]


@pytest.mark.parametrize(
    ("of_a", "of_b", "is_encrypted"),
    [
        (Mode.REQUIRED, Mode.REQUIRED, True),
        (Mode.OPTIONAL, Mode.REQUIRED, True),
        (Mode.OPTIONAL, Mode.OPTIONAL, True),
        (Mode.OPTIONAL, Mode.OFF, False),
    ],
)
async def test_each_step_from_none_to_required_links_with_the_next(
    tmp_path: Path, of_a: Mode, of_b: Mode, *, is_encrypted: bool
) -> None:
    folder(tmp_path)
    a, b = (
        None if mode is Mode.OFF else certificates(tmp_path, node, mode)
        for node, mode in ((A, of_a), (B, of_b))
    )
    async with two(a, b) as (net, first, second):
        received: list[bytes] = []
        second.on(3, lambda _node, _boot, payload: (received.append(bytes(payload)), net.poke())[0])
        await net.until(lambda: are_joined(first, second))
        assert encrypted(first) == encrypted(second) == {is_encrypted}
        large = bytes(range(256)) * 40_000  # 10 MB, in parts, beyond all buffers
        assert first.send(B, DATA, 3, b"small")
        assert first.send(B, DATA, 3, large)
        await net.until(lambda: len(received) == 2)
        assert received == [b"small", large]


async def test_two_authorities_are_one_line_at_each_end(tmp_path: Path) -> None:
    folder(tmp_path / "one")
    folder(tmp_path / "other")
    a, b = certificates(tmp_path / "one", A), certificates(tmp_path / "other", B)
    said = await refused(a, b)
    assert "give both nodes the same authorities" in said


async def test_a_certificate_of_another_node_is_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    said = await refused(certificates(tmp_path, A), certificates(tmp_path, A))
    assert f"its certificate is that of {A}" in said


async def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    made = folder(tmp_path)
    CertificateFolder(tmp_path, NOW - dt.timedelta(days=20)).renew([B], days=10)
    assert len(made.validity()) == 3
    said = await refused(certificates(tmp_path, A), certificates(tmp_path, B))
    assert "its certificate has expired: renew it" in said


async def test_a_node_without_tls_is_refused_where_it_is_required(tmp_path: Path) -> None:
    folder(tmp_path)
    said = await refused(certificates(tmp_path, A), None)
    assert "it speaks no TLS" in said


async def test_files_that_change_count_from_the_next_connection_on(tmp_path: Path) -> None:
    """The authority is replaced under a link: it stays, and is dialled again at every step."""
    folder(tmp_path)
    a, b = certificates(tmp_path, A), certificates(tmp_path, B)
    async with two(a, b) as (net, first, second):
        await net.until(lambda: are_joined(first, second))
        for _ in range(3):
            CertificateFolder(tmp_path, NOW).rotate()
            for tls in (a, b, a, b):  # what has changed is read at the second look
                await tls.look()
                assert are_joined(first, second)
                first.reset(B)
                await net.until(lambda: not are_joined(first, second))
                await net.until(lambda: are_joined(first, second))
        stale = certificates(folder(tmp_path / "stale").path, A)
        with pytest.raises(NotAdmitted, match="same authorities"):
            await enquire(Applicant(A, "", SECRET, stale), B, second.address)


async def test_a_proven_node_with_the_certificate_of_another_hears_so(tmp_path: Path) -> None:
    folder(tmp_path)
    async with network() as net:
        b = await net.node(B, "boot-b", tls=certificates(tmp_path, B))
        applicant = Applicant("rabbit@c", "", SECRET, certificates(tmp_path, A))
        with pytest.raises(NotAdmitted, match="names another node: give it its own"):
            await enquire(applicant, B, b.address)


async def test_whom_a_certificate_names(tmp_path: Path) -> None:
    made = folder(tmp_path)
    assert [each.name for each in made.validity()][1:] == [A, B]
    ours = {"subjectAltName": (("URI", f"urn:warrenmq:node:{A}"), ("DNS", "b"))}
    theirs = {"subjectAltName": (("DNS", "mq1.example"), ("DNS", "*.mq.example"))}
    address = {"subjectAltName": (("IP Address", "10.0.0.7"),)}
    assert names(ours, A)
    assert not names(ours, B)
    assert names(theirs, "rabbit@mq1.example")
    assert names(theirs, "rabbit@a.mq.example")
    assert not names(theirs, "rabbit@a.b.mq.example")
    assert not names(theirs, "rabbit@example")
    assert names(address, "rabbit@10.0.0.7")
    assert not names(address, "rabbit@10.0.0.70")
    assert not names({}, A)


async def test_certificates_of_another_maker_name_hosts(tmp_path: Path) -> None:
    """One authority of an operator, whose certificates are good for localhost."""
    authority = Authority(tmp_path, "authority")
    pair = authority.pair("server")
    files = LinkFiles(str(pair.certfile), str(pair.keyfile), "", str(authority.certfile))
    async with network() as net:
        nodes = [
            await net.node(
                f"rabbit{n}@localhost", f"b{n}", tls=LinkCertificates(Mode.REQUIRED, files)
            )
            for n in (1, 2)
        ]
        nodes[0].connect(nodes[1].node, nodes[1].address)
        nodes[1].connect(nodes[0].node, nodes[0].address)
        await net.until(lambda: are_joined(*nodes))
