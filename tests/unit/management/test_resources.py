from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from broker.config import Settings
from broker.management.resources.bindings import properties_key
from broker.management.resources.connections import clean_reason
from broker.metadata import commands
from broker.metadata.records import Binding
from broker.passwords import hash_password
from broker.ports import QueueStat
from tests.unit.management.rig import SALT, Rig
from tests.unit.metadata.cluster import BOOT_TWO, ONE, TWO

pytestmark = pytest.mark.asyncio


async def test_unknown_paths_are_404_and_unknown_methods_405():
    async with Rig() as rig:
        answer = await rig.ask("GET", "/api/nope")
        assert answer.json == {"error": "Object Not Found", "reason": "Not Found"}
        assert answer.status == 404
        answer = await rig.ask("POST", "/api/overview")
        assert (answer.status, answer.json["error"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/api/queues/", "/api/queues/%2F/", "/api/healthchecks/node/"])
async def test_a_slash_at_the_end_changes_nothing(path):
    async with Rig() as rig:
        assert (await rig.ask("GET", path)).status == 200


async def test_a_bug_is_500_without_internals():
    async with Rig() as rig:
        rig.control.cluster.propose = None
        answer = await rig.ask("PUT", "/api/queues/%2F/q", {})
        assert answer.status == 500
        assert "NoneType" not in answer.text


@pytest.mark.parametrize(
    "name", ["q", "a/b", "%2F", "a b", "{x}", "ü", "..", "a..%2fb", "a?b#c", "a+b", "100%"]
)
async def test_any_name_is_one_segment(name):
    async with Rig() as rig:
        path = "/api/queues/%2F/" + quote(name, safe="").replace(".", "%2E")
        assert (await rig.ask("PUT", path, {})).status == 201
        assert rig.catalogue.queue("/", name) is not None
        assert (await rig.ask("GET", path)).json["name"] == name
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("GET", path)).status == 404


@pytest.mark.parametrize("segment", ["%00", "a%00b", "%ff", "%c0%af", "%ed%a0%80"])
async def test_bytes_that_are_no_name_are_400(segment):
    async with Rig() as rig:
        for path in (f"/api/queues/%2F/{segment}", f"/api/queues/{segment}/q"):
            assert (await rig.ask("PUT", path, {})).status == 400


async def test_a_path_never_leaves_its_vhost():
    async with Rig() as rig:
        answer = await rig.ask("GET", "/api/queues/%2F/..%2f..%2fetc%2fpasswd")
        assert answer.status == 404


async def test_queue_life():
    async with Rig() as rig:
        path = "/api/queues/%2F/q"
        body = {"durable": True, "arguments": {"x-max-length": 5}}
        assert (await rig.ask("PUT", path, body)).status == 201
        assert (await rig.ask("PUT", path, body)).status == 204
        other = await rig.ask("PUT", path, {"durable": False, "arguments": {"x-max-length": 5}})
        assert (other.status, other.json["error"]) == (400, "bad_request")
        assert "inequivalent arg 'durable' for queue 'q' in vhost '/'" in other.json["reason"]
        uid = rig.catalogue.queue("/", "q").uid
        rig.control.serving.queues.stats[uid] = QueueStat(3, 2, 1, 30, 20, "running")
        found = (await rig.ask("GET", path)).json
        assert found["arguments"] == {"x-max-length": 5}
        assert (found["messages"], found["messages_ready"], found["consumers"]) == (5, 3, 1)
        assert (found["message_bytes"], found["state"], found["node"]) == (50, "running", ONE)
        overview = (await rig.ask("GET", "/api/overview")).json
        assert overview["queue_totals"]["messages"] == 5
        assert overview["object_totals"]["queues"] == 1
        assert (await rig.ask("DELETE", path + "?if-empty=true")).status == 204
        assert (await rig.ask("DELETE", path)).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"durable": "maybe"},
        {"arguments": ["x"]},
        {"arguments": {"x-max-length": -1}},
        {"arguments": {"x-queue-type": "nonsense"}, "durable": True},
        {"node": "rabbit@nowhere"},
        {"node": 5},
    ],
)
async def test_bad_queues_are_400(body):
    async with Rig() as rig:
        answer = await rig.ask("PUT", "/api/queues/%2F/q", body)
        assert (answer.status, answer.json["error"]) == (400, "bad_request")
        assert rig.catalogue.queue("/", "q") is None


async def test_a_queue_whose_node_does_not_answer_is_down_and_has_no_counts():
    async with Rig() as rig:
        rig.control.asker.queue("q", home=TWO)
        rig.control.asker.queue("qq", arguments={"x-queue-type": "quorum"}, members=(ONE, TWO))
        found = {item["name"]: item for item in (await rig.ask("GET", "/api/queues/%2F")).json}
        assert (found["q"]["state"], found["q"]["node"]) == ("down", TWO)
        assert "messages" not in found["q"]
        assert (found["qq"]["leader"], found["qq"]["online"]) == ("", [])
        assert found["qq"]["members"] == [ONE, TWO]


async def test_declares_need_the_permissions_that_amqp_asks_for():
    async with Rig() as rig:
        body = {"configure": "^c-", "write": "^w-", "read": "^c-"}
        assert (await rig.ask("PUT", "/api/permissions/%2F/man", body)).status == 201
        ask = rig.ask
        assert (await ask("PUT", "/api/queues/%2F/q", {}, user="man")).status == 403
        assert (await ask("PUT", "/api/queues/%2F/c-q", {}, user="man")).status == 201
        dlx = {"arguments": {"x-dead-letter-exchange": "other"}}
        assert (await ask("PUT", "/api/queues/%2F/c-d", dlx, user="man")).status == 403
        exchange = {"type": "fanout"}
        answer = await ask("PUT", "/api/exchanges/%2F/x", exchange, user="man")
        assert answer.status == 403
        assert answer.json["reason"] == (
            "configure access to exchange 'x' in vhost '/' refused for user 'man'"
        )
        path = "/api/bindings/%2F/e/amq.fanout/q/c-q"
        assert (await ask("POST", path, {}, user="man")).status == 403
        assert (await ask("DELETE", "/api/queues/%2F/c-q/contents", user="mon")).status == 403


async def test_exchange_life():
    async with Rig() as rig:
        path = "/api/exchanges/%2F/x"
        assert (await rig.ask("PUT", path + "2", {})).status == 201
        assert (await rig.ask("GET", path + "2")).json["type"] == "direct"
        assert (await rig.ask("PUT", path, {"type": "odd"})).status == 400
        assert (await rig.ask("PUT", path, {"type": "topic", "durable": True})).status == 201
        assert (await rig.ask("PUT", path, {"type": "topic", "durable": True})).status == 204
        assert (await rig.ask("GET", path)).json["type"] == "topic"
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("DELETE", path)).status == 404
        assert (await rig.ask("DELETE", "/api/exchanges/%2F/amq.topic")).status == 403
        default = await rig.ask("GET", "/api/exchanges/%2F/amq.default")
        assert (default.json["name"], default.json["type"]) == ("", "direct")


async def test_a_binding_with_too_many_arguments_is_400_unless_it_is_there():
    async with Rig() as rig:
        rig.control.asker.queue("q")
        path = "/api/bindings/%2F/e/amq.headers/q/q"
        body = {"arguments": {f"h{number}": number for number in range(257)}}
        answer = await rig.ask("POST", path, body)
        assert (answer.status, answer.json["reason"]) == (
            400,
            "a binding may have 256 arguments and this one has 257: bind several times, with fewer"
            " arguments each",
        )
        stored = commands.Bind("/", "amq.headers", "queue", "q", "", body["arguments"])
        rig.control.asker.ask(stored)  # of an earlier version
        assert (await rig.ask("POST", path, body)).status == 201


@pytest.mark.parametrize("key", ["", "a.#", "a b", "x~y", "ü/ö", "a%2Fb", "+"])
async def test_a_binding_is_found_where_its_post_says(key):
    async with Rig() as rig:
        rig.control.asker.queue("q/1")
        base = "/api/bindings/%2F/e/amq.topic/q/q%2F1"
        for arguments in ({}, {"x": 1}):
            body = {"routing_key": key, "arguments": arguments}
            answer = await rig.ask("POST", base, body)
            assert answer.status == 201
            where = answer.headers["Location"]
            found = await rig.ask("GET", where)
            assert found.json["routing_key"] == key
            assert found.json["arguments"] == arguments
            # tools quote the properties_key that they read
            listed = (await rig.ask("GET", base)).json[0]["properties_key"]
            quoted = f"{base}/{quote(listed, safe='')}"
            assert (await rig.ask("GET", quoted)).json["routing_key"] == key
            assert (await rig.ask("DELETE", quoted)).status == 204
            assert (await rig.ask("DELETE", where)).status == 404
        assert rig.catalogue.bindings("/") == []


async def test_properties_keys_are_rabbitmqs():
    def key(routing_key, **arguments):
        return properties_key(Binding("/", "x", "queue", "q", routing_key, arguments))

    assert (key("a.#"), key(""), key("a~b")) == ("a.%23", "~", "a%7Eb")
    assert key("k", x=1).startswith("k~")
    assert key("k", x=1) != key("k", x=2)


async def test_listings_show_the_default_exchanges_bindings():
    async with Rig() as rig:
        rig.control.asker.queue("q")
        rig.control.asker.bind("amq.fanout", "q", "k")
        found = (await rig.ask("GET", "/api/queues/%2F/q/bindings")).json
        assert [(item["source"], item["properties_key"]) for item in found] == [
            ("", "q"),
            ("amq.fanout", "k"),
        ]
        source = await rig.ask("GET", "/api/exchanges/%2F/amq.fanout/bindings/source")
        assert len(source.json) == 1
        default = await rig.ask("GET", "/api/exchanges/%2F/amq.default/bindings/source")
        assert default.json[0]["destination"] == "q"
        assert (await rig.ask("DELETE", "/api/bindings/%2F/e/amq.default/q/q/q")).status == 400


async def test_bindings_of_what_is_not_there_are_none_and_nothing_is_bound_to_it():
    async with Rig() as rig:
        rig.control.asker.queue("q")
        for path in (
            "/api/bindings/%2F/e/nope/q/q",
            "/api/bindings/%2F/e/amq.topic/q/nope",
            "/api/bindings/%2F/e/amq.topic/e/nope",
            "/api/bindings/%2F/e/amq.topic/z/q",
            "/api/bindings/nope/e/amq.topic/q/q",
        ):
            assert (await rig.ask("POST", path, {})).status == 404
            answer = await rig.ask("GET", path)
            has_ends = "/z/" not in path and "/nope/e/" not in path
            assert (answer.status, answer.json == []) == ((200, True) if has_ends else (404, False))


async def test_user_life():
    async with Rig() as rig:
        path = "/api/users/bob"
        assert (await rig.ask("PUT", path, {"password": "x", "tags": "management"})).status == 201
        assert (await rig.ask("GET", "/api/whoami", user="bob", password="x")).status == 200
        found = (await rig.ask("GET", path)).json
        assert found["tags"] == ["management"]
        kept = {"password_hash": found["password_hash"], "tags": ["monitoring"]}
        assert (await rig.ask("PUT", path, kept)).status == 204
        again = await rig.ask("GET", "/api/whoami", user="bob", password="x")
        assert again.json["tags"] == ["monitoring"]
        assert (await rig.ask("PUT", path, {"tags": "management"})).status == 204
        assert (await rig.ask("GET", "/api/whoami", user="bob", password="x")).status == 401
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("DELETE", path)).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"password": "x"},
        {"password": 1, "tags": ""},
        {"password": "x", "password_hash": hash_password("x", SALT), "tags": ""},
        {"password_hash": "no base64", "tags": ""},
        {"password_hash": base64.b64encode(b"short").decode(), "tags": ""},
        {"password": "x", "hashing_algorithm": "crc32", "tags": ""},
        {
            "password_hash": hash_password("x", SALT),
            "hashing_algorithm": "rabbit_password_hashing_md5",
            "tags": "",
        },
        {"password": "x", "tags": ",".join(f"t{i}" for i in range(33))},
        {"password": "x", "tags": [1]},
    ],
)
async def test_bad_users_are_400(body):
    async with Rig() as rig:
        assert (await rig.ask("PUT", "/api/users/bob", body)).status == 400
        assert rig.catalogue.user("bob") is None


async def test_permission_life():
    async with Rig() as rig:
        path = "/api/permissions/%2F/man"
        body = {"configure": "^a", "write": "", "read": ".*"}
        assert (await rig.ask("GET", path)).status == 404
        assert (await rig.ask("PUT", path, body)).status == 201
        assert (await rig.ask("PUT", path, body)).status == 204
        assert (await rig.ask("GET", path)).json["configure"] == "^a"
        listed = (await rig.ask("GET", "/api/users/man/permissions")).json
        assert [item["vhost"] for item in listed] == ["/"]
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("DELETE", path)).status == 404
        for missing in ("/api/permissions/%2F/who", "/api/permissions/no/man"):
            refused = await rig.ask("PUT", missing, body)
            assert (refused.status, refused.json["reason"]) == (400, "vhost_or_user_not_found")
            assert (await rig.ask("GET", missing)).status == 404


@pytest.mark.parametrize(
    "patterns",
    [
        {"configure": ".*", "write": ".*"},
        {"configure": "(", "write": "", "read": ""},
        {"configure": "a" * 1025, "write": "", "read": ""},
        {"configure": "(?=x)", "write": "", "read": ""},
        {"configure": 1, "write": "", "read": ""},
    ],
)
async def test_bad_permissions_are_400(patterns):
    async with Rig() as rig:
        assert (await rig.ask("PUT", "/api/permissions/%2F/man", patterns)).status == 400


async def test_vhost_life():
    async with Rig() as rig:
        path = "/api/vhosts/v%2F1"
        assert (await rig.ask("PUT", path, {"description": "d", "tags": "a,b"})).status == 201
        found = (await rig.ask("GET", path)).json
        assert (found["name"], found["description"], found["tags"]) == ("v/1", "d", ["a", "b"])
        assert found["cluster_state"] == {ONE: "running"}
        assert (await rig.ask("PUT", path, {})).status == 204
        assert (await rig.ask("PUT", path, {"default_queue_type": "odd"})).status == 400
        assert (await rig.ask("GET", f"{path}/permissions")).json[0]["user"] == "guest"
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("DELETE", path)).status == 404


async def test_a_vhost_that_no_client_could_open_is_400():
    async with Rig() as rig:
        answer = await rig.ask("PUT", f"/api/vhosts/{'v' * 256}", {})
        assert answer.status == 400
        assert (await rig.ask("PUT", f"/api/vhosts/{'v' * 255}", {})).status == 201


async def test_nodes():
    async with Rig() as rig:
        found = {node["name"]: node for node in (await rig.ask("GET", "/api/nodes")).json}
        assert (found[ONE]["running"], found[TWO]["running"]) == (True, False)
        assert found[ONE]["uptime"] == 5_000
        assert found[ONE]["mem_used"] > 0
        assert (await rig.ask("GET", "/api/nodes/rabbit%40node1")).json["name"] == ONE
        assert (await rig.ask("GET", "/api/nodes/rabbit%40nowhere")).status == 404


async def test_only_a_dead_member_is_forgotten():
    async with Rig() as rig:
        path = "/api/cluster/nodes/"
        assert (await rig.ask("DELETE", path + quote(TWO))).status == 400
        assert (await rig.ask("DELETE", path + quote(ONE))).status == 400
        assert (await rig.ask("DELETE", path + "rabbit%40who")).status == 404
        rig.control.asker.ask(commands.EndBoot(TWO, BOOT_TWO))
        assert (await rig.ask("DELETE", path + quote(TWO))).status == 204
        assert rig.catalogue.node(TWO) is None


async def test_node_control():
    async with Rig() as rig:
        answer = await rig.ask("POST", "/api/node/reset")
        assert (answer.status, answer.json["reason"]) == (
            400,
            "reset needs the broker stopped: run stop_app first",
        )
        assert (await rig.ask("POST", "/api/node/stop_app")).status == 204
        assert (await rig.ask("POST", "/api/node/join_cluster", {})).status == 400
        assert (await rig.ask("POST", "/api/node/join_cluster", {"node": TWO})).status == 204
        assert rig.control.calls == ["stop_app", f"join {TWO}"]
        again = await rig.ask("POST", "/api/node/join_cluster", {"node": TWO})
        assert (again.status, again.json) == (200, {"status": "already_member"})
        assert (await rig.ask("PUT", "/api/queues/%2F/q", {})).status == 503


async def test_health_checks():
    async with Rig() as rig:
        for check in ("alarms", "local-alarms", "virtual-hosts", "protocol-listener/amqp091"):
            answer = await rig.ask("GET", f"/api/health/checks/{check}")
            assert (answer.status, answer.json["status"]) == (200, "ok")
        port = await rig.ask("GET", "/api/health/checks/port-listener/5672")
        assert port.json == {"status": "ok", "port": 5672}
        port = await rig.ask("GET", "/api/health/checks/port-listener/1")
        assert (port.status, port.json["missing"]) == (503, 1)
        assert 5672 in port.json["ports"]
        for bad in ("x", "-1", "99999", "²"):
            path = f"/api/health/checks/port-listener/{quote(bad)}"
            assert (await rig.ask("GET", path)).status == 400
        answer = await rig.ask("GET", "/api/health/checks/protocol-listener/mqtt")
        assert (answer.status, answer.json["status"]) == (503, "failed")
        rig.control.serving = None
        answer = await rig.ask("GET", "/api/health/checks/virtual-hosts")
        assert (answer.status, answer.json["virtual-hosts"]) == (503, ["/"])


async def test_a_short_disk_is_an_alarm():
    async with Rig() as rig:
        answer = await rig.ask("POST", "/api/node/disk_free_limit", {"absolute": 1 << 60})
        assert answer.status == 204
        answer = await rig.ask("GET", "/api/health/checks/local-alarms")
        assert answer.status == 503
        assert answer.json["alarms"] == [{"node": ONE, "resource": "disk space"}]
        node = (await rig.ask("GET", f"/api/nodes/{ONE}")).json
        assert (node["disk_free_alarm"], node["disk_free_limit"]) == (True, 1 << 60)
        await rig.ask("POST", "/api/node/disk_free_limit", {"absolute": "1kB"})
        assert (await rig.ask("GET", "/api/health/checks/local-alarms")).status == 200


async def test_a_watermark_of_nothing_is_an_alarm():
    async with Rig(Settings(node_name=ONE, total_memory_available_bytes=1_000_000)) as rig:
        for body in ({"relative": 0}, {"absolute": 0}, {"absolute": "1kB"}):
            await rig.ask("POST", "/api/node/vm_memory_high_watermark", body)
            node = (await rig.ask("GET", f"/api/nodes/{ONE}")).json
            assert node["mem_alarm"] is True
            assert node["mem_limit"] == (1_000 if body == {"absolute": "1kB"} else 0)
        await rig.ask("POST", "/api/node/vm_memory_high_watermark", {"absolute": "1TB"})
        node = (await rig.ask("GET", f"/api/nodes/{ONE}")).json
        assert (node["mem_alarm"], node["mem_limit"]) == (False, 10**12)
        await rig.ask("POST", "/api/node/disk_free_limit", {"mem_relative": 2})
        assert (await rig.ask("GET", f"/api/nodes/{ONE}")).json["disk_free_limit"] == 2_000_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("vm_memory_high_watermark", {}),
        ("vm_memory_high_watermark", {"relative": 0.4, "absolute": "1GB"}),
        ("vm_memory_high_watermark", {"relative": -1}),
        ("vm_memory_high_watermark", {"relative": "nan"}),
        ("vm_memory_high_watermark", {"relative": True}),
        ("vm_memory_high_watermark", {"absolute": "much"}),
        ("disk_free_limit", {"absolute": None}),
        ("disk_free_limit", {"absolute": [1]}),
        ("disk_free_limit", {"mem_relative": "inf"}),
    ],
)
async def test_no_limit_is_changed_by_what_is_none(path: str, body: object):
    async with Rig() as rig:
        before = rig.control.serving.alarms.limits
        assert (await rig.ask("POST", f"/api/node/{path}", body)).status == 400
        assert rig.control.serving.alarms.limits == before
        for absurd in ("9" * 400, 1e300):
            answer = await rig.ask("POST", f"/api/node/{path}", {"absolute": absurd})
            assert answer.status in (204, 400)
        assert (await rig.ask("GET", "/api/nodes")).status == 200


async def test_cluster_name():
    async with Rig() as rig:
        assert (await rig.ask("PUT", "/api/cluster-name", {"name": "n"})).status == 204
        assert (await rig.ask("GET", "/api/cluster-name")).json == {"name": "n"}
        assert (await rig.ask("PUT", "/api/cluster-name", {})).status == 400


async def test_all_is_below_the_path_prefix():
    async with Rig(Settings(node_name=ONE, management_path_prefix="/mq")) as rig:
        assert (await rig.ask("GET", "/mq/api/whoami")).status == 200
        assert (await rig.ask("GET", "/api/whoami")).status == 404
        assert (await rig.ask("GET", "/mq/healthz")).status == 200
        assert (await rig.ask("GET", "/healthz")).status == 200


async def test_reasons_are_cleaned():
    assert clean_reason("") == "Closed via management plugin"
    assert clean_reason("a\r\nSet-Cookie: x\x1b[0m") == "a  Set-Cookie: x [0m"
    assert len(clean_reason("ü" * 300).encode()) <= 200
