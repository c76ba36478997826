"""The single active consumer in listings (docs/rabbitmq-behaviour.md 1.8)."""

from __future__ import annotations

from typing import Any

from broker.management.report import CHANNEL_ID, Report, Served
from broker.management.resources import consumers
from broker.metadata.records import Queue
from broker.ports import QueueStat

SINGLE = Queue(
    "/", "q", 7, "classic", True, False, None, {"x-single-active-consumer": True}, "n", ("n",)
)


def item(channel_id: str, tag: str, queue: str = "q") -> dict[str, Any]:
    return {
        CHANNEL_ID: channel_id,
        "consumer_tag": tag,
        "active": True,
        "activity_status": "up",
        "queue": {"name": queue, "vhost": "/"},
    }


def shown(active: tuple[str, str] | None) -> list[tuple[str, bool, str]]:
    stat = QueueStat(0, 0, 2, 0, 0, "running", active)
    reports = [Report(served=[Served(7, 0, stat)])]
    found = consumers.told(
        [item("h1", "t"), item("h2", "t"), item("h3", "t", "other")],
        consumers.active_of(reports, [SINGLE]),
    )
    assert all(CHANNEL_ID not in each for each in found)
    return [(each["queue"]["name"], each["active"], each["activity_status"]) for each in found]


def test_one_is_active_and_the_others_wait() -> None:
    """Rows: 1.8 SAC"""
    assert shown(("h2", "t")) == [
        ("q", False, "waiting"),
        ("q", True, "single_active"),
        ("other", True, "up"),
    ]


def test_while_nobody_knows_none_is_called_active() -> None:
    assert shown(None)[:2] == [("q", False, "waiting"), ("q", False, "waiting")]
