"""Connection limits of a listener, and which connection is closed for a new one."""

from __future__ import annotations

import pytest

from broker.doors.admission import Admission, source

HERE, THERE, OPERATOR = "192.0.2.1", "192.0.2.2", "127.0.0.1"


class Socket:
    is_dropped = False

    def abort(self) -> None:
        self.is_dropped = True


def crowd(door: Admission, count: int, address: str = HERE) -> list[Socket]:
    sockets = [Socket() for _ in range(count)]
    for each in sockets:
        assert door.enter(each, address, 0)
    return sockets


def dropped(sockets: list[Socket]) -> list[int]:
    return [number for number, each in enumerate(sockets) if each.is_dropped]


def test_an_address_that_is_alone_has_all_places_and_pushes_out_its_oldest():
    door = Admission(5)
    sockets = crowd(door, 7)
    assert dropped(sockets) == [0, 1]
    assert len(door) == 5
    assert door.refused == 2


def test_who_fills_the_listener_never_pushes_out_another_address():
    door = Admission(5)
    honest = crowd(door, 2, THERE)
    attackers = crowd(door, 50)
    assert dropped(honest) == []
    assert len(dropped(attackers)) == 47


def test_a_newcomer_takes_the_place_of_who_holds_most():
    door = Admission(5)
    attackers = crowd(door, 5)
    honest = crowd(door, 2, THERE)
    assert dropped(honest) == []
    assert dropped(attackers) == [0, 1]


def test_who_is_at_work_gives_way_to_nobody():
    door = Admission(3)
    busy = crowd(door, 3)
    for each in busy:
        door.know(each, is_busy=True)
    assert not door.enter(Socket(), THERE, 0)
    assert door.refused == 1
    door.know(busy[1], is_busy=False)
    assert door.enter(Socket(), THERE, 0)
    assert dropped(busy) == [1]


def test_who_holds_most_and_is_at_work_pushes_out_nobody():
    door = Admission(3)
    for each in crowd(door, 2):
        door.know(each, is_busy=True)
    honest = crowd(door, 1, THERE)
    assert not door.enter(Socket(), HERE, 0)
    assert dropped(honest) == []


def test_this_machine_has_places_of_its_own():
    door = Admission(2, own=1)
    for each in crowd(door, 2):
        door.know(each, is_busy=True)
    assert not door.enter(Socket(), THERE, 0)
    assert door.enter(Socket(), OPERATOR, 0)


def test_a_place_that_was_left_is_free():
    door = Admission(1)
    (first,) = crowd(door, 1)
    door.leave(first)
    door.leave(first)
    second = crowd(door, 1)
    assert (dropped([first]), dropped(second), len(door)) == ([], [], 1)


def test_strangers_are_dropped_at_their_deadline_and_who_is_known_is_not():
    door = Admission(9, deadline_ms=10_000)
    stranger, known = crowd(door, 2)
    door.know(known, is_busy=False)
    door.tick(9_999)
    assert not stranger.is_dropped
    door.tick(10_000)
    assert (stranger.is_dropped, known.is_dropped, door.overdue) == (True, False, 1)


def test_refusals_are_told_once_a_second_with_their_number():
    door = Admission(1)
    crowd(door, 4)
    told = door.tick(0)
    assert told is not None
    assert (told.number, told.address) == (3, HERE)
    crowd(door, 2)
    assert door.tick(999) is None
    told = door.tick(1_000)
    assert told is not None
    assert told.number == 2
    assert door.tick(2_000) is None


@pytest.mark.parametrize(
    ("address", "counts_as"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("x:y", "x:y"),
    ],
)
def test_an_ipv6_client_is_known_by_the_network_it_chooses_addresses_from(address, counts_as):
    assert source(address) == counts_as
