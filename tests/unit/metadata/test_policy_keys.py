"""The keys and values of policies. The texts are those of a RabbitMQ 3.10.8 node, as it printed
them; those of newer keys are 3.13's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.policies import Policy
from broker.metadata.policy_keys import (
    FEDERATION_KEYS,
    NO_FEDERATION,
    OPERATOR_KEYS,
    USER_KEYS,
    fault,
    stored_fault,
    term,
    validate_definition,
)

NO_MODE = "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({}, "no policy provided"),
        ("str", 'definition must be a dictionary: <<"str">>'),
        ([1], "definition must be a dictionary: [1]"),
        (None, "definition must be a dictionary: null"),
        ({"foo": 1}, '[{<<"foo">>,1}] are not recognised policy settings'),
        (
            {"foo": 1, "bar": "x", "message-ttl": 5},
            '[{<<"bar">>,<<"x">>},{<<"foo">>,1}] are not recognised policy settings',
        ),
        ({"message-ttl": -1}, "-1 is not a valid message TTL"),
        ({"message-ttl": "x"}, '<<"x">> is not a valid message TTL'),
        ({"message-ttl": 1.5}, "1.5 is not a valid message TTL"),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"expires": "a"}, '<<"a">> is not a valid queue expiry'),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"max-length-bytes": True}, "true is not a valid maximum length in bytes"),
        ({"max-in-memory-length": -1}, "-1 is not a valid maximum memory in bytes"),
        ({"max-in-memory-bytes": "x"}, '<<"x">> is not a valid maximum memory in bytes'),
        ({"queue-mode": "x"}, '<<"x">> is not a valid queue-mode value'),
        ({"queue-mode": 1}, "1 is not a valid queue-mode value"),
        ({"queue-version": 3}, "3 is not a valid queue-version value"),
        ({"queue-version": True}, "true is not a valid queue-version value"),
        ({"overflow": "x"}, '<<"x">> is not a valid overflow value'),
        ({"delivery-limit": -1}, "-1 is not a valid delivery limit"),
        ({"dead-letter-exchange": 1}, "1 is not a valid dead letter exchange name"),
        ({"dead-letter-routing-key": 1}, "1 is not a valid dead letter routing key"),
        ({"dead-letter-strategy": "x"}, '<<"x">> is not a valid dead letter strategy'),
        ({"alternate-exchange": 1}, "1 is not a valid alternate exchange name"),
        ({"queue-master-locator": "x"}, '<<"x">> invalid queue-master-locator value'),
        ({"queue-leader-locator": "x"}, '<<"x">> is not a valid queue leader locator value'),
        ({"initial-cluster-size": "x"}, '<<"x">> is not a valid cluster size'),
        ({"max-age": "x"}, '<<"x">> is not a valid max age'),
        ({"max-age": "0D"}, '<<"0D">> is not a valid max age'),
        ({"max-age": 7}, "7 is not a valid max age"),
        ({"stream-max-segment-size-bytes": -1}, "-1 is not a valid segment size"),
        (
            {"stream-max-segment-size-bytes": 3_000_000_001},
            "3000000001 is not a valid segment size",
        ),
        ({"consumer-timeout": "x"}, '<<"x">> is not a valid consumer timeout'),
        ({"routing-key": "k"}, "shards-per-node must be specified"),
        ({"shards-per-node": "2"}, 'shards-per-node should be a number, actually was <<"2">>'),
        ({"shards-per-node": True}, "shards-per-node should be a number, actually was true"),
        ({"shards-per-node": -1}, "shards-per-node should be greater than 0, actually was -1"),
        (
            {"shards-per-node": 1, "routing-key": 7},
            "routing-key should be binary, actually was 7",
        ),
        ({"ha-mode": "x"}, '<<"x">> is not a valid ha-mode value'),
        ({"ha-mode": 5}, "5 is not a valid ha-mode value"),
        ({"ha-mode": "all", "ha-params": 2}, 'ha-mode="all" does not take parameters'),
        ({"ha-mode": "all", "ha-params": []}, 'ha-mode="all" does not take parameters'),
        ({"ha-mode": "exactly"}, 'ha-mode="exactly" takes an integer, none given'),
        (
            {"ha-mode": "exactly", "ha-params": "x"},
            'ha-mode="exactly" takes an integer, <<"x">> given',
        ),
        ({"ha-mode": "exactly", "ha-params": 0}, 'ha-mode="exactly" takes an integer, 0 given'),
        ({"ha-mode": "exactly", "ha-params": 2.5}, 'ha-mode="exactly" takes an integer, 2.5 given'),
        (
            {"ha-mode": "exactly", "ha-params": ["a"]},
            'ha-mode="exactly" takes an integer, [<<"a">>] given',
        ),
        ({"ha-mode": "nodes"}, 'ha-mode="nodes" takes a list, none given'),
        ({"ha-mode": "nodes", "ha-params": []}, 'ha-mode="nodes" list must be non-empty'),
        ({"ha-mode": "nodes", "ha-params": "a"}, 'ha-mode="nodes" takes a list, <<"a">> given'),
        (
            {"ha-mode": "nodes", "ha-params": ["a", 1]},
            'ha-mode="nodes" takes a list of strings, [1] was not a string',
        ),
        (
            {"ha-mode": "nodes", "ha-params": [1, {"a": 1}]},
            'ha-mode="nodes" takes a list of strings, [1,#{<<"a">> => 1}] was not a string',
        ),
        ({"ha-params": 2}, NO_MODE),
        ({"ha-sync-mode": "automatic"}, NO_MODE),
        ({"ha-promote-on-shutdown": "always"}, NO_MODE),
        ({"ha-promote-on-failure": "always"}, NO_MODE),
        ({"ha-sync-batch-size": 5}, NO_MODE),
        ({"warren-promote": "oldest"}, NO_MODE),
        (
            {"ha-mode": "all", "ha-sync-mode": "x"},
            'ha-sync-mode must be "manual" or "automatic", got <<"x">>',
        ),
        (
            {"ha-mode": "all", "ha-sync-mode": 1},
            'ha-sync-mode must be "manual" or "automatic", got 1',
        ),
        (
            {"ha-mode": "all", "ha-sync-batch-size": 0},
            "ha-sync-batch-size takes an integer greater than 0, 0 given",
        ),
        (
            {"ha-mode": "all", "ha-sync-batch-size": "x"},
            'ha-sync-batch-size takes an integer greater than 0, <<"x">> given',
        ),
        (
            {"ha-mode": "all", "ha-promote-on-shutdown": "x"},
            'ha-promote-on-shutdown must be "always" or "when-synced", got <<"x">>',
        ),
        (
            {"ha-mode": "all", "ha-promote-on-failure": 1},
            'ha-promote-on-failure must be "always" or "when-synced", got 1',
        ),
        (
            {"ha-mode": "all", "warren-promote": "x"},
            'warren-promote must be "synchronised" or "oldest", got <<"x">>',
        ),
        (
            {"ha-mode": "all", "warren-sync": 1},
            'warren-sync must be "blocking" or "online", got 1',
        ),
        # which of several is reported
        ({"ha-mode": "bad", "ha-params": 1, "foo": 2}, '<<"bad">> is not a valid ha-mode value'),
        (
            {"ha-mode": "exactly", "ha-params": [], "ha-sync-mode": "bad"},
            'ha-mode="exactly" takes an integer, [] given',
        ),
        ({"message-ttl": -1, "ha-mode": "bad"}, "-1 is not a valid message TTL"),
        ({"message-ttl": -1, "expires": 0}, "0 is not a valid queue expiry"),
    ],
)
def test_wrong_definitions(definition, text):
    """Rows: 1.12 keys"""
    assert validate_definition(definition, operator=False) == text


@pytest.mark.parametrize(
    "definition",
    [
        {"message-ttl": 0},
        {"message-ttl": 315360000001},
        {"expires": 1},
        {"max-length": 0},
        {"queue-mode": "lazy"},
        {"queue-version": 2},
        {"overflow": "reject-publish-dlx"},
        {"delivery-limit": 0},
        {"dead-letter-exchange": "", "dead-letter-routing-key": "x"},
        {"dead-letter-routing-key": "x"},
        {"alternate-exchange": "a"},
        {"queue-master-locator": "min-masters"},
        {"queue-leader-locator": "balanced"},
        {"initial-cluster-size": 0},
        {"max-age": "7D"},
        {"ha-mode": "all", "ha-sync-batch-size": 10},
        {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"},
        {"ha-mode": "nodes", "ha-params": ["rabbit@nobody"]},
        {"ha-mode": "all", "warren-promote": "oldest", "warren-sync": "online"},
    ],
)
def test_right_definitions(definition):
    """Rows: 1.12 keys"""
    assert validate_definition(definition, operator=False) is None


@pytest.mark.parametrize("key", sorted(FEDERATION_KEYS))
@pytest.mark.parametrize("operator", [False, True])
def test_federation_is_refused_in_rabbitmqs_words_without_the_plugin(key, operator):
    text = f'[{{<<"{key}">>,<<"all">>}}] are not recognised policy settings: {NO_FEDERATION}'
    assert validate_definition({"expires": 1, key: "all"}, operator=operator) == text


def test_stored_policies_with_federation_are_named():
    idle = [
        Policy("v", f"p{n}", "", "all", 0, {"federation-upstream-set": "all"}) for n in "1234567"
    ]
    others = [Policy("v", "q", "", "all", 0, {"expires": 1})]
    assert stored_fault(others) is None
    assert stored_fault([*others, *idle[:1]]) == f"'p1' in vhost 'v': {NO_FEDERATION}"
    assert str(stored_fault(idle)).startswith("'p1' in vhost 'v', 'p2' in vhost 'v', ")
    assert " and 2 more: " in str(stored_fault(idle))


@pytest.mark.parametrize("key", sorted(USER_KEYS - OPERATOR_KEYS))
def test_operators_have_fewer_keys(key):
    """Rows: 1.12 operator policy keys"""
    text = f'[{{<<"{key}">>,1}}] are not recognised policy settings'
    assert validate_definition({"expires": 1, key: 1}, operator=True) == text


def test_operators_keys_of_mirroring_are_checked_too():
    assert validate_definition({"ha-params": 2}, operator=True) == NO_MODE
    right = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
    assert validate_definition(right, operator=True) is None
    assert validate_definition({**right, "ha-sync-mode": "x"}, operator=True) is not None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pattern": 5}, "pattern should be a binary but was 5"),
        ({"pattern": "("}, "pattern should be regular expression but is invalid: missing ): ("),
        ({"pattern": "(?=a)"}, "pattern should be regular expression but is invalid: "),
        ({"priority": "5"}, 'priority should be a number, actually was <<"5">>'),
        ({"priority": None}, "priority should be a number, actually was null"),
        ({"priority": True}, "priority should be a number, actually was true"),
        ({"apply_to": "foo"}, "apply-to 'foo' unrecognised; should be one of: 'queues', "),
        ({"apply_to": None}, "apply-to 'null' unrecognised; "),
        ({"apply_to": 5}, "apply-to '5' unrecognised; "),
        ({"name": "n" * 256}, "the policy's name is longer than 255 bytes"),
        ({"definition": {}}, "no policy provided"),
        ({"priority": -3}, None),
        ({"priority": 1.5, "pattern": "", "apply_to": "quorum_queues"}, None),
    ],
)
def test_the_rest_of_a_policy(changes, text):
    fields = {
        "name": "n", "pattern": "x", "definition": {"expires": 1}, "priority": 0, "apply_to": "all",
    }  # fmt: skip
    found = fault(**{**fields, **changes}, operator=False)
    assert found is None if text is None else found.startswith(text)


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=3),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)  # fmt: skip


@given(definition=st.dictionaries(st.sampled_from(sorted(USER_KEYS)) | st.text(), JSON) | JSON)
def test_whatever_is_sent_gets_an_answer(definition):
    for operator in (False, True):
        found = validate_definition(definition, operator=operator)
        assert found is None or found


def test_terms():
    value = ['a"\\\n', "é", "", 1e22, 1.0, {"b": [], "a": {}}]
    assert term(value) == (
        '[<<"a\\"\\\\\\n">>,<<"é"/utf8>>,<<>>,1.0e22,1.0,#{<<"a">> => #{},<<"b">> => []}]'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0"),
        (-10.0, "-10.0"),
        (100.0, "100.0"),
        (1000.0, "1.0e3"),
        (1234.0, "1234.0"),
        (-60000.0, "-6.0e4"),
        (12345.6, "12345.6"),
        (1230000.0, "1.23e6"),
        (0.01, "0.01"),
        (0.0001, "0.0001"),
        (0.00012, "1.2e-4"),
        (1 / 3, "0.3333333333333333"),
        (2.5e-5, "2.5e-5"),
        (1.0e15, "1.0e15"),
        (123456789012345680.0, "1.2345678901234568e17"),
        (1.0e20, "1.0e20"),
    ],
)
def test_floats_are_printed_as_by_a_rabbitmq_node(value: float, shown: str):
    assert term(value) == shown
