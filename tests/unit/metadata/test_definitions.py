"""Definitions: documents are read and planned whole, and what is exported imports as it was."""

from __future__ import annotations

import json

import pytest

from broker.metadata import commands
from broker.metadata.commands import AddUser, DeclareQueue, SetClusterName, SetPolicy
from broker.metadata.definitions import export, planning, reading
from broker.metadata.definitions.document import IMPORTED_HASH, Faults
from broker.metadata.definitions.planning import Plan
from broker.passwords import hash_password
from tests.unit.metadata.cluster import ONE, founded

HASH = hash_password("secret", b"salt")
QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
EXCHANGE = {**QUEUE, "name": "x", "type": "topic", "internal": False}
BINDING = {
    "vhost": "/",
    "source": "x",
    "destination": "q",
    "destination_type": "queue",
    "routing_key": "a.#",
    "arguments": {},
}
WHOLE = {
    "rabbit_version": "3.13.7",
    "rabbitmq_version": "3.13.7",
    "product_name": "RabbitMQ",
    "users": [
        {
            "name": "ann",
            "password_hash": HASH,
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["monitoring"],
            "limits": {"max-channels": 5},
        }
    ],
    "vhosts": [{"name": "/"}, {"name": "v", "description": "two", "tags": ["a"]}],
    "permissions": [{"user": "ann", "vhost": "v", "configure": "", "write": "^a", "read": ".*"}],
    "topic_permissions": [
        {"user": "ann", "vhost": "v", "exchange": "amq.topic", "write": "^a", "read": ".*"}
    ],
    "parameters": [
        {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 9}},
        {
            "vhost": "v",
            "component": "operator_policy",
            "name": "cap",
            "value": {
                "pattern": ".*",
                "definition": {"max-length": 10},
                "priority": 1,
                "apply-to": "queues",
            },
        },
    ],
    "global_parameters": [
        {"name": "cluster_name", "value": "ours"},
        {"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-x"},
        {"name": "shown", "value": {"a": [1, True]}},
    ],
    "policies": [
        {
            "vhost": "v",
            "name": "ttl",
            "pattern": "^q",
            "apply-to": "queues",
            "definition": {"message-ttl": 60_000},
            "priority": 0,
        }
    ],
    "queues": [
        QUEUE,
        {**QUEUE, "name": "qq", "vhost": "v", "arguments": {"x-queue-type": "quorum"}},
        {**QUEUE, "name": "amq.gen-x", "durable": False},
    ],
    "exchanges": [EXCHANGE, {**EXCHANGE, "vhost": "v"}],
    "bindings": [
        BINDING,
        {**BINDING, "vhost": "v", "destination": "qq"},
        {**BINDING, "destination": "amq.fanout", "destination_type": "exchange"},
        {**BINDING, "source": "amq.headers", "arguments": {"x-match": "all", "n": 1}},
    ],
}


def run(work):
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def read(document, vhost=None):
    return run(reading.read(document, vhost))


def planned(document, asker, vhost=None, limit=None, limits=None):
    definitions = read(document, vhost)
    if isinstance(definitions, Faults):
        return definitions
    limits = planning.Limits(queues=limit) if limits is None else limits
    return run(planning.plan(definitions, asker.machine.catalogue, limits))


def imported(document, asker, vhost=None) -> Plan:
    plan = planned(document, asker, vhost)
    assert isinstance(plan, Plan), plan.texts
    for change in plan.changes:
        command = change.command
        if isinstance(command, DeclareQueue):
            command = commands.DeclareQueue(
                **{name: getattr(command, name) for name in command.__struct_fields__}
                | {"home": ONE}
            )
        result = asker.ask(command)
        assert not hasattr(result, "code"), (change, result)
    return plan


def document_of(asker, vhost=None):
    catalogue = asker.machine.catalogue
    of_vhost = vhost is not None
    found = export.head("RabbitMQ", "3.13.7", of_vhost=of_vhost)
    for section in export.select(catalogue, vhost):
        found[section.name] = [export.item(each, of_vhost=of_vhost) for each in section.records]
    return json.loads(json.dumps(found))


def test_an_import_does_all_that_the_document_says_and_a_second_one_nothing():
    asker = founded()
    plan = imported(WHOLE, asker)
    catalogue = asker.machine.catalogue
    assert plan.left == ()
    assert catalogue.user("ann").password_hash == HASH
    assert catalogue.user("ann").limits == {"max-channels": 5}
    assert catalogue.vhost("v").description == "two"
    assert catalogue.permission("ann", "v").configure == ""
    assert catalogue.topic_permission("ann", "v", "amq.topic").write == "^a"
    assert catalogue.vhost_limit("v", "max-queues") == 9
    assert catalogue.policy("v", "cap", operator=True).definition == {"max-length": 10}
    assert catalogue.policy("v", "ttl").definition == {"message-ttl": 60_000}
    assert catalogue.cluster_name == "ours"
    assert catalogue.cluster_id == "cluster-1"
    assert catalogue.queue("v", "qq").type == "quorum"
    assert not catalogue.queue("/", "amq.gen-x").durable
    assert {each.destination for each in catalogue.bindings_from("/", "x")} == {"q", "amq.fanout"}
    again = planned(WHOLE, asker)
    assert again.changes == []
    assert again.left == ()
    assert (
        again.unchanged == plan.unchanged + len(plan.changes) - 1
    )  # a user and its limits are one


def test_what_is_exported_imports_into_another_cluster_as_it_was():
    one, two = founded(), founded()
    imported(WHOLE, one)
    one.queue("mine", exclusive_owner=f"{ONE}/{'1' * 16}/1", durable=False)
    one.bind("x", "mine", "k")
    one.ask(commands.SetParameter("", "", IMPORTED_HASH, "sha256:00"))
    exported = document_of(one)
    assert "mine" not in json.dumps(exported)
    assert IMPORTED_HASH not in json.dumps(exported)
    assert not [each for each in exported["exchanges"] if each["name"].startswith("amq.")]
    imported(exported, two)
    assert document_of(two) == exported
    assert list(exported) == [
        *("rabbit_version", "rabbitmq_version", "product_name", "product_version"),
        *("users", "vhosts", "permissions", "topic_permissions", "parameters"),
        *("global_parameters", "policies", "queues", "exchanges", "bindings"),
    ]


def test_a_vhost_is_exported_without_its_name_and_imports_into_another():
    asker = founded()
    imported(WHOLE, asker)
    asker.ask(commands.AddVhost("copy"))
    exported = document_of(asker, "v")
    assert "vhost" not in {key for each in exported["queues"] for key in each}
    assert next(iter(exported)) == "rabbit_version"
    assert "users" not in exported
    plan = imported(exported, asker, "copy")
    assert plan.left == ()
    assert document_of(asker, "copy") == exported


def test_an_import_into_one_vhost_leaves_users_and_others_alone():
    asker = founded()
    document = {**WHOLE, "queues": [QUEUE], "exchanges": [], "bindings": []}
    for section in ("parameters", "policies"):
        document[section] = []
    asker.ask(commands.AddVhost("w"))
    plan = imported(document, asker, "w")
    assert [change.what for change in plan.changes] == ["queue 'q' in vhost 'w'"]
    assert "users: not imported into one vhost" in plan.left
    assert asker.machine.catalogue.user("ann") is None


def test_objects_of_several_vhosts_are_not_mixed_into_one():
    faults = read(WHOLE, "w")
    assert "several virtual hosts ('/', 'v')" in faults.line


def test_what_is_there_and_differs_stays_and_is_told():
    asker = founded()
    asker.queue("q", durable=False)
    asker.exchange("x", "fanout")
    plan = planned({"queues": [QUEUE], "exchanges": [EXCHANGE]}, asker)
    assert plan.changes == []
    assert plan.left == (
        "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is "
        "'fanout'",
        "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is "
        "'false'",
    )


def test_a_difference_names_what_of_a_user_a_vhost_or_a_policy_changes():
    asker = founded()
    imported(WHOLE, asker)
    document = json.loads(json.dumps(WHOLE))
    document["users"][0] |= {"tags": [], "limits": {}}
    document["vhosts"][1]["description"] = "three"
    document["policies"][0]["priority"] = 4
    plan = planned(document, asker)
    assert [(change.what, change.detail, change.is_new) for change in plan.changes] == [
        ("user 'ann'", "tags", False),
        ("limits of user 'ann'", "limits", False),
        ("vhost 'v'", "description", False),
        ("policy 'ttl' in vhost 'v'", "priority", False),
    ]


FAULTY = {
    "queues": (5, "queues: must be a list, found 5"),
    "users": ([7], "users[0]: must be an object, found 7"),
    "bindings": (
        [{**BINDING, "source": "amq.direct", "destination": "no"}],
        "bindings[0]: no queue 'no' in vhost '/': add it to queues",
    ),
    "bindings ": (
        [{**BINDING, "source": "no"}],
        "bindings[0]: no exchange 'no' in vhost '/': add it to exchanges",
    ),
    "queues ": (
        [{**QUEUE, "vhost": "no"}],
        "queues[0]: no vhost 'no': add it to vhosts",
    ),
    "queues  ": (
        [{"name": "q"}],
        'queues[0] ("q"): vhost is missing; a file of one vhost is imported into one (--vhost)',
    ),
    "queues   ": (
        [{**QUEUE, "name": 7}],
        "queues[0]: name must be a string, found 7",
    ),
    "queues    ": (
        [{**QUEUE, "durable": "yes"}],
        'queues[0] ("q"): durable must be true or false, found "yes"',
    ),
    "queues     ": (
        [{**QUEUE, "arguments": {"x-max-length": -1}}],
        "queues[0]: invalid arg 'x-max-length' for queue 'q' in vhost '/': {value_negative,-1}",
    ),
    "queues      ": (
        [QUEUE, {**QUEUE, "durable": False}],
        "queues[1]: the document has the same name in queues[0], and it differs",
    ),
    "queues       ": (
        [{**QUEUE, "name": "amq.q"}],
        "queues[0]: queue name 'amq.q' contains reserved prefix 'amq.*'",
    ),
    "exchanges": (
        [{**EXCHANGE, "type": "x-none"}],
        "exchanges[0]: unknown exchange type 'x-none'",
    ),
    "users ": (
        [{"name": "u", "password_hash": HASH, "hashing_algorithm": "rot13", "tags": ""}],
        'users[0] ("u"): unknown hashing_algorithm "rot13"; known: '
        "rabbit_password_hashing_sha256, rabbit_password_hashing_sha512, "
        "rabbit_password_hashing_md5, warrenmq_password_hashing_scrypt",
    ),
    "users  ": (
        [{"name": "u", "password_hash": "xx", "tags": ""}],
        'users[0] ("u"): password_hash must be base64',
    ),
    "users   ": (
        [{"name": "u", "password_hash": HASH, "password": "p", "tags": ""}],
        'users[0] ("u"): both_password_and_password_hash_are_provided',
    ),
    "permissions": (
        [{"user": "no", "vhost": "/", "configure": "", "write": "", "read": ""}],
        "permissions[0]: no user 'no': add it to users",
    ),
    "permissions ": (
        [{"user": "guest", "vhost": "/", "configure": "(", "write": "", "read": ""}],
        "permissions[0]: invalid_regexp: configure: missing ): (",
    ),
    "policies": (
        [{"vhost": "/", "name": "p", "pattern": "(", "definition": {"max-length": 1}}],
        'policies[0] ("p"): Validation failed: pattern should be regular expression but is '
        "invalid: missing ): (",
    ),
    "parameters": (
        [{"vhost": "/", "component": "made-up", "name": "n", "value": 1}],
        'parameters[0] ("n"): component made-up not found',
    ),
}


@pytest.mark.parametrize(("section", "items", "text"), [(k, *v) for k, v in FAULTY.items()])
def test_bad_input_is_one_clear_line_that_names_the_object(section, items, text):
    found = planned({section.strip(): items}, founded())
    assert isinstance(found, Faults)
    assert found.line == text
    assert "\n" not in text


def test_what_is_no_document_of_definitions_is_refused():
    assert read([]).line == "definitions must be a JSON object, found []"
    assert "none of users, vhosts" in read({"queue": []}).line
    assert not isinstance(read({}), Faults)


def test_an_object_that_is_too_large_for_the_log_is_refused_before_anything_is_changed():
    large = {"name": "b", "description": "x" * 2**20}
    faults = planned({"vhosts": [{"name": "a"}, large]}, founded())
    assert faults.line.startswith("vhost 'b': the change has 10485")
    assert faults.line.endswith(" bytes; the most is 1048576")


def test_all_faults_are_counted_and_the_first_hundred_kept():
    faults = read({"queues": [1] * 300})
    assert (faults.count, len(faults.texts)) == (300, 100)
    assert faults.line == "queues[0]: must be an object, found 1 (and 299 more)"


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        (
            planning.Limits(exchanges=14),
            "exchanges: exchange limit in cluster (14) would be exceeded: "
            "7 are there, 8 would be added",
        ),
        (planning.Limits(exchanges=15, vhosts=2), None),
        (
            planning.Limits(vhosts=1),
            "vhosts: vhost limit in cluster (1) would be exceeded: 1 are there, 1 would be added",
        ),
    ],
)
def test_exchanges_that_come_with_a_vhost_count(limits, fault):
    asker = founded()
    exchange = {"name": "x", "vhost": "new", "type": "fanout"}
    exchange |= {"durable": True, "auto_delete": False, "internal": False, "arguments": {}}
    document = {"vhosts": [{"name": "new"}, {"name": "/"}], "exchanges": [exchange]}
    found = planned(document, asker, limits=limits)
    assert getattr(found, "line", None) == fault


def test_more_queues_than_a_limit_allows_are_refused_before_any_is_declared():
    asker = founded()
    asker.queue("there")
    document = {
        "queues": [QUEUE, {**QUEUE, "name": "r"}],
        "parameters": [
            {
                "vhost": "/",
                "component": "vhost-limits",
                "name": "limits",
                "value": {"max-queues": 2},
            }
        ],
    }
    faults = planned(document, asker)
    assert faults.line == (
        "queues: queue limit in vhost '/' (2) would be exceeded: 1 are there, 2 would be added"
    )
    faults = planned({"queues": document["queues"]}, asker, limit=2)
    assert "queue limit in cluster (2) would be exceeded" in faults.line


def test_the_type_beside_the_arguments_counts_where_the_default_is_another():
    asker = founded()
    asker.ask(commands.AddVhost("d", default_queue_type="quorum"))
    one = {**QUEUE, "vhost": "d"}
    document = {"queues": [{**one, "type": "classic"}, {**one, "name": "r"}]}
    imported(document, asker)
    catalogue = asker.machine.catalogue
    assert catalogue.queue("d", "q").type == "classic"
    assert catalogue.queue("d", "r").type == "quorum"
    imported({"queues": [{**QUEUE, "type": "quorum"}]}, asker)
    assert catalogue.queue("/", "q").type == "quorum"


def test_a_classic_queue_in_a_vhost_of_quorum_queues_is_exported_with_its_type():
    asker = founded()
    asker.queue("q")
    asker.ask(commands.AddVhost("/", default_queue_type="quorum"))
    assert document_of(asker)["queues"][0]["arguments"] == {"x-queue-type": "classic"}


def test_old_files_say_tags_with_commas_hash_with_md5_and_lists_for_no_arguments():
    document = {
        "rabbit_version": "3.5.7",
        "users": [
            {
                "name": "u",
                "password_hash": hash_password("p", b"salt", "rabbit_password_hashing_md5"),
                "tags": "administrator,monitoring",
            }
        ],
        "queues": [{**QUEUE, "arguments": []}],
    }
    asker = founded()
    plan = imported(document, asker)
    assert isinstance(plan.changes[0].command, AddUser)
    user = asker.machine.catalogue.user("u")
    assert user.tags == ("administrator", "monitoring")
    assert user.hashing_algorithm == "rabbit_password_hashing_md5"


def test_policies_apply_before_queues_are_declared_and_bindings_come_last():
    kinds = [type(change.command).__name__ for change in imported(WHOLE, founded()).changes]
    assert [kind for kind in dict.fromkeys(kinds) if kind != SetClusterName.__name__] == [
        *("AddUser", "SetUserLimits", "AddVhost", "SetPermissions", "SetTopicPermissions"),
        *("SetParameter", "SetPolicy", "DeclareExchange", "DeclareQueue", "Bind"),
    ]
    assert kinds.count(SetPolicy.__name__) == 2
