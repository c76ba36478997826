"""Dead letters are grouped and sent back over the HTTP API, in classic and quorum queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.typed import ctl
from tests.nodes import Node, wait_until
from tests.wire.redriving import Dead, asked_by, kept
from tests.wire.test_super_streams import reason

KINDS = ("classic", "quorum")
Make = Callable[..., Dead]


@pytest.fixture
def make(node: Node, channel: BlockingChannel, name: str) -> Iterator[Make]:
    made: list[Dead] = []

    def new(kind: str, **settings: object) -> Dead:
        made.append(Dead(node, channel, name, kind, **settings))
        return made[-1]

    yield new
    for each in made:
        each.end()


def died(make: Make, kind: str, why: str) -> Dead:
    """Two messages that died for a reason."""
    settings: dict[str, dict[str, object]] = {
        "rejected": {},
        "expired": {"x_message_ttl": 1},
        "maxlen": {"x_max_length": 1},
        "delivery_limit": {"x_delivery_limit": 0},
    }
    dead = make(kind, **settings[why])
    dead.publish("one", "two", headers={"of": "mine"}, message_id="7")
    if why == "rejected":
        dead.reject(2)
    elif why == "maxlen":
        dead.publish("three")
    elif why == "delivery_limit":
        for _ in range(2):
            method, _, _ = dead.channel.basic_get(dead.work)
            dead.channel.basic_nack(method.delivery_tag, requeue=True)
    if why == "maxlen":
        dead.arrived(2)
        dead.channel.queue_purge(dead.work)
        return dead
    dead.arrived(2)
    return dead


@pytest.mark.parametrize(
    ("kind", "why"),
    [(kind, why) for kind in KINDS for why in ("rejected", "expired", "maxlen")]
    + [("quorum", "delivery_limit")],
)
def test_each_reason_is_a_group_and_goes_back_to_where_it_was_published(
    make: Make, kind: str, why: str
) -> None:
    dead = died(make, kind, why)
    [group] = dead.groups()
    assert (group["reason"], group["queue"], group["exchange"]) == (why, dead.work, dead.origin)
    told = dead.node.api("GET", f"{dead.path}/why")
    assert (told["kind"], told["acts"][0]["label"]) == ("dead_letters", "Browse")
    assert f"2 messages of queue '{dead.work}': {why}" in told["proof"][0]
    assert dead.node.api("GET", f"/queues/%2F/{dead.work}/why")["kind"] == "empty"
    assert (group["messages"], group["bytes"], group["routing_keys"]) == (2, 6, ["a.key"])
    assert group["first_seen"] <= group["last_seen"] < group["first_seen"] + 60_000
    assert group["first_seen"] > 1_700_000_000_000
    [way] = dead.plan()["targets"]
    assert way == {
        "exchange": dead.origin, "routing_key": "a.key", "queues": [dead.work], "messages": 2
    }  # fmt: skip
    dead.channel.queue_unbind(dead.work, dead.origin, "a.key")
    back = f"{dead.name}.back"
    dead.declare(back)
    dead.channel.queue_bind(back, dead.origin, "a.key")
    ended = dead.redrive()
    assert (ended["state"], ended["sent"], ended["total"], ended["kept"]) == ("done", 2, 2, [])
    assert dead.take(back) == [
        ("one", {"of": "mine", "x-redrive-count": 1}),
        ("two", {"of": "mine", "x-redrive-count": 1}),
    ]
    assert dead.count(dead.dead) == 0
    dead.channel.queue_delete(back)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_found_part_by_part(make: Make, kind: str) -> None:
    dead = make(kind, x_message_ttl=1)
    dead.publish(*[str(number) for number in range(300)])
    dead.arrived(300)
    parts, after = [], ""
    while after is not None:
        part = dead.node.api("GET", f"{dead.path}/dead-letters?count=100&after={after}")
        parts.append(part["looked"])
        after = part["next"]
        dead.take_one(dead.dead)  # what leaves the queue meanwhile shifts nothing
    assert sum(parts) == 300
    assert all(100 <= looked < 300 for looked in parts[:-1])
    for query, text in (
        ("count=0", "from 1 to"),
        ("after=x", "token"),
        ("death=x", "first or last"),
    ):
        code, told = reason(dead.node, "GET", f"{dead.path}/dead-letters?{query}")
        assert (code, text in told) == (400, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_changes_nothing_and_says_what_could_not_go(make: Make, kind: str) -> None:
    dead = died(make, kind, "rejected")
    dead.channel.basic_publish(dead.dlx, "", b"no dead letter")
    dead.arrived(3)
    plan = dead.plan()
    assert (plan["would_send"], plan["looked"], plan["complete"]) == (2, 3, True)
    assert kept(plan) == {"no_dead_letter": 1}
    assert dead.node.api("GET", f"{dead.path}/dead-letters")["others"] == 1
    method, _, body = dead.channel.basic_get(dead.dead)
    assert (method.redelivered, body) == (False, b"one"), "nobody took it"
    dead.channel.basic_nack(method.delivery_tag, requeue=True)
    dead.arrived(3)


def test_what_is_on_disk_is_looked_at_and_goes_back(make: Make) -> None:
    """A lazy queue has numbers of its messages in memory, and no headers."""
    dead = make("classic", x_message_ttl=1)
    node = dead.node
    lazy = {"pattern": f"^{dead.dead}$", "definition": {"queue-mode": "lazy"}, "apply-to": "queues"}
    node.api("PUT", f"/policies/%2F/{dead.dead}", lazy)
    for _ in range(40):
        dead.publish("x" * 20_000)
    dead.arrived(40)
    paged = "messages_paged_out"
    wait_until(lambda: node.api("GET", dead.path)[paged] > 20, "most are on disk only")
    [group] = dead.groups()
    assert (group["messages"], group["bytes"]) == (40, 800_000)
    dead.channel.queue_unbind(dead.work, dead.origin, "a.key")
    assert kept(dead.plan()) == {"unroutable": 40}
    assert node.api("GET", dead.path)[paged] > 20, "looking leaves them there"
    node.api("DELETE", f"/policies/%2F/{dead.dead}")
    back = f"{dead.name}.back"
    dead.declare(back)
    assert dead.redrive(target={"to": "queue", "queue": back})["sent"] == 40
    assert {body for body, _ in dead.take(back)} == {"x" * 20_000}
    dead.channel.queue_delete(back)


@pytest.mark.parametrize("kind", KINDS)
def test_what_reaches_no_queue_stays_in_its_place(make: Make, kind: str) -> None:
    dead = make(kind)
    dead.publish("one")
    dead.channel.queue_bind(dead.work, dead.origin, "other")
    dead.publish("two", key="other")
    dead.publish("three")
    dead.reject(3)
    dead.arrived(3)
    dead.channel.queue_unbind(dead.work, dead.origin, "a.key")
    assert kept(dead.plan()) == {"unroutable": 2}
    ended = dead.redrive()
    assert (ended["state"], ended["sent"], kept(ended)) == ("done", 1, {"unroutable": 2})
    assert "would reach no queue" in str(ended["kept"])
    assert [body for body, _ in dead.take(dead.dead)] == ["one", "three"]
    assert [body for body, _ in dead.take(dead.work)] == ["two"]


def test_an_exchange_that_is_gone_keeps_them(make: Make) -> None:
    dead = died(make, "classic", "rejected")
    dead.channel.exchange_delete(dead.origin)
    assert kept(dead.plan()) == kept(dead.redrive()) == {"no_exchange": 2}
    assert dead.redrive(target={"to": "death_queue"})["sent"] == 2
    assert dead.count(dead.work) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_selected_and_the_others_stay_in_order(make: Make, kind: str) -> None:
    dead = make(kind, x_max_length=3)
    dead.publish("r1", "r2", "r3")
    dead.reject(1)
    dead.publish("r4", "r5")  # r2 is dropped from the head
    dead.reject(1)
    dead.arrived(3)
    reasons = {group["reason"]: group["messages"] for group in dead.groups()}
    assert reasons == {"rejected": 2, "maxlen": 1}
    dead.channel.queue_purge(dead.work)
    plan = dead.plan(selection={"reason": "maxlen"})
    assert (plan["would_send"], kept(plan)) == (1, {"not_selected": 2})
    ended = dead.redrive(selection={"reason": "maxlen"})
    assert (ended["sent"], kept(ended)) == (1, {"not_selected": 2})
    assert [body for body, _ in dead.take(dead.work)] == ["r2"]
    assert [body for body, _ in dead.take(dead.dead)] == ["r1", "r3"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_exceptions_messages_go_back(
    make: Make, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = make(kind)
    dead.publish("a1", "a2", headers={"x-exception-message": "SoldOut\nat Shop.java:7"})
    dead.publish("b1", headers={"MT-Fault-ExceptionType": "Timeout"})
    dead.publish("c1")
    dead.reject(4)
    dead.arrived(4)
    counts = {each["exception"]: each["messages"] for each in dead.groups()}
    assert counts == {"SoldOut": 2, "Timeout": 1, None: 1}
    for named, count in (("SoldOut", 2), ("", 1), ("Shop", 0)):
        assert dead.plan(selection={"exception": named})["would_send"] == count
    code, told = reason(
        dead.node, "POST", f"{dead.path}/redrive", {"selection": {"exception": "(others)"}}
    )
    assert (code, "select by reason and queue" in told) == (400, True)
    assert ctl(dead.node, "-q", "list_dead_letters", dead.dead) == 0
    assert "SoldOut" in capsys.readouterr().out.splitlines()[1]
    assert ctl(dead.node, "-q", "redrive", dead.dead, "--exception", "SoldOut") == 0
    assert capsys.readouterr().out.splitlines()[0] == "2 messages have gone back"
    assert [body for body, _ in dead.take(dead.work)] == ["a1", "a2"]
    assert dead.count(dead.dead) == 2


def test_groups_are_by_the_last_death_where_that_is_asked(make: Make) -> None:
    dead = make("classic")
    dead.publish("one")
    last = f"{dead.name}.last"
    dead.declare(last)
    again = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": last, "x-message-ttl": 1}
    passing = f"{dead.name}.passing"
    dead.declare(passing, **again)
    dead.channel.queue_unbind(dead.dead, dead.dlx)
    dead.channel.queue_bind(passing, dead.dlx)
    dead.reject(1)
    wait_until(lambda: dead.count(last) == 1, "it has died twice")
    where = f"/queues/%2F/{last}/dead-letters"
    for which, queue in (("first", dead.work), ("last", passing)):
        (group,) = dead.node.api("GET", f"{where}?death={which}")["groups"]
        assert group["queue"] == queue
    for each in (last, passing):
        dead.channel.queue_delete(each)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_found_behind_more_than_are_taken_at_a_time(make: Make, kind: str) -> None:
    dead = make(kind)
    dead.publish(*["early"] * 130, expiration="1")
    dead.arrived(130)
    dead.publish("late")
    dead.reject(1)
    dead.arrived(131)
    ended = dead.redrive(selection={"reason": "rejected"})
    assert (ended["sent"], kept(ended), ended["text"]) == (1, {"not_selected": 130}, "")
    assert dead.count(dead.dead) == 130


def test_the_first_so_many_and_a_time(make: Make) -> None:
    dead = make("classic")
    dead.publish(*"abcde")
    dead.reject(5)
    dead.arrived(5)
    late = dead.groups()[0]["last_seen"] + 1
    assert kept(dead.plan(selection={"seen_from_ms": late})) == {"not_selected": 5}
    assert dead.plan(selection={"seen_until_ms": late})["would_send"] == 5
    assert dead.plan(selection={"count": 2})["would_send"] == 2
    assert dead.redrive(selection={"count": 2})["sent"] == 2
    assert [body for body, _ in dead.take(dead.work)] == ["a", "b"]
    assert [body for body, _ in dead.take(dead.dead)] == ["c", "d", "e"]


@pytest.mark.parametrize("kind", KINDS)
def test_elsewhere_to_a_queue_or_an_exchange(make: Make, kind: str) -> None:
    dead = died(make, kind, "rejected")
    aside = f"{dead.name}.aside"
    dead.declare(aside)
    one = dead.redrive(selection={"count": 1}, target={"to": "queue", "queue": aside})
    to = {"to": "exchange", "exchange": "amq.topic", "routing_key": "some.where"}
    assert kept(dead.plan(target=to)) == {"unroutable": 1}
    dead.channel.queue_bind(aside, "amq.topic", "some.*")
    two = dead.redrive(target=to)
    assert (one["sent"], two["sent"]) == (1, 1)
    assert [body for body, _ in dead.take(aside)] == ["one", "two"]
    dead.channel.queue_delete(aside)


def test_a_message_that_dies_again_and_again_is_seen_and_can_be_limited(make: Make) -> None:
    dead = died(make, "classic", "rejected")
    for times in (1, 2):
        assert dead.redrive()["sent"] == 2
        dead.reject(2)
        dead.arrived(2)
        assert dead.groups()[0]["redrives"] == times
    ended = dead.redrive(selection={"max_redrives": 2})
    assert (ended["sent"], kept(ended)) == (0, {"looped": 2})
    assert dead.redrive(selection={"max_redrives": 3})["sent"] == 2
    assert [headers["x-redrive-count"] for _, headers in dead.take(dead.work)] == [3, 3]


def test_what_would_come_back_at_once_stays(make: Make) -> None:
    dead = died(make, "classic", "rejected")
    dead.channel.queue_bind(dead.dead, dead.origin, "a.key")
    assert kept(dead.redrive()) == {"comes_back": 2}
    assert dead.count(dead.dead) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_it_keeps_to_a_rate_and_can_be_stopped(make: Make, kind: str) -> None:
    dead = make(kind)
    dead.publish(*[str(number) for number in range(40)])
    dead.reject(40)
    dead.arrived(40)
    began = time.monotonic()
    slow = dead.begin(rate=5)
    code, text = reason(dead.node, "POST", f"{dead.path}/redrive", {})
    assert (code, "is being redriven already" in text) == (400, True)
    wait_until(lambda: dead.node.api("GET", f"/redrives/{slow}")["sent"] >= 3, "it goes")
    (holder,) = dead.node.api("GET", f"{dead.path}/holders")
    assert (holder["kind"], holder["id"], holder["user"]) == ("redrive", slow, "guest")
    assert 1 <= holder["messages_unacknowledged"] <= 37
    assert 0 < holder["oldest_ms"] <= (time.monotonic() - began) * 1000
    beside = dead.node.api("GET", f"{dead.path}/why")["also"]
    assert "A redrive by guest on " in next(e["text"] for e in beside if e["kind"] == "redrive")
    dead.node.api("DELETE", f"/redrives/{slow}")
    ended = dead.ended(slow)
    took = time.monotonic() - began
    assert (ended["state"], ended["doubted"]) == ("stopped", 0)
    assert 3 <= ended["sent"] <= 5 * took + 1
    assert "stopped by guest" in ended["text"]
    assert (ended["held"], dead.node.api("GET", f"{dead.path}/holders")) == (0, [])
    assert dead.count(dead.dead) == 40 - ended["sent"]
    assert dead.count(dead.work) == ended["sent"]
    assert dead.redrive()["sent"] == 40 - ended["sent"]
    bodies = [int(body) for body, _ in dead.take(dead.work)]
    assert bodies == list(range(40)), "each once, in order"


def test_a_target_that_refuses_keeps_its_messages(make: Make) -> None:
    dead = died(make, "quorum", "rejected")
    full = f"{dead.name}.full"
    dead.declare(full, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    dead.channel.basic_publish("", full, b"it is full")
    ended = dead.redrive(target={"to": "queue", "queue": full})
    assert ended["sent"] + kept(ended).get("refused", 0) == 2
    assert kept(ended)["refused"] >= 1
    assert dead.count(dead.dead) == kept(ended)["refused"]
    dead.channel.queue_delete(full)


def test_a_delivery_limit_drops_no_message(make: Make) -> None:
    """What stays comes back to its queue; where that is once too often it would die there."""
    dead = died(make, "quorum", "rejected")
    dead.node.api(
        "PUT",
        f"/policies/%2F/{dead.dead}",
        {"pattern": f"^{dead.dead}$", "definition": {"delivery-limit": 1}, "apply-to": "queues"},
    )
    unselected = {"selection": {"reason": "expired"}}

    def limited() -> bool:
        return bool(dead.plan(**unselected)["delivery_limit"] == 1)

    wait_until(limited, "the policy acts")
    assert dead.redrive(**unselected)["state"] == "done"
    wait_until(lambda: dead.plan(**unselected)["at_delivery_limit"] == 2, "both have come back")
    ended = dead.redrive(**unselected)
    assert (ended["state"], "delivery limit of 1" in ended["text"]) == ("failed", True)
    assert dead.count(dead.dead) == 2
    dead.node.api("DELETE", f"/policies/%2F/{dead.dead}")


@pytest.fixture
def clerk(node: Node) -> Iterator[str]:
    """A policymaker with few rights."""
    user = "redrive.clerk"
    node.api("PUT", f"/users/{user}", {"password": user, "tags": "policymaker"})
    yield user
    node.api("DELETE", f"/users/{user}")


def permit(node: Node, user: str, read: str, write: str) -> None:
    body = {"configure": "", "read": read, "write": write}
    node.api("PUT", f"/permissions/%2F/{user}", body)


def test_rights_are_those_of_get_and_publish(make: Make, clerk: str) -> None:
    dead = died(make, "classic", "rejected")
    node = dead.node

    def ask(method: str, path: str, body: object = None) -> tuple[int, Any]:
        return asked_by(node, clerk, method, dead.path + path, body)

    permit(node, clerk, "^other", ".*")
    for method, path in (("GET", "/dead-letters"), ("POST", "/redrive")):
        code, told = ask(method, path, {} if method == "POST" else None)
        assert (code, f"read access to queue '{dead.dead}'" in told["reason"]) == (403, True)
    permit(node, clerk, ".*", "^other")
    assert ask("GET", "/dead-letters")[0] == 200
    code, told = ask("POST", "/redrive", {"target": {"to": "queue", "queue": dead.work}})
    assert (code, "write access to exchange 'amq.default'" in told["reason"]) == (403, True)
    code, told = ask("POST", "/redrive", {"dry_run": True})
    assert (code, kept(told)) == (200, {"forbidden": 2})
    code, told = ask("POST", "/redrive", {})
    assert (code, kept(dead.ended(told["id"]))) == (202, {"forbidden": 2})
    assert dead.count(dead.dead) == 2
    node.api("PUT", f"/users/{clerk}", {"password": clerk, "tags": "management"})
    assert ask("POST", "/redrive", {"dry_run": True})[1]["reason"] == "User not policymaker"


def test_topic_permissions_hold(make: Make, clerk: str) -> None:
    dead = make("classic")
    dead.channel.queue_bind(dead.work, "amq.topic", "#")
    for key in ("open.x", "shut.x"):
        dead.channel.basic_publish("amq.topic", key, key.encode())
    dead.reject(2)
    dead.arrived(2)
    permit(dead.node, clerk, ".*", ".*")
    rule = {"exchange": "amq.topic", "write": "^open", "read": ".*"}
    dead.node.api("PUT", f"/topic-permissions/%2F/{clerk}", rule)
    code, told = asked_by(dead.node, clerk, "POST", f"{dead.path}/redrive", {})
    assert code == 202
    ended = dead.ended(told["id"])
    assert (ended["sent"], kept(ended)) == (1, {"forbidden": 1})
    assert [body for body, _ in dead.take(dead.dead)] == ["shut.x"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"rate": 0}, "rate must be a number above 0"),
        ({"rate": True}, "rate must be a number above 0"),
        ({"speed": 1}, "unknown key: speed"),
        ({"selection": {"count": 0}}, "count must be a number from 1"),
        ({"selection": {"why": "x"}}, "unknown key of selection: why"),
        ({"selection": {"death": "third"}}, "selection: "),
        ({"target": {"to": "moon"}}, "to is one of origin"),
        ({"target": {"to": "queue", "queue": "no.such"}}, "no queue 'no.such'"),
        ({"target": {"to": "exchange", "exchange": "no.such"}}, "no exchange 'no.such'"),
        ({"dry_run": "perhaps"}, "not_boolean: dry_run"),
    ],
)
def test_bad_input_says_what_is_wrong(node: Node, body: object, text: str) -> None:
    node.api("PUT", "/queues/%2F/redrive.bad", {"durable": True})
    code, told = reason(node, "POST", "/queues/%2F/redrive.bad/redrive", body)
    assert (code, text in told) == (400, True), told
    node.api("DELETE", "/queues/%2F/redrive.bad")


def test_a_stream_keeps_its_messages(node: Node) -> None:
    arguments = {"x-queue-type": "stream"}
    node.api("PUT", "/queues/%2F/redrive.stream", {"durable": True, "arguments": arguments})
    code, told = reason(node, "GET", "/queues/%2F/redrive.stream/dead-letters")
    assert (code, "warrenmq pipeline redrive" in told) == (400, True)
    node.api("DELETE", "/queues/%2F/redrive.stream")
    assert reason(node, "GET", "/redrives/nosuch")[0] == 404
    assert reason(node, "GET", "/queues/%2F/redrive.stream/dead-letters")[0] == 404


def test_consumers_that_get_all_messages_stand_in_its_way(make: Make) -> None:
    dead = died(make, "classic", "rejected")
    dead.channel.basic_qos(prefetch_count=1)
    dead.channel.basic_consume(dead.dead, lambda *_: None, exclusive=True, consumer_tag="mine")
    ended = dead.redrive()
    assert (ended["state"], "exclusive" in ended["text"]) == ("failed", True)
    dead.channel.basic_cancel("mine")
    alone = f"{dead.name}.alone"
    dead.declare(alone, **{"x-single-active-consumer": True})
    dead.channel.basic_consume(alone, lambda *_: None)
    id_ = dead.node.api("POST", f"/queues/%2F/{alone}/redrive", {})["id"]
    assert "x-single-active-consumer: stop its consumers first" in dead.ended(id_)["text"]
    dead.channel.queue_delete(alone)


def test_it_waits_while_publishers_are_blocked(make: Make) -> None:
    dead = died(make, "classic", "rejected")
    limit = "/node/vm_memory_high_watermark"
    dead.node.api("POST", limit, {"relative": 0})
    try:
        id_ = dead.begin()
        wait_until(lambda: "alarm" in dead.node.api("GET", f"/redrives/{id_}")["text"], "it waits")
        assert dead.node.api("GET", f"/redrives/{id_}")["sent"] == 0
    finally:
        dead.node.api("POST", limit, {"relative": 0.4})
    ended = dead.ended(id_)
    assert (ended["state"], ended["sent"], ended["text"]) == ("done", 2, "")


def test_the_command_says_what_it_will_do_and_does_it(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = died(make, "classic", "rejected")
    dead.channel.basic_publish(dead.dlx, "", b"other")
    dead.arrived(3)
    assert ctl(dead.node, "-q", "list_dead_letters", dead.dead, "reason", "queue", "messages") == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["rejected", dead.work, "2"]
    assert ctl(dead.node, "-q", "redrive", dead.dead, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 messages would go back:",
        f"  2 to exchange '{dead.origin}' with key 'a.key', into {dead.work}",
        "1 messages would stay: they are no dead letters: they have no x-death",
    ]
    assert ctl(dead.node, "-q", "redrive", dead.dead, "--number", "1") == 0
    assert capsys.readouterr().out.splitlines()[0] == "1 messages have gone back"
    assert ctl(dead.node, "redrive", dead.dead, "--to-queue", dead.dead) == 69
    assert "would come back into the same queue" in capsys.readouterr().err


def test_a_thousand_go_back_in_order(make: Make) -> None:
    dead = make("classic", x_message_ttl=1)
    dead.publish(*[str(number) for number in range(1_000)])
    dead.arrived(1_000)
    aside = f"{dead.name}.aside"
    dead.declare(aside)
    ended = dead.redrive(target={"to": "queue", "queue": aside})
    assert (ended["sent"], ended["doubted"]) == (1_000, 0)
    assert [int(body) for body, _ in dead.take(aside)] == list(range(1_000))
    dead.channel.queue_delete(aside)
