"""Which policy applies, what it changes at once, and how two policies are merged."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata import commands
from broker.metadata.ha_policy import HaPolicy
from broker.metadata.machine import MetadataMachine
from broker.metadata.policies import UNSUPPORTED, Policy, merge
from tests.unit.metadata.cluster import BOOT_ONE, ONE, Asker, founded, refusal

QUORUM = {"x-queue-type": "quorum"}


def put(asker: Asker, name: str, definition: dict[str, object], **changes: object) -> object:
    fields: dict[str, object] = {"vhost": "/", "pattern": ".*"}
    return asker.ask(
        commands.SetPolicy(**{**fields, "name": name, "definition": definition, **changes})
    )


def clear(asker: Asker, name: str, **changes: object) -> object:
    return asker.ask(commands.ClearPolicy("/", name, **changes))


def applied(asker: Asker, queue: str) -> tuple[str | None, str | None, dict[str, object]]:
    catalogue = asker.machine.catalogue
    record = catalogue.queue("/", queue)
    user, operator = catalogue.policy_of(record), catalogue.operator_policy_of(record)
    return (
        user.name if user else None,
        operator.name if operator else None,
        dict(catalogue.effective_policy(record)),
    )


def on_exchange(asker: Asker, name: str) -> str | None:
    catalogue = asker.machine.catalogue
    policy = catalogue.policy_of(catalogue.exchange("/", name))
    return policy.name if policy else None


def two_queues() -> Asker:
    asker = founded()
    asker.queue("c")
    asker.queue("q", arguments=QUORUM)
    asker.machine.take_changes()
    return asker


# Which one


def test_the_pattern_is_searched_for_anywhere():
    """Rows: 1.12 policy matching"""
    asker = founded()
    for name in ("orders", "old.orders", "x"):
        asker.queue(name)
    put(asker, "any", {"max-length": 1}, pattern="order")
    put(asker, "start", {"max-length": 2}, pattern="^orders?$", priority=1)
    assert [applied(asker, name)[0] for name in ("orders", "old.orders", "x")] == [
        "start", "any", None,
    ]  # fmt: skip


def test_the_highest_priority_wins_and_of_equal_ones_the_first_name():
    """Rows: 1.12 policy matching"""
    asker = two_queues()
    for name, priority in (("m", 1), ("b", 1.5), ("a", 1.5), ("z", -3)):
        put(asker, name, {"max-length": 1}, priority=priority)
    seen = []
    while asker.machine.catalogue.policies():
        seen.append(applied(asker, "c")[0])
        assert clear(asker, seen[-1]) is True
    assert seen == ["a", "b", "m", "z"]


@pytest.mark.parametrize(
    ("apply_to", "on"),
    [
        ("all", {"c", "q", "x"}),
        ("queues", {"c", "q"}),
        ("classic_queues", {"c"}),
        ("quorum_queues", {"q"}),
        ("streams", set()),
        ("exchanges", {"x"}),
    ],
)
def test_apply_to(apply_to, on):
    """Rows: 1.12 policy matching"""
    asker = two_queues()
    asker.exchange("x")
    put(asker, "p", {"max-length": 1}, apply_to=apply_to)
    found = {name for name in ("c", "q") if applied(asker, name)[0] == "p"}
    assert found | ({"x"} if on_exchange(asker, "x") == "p" else set()) == on


# What a RabbitMQ 3.10.8 node showed for a classic queue, a quorum queue and an exchange, and since
# 3.12 or so: a leader locator is for all queues, in-memory limits are for quorum queues.
@pytest.mark.parametrize(
    ("definition", "classic", "quorum"),
    [
        ({"ha-mode": "all"}, True, False),
        ({"queue-mode": "lazy"}, True, False),
        ({"queue-master-locator": "random"}, True, False),
        ({"max-length": 3, "ha-mode": "all"}, True, False),
        ({"delivery-limit": 3}, False, True),
        ({"dead-letter-strategy": "at-least-once"}, False, True),
        ({"max-in-memory-length": 5}, False, True),
        ({"queue-leader-locator": "balanced"}, True, True),
        ({"message-ttl": 5}, True, True),
        ({"overflow": "reject-publish-dlx"}, True, True),
        ({"queue-version": 1}, True, True),
        ({"alternate-exchange": "z"}, True, True),
        ({"max-age": "7D"}, False, False),
    ],
)
def test_a_policy_with_a_key_its_type_does_not_know_leaves_the_queue_to_the_next(
    definition, classic, quorum
):
    """Rows: 1.12 applicability"""
    asker = two_queues()
    asker.exchange("x")
    for kind in (False, True):
        put(asker, "special", definition, priority=5, operator=kind)
        put(asker, "low", {"expires": 9}, priority=1, operator=kind)
    assert applied(asker, "c")[:2] == ("special" if classic else "low",) * 2
    assert applied(asker, "q")[:2] == ("special" if quorum else "low",) * 2
    assert on_exchange(asker, "x") == "special"


def test_other_vhosts_are_left_alone_and_a_deleted_one_takes_its_policies_along():
    asker = founded()
    asker.ask(commands.AddVhost("v"))
    asker.queue("q", vhost="v")
    put(asker, "p", {"max-length": 1})
    put(asker, "p", {"max-length": 2}, vhost="v")
    catalogue = asker.machine.catalogue
    assert catalogue.effective_policy(catalogue.queue("v", "q")) == {"max-length": 2}
    asker.ask(commands.DeleteVhost("v"))
    asker.ask(commands.AddVhost("v"))
    asker.queue("q", vhost="v")
    assert catalogue.policy_of(catalogue.queue("v", "q")) is None
    assert [policy.vhost for policy in catalogue.policies()] == ["/"]
    assert refusal(put(asker, "p", {"max-length": 1}, vhost="gone")) == (404, "no vhost 'gone'")


def test_an_expression_that_re2_does_not_take_applies_to_nothing():
    """Proposers refuse it; a log that has one all the same must not stop a node."""
    asker = two_queues()
    assert put(asker, "p", {"max-length": 1}, pattern="(?=c)") is True
    assert applied(asker, "c") == (None, None, {})


# At once


def test_set_replace_and_clear_reach_queues_that_are_declared_already():
    asker = two_queues()
    assert put(asker, "p", {"max-length": 5}, pattern="^c$") is True
    assert applied(asker, "c") == ("p", None, {"max-length": 5})
    assert put(asker, "p", {"max-length": 6}, pattern="^c$") is False
    assert applied(asker, "c") == ("p", None, {"max-length": 6})
    put(asker, "p", {"max-length": 6}, pattern="^q$")
    assert applied(asker, "c") == (None, None, {})
    assert applied(asker, "q") == ("p", None, {"max-length": 6})
    assert clear(asker, "p") is True
    assert clear(asker, "p") is False
    assert applied(asker, "q") == (None, None, {})


def test_policies_and_operator_policies_have_names_of_their_own():
    asker = two_queues()
    put(asker, "p", {"max-length": 5, "message-ttl": 100, "queue-mode": "lazy"})
    put(asker, "p", {"max-length": 3, "message-ttl": 200, "max-length-bytes": 9}, operator=True)
    assert applied(asker, "c") == (
        "p",
        "p",
        {"max-length": 3, "max-length-bytes": 9, "message-ttl": 100, "queue-mode": "lazy"},
    )
    assert applied(asker, "q") == (
        None,
        "p",
        {"max-length": 3, "message-ttl": 200, "max-length-bytes": 9},
    )
    assert clear(asker, "p", operator=True) is True
    assert applied(asker, "c")[:2] == ("p", None)


def test_shells_hear_which_queues_have_something_else_now():
    asker = two_queues()
    asker.queue("other")
    asker.machine.take_changes()

    def heard(step) -> list[str]:
        step()
        changes = asker.machine.take_changes()
        assert changes.policies_changed
        return [queue.name for queue in changes.policy_queues]

    assert heard(lambda: put(asker, "p", {"max-length": 5}, pattern="^[cq]$")) == ["c", "q"]
    assert heard(lambda: put(asker, "p", {"max-length": 5}, pattern="^[cq]$")) == []
    assert heard(lambda: put(asker, "p", {"max-length": 5}, pattern="^[cq]$", priority=9)) == []
    assert heard(lambda: put(asker, "p", {"max-length": 5}, pattern="c|other")) == ["q", "other"]
    assert heard(lambda: put(asker, "low", {"max-length": 7}, priority=-1)) == ["q"]
    assert heard(lambda: put(asker, "o", {"expires": 7}, pattern="q", operator=True)) == ["q"]
    assert heard(lambda: clear(asker, "p")) == ["c", "other"]


def test_a_namesake_of_another_type_gets_its_own():
    asker = founded()
    put(asker, "ha", {"ha-mode": "all"})
    asker.queue("n")
    assert applied(asker, "n")[0] == "ha"
    asker.ask(commands.DeleteQueue(asker.index))
    asker.queue("n", arguments=QUORUM)
    assert applied(asker, "n")[0] is None


def test_what_a_queue_would_have_is_known_before_it_is_declared():
    asker = founded()
    put(asker, "p", {"queue-master-locator": "min-masters"}, pattern="^a")
    catalogue = asker.machine.catalogue
    assert catalogue.effective_policy_for("/", "ab", "classic") == {
        "queue-master-locator": "min-masters"
    }
    assert catalogue.effective_policy_for("/", "ab", "quorum") == {}
    assert catalogue.effective_policy_for("/", "b", "classic") == {}


def test_mirroring_is_for_classic_queues_that_are_not_exclusive():
    asker = founded()
    put(asker, "ha", {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"})
    asker.queue("c")
    asker.queue("e", durable=False, exclusive_owner=f"{ONE}/{BOOT_ONE}/1")
    asker.queue("q", arguments=QUORUM)
    catalogue = asker.machine.catalogue
    assert catalogue.ha_policy(catalogue.queue("/", "c")) == HaPolicy(
        "exactly", count=2, sync_mode="automatic"
    )
    assert applied(asker, "e")[0] == "ha"
    assert catalogue.ha_policy(catalogue.queue("/", "e")) is None
    assert catalogue.ha_policy(catalogue.queue("/", "q")) is None


# Alternate exchanges


def names(asker: Asker, exchange: str, key: str) -> list[str]:
    route = asker.machine.catalogue.route("/", exchange, key)
    assert route is not None
    return [queue.name for queue in route.queues]


def test_an_alternate_exchange_by_policy_acts_at_once_and_an_argument_wins_over_it():
    asker = founded()
    asker.queue("lost")
    asker.queue("own")
    asker.exchange("plain", "direct")
    asker.exchange("argued", "direct", arguments={"alternate-exchange": "argument"})
    for exchange, queue in (("policy", "lost"), ("argument", "own")):
        asker.exchange(exchange, "fanout")
        asker.bind(exchange, queue)
    catalogue = asker.machine.catalogue
    before = catalogue.version
    put(asker, "AE", {"alternate-exchange": "policy"}, pattern="^(plain|argued|later)$")
    assert catalogue.version > before
    assert asker.machine.take_changes().routing_changed
    assert names(asker, "plain", "k") == ["lost"]
    assert names(asker, "argued", "k") == ["own"]
    asker.exchange("later", "direct")
    assert names(asker, "later", "k") == ["lost"]
    put(asker, "AE", {"alternate-exchange": "gone"}, pattern="plain")
    assert names(asker, "plain", "k") == []
    assert names(asker, "later", "k") == []
    put(asker, "AE", {"alternate-exchange": "policy"}, pattern="plain")
    put(asker, "above", {"max-length": 1}, pattern="plain", priority=1)
    assert names(asker, "plain", "k") == []
    clear(asker, "above")
    assert names(asker, "plain", "k") == ["lost"]
    before = catalogue.version
    clear(asker, "AE")
    assert catalogue.version > before
    assert names(asker, "plain", "k") == []


def test_headers_are_read_where_a_policy_leads_to_a_headers_exchange():
    asker = founded()
    asker.exchange("x", "direct")
    catalogue = asker.machine.catalogue
    assert not catalogue.looks_inside("/", "x")
    put(asker, "AE", {"alternate-exchange": "amq.headers"}, pattern="^x$")
    assert catalogue.looks_inside("/", "x")
    clear(asker, "AE")
    assert not catalogue.looks_inside("/", "x")


# Snapshots


def test_policies_of_both_kinds_survive_a_snapshot():
    asker = two_queues()
    asker.exchange("x", "direct")
    asker.bind("amq.fanout", "c")
    definition = {"ha-mode": "nodes", "ha-params": ["rabbit@gone"], "alternate-exchange": "a"}
    put(asker, "p", definition, priority=1.5, pattern="^[cx]$")
    put(asker, "AE", {"alternate-exchange": "amq.fanout"}, pattern="^x$", priority=7)
    put(asker, "p", {"max-length": 3}, apply_to="queues", operator=True)
    restored = Asker(MetadataMachine())
    restored.machine.restore(asker.index, asker.machine.snapshot())
    assert restored.machine.catalogue.policies() == asker.machine.catalogue.policies()
    for name in ("c", "q"):
        assert applied(restored, name) == applied(asker, name)
    assert applied(restored, "c")[2]["ha-params"] == ["rabbit@gone"]
    assert names(restored, "x", "k") == ["c"]
    assert restored.machine.snapshot() == asker.machine.snapshot()


# Merging


def policy(definition: dict[str, object] | None) -> Policy | None:
    return None if definition is None else Policy("/", "p", "", "all", 0, definition)


@pytest.mark.parametrize(
    ("user", "operator", "effective"),
    [
        ({"max-length": 5, "queue-mode": "lazy"}, None, {"max-length": 5, "queue-mode": "lazy"}),
        (None, {"max-length": 5}, {"max-length": 5}),
        ({"expires": 5}, {"message-ttl": 6}, {"expires": 5, "message-ttl": 6}),
        *(
            ({key: one}, {key: two}, {key: 3})
            for key in (
                "expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit",
                "max-in-memory-length", "max-in-memory-bytes",
            )
            for one, two in ((3, 9), (9, 3))
        ),
        ({"target-group-size": 3}, {"target-group-size": 5}, {"target-group-size": 5}),
        ({"target-group-size": 5}, {"target-group-size": 3}, {"target-group-size": 5}),
        ({"overflow": "drop-head"}, {"overflow": "reject-publish"}, {"overflow": "reject-publish"}),
        ({"queue-version": 2}, {"queue-version": 1}, {"queue-version": 1}),
        ({"ha-mode": "all"}, {"ha-mode": "nodes"}, {"ha-mode": "all"}),
        ({"ha-mode": "nodes"}, {"ha-mode": "exactly"}, {"ha-mode": "exactly"}),
        ({"ha-mode": "exactly"}, {"ha-mode": "all"}, {"ha-mode": "all"}),
        ({"ha-params": 2}, {"ha-params": 3}, {"ha-params": 3}),
        ({"ha-params": 3}, {"ha-params": 2}, {"ha-params": 3}),
        ({"ha-params": 2}, {"ha-params": ["a", "b"]}, {"ha-params": 2}),
        ({"ha-params": ["a"]}, {"ha-params": 1}, {"ha-params": 1}),
        ({"ha-params": ["a"]}, {"ha-params": ["b", "c"]}, {"ha-params": ["b", "c"]}),
        ({"ha-params": ["b", "c"]}, {"ha-params": ["a"]}, {"ha-params": ["b", "c"]}),
        (
            {"ha-sync-mode": "manual"},
            {"ha-sync-mode": "automatic"},
            {"ha-sync-mode": "automatic"},
        ),
    ],
)  # fmt: skip
def test_merging(user, operator, effective):
    """Rows: 1.12 merge user/operator"""
    assert merge(policy(user), policy(operator)) == effective


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 5), st.floats(0, 2), st.sampled_from(["all", "x"]),
    st.lists(st.sampled_from(["a", 1]), max_size=2), st.just({"a": 1}),
)  # fmt: skip
KEYS = st.sampled_from(
    ["ha-mode", "ha-params", "max-length", "target-group-size", "overflow", "alternate-exchange",
     "ha-sync-batch-size", "warren-sync", "made up"]
)  # fmt: skip
DEFINITIONS = st.dictionaries(KEYS, VALUES, max_size=4)


@given(user=DEFINITIONS, operator=DEFINITIONS)
def test_no_value_makes_merging_or_reading_fail(user, operator):
    """What another version let in must not stop this one."""
    effective = merge(policy(user), policy(operator))
    assert effective.keys() == user.keys() | operator.keys()
    assert all(value in (user.get(key), operator.get(key)) for key, value in effective.items())
    mode = effective.get("ha-mode")
    found = HaPolicy.of(effective)
    assert (found is None) == (mode not in ("all", "exactly", "nodes"))
    assert found is None or (found.count >= 0 and found.sync_batch_size > 0)


# Against a list that is gone through anew each time


STEPS = st.lists(
    st.one_of(
        st.builds(
            commands.SetPolicy,
            st.just("/"),
            st.sampled_from(["p1", "p2", "p3"]),
            st.sampled_from([".*", "^a", "b$", "a|b", "^ab$", "(?=x)"]),
            st.sampled_from(
                [{"max-length": 1}, {"ha-mode": "all"}, {"delivery-limit": 1}, {"expires": 2}]
            ),
            st.sampled_from([0, 1, 0.5]),
            st.sampled_from(["all", "queues", "quorum_queues", "exchanges"]),
            st.booleans(),
        ),
        st.builds(commands.ClearPolicy, st.just("/"), st.sampled_from(["p1", "p2"]), st.booleans()),
        st.sampled_from(["a", "b", "ab", "-ab"]),
    ),
    max_size=15,
)


def expected(asker: Asker, name: str, queue_type: str, *, operator: bool) -> str | None:
    catalogue = asker.machine.catalogue
    every = catalogue.operator_policies() if operator else catalogue.policies()
    fitting = [
        each
        for each in every
        if each.apply_to in ("all", "queues", f"{queue_type}_queues")
        and not UNSUPPORTED[queue_type] & each.definition.keys()
        and each.pattern != "(?=x)"
        and re2.search(each.pattern, name)
    ]
    fitting.sort(key=lambda each: (-each.priority, each.name))
    return fitting[0].name if fitting else None


@given(steps=STEPS)
def test_what_is_kept_is_what_a_search_through_all_finds(steps):
    asker = founded()
    for step in steps:
        if not isinstance(step, str):
            asker.ask(step)
        else:
            name, is_quorum = step.removeprefix("-"), step.startswith("-")
            asker.queue(name, arguments=QUORUM if is_quorum else {})
        for queue in asker.machine.catalogue.queues():
            assert applied(asker, queue.name)[:2] == (
                expected(asker, queue.name, queue.type, operator=False),
                expected(asker, queue.name, queue.type, operator=True),
            )
