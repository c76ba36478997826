"""Policies over HTTP: statuses, texts and rights as a RabbitMQ 3.10.8 node gave them."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from broker.passwords import hash_password
from tests.unit.management.rig import SALT, Rig

pytestmark = pytest.mark.asyncio

BODY = {"pattern": "^x", "definition": {"max-length": 1}}
SHOWN = {
    "vhost": "/",
    "name": "p",
    "pattern": "^x",
    "apply-to": "all",
    "definition": {"max-length": 1},
    "priority": 0,
}
KINDS = pytest.mark.parametrize("kind", ["policies", "operator-policies"])


@KINDS
async def test_life_of_a_policy(kind):
    async with Rig() as rig:
        path = f"/api/{kind}/%2F/p"
        assert (await rig.ask("GET", path)).status == 404
        assert (await rig.ask("PUT", path, BODY)).status == 201
        assert (await rig.ask("GET", path)).json == SHOWN
        more = {**BODY, "priority": 2, "apply-to": "queues", "foo": 1, "name": "other"}
        assert (await rig.ask("PUT", path, more)).status == 204
        changed = {**SHOWN, "priority": 2, "apply-to": "queues"}
        assert (await rig.ask("GET", path)).json == changed
        await rig.ask("PUT", f"/api/{kind}/%2F/low", {**BODY, "priority": -1.5})
        for where in ("", "/%2F"):
            found = (await rig.ask("GET", f"/api/{kind}{where}")).json
            assert [each["name"] for each in found] == ["low", "p"]
        other = "operator-policies" if kind == "policies" else "policies"
        assert (await rig.ask("GET", f"/api/{other}")).json == []
        assert (await rig.ask("DELETE", path)).status == 204
        assert (await rig.ask("DELETE", path)).status == 404
        for method in ("GET", "PUT", "DELETE"):
            assert (await rig.ask(method, f"/api/{kind}/nope/p", BODY)).status == 404
        assert (await rig.ask("GET", f"/api/{kind}/nope")).status == 404


@KINDS
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "[{key_missing,pattern},{key_missing,definition}]"),
        ({"pattern": "x"}, "[{key_missing,definition}]"),
        (
            {**BODY, "definition": {"foo": 1}},
            'Validation failed\n\n[{<<"foo">>,1}] are not recognised policy settings\n',
        ),
        ({**BODY, "definition": {}}, "Validation failed\n\nno policy provided\n"),
        (
            {**BODY, "definition": {"ha-mode": "exactly"}},
            'Validation failed\n\nha-mode="exactly" takes an integer, none given\n',
        ),
        (
            {**BODY, "priority": "5"},
            'Validation failed\n\npriority should be a number, actually was <<"5">>\n',
        ),
        (
            {**BODY, "pattern": "("},
            "Validation failed\n\npattern should be regular expression but is invalid: missing ): ("
            "\n",
        ),
    ],
)
async def test_what_is_wrong_is_said_and_not_stored(kind, body, reason):
    async with Rig() as rig:
        answer = await rig.ask("PUT", f"/api/{kind}/%2F/p", body)
        assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": reason})
        assert (await rig.ask("GET", f"/api/{kind}")).json == []


@pytest.mark.parametrize("definition", ["str", 5, [1], [], None])
async def test_a_definition_that_is_no_object_is_400(definition):
    async with Rig() as rig:
        answer = await rig.ask("PUT", "/api/policies/%2F/p", {**BODY, "definition": definition})
        assert answer.status == 400
        assert answer.json["reason"].startswith("Validation failed\n\ndefinition must be a dict")


@pytest.mark.parametrize("tag", ["management", "policymaker", "monitoring", "administrator"])
@pytest.mark.parametrize("is_granted", [False, True])
async def test_who_may_what(tag, is_granted):
    async with Rig() as rig:
        ask = rig.control.asker.ask
        ask(commands.AddUser("u", hash_password("u", SALT), tags=(tag,)))
        if is_granted:
            ask(commands.SetPermissions("u", "/", "", "", ""))
        for operator in (False, True):
            ask(commands.SetPolicy("/", "p", "^x", {"max-length": 1}, operator=operator))
        sees = is_granted or tag in ("monitoring", "administrator")
        makes = tag == "administrator" or (tag == "policymaker" and is_granted)
        for kind, may in (("policies", makes), ("operator-policies", tag == "administrator")):
            listed = await rig.ask("GET", f"/api/{kind}", user="u")
            assert (listed.status, len(listed.json)) == (200, 1 if sees else 0)
            assert (await rig.ask("GET", f"/api/{kind}/%2F", user="u")).status == (
                200 if sees else 401
            )
            path = f"/api/{kind}/%2F/p"
            statuses = [
                (await rig.ask(method, path, BODY, user="u")).status
                for method in ("GET", "PUT", "DELETE")
            ]
            if may:
                assert statuses == [200, 204, 204]
            else:
                assert set(statuses) <= {401, 403}
                assert rig.catalogue.policy("/", "p", operator=kind != "policies") is not None


async def test_queues_and_exchanges_show_what_applies():
    async with Rig() as rig:
        asker = rig.control.asker
        asker.queue("xq")
        asker.queue("other")
        asker.exchange("xe")
        definition = {"ha-mode": "nodes", "ha-params": ["rabbit@nobody"], "max-length": 9}
        await rig.ask("PUT", "/api/policies/%2F/p", {**BODY, "definition": definition})
        await rig.ask("PUT", "/api/operator-policies/%2F/o", BODY)
        queue = (await rig.ask("GET", "/api/queues/%2F/xq")).json
        assert (queue["policy"], queue["operator_policy"]) == ("p", "o")
        assert queue["effective_policy_definition"] == {**definition, "max-length": 1}
        columns = "name,policy,operator_policy,effective_policy_definition"
        listed = (await rig.ask("GET", f"/api/queues/%2F?columns={columns}")).json
        assert listed == [
            {
                "name": "other",
                "policy": None,
                "operator_policy": None,
                "effective_policy_definition": {},
            },
            {key: queue[key] for key in columns.split(",")},
        ]
        assert (await rig.ask("GET", "/api/exchanges/%2F/xe")).json["policy"] == "p"
        exchanges = (await rig.ask("GET", "/api/exchanges/%2F")).json
        assert {each["name"]: each["policy"] for each in exchanges if each["policy"]} == {"xe": "p"}
        await rig.ask("DELETE", "/api/policies/%2F/p")
        queue = (await rig.ask("GET", "/api/queues/%2F/xq")).json
        assert (queue["policy"], queue["effective_policy_definition"]) == (None, {"max-length": 1})
