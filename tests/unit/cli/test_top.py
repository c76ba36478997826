"""`warrenmq top`: what keys change, and what a frame shows."""

from __future__ import annotations

import io
from urllib.parse import parse_qs, urlsplit

import pytest
from rich.console import Console

from broker.cli.ctl.api import EXIT_NO_PERMISSION, EXIT_UNAVAILABLE, Api, CtlError
from broker.cli.top.frame import clean, frame, rows, size
from broker.cli.top.samples import Sample, Sampler
from broker.cli.top.view import QUEUES, View, on_key

NODE = {
    "name": "rabbit@node1",
    "running": True,
    "mem_used": 300 * 2**20,
    "mem_limit": 2**30,
    "mem_alarm": False,
    "disk_free": 5 * 2**30,
    "disk_free_limit": 50_000_000,
    "disk_free_alarm": False,
    "sockets_used": 7,
    "fd_used": 40,
    "uptime": 93_784_000,
    "event_loop": {"longest_turn_ms": 12.0},
}
OVERVIEW = {
    "product_version": "0.2.0",
    "cluster_name": "shop",
    "message_stats": {"publish_details": {"rate": 1234.5}, "ack_details": {"rate": 7.0}},
    "object_totals": {"queues": 10_000, "connections": 3, "channels": 4, "consumers": 2},
    "queue_totals": {"messages_ready": 42, "messages_unacknowledged": 1},
}
BUSY = {
    "name": "orders",
    "vhost": "/",
    "type": "quorum",
    "state": "running",
    "leader": "rabbit@node1",
    "messages_ready": 1_000_000,
    "messages_unacknowledged": 5,
    "consumers": 2,
    "message_stats": {"publish_details": {"rate": 900.0}, "deliver_get_details": {"rate": 800.0}},
}
SAMPLE = Sample("http://127.0.0.1:15672", OVERVIEW, [NODE], [BUSY], 1, {"running": 2, "flow": 1})


def keys(view: View, pressed: str) -> View:
    for key in pressed:
        view = on_key(view, key)
    return view


def asked(view: View) -> dict[str, str]:
    query = parse_qs(urlsplit(view.path(20)).query)
    return {key: values[0] for key, values in query.items()}


def drawn(sample: Sample, view: View | None = None, width: int = 130, height: int = 40) -> str:
    out = io.StringIO()
    picture = frame(sample, view or View(), width, height, "12:00:00")
    Console(file=out, width=width, height=height).print(picture)
    return out.getvalue()


def test_the_largest_rate_comes_first_and_s_goes_through_the_columns():
    view = View()
    assert asked(view)["sort"] == "message_stats.publish_details.rate"
    assert asked(view)["sort_reverse"] == "true"
    seen = []
    for _ in QUEUES:
        seen.append(view.sorted_by.title)
        view = keys(view, "s")
    assert seen == ["in/s", "out/s", "ready", "unacked", "consumers", "name"]
    assert view.sorted_by.title == "in/s"


def test_names_are_sorted_from_a_and_r_turns_any_order_round():
    view = keys(View(), "sssss")
    assert (asked(view)["sort"], asked(view)["sort_reverse"]) == ("name", "false")
    assert asked(keys(view, "r"))["sort_reverse"] == "true"
    assert asked(keys(view, "rs"))["sort_reverse"] == "true"  # in/s again, as at the start


def test_a_pattern_is_typed_corrected_taken_and_lifted():
    view = keys(View(), "/^ordrs\x7f\x7fers")
    assert view.typed == "^orders"
    assert "name" not in asked(view)
    view = keys(view, "\r")
    assert (asked(view)["name"], asked(view)["use_regex"]) == ("^orders", "true")
    assert keys(view, "/x\x1b").pattern == "^orders"
    assert keys(view, "\x1b").pattern == ""


def test_keys_of_the_list_are_letters_while_a_pattern_is_typed():
    view = keys(View(), "/qsr")
    assert (view.typed, view.is_over) == ("qsr", False)
    assert keys(View(), "q").is_over


def test_tab_shows_connections_and_queues_in_turn():
    view = keys(View(), "s\t")
    assert urlsplit(view.path(20)).path == "/api/connections"
    assert asked(view)["sort"] == "recv_oct_details.rate"
    assert urlsplit(keys(view, "\t").path(20)).path == "/api/queues"


def test_a_frame_shows_nodes_rates_queues_and_who_is_held():
    text = drawn(SAMPLE)
    assert "shop" in text
    assert "published 1,234/s" in text
    assert "publishers held: 1 in flow" in text
    assert "300M" in text
    assert "1d 2h" in text
    line = next(each for each in text.splitlines() if each.startswith("orders"))
    assert line.split() == [
        "orders",
        "900",
        "800",
        "1,000,000",
        "5",
        "2",
        "rabbit@node1",
        "/",
        "quorum",
        "running",
    ]


def test_alarms_and_nodes_that_do_not_answer_stand_above_the_lists():
    ill = {**NODE, "mem_alarm": True, "mem_used": 2**30, "disk_free_alarm": True}
    gone = {"name": "rabbit@node2", "running": False}
    text = drawn(SAMPLE._replace(nodes=[ill, gone]))
    assert "rabbit@node1: memory alarm, 1.0G of 1.0G: publishers are blocked" in text
    assert "rabbit@node1: disk alarm, 5.0G free" in text
    assert "rabbit@node2 does not answer" in text


@pytest.mark.parametrize(("width", "height"), [(130, 40), (80, 24), (40, 12), (20, 8)])
def test_a_frame_fits_its_terminal(width: int, height: int):
    many = SAMPLE._replace(items=[{**BUSY, "name": f"queue-{'x' * 300}"}] * 500)
    lines = drawn(many, width=width, height=height).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_the_room_for_rows_is_what_nodes_and_alarms_leave():
    assert rows(Sample(), 24) == 18
    assert rows(SAMPLE._replace(nodes=[NODE] * 3), 24) == 15
    assert rows(SAMPLE._replace(nodes=[NODE] * 99), 24) == 1


def test_no_name_of_a_client_reaches_the_terminal_raw():
    hostile = {**BUSY, "name": "a\x1b[2J\x07\r\n[bold]b[/bold]\x9b1m"}
    text = drawn(SAMPLE._replace(items=[hostile]))
    assert "a?[2J???[bold]b[/bold]?1m" in text
    assert clean("ü") == "ü"


def test_sizes_have_one_unit():
    assert [size(n) for n in (0, 999, 1536, 20 * 2**20, 1.5 * 2**40)] == [
        "0",
        "999",
        "1.5K",
        "20M",
        "1.5T",
    ]


class _Answers(Api):
    """An API that answers from a table; what is not there fails."""

    def __init__(self, url: str, failure: CtlError | None = None) -> None:
        super().__init__(url, "guest", "guest", 1.0)
        self.failure = failure
        self.paths: list[str] = []

    def get(self, path: str) -> object:
        self.paths.append(path)
        if self.failure is not None:
            raise self.failure
        if path.startswith("/api/overview"):
            return OVERVIEW
        if path.startswith("/api/nodes"):
            return [NODE]
        if path.startswith("/api/connections?columns=state"):
            return [{"state": "running"}, {"state": "flow"}]
        return {"items": [BUSY], "filtered_count": 1}


def test_the_next_node_is_asked_when_one_is_gone_and_stays_the_first():
    gone = _Answers("http://one", CtlError(EXIT_UNAVAILABLE, "unable to reach http://one"))
    there = _Answers("http://two")
    sampler = Sampler([gone, there])
    sample = sampler.sample(View(), 10)
    assert (sample.url, sample.problem, sample.states) == (
        "http://two",
        "",
        {"running": 1, "flow": 1},
    )
    sampler.sample(View(), 10)
    assert len(gone.paths) == 1


def test_a_frame_says_so_when_no_node_answers():
    gone = _Answers("http://one", CtlError(EXIT_UNAVAILABLE, "unable to reach http://one"))
    text = drawn(Sampler([gone]).sample(View(), 10))
    assert "no node answers" in text
    assert "unable to reach http://one" in text


def test_a_user_who_may_not_see_the_cluster_is_told_at_once():
    refused = _Answers("http://one", CtlError(EXIT_NO_PERMISSION, "Not monitor user"))
    with pytest.raises(CtlError, match="Not monitor user"):
        Sampler([refused, _Answers("http://two")]).sample(View(), 10)
