"""Policies and operator policies: `/api/policies`, `/api/operator-policies`.

Everyone who sees a vhost may list them. A single policy is a policymaker's, with permissions in the
vhost; a single operator policy is an administrator's.

Source: rabbit_mgmt_wm_policy.erl, rabbit_mgmt_wm_operator_policy.erl; statuses and texts compared
with a RabbitMQ 3.10.8 node.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from aiohttp import web

from broker.management import paging
from broker.management.answers import bad_request, json, no_content, not_found, plain, stored
from broker.management.call import Call, Endpoint, Handler, listing
from broker.management.listings import Parts
from broker.management.pace import STEP
from broker.management.previews.policy_effects import (
    NAMED_MAX,
    differ,
    exchange_item,
    queue_item,
)
from broker.metadata import policy_keys
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import ClearPolicy, SetPolicy
from broker.metadata.policies import Policy, is_other
from broker.metadata.records import Queue


def item(policy: Policy) -> dict[str, Any]:
    """A policy as RabbitMQ shows it."""
    return {
        "vhost": plain(policy.vhost),
        "name": plain(policy.name),
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": plain(policy.definition),
        "priority": policy.priority,
    }


def of_queue(catalogue: Catalogue, queue: Queue) -> dict[str, Any]:
    """Return the policy fields of a queue's object."""
    policy, operator = catalogue.policy_of(queue), catalogue.operator_policy_of(queue)
    return {
        "effective_policy_definition": plain(dict(catalogue.effective_policy(queue))),
        "operator_policy": None if operator is None else plain(operator.name),
        "policy": None if policy is None else plain(policy.name),
    }


async def _show(call: Call, found: list[Policy]) -> Parts:
    return await call.listed(
        found,
        item,
        lambda each: (each.vhost, each.priority, each.name),
        lambda each: plain(each.name),
    )


def _list(catalogue: Catalogue, vhost: str | None, *, operator: bool) -> list[Policy]:
    return catalogue.operator_policies(vhost) if operator else catalogue.policies(vhost)


def _endpoints(*, operator: bool) -> tuple[Endpoint, ...]:
    """The endpoints of one of the two kinds."""

    async def show_all(call: Call) -> Parts:
        found = _list(call.catalogue, None, operator=operator)
        return await _show(call, [each for each in found if call.sees(each.vhost)])

    async def show_vhost(call: Call) -> Parts:
        return await _show(call, _list(call.catalogue, call.vhost(), operator=operator))

    async def show(call: Call) -> web.Response:
        policy = call.catalogue.policy(call.vhost(), call.name("name"), operator=operator)
        if policy is None:
            raise not_found()
        return json(paging.only_columns(item(policy), call.query))

    async def put(call: Call) -> web.Response:
        _check_restriction(call, operator=operator)
        vhost, name = call.vhost(), call.name("name")
        command = _checked(vhost, name, await call.body(), operator=operator)
        if _is_dry(call):
            return await _preview(call, command, policy_of(command))
        return stored(is_new=await call.propose(command) is True)

    async def delete(call: Call) -> web.Response:
        _check_restriction(call, operator=operator)
        command = ClearPolicy(call.vhost(), call.name("name"), operator)
        if _is_dry(call):
            return await _preview_removal(call, command)
        if await call.propose(command) is not True:
            raise not_found()
        return no_content()

    root = "/api/operator-policies" if operator else "/api/policies"
    one = root + "/{vhost}/{name}"
    single: tuple[tuple[str, Handler], ...] = (("GET", show), ("PUT", put), ("DELETE", delete))
    return (
        listing(root, show_all),
        listing(root + "/{vhost}", show_vhost),
        *(
            Endpoint(method, one, run, "administrator" if operator else "policymaker")
            for method, run in single
        ),
    )


def _check_restriction(call: Call, *, operator: bool) -> None:
    is_denied = operator and call.control.settings.management_denies_operator_policies
    call.not_denied(is_denied=is_denied, what="operator policy changes")


def _checked(vhost: str, name: str, body: dict[str, Any], *, operator: bool) -> SetPolicy:
    """The command for a body.

    Raises:
        ApiError: 400, with RabbitMQ's text.
    """
    missing = [f"{{key_missing,{key}}}" for key in ("pattern", "definition") if key not in body]
    if missing:
        raise bad_request(f"[{','.join(missing)}]")
    pattern, definition = body["pattern"], body["definition"]
    priority, apply_to = body.get("priority", 0), body.get("apply-to", "all")
    fault = policy_keys.fault(name, pattern, definition, priority, apply_to, operator=operator)
    if fault is not None:
        raise bad_request(f"Validation failed\n\n{fault}\n")
    return SetPolicy(vhost, name, pattern, definition, priority, apply_to, operator)


def _is_dry(call: Call) -> bool:
    return call.query.get("dry_run") == "true"


async def _preview_removal(call: Call, command: ClearPolicy) -> web.Response:
    if call.catalogue.policy(command.vhost, command.name, operator=command.operator) is None:
        raise not_found()
    return await _preview(call, command, None)


def policy_of(command: SetPolicy) -> Policy:
    """The policy that a command would set."""
    return Policy(
        vhost=command.vhost,
        name=command.name,
        pattern=command.pattern,
        apply_to=command.apply_to,
        priority=command.priority,
        definition=command.definition,
    )


async def _preview(
    call: Call, command: SetPolicy | ClearPolicy, policy: Policy | None
) -> web.Response:
    """Say which queues and exchanges would have another policy.

    Args:
        call: The request.
        command: What would be proposed.
        policy: The policy that it sets; None where it removes one.
    """
    work = _touched(call.catalogue, command.vhost, command.name, policy, operator=command.operator)
    queues, named, exchanges = await call.reports.pace.run(work)
    return json(
        {
            "dry_run": True,
            "queues_changed": queues,
            "queues": named,
            "exchanges_changed": len(exchanges),
            "exchanges": exchanges[:NAMED_MAX],
        }
    )


def _touched(
    catalogue: Catalogue, vhost: str, name: str, policy: Policy | None, *, operator: bool
) -> Generator[None, None, tuple[int, list[dict[str, Any]], list[dict[str, Any]]]]:
    change = catalogue.preview_policy(vhost, name, policy, operator=operator)
    named: list[dict[str, Any]] = []
    count = 0
    for number, queue in enumerate(catalogue.queues(vhost), 1):
        after = change.of_queue(queue)
        before = catalogue.applied_policies(queue)
        if after is not None and is_other(before, after):
            count += 1
            if len(named) < NAMED_MAX:
                named.append(queue_item(queue.name, queue.type, before, after))
        if not number % STEP:
            yield
    exchanges: list[dict[str, Any]] = []
    for number, exchange in enumerate(() if operator else catalogue.exchanges(vhost), 1):
        old, new = catalogue.policy_of(exchange), change.of_exchange(exchange.name)
        if differ(old, new):
            exchanges.append(exchange_item(exchange.name, old, new))
        if not number % STEP:
            yield
    return count, named, exchanges


ROUTES = (*_endpoints(operator=False), *_endpoints(operator=True))
