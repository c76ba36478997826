"""The division of file descriptors."""

from __future__ import annotations

import pytest

from broker.doors import descriptors
from broker.doors.descriptors import shares

RABBITMQS = {10_000: 8_908, 20_000: 17_908, 65_536: 58_890}


@pytest.mark.parametrize("files_max", [320, 512, 1024, 4096, 65_536, 1 << 30])
def test_all_shares_together_are_never_more_than_there_are(files_max):
    found = shares(files_max)
    fixed = (
        descriptors.PROCESS
        + descriptors.STORE_BESIDE_TABLES
        + descriptors.LINKS
        + descriptors.OPERATORS
    )
    others = found.tables + found.management + found.strangers
    assert fixed + others + found.clients <= files_max
    assert min(found) >= 1


@pytest.mark.parametrize("files_max", [10_000, 20_000, 65_536])
def test_clients_have_as_many_as_with_rabbitmq_where_the_store_leaves_room(files_max):
    assert shares(files_max).clients == RABBITMQS[files_max]


def test_with_the_usual_limit_clients_have_what_the_reserves_leave():
    assert shares(1024) == (1024, 128, 32, 16, 736)


def test_of_too_few_one_client_is_let_in():
    assert shares(64).clients == 1
