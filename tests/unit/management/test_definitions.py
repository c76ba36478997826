"""Definitions over HTTP: whole or not at all, with RabbitMQ's statuses."""

from __future__ import annotations

import json

import pytest

from broker.config import Settings
from broker.metadata import commands
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import ONE
from tests.unit.metadata.test_definitions import QUEUE, WHOLE

pytestmark = pytest.mark.asyncio

PATH = "/api/definitions"


async def test_an_export_imports_into_another_node_as_it_was():
    async with Rig() as one, Rig() as two:
        assert (await one.ask("POST", PATH, WHOLE)).status == 204
        exported = await one.ask("GET", PATH)
        assert exported.status == 200
        assert exported.headers["Content-Type"] == "application/json"
        assert (await two.ask("POST", PATH, raw=exported.text.encode())).text == ""
        assert (await two.ask("GET", PATH)).json == exported.json
        assert (await two.ask("GET", "/api/all-configuration")).json == exported.json


async def test_a_large_export_is_whole():
    async with Rig() as rig:
        for number in range(2_000):
            rig.control.asker.queue(f"q{number}", arguments={"x-max-length": number})
        found = (await rig.ask("GET", PATH)).json
        assert len(found["queues"]) == 2_000
        assert found["queues"][7]["arguments"] == {"x-max-length": 7}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"queues": [{"name": "q', "failed_to_parse_json: Unterminated string"),
        (b"", "failed_to_parse_json: "),
        (b"[]", "definitions must be a JSON object"),
        (b'{"users": 1}', "users: must be a list, found 1"),
        (b'{"queues": [{"name": "a", "name": "b"}]}', "failed_to_parse_json: an object has a key"),
    ],
)
async def test_half_a_file_and_wrong_types_are_400_in_one_line(body: bytes, reason: str):
    async with Rig() as rig:
        answer = await rig.ask("POST", PATH, raw=body)
        assert answer.status == 400
        assert answer.json["error"] == "bad_request"
        assert answer.json["reason"].startswith(reason)
        assert "\n" not in answer.json["reason"]


async def test_one_fault_at_the_end_keeps_all_from_being_applied():
    async with Rig() as rig:
        bad = {**WHOLE, "bindings": [{**WHOLE["bindings"][0], "destination": "missing"}]}
        before = (await rig.ask("GET", PATH)).json
        answer = await rig.ask("POST", PATH, bad)
        assert answer.status == 400
        assert answer.json["reason"] == (
            "bindings[0]: no queue 'missing' in vhost '/': add it to queues"
        )
        assert answer.json["faults"] == [answer.json["reason"]]
        assert (await rig.ask("GET", PATH)).json == before


async def test_a_dry_run_says_the_difference_and_does_nothing():
    async with Rig() as rig:
        rig.control.asker.queue("q", durable=False)
        before = (await rig.ask("GET", PATH)).json
        answer = await rig.ask("POST", PATH + "?dry_run=true", WHOLE)
        assert answer.status == 200
        assert "user 'ann'" in answer.json["add"]
        assert {"what": "cluster name", "differs": "name"} in answer.json["change"]
        assert "inequivalent arg 'durable' for queue 'q'" in answer.json["left"][0]
        assert (await rig.ask("GET", PATH)).json == before


async def test_a_dry_run_says_what_its_policies_would_touch_together():
    async with Rig() as rig:
        for name in ("x1", "x2", "y"):
            await rig.ask("PUT", f"/api/queues/%2F/{name}", {"durable": True})
        await rig.ask("PUT", "/api/exchanges/%2F/xe", {"type": "fanout"})
        old = {"pattern": "^x", "definition": {"max-length": 9}, "apply-to": "queues"}
        await rig.ask("PUT", "/api/policies/%2F/old", old)
        of = {"vhost": "/", "apply-to": "queues"}
        short = {**of, "name": "short", "pattern": "^x1", "definition": {"max-length": 1}}
        wide = {
            **of,
            "name": "wide",
            "pattern": "^x",
            "definition": {"expires": 7},
            "apply-to": "all",
        }
        value = {"pattern": "y", "definition": {"max-length": 2}, "apply-to": "queues"}
        limit = {"component": "operator_policy", "vhost": "/", "name": "limit", "value": value}
        body = {
            "policies": [
                short | {"priority": 9},
                wide | {"priority": 5},
                of | {"name": "old", **old, "priority": 0},
            ],
            "parameters": [limit],
            "queues": [
                {"vhost": "/", "name": "x3", "durable": True, "auto_delete": False, "arguments": {}}
            ],
            "exchanges": [
                {"vhost": "/", "name": "xf", "type": "fanout", "durable": True, "arguments": {}}
            ],
        }
        found = (await rig.ask("POST", PATH + "?dry_run=true", body)).json
        touched = {
            each["what"]: {queue["name"]: queue["changes"] for queue in each["queues"]}
            for each in found["policies"]
        }
        assert touched == {
            "policy 'short' in vhost '/'": {"x1": {"max-length": [9, 1]}},
            "policy 'wide' in vhost '/'": {
                "x2": {"max-length": [9, None], "expires": [None, 7]},
                "x3": {"expires": [None, 7]},
            },
            "operator policy 'limit' in vhost '/'": {"y": {"max-length": [None, 2]}},
        }
        by_name = {each["what"].split("'")[1]: each for each in found["policies"]}
        counts = {name: each["queues_changed"] for name, each in by_name.items()}
        assert counts == {"short": 1, "wide": 2, "limit": 1}
        assert [each["added"] for each in by_name["wide"]["queues"]] == [False, True]
        assert by_name["wide"]["exchanges"] == [
            {"name": "xe", "policy": None, "policy_after": "wide", "added": False},
            {"name": "xf", "policy": None, "policy_after": "wide", "added": True},
        ]
        assert (await rig.ask("GET", "/api/policies/%2F/short")).status == 404
        assert (await rig.ask("POST", PATH, body)).status == 204
        effective = {
            name: (await rig.ask("GET", f"/api/queues/%2F/{name}")).json[
                "effective_policy_definition"
            ]
            for name in ("x1", "x2", "x3", "y")
        }
        assert effective == {
            "x1": {"max-length": 1},
            "x2": {"expires": 7},
            "x3": {"expires": 7},
            "y": {"max-length": 2},
        }
        again = (await rig.ask("POST", PATH + "?dry_run=true", body)).json
        assert (again["policies"], again["change"]) == ([], [])


async def test_a_queue_of_a_new_vhost_has_its_default_type_in_a_dry_run():
    async with Rig() as rig:
        queue = {"vhost": "v", "name": "q", "durable": True, "auto_delete": False, "arguments": {}}
        policy = {"vhost": "v", "name": "p", "pattern": "", "definition": {"delivery-limit": 3}}
        body = {
            "vhosts": [{"name": "v", "default_queue_type": "quorum"}],
            "policies": [policy | {"apply-to": "quorum_queues"}],
            "queues": [queue],
        }
        found = (await rig.ask("POST", PATH + "?dry_run=true", body)).json
        (touched,) = found["policies"]
        assert [(each["name"], each["type"]) for each in touched["queues"]] == [("q", "quorum")]


async def test_of_many_queues_that_policies_touch_some_are_named_and_all_counted():
    async with Rig() as rig:
        for number in range(120):
            rig.control.asker.queue(f"q{number}")
        policies = [
            {"vhost": "/", "name": f"p{end}", "pattern": f"{end}$", "definition": {"max-length": 1}}
            for end in range(10)
        ]
        found = (await rig.ask("POST", PATH + "?dry_run=true", {"policies": policies})).json
        counts = [(each["queues_changed"], len(each["queues"])) for each in found["policies"]]
        assert counts == [(12, 10)] * 10


async def test_passwords_in_clear_are_hashed_and_stay_when_they_are_the_users_already():
    async with Rig() as rig:
        body = {"users": [{"name": "u", "password": "open sesame", "tags": ["management"]}]}
        assert (await rig.ask("POST", PATH, body)).status == 204
        stored = rig.catalogue.user("u").password_hash
        assert (await rig.ask("GET", "/api/whoami", user="u", password="open sesame")).status == 200
        summary = (await rig.ask("POST", PATH + "?summary=true", body)).json
        assert (summary["added"], summary["changed"], summary["unchanged"]) == (0, 0, 1)
        assert rig.catalogue.user("u").password_hash == stored


async def test_an_unchanged_document_is_skipped_where_that_is_asked_for():
    async with Rig() as rig:
        path = PATH + "?skip_if_unchanged=true&summary=true"
        raw = json.dumps({"queues": [QUEUE]}).encode()
        assert (await rig.ask("POST", path, raw=raw)).json["added"] == 1
        rig.control.asker.ask(commands.DeleteQueue(rig.catalogue.queue("/", "q").uid))
        assert (await rig.ask("POST", path, raw=raw)).json == {"skipped": True}
        assert (await rig.ask("POST", path, raw=raw + b" ")).json["added"] == 1
        assert "imported_definition" not in (await rig.ask("GET", PATH)).text


async def test_one_vhost_has_its_own_document():
    async with Rig() as rig:
        await rig.ask("POST", PATH, WHOLE)
        found = (await rig.ask("GET", PATH + "/v")).json
        assert found["queues"] == [
            {
                "name": "qq",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-queue-type": "quorum"},
            }
        ]
        rig.control.asker.ask(commands.AddVhost("w"))
        assert (await rig.ask("POST", PATH + "/w", found)).status == 204
        assert (await rig.ask("GET", PATH + "/w")).json == found
        missing = await rig.ask("GET", PATH + "/none")
        assert (missing.status, missing.json["reason"]) == (400, "vhost_not_found")
        missing = await rig.ask("POST", PATH + "/none", {})
        assert (missing.status, missing.json["error"]) == (404, "not_found")


async def test_only_administrators_export_and_import():
    async with Rig() as rig:
        for user in ("mon", "man"):
            assert (await rig.ask("GET", PATH, user=user)).status == 403
            assert (await rig.ask("POST", PATH, {}, user=user)).status == 403
        assert (await rig.ask("GET", PATH, user=None)).status == 401


async def test_a_download_has_a_name_that_breaks_no_header():
    async with Rig() as rig:
        found = await rig.ask("GET", PATH + "?download=a%0d%0ab.json")
        assert found.headers["Content-Disposition"] == "attachment; filename=a__b.json"


async def test_a_body_over_the_limit_is_413_and_changes_nothing():
    async with Rig(Settings(node_name=ONE, management_max_body_bytes=100)) as rig:
        assert (await rig.ask("POST", PATH, WHOLE)).status == 413
        assert rig.catalogue.user("ann") is None
