"""Definitions: `/api/definitions`, `/api/definitions/VHOST`; `/api/all-configuration` is the first.

Ours are `?dry_run=true`, which answers what an import would do and does nothing,
`?skip_if_unchanged=true`, and `?summary=true`, which answers what was done; RabbitMQ answers 204
without a body.

Source: rabbit_mgmt_wm_definitions.erl; statuses compared with a RabbitMQ 3.10.8 node.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import partial
from typing import Final

from aiohttp import web

from broker.errors import ReplyCode
from broker.management import multipart, request_body
from broker.management.answers import (
    BAD_REQUEST,
    ApiError,
    bad_request,
    encode,
    json,
    no_content,
    plain,
    too_many,
    unavailable,
)
from broker.management.call import Call, Endpoint
from broker.management.listings import Parts
from broker.management.operations.importing import (
    ImportRefused,
    ImportStopped,
    log_imported,
)
from broker.management.previews.policy_effects import Added, PolicyDraft, effects_of
from broker.management.resources.policies import policy_of
from broker.metadata import arguments
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AddVhost, DeclareExchange, DeclareQueue, SetPolicy
from broker.metadata.definitions import export
from broker.metadata.definitions.export import Item, Section
from broker.metadata.definitions.planning import Plan
from broker.metadata.records import QueueType, Vhost

_PART_BYTES: Final = 65_536
_STEP: Final = 16
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._@-]")
_NOT_FOUND: Final = "vhost_not_found"


async def get(call: Call) -> web.StreamResponse:
    """GET /api/definitions[/VHOST], `?download=FILE`."""
    vhost = call.names.get("vhost")
    if vhost is not None and call.catalogue.vhost(vhost) is None:
        raise bad_request(_NOT_FOUND)
    headers = {}
    if "download" in call.query:
        name = _UNSAFE.sub("_", call.query["download"])[:255]
        headers["Content-Disposition"] = f"attachment; filename={name}"
    return await call.listings.answer(
        call.request, call.user, partial(_document, call, vhost), headers
    )


async def _document(call: Call, vhost: str | None) -> Parts:
    settings, of_vhost = call.control.settings, vhost is not None
    head = export.head(settings.compat_product, settings.compat_version, of_vhost=of_vhost)
    sections = export.select(call.catalogue, vhost)
    return await call.reports.pace.run(written(head, sections, of_vhost=of_vhost))


def written(head: Item, sections: list[Section], *, of_vhost: bool) -> Generator[None, None, Parts]:
    """A document as JSON, in steps.

    Args:
        head: How it begins.
        sections: Its lists.
        of_vhost: See `export.item`.
    """
    parts, part = [], bytearray(encode(head)[:-1])
    for section in sections:
        part += b"," + encode(section.name) + b":["
        for number, record in enumerate(section.records):
            part += (b"," if number else b"") + encode(
                plain(export.item(record, of_vhost=of_vhost))
            )
            if len(part) >= _PART_BYTES:
                parts.append(bytes(part))
                part.clear()
            if not number % _STEP:
                yield
        part += b"]"
    return [*parts, bytes(part) + b"}"]


async def post(call: Call) -> web.Response:
    """POST /api/definitions[/VHOST], JSON or a form: all of it, or nothing and 400."""
    vhost = call.names.get("vhost")
    if vhost is not None and call.catalogue.vhost(vhost) is None:
        raise ApiError(404, _NOT_FOUND, "not_found")
    data = await request_body.read_bytes(
        call.request, call.control.settings.management_max_body_bytes
    )
    data = _document_of(call.request, data)
    importer = call.operations.importer
    if importer.is_busy:
        raise too_many("another import of definitions runs on this node")
    try:
        definitions = await importer.read(data, vhost)
        if _is_set(call, "dry_run"):
            plan = await importer.plan(definitions)
            work = effects_of(call.catalogue, _policies(plan), _added(call.catalogue, plan))
            return json(_difference(plan) | {"policies": await call.reports.pace.run(work)})
        digest = importer.digest(data) if _is_set(call, "skip_if_unchanged") else ""
        is_skipped = bool(digest) and importer.is_unchanged(digest)
        imported = None if is_skipped else await importer.run(definitions, digest, call.by)
    except ImportRefused as refused:
        return json(
            {"error": "bad_request", "reason": refused.line, "faults": refused.texts}, BAD_REQUEST
        )
    except ImportStopped as stopped:
        is_undecided = stopped.refusal.code is ReplyCode.INTERNAL_ERROR
        raise (unavailable if is_undecided else bad_request)(stopped.text) from None
    if imported is not None:
        log_imported(imported, f"user '{call.user.name}' over HTTP")
    if not _is_set(call, "summary"):
        return no_content()
    return json({"skipped": True} if imported is None else imported._asdict())


def _document_of(request: web.Request, data: bytes) -> bytes:
    """The document in a body: all of it, or the field "file" of a page's form.

    Raises:
        ApiError: 400.

    Source:
        rabbit_mgmt_wm_definitions.erl, accept_multipart/2.
    """
    content_type = request.headers.get("Content-Type", "")
    if not multipart.is_form(content_type):
        return data
    try:
        found = multipart.part(content_type, data, "file")
    except multipart.NoForm as error:
        raise bad_request(f"failed_to_parse_json: {error}") from None
    if found is None:
        raise bad_request("failed_to_parse_json: the form has no field 'file'")
    return found


def _is_set(call: Call, flag: str) -> bool:
    return call.query.get(flag) == "true"


def _policies(plan: Plan) -> list[PolicyDraft]:
    """The policies that a plan would set."""
    return [
        PolicyDraft(change.what, policy_of(change.command), change.command.operator)
        for change in plan.changes
        if isinstance(change.command, SetPolicy)
    ]


def _added(catalogue: Catalogue, plan: Plan) -> Added:
    """The queues and exchanges that a plan would declare."""
    commands = [change.command for change in plan.changes]
    queues = [each for each in commands if isinstance(each, DeclareQueue)]
    exchanges = [each for each in commands if isinstance(each, DeclareExchange)]
    vhosts = {each.name: each for each in catalogue.vhosts()} | {
        each.name: Vhost(each.name, default_queue_type=each.default_queue_type)
        for each in commands
        if isinstance(each, AddVhost)
    }
    return Added(
        [(each.vhost, each.name, _type_of(each, vhosts[each.vhost])) for each in queues],
        [(each.vhost, each.name) for each in exchanges],
    )


def _type_of(declare: DeclareQueue, vhost: Vhost) -> QueueType:
    given = arguments.with_default_type(
        declare.arguments,
        vhost,
        durable=declare.durable,
        exclusive=False,
        auto_delete=declare.auto_delete,
    )
    return arguments.queue_type(given)


def _difference(plan: Plan) -> Item:
    """What a plan would do, for people."""
    changes = plan.changes
    return {
        "add": [change.what for change in changes if change.is_new],
        "change": [
            {"what": change.what, "differs": change.detail}
            for change in changes
            if not change.is_new
        ],
        "left": list(plan.left),
        "unchanged": plan.unchanged,
    }


_PATHS: Final = ("/api/definitions", "/api/definitions/{vhost}", "/api/all-configuration")

ROUTES = tuple(
    endpoint
    for path in _PATHS
    for endpoint in (
        Endpoint("GET", path, get, "administrator"),
        Endpoint("POST", path, post, "administrator"),
    )
)
