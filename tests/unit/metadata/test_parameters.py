"""Refused parameters, with RabbitMQ's texts; each compared with a 3.10.8 node."""

from __future__ import annotations

import pytest

from broker.metadata import parameters
from broker.metadata.policy_keys import NO_FEDERATION


@pytest.mark.parametrize(
    ("component", "name", "value", "expected"),
    [
        ("vhost-limits", "limits", {}, None),
        ("vhost-limits", "limits", {"max-queues": -1, "max-connections": 5}, None),
        (
            "vhost-limits",
            "limits",
            {"max-foo": 5},
            'Unrecognised terms [{<<"max-foo">>,5}] in limits',
        ),
        (
            "vhost-limits",
            "limits",
            {"max-queues": "a"},
            'max-queues should be a number, actually was <<"a">>',
        ),
        (
            "vhost-limits",
            "limits",
            {"max-queues": True},
            "max-queues should be a number, actually was true",
        ),
        ("foo", "x", {}, "component foo not found"),
        *[
            (
                component,
                "x",
                {"uri": "amqp://"},
                f"component {component} not found: {NO_FEDERATION}",
            )
            for component in ("federation-upstream", "federation-upstream-set")
        ],
        (
            "shovel",
            "x",
            {},
            "component shovel not found: shovels are not supported yet; consume and publish with a"
            " client",
        ),
        ("policy", "x", {}, "policies may not be set using this method"),
    ],
)
def test_faults(component: str, name: str, value: object, expected: str | None) -> None:
    assert parameters.fault(component, name, value) == expected


def test_limits_of_users() -> None:
    known = parameters.USER_LIMITS
    assert parameters.limits_fault({"max-channels": -1}, known, "user-limits") is None
    assert parameters.limits_fault({"max-queues": 5}, known, "user-limits") == (
        'Unrecognised terms [{<<"max-queues">>,5}] in user-limits'
    )
    assert "should be an object" in str(parameters.limits_fault([1], known, "user-limits"))
