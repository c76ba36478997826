"""What the commands that change or check something do; `table` has their names and words."""

from __future__ import annotations

import time
from collections.abc import Callable
from getpass import getpass
from typing import Any

from broker.cli.ctl.api import (
    EXIT_DATA,
    EXIT_NO_USER,
    EXIT_SOFTWARE,
    EXIT_TEMPORARY,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    Api,
    CtlError,
    segment,
)
from broker.cli.ctl.arguments import Invocation

_AWAIT_STARTUP_S = 300.0
_POLL_S = 0.2
_HTTP_OK = 200


def _user(call: Invocation) -> str:
    return f"/api/users/{segment(call.arguments[0])}"


def _named(api: Api, method: str, path: str, body: object, missing: CtlError) -> Any:
    """A request whose 404 means that the thing named does not exist."""
    if api.status_of(path) == 404:  # noqa: PLR2004 - HTTP's
        raise missing
    return api.request(method, path, body)


def _no_user(call: Invocation) -> CtlError:
    return CtlError(EXIT_NO_USER, f'User "{call.arguments[0]}" does not exist')


def add_user(api: Api, call: Invocation) -> str | None:
    """Make a user; asks for the password where none is given."""
    name = call.arguments[0]
    if api.status_of(_user(call)) == _HTTP_OK:
        raise CtlError(EXIT_SOFTWARE, f'User "{name}" already exists')
    secret = call.arguments[1] if len(call.arguments) > 1 else _read_password()
    key = "password_hash" if "pre_hashed" in call.flags else "password"
    api.request("PUT", _user(call), {key: secret, "tags": ""})
    return (
        "Done. Don't forget to grant the user permissions to some virtual hosts!"
        " See 'warrenmq ctl set_permissions'."
    )


def _read_password() -> str:
    return getpass("Password: ")


def change_password(api: Api, call: Invocation) -> str | None:
    """Replace a password; the tags stay."""
    found = _named(api, "GET", _user(call), None, _no_user(call))
    secret = call.arguments[1] if len(call.arguments) > 1 else _read_password()
    api.request("PUT", _user(call), {"password": secret, "tags": found.get("tags", [])})
    return None


def set_user_tags(api: Api, call: Invocation) -> str | None:
    """Replace a user's tags; the password stays."""
    found = _named(api, "GET", _user(call), None, _no_user(call))
    kept = {k: found[k] for k in ("password_hash", "hashing_algorithm") if k in found}
    api.request("PUT", _user(call), {**kept, "tags": list(call.arguments[1:])})
    return None


def delete_user(api: Api, call: Invocation) -> str | None:
    """Remove a user."""
    _named(api, "DELETE", _user(call), None, _no_user(call))
    return None


def authenticate(api: Api, call: Invocation) -> str | None:
    """Check a name and a password."""
    other = Api(api.url, call.arguments[0], call.arguments[1], 10.0)
    try:
        other.get("/api/whoami")
    except CtlError as error:
        if error.text == "Not management user":
            return "Success"  # the password was right; the API is just not for that user
        raise CtlError(EXIT_DATA, f'failed to authenticate user "{call.arguments[0]}"') from error
    return "Success"


def _permission_path(call: Invocation) -> str:
    return f"/api/permissions/{segment(call.vhost)}/{segment(call.arguments[0])}"


def set_permissions(api: Api, call: Invocation) -> str | None:
    """What a user may configure, write and read in a vhost, as regular expressions."""
    _named(api, "GET", _user(call), None, _no_user(call))
    _, configure, write, read = call.arguments
    body = {"configure": configure, "write": write, "read": read}
    api.request("PUT", _permission_path(call), body)
    return None


def clear_permissions(api: Api, call: Invocation) -> str | None:
    """Take a user's permissions in a vhost away."""
    _named(api, "GET", _user(call), None, _no_user(call))
    missing = CtlError(EXIT_DATA, f'User "{call.arguments[0]}" has no permissions in it')
    _named(api, "DELETE", _permission_path(call), None, missing)
    return None


def _vhost(call: Invocation) -> str:
    return f"/api/vhosts/{segment(call.arguments[0])}"


def add_vhost(api: Api, call: Invocation) -> str | None:
    """Make a virtual host."""
    api.request("PUT", _vhost(call), {})
    return None


def delete_vhost(api: Api, call: Invocation) -> str | None:
    """Remove a virtual host with all in it."""
    name = call.arguments[0]
    missing = CtlError(EXIT_DATA, f"Virtual host '{name}' does not exist")
    _named(api, "DELETE", _vhost(call), None, missing)
    return None


def _queue(call: Invocation) -> tuple[str, CtlError]:
    name = call.arguments[0]
    path = f"/api/queues/{segment(call.vhost)}/{segment(name)}"
    return path, CtlError(EXIT_DATA, f"Queue '{name}' in vhost '{call.vhost}' not found")


def delete_queue(api: Api, call: Invocation) -> str | None:
    """Remove a queue; says how many messages went with it."""
    path, missing = _queue(call)
    found = _named(api, "GET", path, None, missing)
    conditions = [
        f"{flag.replace('_', '-')}=true" for flag in ("if_empty", "if_unused") if flag in call.flags
    ]
    api.request("DELETE", path + ("?" + "&".join(conditions) if conditions else ""))
    return f"Queue was successfully deleted with {found.get('messages', 0)} ready messages"


def purge_queue(api: Api, call: Invocation) -> str | None:
    """Remove a queue's ready messages."""
    path, missing = _queue(call)
    _named(api, "GET", path, None, missing)
    api.request("DELETE", f"{path}/contents")
    return None


def delete_exchange(api: Api, call: Invocation) -> str | None:
    """Remove an exchange."""
    name = call.arguments[0]
    missing = CtlError(EXIT_DATA, f"Exchange '{name}' in vhost '{call.vhost}' not found")
    _named(api, "DELETE", f"/api/exchanges/{segment(call.vhost)}/{segment(name)}", None, missing)
    return None


def close_connection(api: Api, call: Invocation) -> str | None:
    """Close one client connection; the client is told the reason."""
    name = call.arguments[0]
    path = f"/api/connections/{segment(name)}"
    _named(api, "GET", path, None, CtlError(EXIT_DATA, f"Connection {name} not found"))
    api.request("DELETE", path, reason=" ".join(call.arguments[1:]))
    return None


def close_all_connections(api: Api, call: Invocation) -> str | None:
    """Close all client connections, or those of one vhost."""
    vhost = call.values.get("vhost")
    found = [c["name"] for c in api.get("/api/connections") if vhost in (None, c.get("vhost"))]
    for name in found:
        path = f"/api/connections/{segment(name)}"
        api.request("DELETE", path, reason=" ".join(call.arguments))
    return f"Closed {len(found)} connections"


def node_verb(verb: str) -> Callable[[Api, Invocation], str | None]:
    """A POST to /api/node/VERB."""

    def run(api: Api, _: Invocation) -> str | None:
        api.request("POST", f"/api/node/{verb}")
        return None

    return run


def join(api: Api, call: Invocation) -> str | None:
    """Make the node a member of another one's cluster."""
    api.request("POST", "/api/node/join_cluster", {"node": _full(call.arguments[0])})
    return None


def forget(api: Api, call: Invocation) -> str | None:
    """Remove a node from the cluster."""
    api.request("DELETE", f"/api/cluster/nodes/{segment(_full(call.arguments[0]))}")
    return None


def add_member(api: Api, call: Invocation) -> str | None:
    """Give a quorum queue a replica on another node."""
    name, node = call.arguments
    path = f"/api/queues/quorum/{segment(call.vhost)}/{segment(name)}/replicas/add"
    try:
        api.request("POST", path, {"node": _full(node)})
    except CtlError as error:
        if error.text == "Not Found":
            text = f"no quorum queue '{name}' in vhost '{call.vhost}'"
            raise CtlError(EXIT_DATA, text) from error
        raise
    return None


def grow(api: Api, call: Invocation) -> str | None:
    """Give all quorum queues (or those with an even number of replicas) one on a node."""
    node, strategy = _full(call.arguments[0]), call.arguments[1]
    path = f"/api/queues/quorum/replicas/on/{segment(node)}/grow"
    grown = api.request("POST", path, {"strategy": strategy})
    return f"{len(grown)} queues get a replica on {node}"


def _full(name: str) -> str:
    return name if "@" in name else f"rabbit@{name}"


def ping(api: Api, _: Invocation) -> str | None:
    """Check that the process answers."""
    if api.status_of("/healthz") != _HTTP_OK:
        raise CtlError(EXIT_UNAVAILABLE, f"{api.url} answers, but it is not well")
    return "Ping succeeded"


def check_running(api: Api, _: Invocation) -> str | None:
    """Check that clients are served."""
    if api.status_of("/readyz") != _HTTP_OK:
        raise CtlError(EXIT_UNAVAILABLE, f"{api.url} runs, but it does not serve clients")
    return "RabbitMQ on this node is fully booted and running"


def health(check: str, fine: str) -> Callable[[Api, Invocation], str | None]:
    """One of /api/health/checks."""

    def run(api: Api, call: Invocation) -> str | None:
        tail = f"/{segment(call.arguments[0])}" if call.arguments else ""
        try:
            api.get(f"/api/health/checks/{check}{tail}")
        except CtlError as error:
            raise CtlError(EXIT_UNAVAILABLE, error.text) from error
        return fine

    return run


def await_startup(api: Api, call: Invocation) -> str | None:
    """Wait until clients are served."""
    limit_s = float(call.values.get("timeout", _AWAIT_STARTUP_S))
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if api.status_of("/readyz") == _HTTP_OK:
                return None
        except CtlError:
            pass  # not even listening yet
        if time.monotonic() > deadline:
            raise CtlError(EXIT_TEMPORARY, f"{api.url} did not serve within {limit_s:g} s")
        time.sleep(_POLL_S)


def await_online_nodes(api: Api, call: Invocation) -> str | None:
    """Wait until so many nodes run."""
    wanted = int(call.arguments[0]) if call.arguments[0].isdigit() else 0
    if wanted < 1:
        raise CtlError(EXIT_USAGE, "await_online_nodes needs a number of at least 1")
    limit_s = float(call.values.get("timeout", _AWAIT_STARTUP_S))
    deadline = time.monotonic() + limit_s
    while len(api.get("/api/cluster/status")["running_nodes"]) < wanted:
        if time.monotonic() > deadline:
            raise CtlError(EXIT_TEMPORARY, f"fewer than {wanted} nodes after {limit_s:g} s")
        time.sleep(_POLL_S)
    return None


def set_cluster_name(api: Api, call: Invocation) -> str | None:
    """Name the cluster."""
    api.request("PUT", "/api/cluster-name", {"name": call.arguments[0]})
    return None
