"""Limits of vhosts, users and the node, counted over nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Refusal, ReplyCode
from broker.metadata.access import Access
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Parameter, Permission, User, Vhost
from broker.metadata.usage import Usage, UsageCounts


def catalogue(
    limits: dict[str, object] | None = None, user: dict[str, int] | None = None
) -> Catalogue:
    made = Catalogue()
    made.put_vhost(Vhost("/"))
    made.put_user(User("u", "", limits=user or {}))
    made.put_permission(Permission("u", "/", "", "", ""))
    if limits is not None:
        made.put_parameter(Parameter("/", "vhost-limits", "limits", limits))
    return made


def with_channels(usage: Usage, user: str, count: int) -> None:
    for _ in range(count):
        usage.channel_opened(user)


def text(refusal: Refusal | None) -> str | None:
    assert refusal is None or refusal.code is ReplyCode.NOT_ALLOWED
    return None if refusal is None else refusal.text


def test_a_vhost_at_its_limit_takes_no_further_connection() -> None:
    usage = Usage(catalogue({"max-connections": 2}))
    usage.connected(1, "/", "u")
    assert usage.vhost_refusal("/", "u") is None
    usage.heard("b", UsageCounts(vhosts={"/": 1, "other": 5}))
    assert text(usage.vhost_refusal("/", "u")) == (
        "access to vhost '/' refused for user 'u': connection limit (2) is reached"
    )
    usage.disconnected(1)
    usage.disconnected(1)
    assert usage.vhost_refusal("/", "u") is None


def test_a_user_at_its_limit_opens_no_further_connection() -> None:
    usage = Usage(catalogue(user={"max-connections": 1}))
    usage.heard("b", UsageCounts(users={"u": 1}))
    assert text(usage.user_refusal("u")) == (
        "connection refused for user 'u': user connection limit (1) is reached"
    )
    usage.lost(["b", "c"])
    assert usage.user_refusal("u") is None
    assert usage.user_refusal("nobody") is None


def test_channels_of_all_connections_of_a_user_count() -> None:
    usage = Usage(catalogue(user={"max-channels": 5}))
    with_channels(usage, "u", 3)
    with_channels(usage, "other", 9)
    assert usage.channel_refusal("u") is None
    usage.heard("b", UsageCounts(channels={"u": 2}))
    assert text(usage.channel_refusal("u")) == (
        "number of channels opened for user 'u' has reached the maximum allowed user limit of (5)"
    )
    assert usage.channel_refusal("other") is None
    usage.channels_closed("u", 1)
    assert usage.channel_refusal("u") is None


def test_a_node_has_its_own_limit_of_channels() -> None:
    usage = Usage(catalogue())
    usage.node, usage.node_channel_max = "rabbit@a", 3
    with_channels(usage, "u", 2)
    assert usage.channel_refusal("u") is None
    with_channels(usage, "other", 1)
    assert text(usage.channel_refusal("u")) == (
        "number of channels opened on node 'rabbit@a' has reached the maximum allowed limit of (3)"
    )
    usage.channels_closed("u", 2)
    assert usage.channel_refusal("u") is None


@pytest.mark.parametrize("limit", [-1, -100])
def test_a_negative_limit_is_none(limit: int) -> None:
    usage = Usage(
        catalogue({"max-connections": limit}, {"max-connections": limit, "max-channels": limit})
    )
    usage.connected(1, "/", "u")
    usage.channel_opened("u")
    assert usage.vhost_refusal("/", "u") is None
    assert usage.user_refusal("u") is None
    assert usage.channel_refusal("u") is None
    assert usage.counts() == UsageCounts()


def test_a_limit_of_none_at_all_lets_nobody_in() -> None:
    access = Access(catalogue({"max-connections": 0}))
    assert "(0) is reached" in str(text(access.opening_refusal("u", "/", None)))


def test_refusals_of_connection_open_come_in_rabbitmqs_order() -> None:
    known = catalogue({"max-connections": 1}, {"max-connections": 1})
    known.put_user(User("stranger", ""))
    access = Access(known)
    access.usage.connected(1, "/", "u")
    node = "connection refused: node connection limit (1) is reached"
    assert text(access.opening_refusal("u", "nowhere", 1)) == node
    assert text(access.opening_refusal("u", "nowhere", 2)) == "vhost nowhere not found"
    assert "to vhost '/'" in str(text(access.opening_refusal("u", "/", None)))
    known.put_parameter(Parameter("/", "vhost-limits", "limits", {}))
    assert "user connection limit" in str(text(access.opening_refusal("u", "/", None)))
    expected = "access to vhost '/' refused for user 'stranger'"
    assert text(access.opening_refusal("stranger", "/", None)) == expected
    known.put_permission(Permission("stranger", "/", "", "", ""))
    assert access.opening_refusal("stranger", "/", None) is None


def test_only_names_with_a_limit_are_told() -> None:
    known = catalogue({"max-connections": 9}, {"max-channels": 9})
    known.put_vhost(Vhost("free"))
    usage = Usage(known)
    told = []
    usage.changed = lambda: told.append(usage.counts())
    usage.connected(1, "free", "other")
    usage.channel_opened("other")
    assert told == []
    usage.connected(2, "/", "u")
    with_channels(usage, "u", 3)
    usage.channel_refusal("u")
    usage.channels_closed("u", 3)
    usage.disconnected(2)
    assert told == [UsageCounts({"/": 1}), UsageCounts({"/": 1}, {}, {"u": 3}), UsageCounts()]


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 6), st.sampled_from("ab"), st.sampled_from("uv")),
        max_size=40,
    )
)
def test_counts_are_those_of_what_is_open(steps: list[tuple[bool, int, str, str]]) -> None:
    known = Catalogue()
    for name in "ab":
        known.put_vhost(Vhost(name))
        known.put_parameter(Parameter(name, "vhost-limits", "limits", {"max-connections": 99}))
    for name in "uv":
        known.put_user(User(name, "", limits={"max-connections": 99, "max-channels": 99}))
    usage = Usage(known)
    model: dict[int, tuple[str, str]] = {}
    for is_open, number, vhost, user in steps:
        if is_open and number not in model:
            model[number] = (vhost, user)
            usage.connected(number, vhost, user)
            with_channels(usage, user, number)
        elif not is_open:
            known_as = model.pop(number, None)
            usage.disconnected(number)
            if known_as is not None:
                usage.channels_closed(known_as[1], number)
    counts = usage.counts()
    assert usage.connection_count == len(model)
    for each in "ab":
        assert counts.vhosts.get(each, 0) == sum(v == each for v, _ in model.values())
    for each in "uv":
        assert counts.users.get(each, 0) == sum(u == each for _, u in model.values())
        assert counts.channels.get(each, 0) == sum(n for n, (_, u) in model.items() if u == each)
