from __future__ import annotations

from types import SimpleNamespace

import pytest

from broker.config import Settings
from broker.doors.admission import is_loopback
from broker.management.auth import client_address
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import ONE

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic Z3Vlc3Q="},  # no colon
        {"Authorization": "Bearer Z3Vlc3Q6Z3Vlc3Q="},
        {"Authorization": "Basic /////w=="},  # no UTF-8
    ],
)
async def test_bad_credentials_are_401_with_a_challenge(headers):
    async with Rig() as rig:
        answer = await rig.ask("GET", "/api/overview", user=None, headers=headers)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert answer.json == {"error": "not_authorised", "reason": "Login failed"}


@pytest.mark.parametrize(("user", "password"), [("guest", "x"), ("guest", ""), ("who", "who")])
async def test_wrong_passwords_are_401(user, password):
    async with Rig() as rig:
        answer = await rig.ask("GET", "/api/whoami", user=user, password=password)
        assert answer.status == 401


async def test_a_user_without_a_management_tag_is_401():
    async with Rig() as rig:
        answer = await rig.ask("GET", "/api/whoami", user="nobody")
        assert (answer.status, answer.json["reason"]) == (401, "Not management user")


async def test_whoami():
    async with Rig() as rig:
        answer = await rig.ask("GET", "/api/whoami", user="mon")
        assert answer.json == {"name": "mon", "tags": ["monitoring"]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/vhosts/new"),
        ("DELETE", "/api/vhosts/%2F"),
        ("PUT", "/api/users/mon"),
        ("DELETE", "/api/users/guest"),
        ("GET", "/api/users"),
        ("GET", "/api/permissions"),
        ("PUT", "/api/permissions/%2F/mon"),
        ("PUT", "/api/cluster-name"),
        ("POST", "/api/node/stop_app"),
        ("POST", "/api/node/reset"),
        ("DELETE", "/api/cluster/nodes/rabbit%40node2"),
    ],
)
async def test_monitoring_changes_nothing(method, path):
    async with Rig() as rig:
        answer = await rig.ask(method, path, {}, user="mon")
        assert answer.status == 403
        assert rig.catalogue.vhost("/") is not None
        assert rig.control.calls == []


async def test_monitoring_has_no_permissions_on_queues_by_its_tag():
    async with Rig() as rig:
        assert (await rig.ask("PUT", "/api/queues/%2F/q", {}, user="mon")).status == 403


@pytest.mark.parametrize("path", ["/api/nodes", "/api/cluster/status"])
async def test_nodes_are_for_monitoring(path):
    async with Rig() as rig:
        assert (await rig.ask("GET", path, user="man")).status == 403
        assert (await rig.ask("GET", path, user="mon")).status == 200


async def test_management_sees_its_own_vhosts_only():
    async with Rig() as rig:
        await rig.ask("PUT", "/api/vhosts/own", {})
        body = {"configure": ".*", "write": ".*", "read": ".*"}
        await rig.ask("PUT", "/api/permissions/own/man", body)
        assert (await rig.ask("GET", "/api/queues/%2F", user="man")).status == 401
        assert (await rig.ask("GET", "/api/queues/own", user="man")).status == 200
        vhosts = await rig.ask("GET", "/api/vhosts", user="man")
        assert [vhost["name"] for vhost in vhosts.json] == ["own"]
        exchanges = await rig.ask("GET", "/api/exchanges", user="man")
        assert {exchange["vhost"] for exchange in exchanges.json} == {"own"}
        bindings = await rig.ask("GET", "/api/bindings", user="man")
        assert bindings.json == []


async def test_health_needs_no_password():
    async with Rig() as rig:
        assert (await rig.ask("GET", "/healthz", user=None)).status == 200
        assert (await rig.ask("GET", "/readyz", user=None)).status == 200
        rig.control.serving = None
        answer = await rig.ask("GET", "/readyz", user=None)
        assert (answer.status, answer.json["reason"]) == (503, "the broker is stopped")


async def test_users_log_in_while_the_broker_is_stopped():
    async with Rig() as rig:
        rig.control.serving = None
        assert (await rig.ask("GET", "/api/whoami")).status == 200
        assert (await rig.ask("POST", "/api/node/start_app")).status == 204
        assert (await rig.ask("POST", "/api/node/start_app", user="mon")).status == 403


async def test_a_node_without_a_cluster_knows_the_user_it_would_found_one_with():
    settings = Settings(node_name=ONE, default_user="root", default_password="secret")
    async with Rig(settings) as rig:
        rig.control.cluster = rig.control.serving = None
        assert (await rig.ask("GET", "/api/whoami")).status == 401
        ok = await rig.ask("POST", "/api/node/start_app", user="root", password="secret")
        assert ok.status == 204
        status = await rig.ask("GET", "/api/cluster/status", user="root", password="secret")
        assert status.json["disk_nodes"] == [ONE]
        queues = await rig.ask("GET", "/api/queues", user="root", password="secret")
        assert queues.status == 503


async def test_a_node_that_has_not_read_its_cluster_yet_lets_nobody_in():
    async with Rig() as rig:
        rig.catalogue.cluster_id = ""
        assert (await rig.ask("GET", "/api/whoami")).status == 503


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.2", True), ("10.0.0.1", False)],
)
async def test_loopback_is_told_by_the_sockets_address(address, expected):
    transport = SimpleNamespace(get_extra_info=lambda _: (address, 1))
    request = SimpleNamespace(transport=transport, headers={"X-Forwarded-For": "127.0.0.1"})
    assert is_loopback(client_address(request)) is expected


async def test_a_node_that_opens_its_store_does_not_know_its_users_yet():
    async with Rig() as rig:
        rig.control.cluster, rig.control.is_beginning = None, True
        answer = await rig.ask("GET", "/api/whoami", user="mon")
        assert (answer.status, "starting" in answer.json["reason"]) == (503, True)
        rig.control.is_beginning = False  # it was reset: whom it would found a cluster with
        assert (await rig.ask("GET", "/api/whoami", user="mon")).status == 401
        assert (await rig.ask("GET", "/api/whoami", user="guest")).status == 200
