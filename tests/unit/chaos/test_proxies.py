"""Proxies on real connections: cut, cut one way, delay, reset, refuse."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from chaos.proxies import HOST, Proxies
from tests.nodes import wait_until

A_TO_B, B_TO_A = ("a", "b"), ("b", "a")
SILENT_S = 0.3
"""How long nothing must come: a proxy that let it through would need less than a millisecond."""


class End:
    """One node: a listener that the other dials, and what it took."""

    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server((HOST, port))
        self.listener.settimeout(5)
        self.port = self.listener.getsockname()[1]

    def take(self) -> socket.socket:
        taken, _ = self.listener.accept()
        taken.settimeout(5)
        return taken


@pytest.fixture
def ends() -> Iterator[tuple[End, End, dict[tuple[str, str], int], Proxies]]:
    a, b = End(), End()
    proxies = Proxies(1)
    ports = proxies.start({A_TO_B: b.port, B_TO_A: a.port})
    for port in ports.values():
        wait_until(lambda p=port: is_accepted(p), "the proxy listens as its target does", 5)
    for end in (a, b):
        end.take().close()  # of the question whether it is accepted
    yield a, b, ports, proxies
    proxies.stop()
    for end in (a, b):
        end.listener.close()


def is_accepted(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


def is_refused(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def dial(port: int) -> socket.socket:
    made = socket.create_connection((HOST, port), 5)
    made.settimeout(5)
    return made


def read(end: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count and (data := end.recv(count - len(got))):
        got += data
    return got


def hears_nothing(end: socket.socket) -> bool:
    end.settimeout(SILENT_S)
    try:
        return end.recv(1) is None
    except TimeoutError:
        return True
    finally:
        end.settimeout(5)


def test_bytes_pass_both_ways_and_an_end_is_passed_on(ends):
    _, b, ports, proxies = ends
    with dial(ports[A_TO_B]) as near, b.take() as far:
        near.sendall(b"x" * 100_000)
        assert len(read(far, 100_000)) == 100_000
        far.sendall(b"answer")
        assert read(near, 6) == b"answer"
        far.close()
        assert near.recv(1) == b""
    assert proxies.touched_bytes() == {A_TO_B: 0, B_TO_A: 0}


def test_a_cut_holds_bytes_and_ends_until_the_heal(ends):
    _, b, ports, proxies = ends
    with dial(ports[A_TO_B]) as near, b.take() as far:
        proxies.hold([A_TO_B, B_TO_A])
        near.sendall(b"held")
        far.sendall(b"back")
        assert hears_nothing(far)
        assert hears_nothing(near)
        near.close()
        assert hears_nothing(far)
        assert proxies.touched_bytes() == {A_TO_B: 4, B_TO_A: 4}
        proxies.heal()
        assert read(far, 4) == b"held"
        assert far.recv(1) == b""


def test_new_connections_hang_while_cut_and_are_taken_after_it(ends):
    _, b, ports, proxies = ends
    proxies.hold([A_TO_B])
    with socket.socket() as late:
        late.settimeout(SILENT_S)
        with pytest.raises(TimeoutError):
            late.connect((HOST, ports[A_TO_B]))
    with socket.socket() as later:
        later.setblocking(False)
        later.connect_ex((HOST, ports[A_TO_B]))
        proxies.heal()
        far = b.take()
        later.settimeout(5)
        far.sendall(b"!")
        assert later.recv(1) == b"!"
        far.close()


def test_one_way_means_one_way_whoever_dialled(ends):
    a, b, ports, proxies = ends
    with (
        dial(ports[A_TO_B]) as ours, b.take() as theirs,
        dial(ports[B_TO_A]) as back, a.take() as home,
    ):  # fmt: skip
        proxies.hold([A_TO_B])
        ours.sendall(b"1")  # a says, on the connection a opened
        home.sendall(b"2")  # a says, on the connection b opened
        assert hears_nothing(theirs)
        assert hears_nothing(back)
        theirs.sendall(b"3")
        back.sendall(b"4")
        assert ours.recv(1) == b"3"
        assert home.recv(1) == b"4"
        assert proxies.touched_bytes() == {A_TO_B: 2, B_TO_A: 0}
        proxies.heal()
        assert theirs.recv(1) == b"1"
        assert back.recv(1) == b"2"


def test_healing_with_a_reset_breaks_what_was_held(ends):
    _, b, ports, proxies = ends
    with dial(ports[A_TO_B]) as near, b.take() as far:
        proxies.hold([A_TO_B])
        near.sendall(b"lost")
        wait_until(lambda: proxies.touched_bytes()[A_TO_B] == 4, "it was held", 5)
        proxies.heal(is_reset=True)
        assert far.recv(4) in (b"", b"lost")
        assert near.recv(1) == b""


def test_delay_keeps_order_and_takes_its_time(ends):
    _, b, ports, proxies = ends
    with dial(ports[A_TO_B]) as near, b.take() as far:
        proxies.delay([A_TO_B, B_TO_A], delay_ms=100, jitter_ms=50)
        begin = time.monotonic()
        for number in range(20):
            near.sendall(b"%02d" % number)
        got = read(far, 40)
        assert got == b"".join(b"%02d" % number for number in range(20))
        assert time.monotonic() - begin >= 0.05
        assert proxies.touched_bytes()[A_TO_B] == 40
        proxies.heal()
        near.sendall(b"now")
        assert read(far, 3) == b"now"
        assert proxies.touched_bytes()[A_TO_B] == 40


def test_a_far_end_that_is_gone_refuses_through_the_proxy_too(ends):
    _, b, ports, proxies = ends
    with dial(ports[A_TO_B]) as near, b.take() as far:
        b.listener.close()
        far.close()
        assert near.recv(1) == b""
        wait_until(lambda: is_refused(ports[A_TO_B]), "refused", 5)
        proxies.hold([A_TO_B])
        with pytest.raises(TimeoutError):
            socket.create_connection((HOST, ports[A_TO_B]), SILENT_S)
        proxies.heal()
        assert is_refused(ports[A_TO_B])
        again = End(b.port)
        wait_until(lambda: is_accepted(ports[A_TO_B]), "taken again", 5)
        again.listener.close()
