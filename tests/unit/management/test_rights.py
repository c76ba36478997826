"""Topic permissions, parameters and limits over HTTP; answers compared with RabbitMQ 3.10.8's."""

from __future__ import annotations

import pytest

from tests.unit.management.rig import Rig

pytestmark = pytest.mark.asyncio


async def test_topic_permission_life() -> None:
    async with Rig() as rig:
        path = "/api/topic-permissions/%2F/man"
        body = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
        assert (await rig.ask("GET", path)).status == 404
        assert (await rig.ask("PUT", path, body)).status == 201
        assert (await rig.ask("PUT", path, body)).status == 204
        assert (await rig.ask("PUT", path, {**body, "exchange": "nowhere"})).status == 204
        first, second = (await rig.ask("GET", path)).json
        assert first == {"user": "man", "vhost": "/", **body}
        assert second["exchange"] == "nowhere"
        for of in ("/api/topic-permissions", "/api/users/man/topic-permissions"):
            assert (await rig.ask("GET", of)).json == [first, second]
        assert (await rig.ask("GET", "/api/vhosts/%2F/topic-permissions")).json[0] == first
        assert (await rig.ask("DELETE", f"{path}/nowhere")).status == 204
        assert (await rig.ask("DELETE", f"{path}/nowhere")).status == 404
        assert (await rig.ask("GET", path)).json == [first]
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("DELETE", path)).status == 404


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("%2F/man", {"write": "", "read": ""}, "[{key_missing,exchange}]"),
        ("%2F/who", {"exchange": "x", "write": "", "read": ""}, "vhost_or_user_not_found"),
        ("no/man", {"exchange": "x", "write": "", "read": ""}, "vhost_or_user_not_found"),
        ("%2F/man", {"exchange": "x", "write": "(", "read": ""}, "invalid_regexp: write: missing"),
    ],
)
async def test_bad_topic_permissions_are_400(path: str, body: dict[str, str], reason: str) -> None:
    async with Rig() as rig:
        answer = await rig.ask("PUT", f"/api/topic-permissions/{path}", body)
        assert answer.status == 400
        assert answer.json["reason"].startswith(reason)


async def test_limits_of_a_vhost() -> None:
    async with Rig() as rig:
        path = "/api/vhost-limits/%2F"
        assert (await rig.ask("GET", path)).json == []
        assert (await rig.ask("PUT", f"{path}/max-connections", {"value": 5})).status == 204
        assert (await rig.ask("PUT", f"{path}/max-queues", {"value": -1})).status == 204
        expected = [{"vhost": "/", "value": {"max-connections": 5, "max-queues": -1}}]
        assert (await rig.ask("GET", path)).json == expected
        assert (await rig.ask("GET", "/api/vhost-limits")).json == expected
        assert rig.catalogue.vhost_limit("/", "max-queues") is None
        bad = await rig.ask("PUT", f"{path}/max-foo", {"value": 1})
        assert (bad.status, bad.json["reason"]) == (
            400,
            'Validation failed\n\nUnrecognised terms [{<<"max-foo">>,1}] in limits\n',
        )
        bad = await rig.ask("PUT", f"{path}/max-queues", {})
        assert (bad.status, bad.json["reason"]) == (400, "[{key_missing,value}]")
        missing = await rig.ask("PUT", "/api/vhost-limits/no/max-queues", {"value": 1})
        assert (missing.status, missing.json) == (
            404,
            {"error": "not_found", "reason": "vhost_not_found"},
        )
        for name in ("max-connections", "max-connections", "max-foo", "max-queues"):
            assert (await rig.ask("DELETE", f"{path}/{name}")).status == 204
        assert (await rig.ask("GET", "/api/vhost-limits")).json == []
        assert (await rig.ask("GET", "/api/vhost-limits/no")).status == 404


async def test_limits_of_a_user() -> None:
    async with Rig() as rig:
        path = "/api/user-limits/man"
        assert (await rig.ask("PUT", f"{path}/max-connections", {"value": 5})).status == 204
        assert (await rig.ask("PUT", f"{path}/max-channels", {"value": -1})).status == 204
        expected = {"max-connections": 5, "max-channels": -1}
        assert (await rig.ask("GET", path)).json == [{"user": "man", "value": expected}]
        assert (await rig.ask("GET", "/api/user-limits")).json[0]["value"] == expected
        assert (await rig.ask("GET", "/api/user-limits/guest")).json == []
        assert (await rig.ask("GET", "/api/users/man")).json["limits"] == expected
        bad = await rig.ask("PUT", f"{path}/max-channels", {"value": "a"})
        assert (bad.status, bad.json["reason"]) == (
            400,
            'max-channels should be a number, actually was <<"a">>',
        )
        assert (
            await rig.ask("PUT", "/api/user-limits/who/max-channels", {"value": 1})
        ).status == 400
        assert (await rig.ask("GET", "/api/user-limits/who")).status == 404
        assert (await rig.ask("DELETE", f"{path}/max-connections")).status == 204
        assert (await rig.ask("GET", path)).json[0]["value"] == {"max-channels": -1}


async def test_parameters_of_a_vhost() -> None:
    async with Rig() as rig:
        path = "/api/parameters/vhost-limits/%2F/limits"
        assert (await rig.ask("PUT", path, {"value": {"max-queues": 3}})).status == 201
        assert (await rig.ask("PUT", path, {"value": {"max-queues": 4}})).status == 204
        assert rig.catalogue.vhost_limit("/", "max-queues") == 4
        shown = {
            "value": {"max-queues": 4},
            "vhost": "/",
            "component": "vhost-limits",
            "name": "limits",
        }
        assert (await rig.ask("GET", path)).json == shown
        for of in ("", "/vhost-limits", "/vhost-limits/%2F"):
            assert (await rig.ask("GET", f"/api/parameters{of}")).json == [shown]
        assert (await rig.ask("GET", "/api/parameters/foo")).json == []
        assert (await rig.ask("GET", "/api/parameters/vhost-limits/no")).status == 404
        for other, reason in (
            ("foo", "Validation failed\n\ncomponent foo not found\n"),
            ("policy", "policies may not be set using this method"),
        ):
            bad = await rig.ask("PUT", f"/api/parameters/{other}/%2F/x", {"value": {}})
            assert (bad.status, bad.json["reason"]) == (400, reason)
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("DELETE", path)).status == 404
        assert (await rig.ask("GET", "/api/parameters", user="man")).status == 403


async def test_global_parameters() -> None:
    async with Rig() as rig:
        path = "/api/global-parameters/mqtt"
        assert (await rig.ask("PUT", path, {"value": {"a": [1, 2.5, None]}})).status == 201
        assert (await rig.ask("PUT", path, {"value": "x"})).status == 204
        assert (await rig.ask("GET", path)).json == {"value": "x", "name": "mqtt"}
        listed = {each["name"]: each["value"] for each in (await rig.ask("GET", path[:-5])).json}
        assert listed["mqtt"] == "x"
        assert listed["internal_cluster_id"].startswith("rabbitmq-cluster-id-")
        named = await rig.ask("PUT", f"{path[:-5]}/cluster_name", {"value": "ours"})
        assert (named.status, rig.catalogue.cluster_name) == (204, "ours")
        assert (await rig.ask("PUT", path, {})).status == 400
        for fixed in ("cluster_name", "internal_cluster_id"):
            assert (await rig.ask("DELETE", f"{path[:-5]}/{fixed}")).status == 400
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("DELETE", path)).status == 404
        assert (await rig.ask("GET", path)).status == 404


async def test_users_in_bulk() -> None:
    async with Rig() as rig:
        listed = (await rig.ask("GET", "/api/users/without-permissions")).json
        assert {"man", "mon", "nobody"} <= {user["name"] for user in listed}
        bad = await rig.ask("POST", "/api/users/bulk-delete", {"users": ["man", "who"]})
        assert (bad.status, rig.catalogue.user("man") is None) == (400, False)
        gone = await rig.ask("POST", "/api/users/bulk-delete", {"users": ["man", "mon"]})
        assert (gone.status, rig.catalogue.user("man")) == (204, None)
        bad = await rig.ask("POST", "/api/users/bulk-delete", {})
        assert bad.json["reason"] == "[{key_missing,users}]"


async def test_a_ready_hash_lets_its_password_in() -> None:
    async with Rig() as rig:
        made = (await rig.ask("GET", "/api/auth/hash_password/s%2Fecret")).json["ok"]
        body = {"password_hash": made, "tags": "management"}
        assert (await rig.ask("PUT", "/api/users/bob", body)).status == 201
        assert (await rig.ask("GET", "/api/whoami", user="bob", password="s/ecret")).status == 200
        assert (await rig.ask("GET", "/api/whoami", user="bob", password="other")).status == 401
        assert (await rig.ask("PUT", "/api/users/bob", {"password": "", "tags": ""})).status == 204
        assert (await rig.ask("GET", "/api/whoami", user="bob", password="")).status == 401


async def test_a_vhost_is_traced_with_acks_where_that_was_asked_for() -> None:
    async with Rig() as rig:
        path = "/api/vhosts/%2F"
        traced = rig.control.serving.context.traced
        assert (await rig.ask("PUT", f"{path}/tracing", {"acks": True})).status == 204
        assert (traced.names, traced.with_acks) == ({"/"}, {"/"})
        shown = (await rig.ask("GET", path)).json
        assert (shown["tracing"], shown["tracing_acks"]) == (True, True)
        assert (await rig.ask("PUT", f"{path}/tracing", {"acks": 1})).status == 400
        assert (await rig.ask("PUT", f"{path}/tracing")).status == 204
        shown = (await rig.ask("GET", path)).json
        assert (shown["tracing"], "tracing_acks" in shown) == (True, False)
        assert (await rig.ask("PUT", f"{path}/tracing", {"acks": True})).status == 204
        assert (await rig.ask("DELETE", f"{path}/tracing")).status == 204
        assert (traced.names, traced.with_acks) == (set(), set())
