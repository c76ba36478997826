"""This node's process: `/api/node/stop`, `suspend_listeners`, `process`, ... Ours alone.

What rabbitmqctl asks the Erlang runtime, `ctl` asks here.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import platform
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
from aiohttp import web

from broker.management.answers import bad_request, json, no_content, not_found, unavailable
from broker.management.call import Call, Endpoint
from broker.management.control import NodeError
from broker.queues.paging.node_pager import trim_memory

_log = logging.getLogger(__name__)

_VARIABLES: Final = re.compile(r"^(RABBITMQ|WARRENMQ)_")
_SECRET: Final = re.compile(r"(pass|secret|cookie|key|token)", re.IGNORECASE)
_HIDDEN: Final = "***"
_FAMILIES: Final = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
RESOLVE_S: Final = 10.0
"""How long the machine may take to resolve a name."""


async def stop(call: Call) -> web.Response:
    """POST /api/node/stop: end the process as SIGTERM does; answered before it ends."""
    _log.info("node.stop", extra={"user": call.user.name})
    asyncio.get_running_loop().call_soon(call.control.stop)
    return json({"pid": os.getpid()})


async def force_reset(call: Call) -> web.Response:
    """POST /api/node/force_reset: after stop_app forget everything and tell nobody."""
    _log.warning("node.force_reset", extra={"user": call.user.name})
    try:
        await call.control.force_reset()
    except NodeError as error:
        raise bad_request(str(error)) from error
    return no_content()


async def suspend_listeners(call: Call) -> web.Response:
    """POST /api/node/suspend_listeners: no new AMQP clients; those that are there stay."""
    call.serving.listener.suspend(call.user.name)
    return no_content()


async def resume_listeners(call: Call) -> web.Response:
    """POST /api/node/resume_listeners."""
    call.serving.listener.unsuspend(call.user.name)
    try:
        await call.serving.open_again()
    except OSError as error:
        raise unavailable(f"resume_listeners failed: {error.strerror or error}") from error
    return no_content()


async def force_gc(call: Call) -> web.Response:
    """POST /api/node/force_gc: collect garbage, and give free memory back to the system."""
    found = gc.collect()
    await asyncio.to_thread(trim_memory)
    _log.info("node.force_gc", extra={"user": call.user.name, "objects": found})
    return json({"objects": found})


async def process(call: Call) -> web.Response:
    """GET /api/node/process: what it was started with, its runtime, its machine's network."""
    control = call.control
    facts: dict[str, Any] = {
        "node": control.name,
        "pid": os.getpid(),
        "runtime": f"Python {platform.python_version()}",
        "runtime_details": sys.version.replace("\n", " "),
        "arguments": list(without_secrets(sys.orig_argv)),
        "variables": variables(os.environ),
        "peers": sorted(peer.node for peer in control.settings.cluster_peers),
        "event_loop": {
            **control.loop_watch.facts(),
            "busy_ms": control.clock.busy_ms(),
            "now_ms": control.clock.monotonic_ms(),
        },
        "threads": psutil.Process().num_threads(),
        **await asyncio.to_thread(_machine),
    }
    return json(facts)


async def resolve(call: Call) -> web.Response:
    """GET /api/node/resolve/HOST?address_family=ipv4|ipv6: its addresses; 404 without any."""
    family = _FAMILIES.get(call.query.get("address_family", "ipv4").lower())
    if family is None:
        raise bad_request("the address family is ipv4 or ipv6")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await loop.getaddrinfo(
                call.name("host"), None, family=family, type=socket.SOCK_STREAM
            )
    except (socket.gaierror, UnicodeError) as error:
        raise not_found() from error
    except TimeoutError as error:
        raise unavailable(f"no answer of a resolver in {RESOLVE_S:g} s") from error
    return json({"addresses": sorted({str(each[4][0]) for each in found})})


def without_secrets(arguments: Iterable[str]) -> Iterable[str]:
    """A command line as others may see it: the values of settings that are secrets are hidden.

    Args:
        arguments: `sys.orig_argv`.
    """
    for word in arguments:
        name, equals, _ = word.partition("=")
        yield f"{name}={_HIDDEN}" if equals and _SECRET.search(name) else word


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the node reads; secrets, and URLs that may hold one, are hidden.

    Args:
        environ: `os.environ`.
    """
    return {
        name: _HIDDEN
        if _SECRET.search(name) and not name.endswith("_FILE")
        else " ".join(without_secrets(value.split(" ")))
        for name, value in sorted(environ.items())
        if _VARIABLES.match(name)
    }


def _machine() -> dict[str, Any]:
    """Reads files, so it runs in a thread."""
    return {"interfaces": _interfaces(), "resolver": _resolver()}


def _interfaces() -> dict[str, dict[str, Any]]:
    states = psutil.net_if_stats()
    found: dict[str, dict[str, Any]] = {}
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        state = states.get(name)
        shown: dict[str, Any] = {
            "hwaddr": "",
            "addresses": [],
            "flags": (state.flags if state is not None else "").replace(",", ", "),
        }
        for each in addresses:
            if each.family == psutil.AF_LINK:
                shown["hwaddr"] = each.address.upper()
            else:
                fields = {
                    "addr": each.address,
                    "netmask": each.netmask,
                    "broadaddr": each.broadcast,
                }
                shown["addresses"].append({k: v for k, v in fields.items() if v})
        found[name] = shown
    return found


def _resolver() -> dict[str, Any]:
    """The files that the system's resolver reads."""
    path = Path("/etc/resolv.conf")
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    words = [line.split() for line in lines]
    servers = [word[1] for word in words if len(word) > 1 and word[0] == "nameserver"]
    return {
        "lookup": "native",
        "hosts_file": "/etc/hosts",
        "resolv_conf": str(path),
        "nameservers": servers,
    }


ROUTES = (
    Endpoint("POST", "/api/node/stop", stop, "administrator"),
    Endpoint("POST", "/api/node/force_reset", force_reset, "administrator"),
    Endpoint("POST", "/api/node/suspend_listeners", suspend_listeners, "administrator"),
    Endpoint("POST", "/api/node/resume_listeners", resume_listeners, "administrator"),
    Endpoint("POST", "/api/node/force_gc", force_gc, "administrator"),
    Endpoint("GET", "/api/node/process", process, "administrator"),
    Endpoint("GET", "/api/node/resolve/{host}", resolve, "administrator"),
)
