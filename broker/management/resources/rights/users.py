"""Users: `/api/users`, `/api/whoami`, and hashes for passwords."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from broker.management import paging, request_body
from broker.management.answers import bad_request, json, no_content, not_found, plain, stored
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.metadata.commands import AddUser, DeleteUser
from broker.metadata.records import User
from broker.passwords import (
    HASHINGS,
    REFUSED_PASSWORD,
    hash_fault,
    hash_password,
    hashing_of,
    may_have_password,
)

TAGS_MAX: Final = 32
NAME_BYTES_MAX: Final = 255
BULK_MAX: Final = 1_000


def item(user: User) -> dict[str, Any]:
    """A user as RabbitMQ shows it, to administrators only."""
    return {
        "name": plain(user.name),
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing_algorithm,
        "tags": list(user.tags),
        "limits": dict(sorted(user.limits.items())),
    }


def named(call: Call) -> User:
    """The user in the path.

    Raises:
        ApiError: 404.
    """
    user = call.catalogue.user(call.name("user"))
    if user is None:
        raise not_found()
    return user


async def whoami(call: Call) -> web.Response:
    """GET /api/whoami."""
    return json({"name": plain(call.user.name), "tags": list(call.user.tags)})


async def show_all(call: Call) -> Parts:
    """GET /api/users."""
    users = sorted(call.catalogue.users(), key=lambda user: user.name)
    return await call.listed(users, item, name=lambda user: user.name)


async def show(call: Call) -> web.Response:
    """GET /api/users/USER."""
    return json(paging.only_columns(item(named(call)), call.query))


async def show_without_permissions(call: Call) -> Parts:
    """GET /api/users/without-permissions."""
    allowed = {permission.user for permission in call.catalogue.permissions()}
    users = sorted(call.catalogue.users(), key=lambda user: user.name)
    found = [item(user) for user in users if user.name not in allowed]
    return await call.listed_items(found)


async def put(call: Call) -> web.Response:
    """PUT /api/users/USER: `tags`, and `password`, `password_hash` or neither.

    Without one, or with an empty one, no login with a password is possible.
    """
    name = call.name("user")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise bad_request(f"a user's name has at most {NAME_BYTES_MAX} bytes")
    body = await call.body()
    if "tags" not in body:
        raise bad_request("tags_not_present")
    tags = request_body.labels(body, "tags", TAGS_MAX)
    default = call.control.settings.password_hashing
    algorithm = request_body.text(body, "hashing_algorithm", default)
    if algorithm not in HASHINGS:
        raise bad_request(f"unknown hashing_algorithm {algorithm[:80]!r}")
    password = request_body.text(body, "password", "")
    password_hash = request_body.text(body, "password_hash", "")
    if body.get("password") is not None and body.get("password_hash") is not None:
        raise bad_request("both_password_and_password_hash_are_provided")
    _check_password(call, name, body, password)
    if body.get("password") is not None:
        password_hash = await _hashed(password, algorithm) if password else ""
    elif password_hash:
        if "hashing_algorithm" not in body:
            algorithm = hashing_of(password_hash, algorithm)
        _check_hash(password_hash, algorithm)
    result = await call.propose(AddUser(name, password_hash, algorithm, tags))
    return stored(is_new=result is True)


def _check_password(call: Call, name: str, body: Mapping[str, Any], password: str) -> None:
    """Refuse a new password, or a new user without one, that `credential_validator` does.

    Raises:
        ApiError: 400.
    """
    is_given = body.get("password") is not None
    is_bare = not body.get("password_hash") and call.catalogue.user(name) is None
    if not is_given and not is_bare:
        return
    rule = call.control.settings.password_policy()
    if not may_have_password(password if is_given else None, rule):
        raise bad_request(REFUSED_PASSWORD)


async def _hashed(password: str, algorithm: str) -> str:
    hashing = HASHINGS[algorithm]
    salt = secrets.token_bytes(hashing.salt_bytes)
    if hashing.is_slow:
        return await asyncio.to_thread(hash_password, password, salt, algorithm)
    return hash_password(password, salt, algorithm)


async def show_hash(call: Call) -> web.Response:
    """GET /api/auth/hash_password/PASSWORD: what PUT takes as `password_hash`."""
    algorithm = call.control.settings.password_hashing
    return json({"ok": await _hashed(call.name("password"), algorithm)})


def _check_hash(text: str, algorithm: str) -> None:
    """A hash that no password could match is a mistake: tell it now.

    Raises:
        ApiError: 400.
    """
    fault = hash_fault(text, algorithm)
    if fault is not None:
        raise bad_request(fault)


async def delete(call: Call) -> web.Response:
    """DELETE /api/users/USER."""
    if await call.propose(DeleteUser(call.name("user"))) is False:
        raise not_found()
    return no_content()


async def delete_several(call: Call) -> web.Response:
    """POST /api/users/bulk-delete `{"users"}`: all of them, or none if one does not exist."""
    body = await call.body()
    request_body.require(body, "users")
    names = request_body.labels(body, "users", BULK_MAX)
    for name in names:
        if call.catalogue.user(name) is None:
            raise bad_request(f"no_such_user: {name[:NAME_BYTES_MAX]}")
    for name in names:
        await call.propose(DeleteUser(name))
    return no_content()


ROUTES = (
    Endpoint("GET", "/api/whoami", whoami),
    Endpoint("GET", "/api/auth/hash_password/{password}", show_hash),
    listing("/api/users", show_all, "administrator"),
    listing("/api/users/without-permissions", show_without_permissions, "administrator"),
    Endpoint("POST", "/api/users/bulk-delete", delete_several, "administrator"),
    Endpoint("GET", "/api/users/{user}", show, "administrator"),
    Endpoint("PUT", "/api/users/{user}", put, "administrator"),
    Endpoint("DELETE", "/api/users/{user}", delete, "administrator"),
)
