"""The commands on nodes, queues and health; `table` has their names and usage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.cli.ctl.api import (
    EXIT_DATA,
    EXIT_SOFTWARE,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    Api,
    CtlError,
    segment,
)
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import PollUntilTimeout

_AWAIT_STARTUP_S = 300.0
_HTTP_OK = 200
_NOT_STOPPED = "needs the broker stopped"
"""Of the node's refusal."""


def _queue(call: Invocation) -> str:
    return f"/api/queues/{segment(call.vhost)}/{segment(call.arguments[0])}"


_REFUSED = {"not empty": "Queue is not empty", "in use": "Queue is in use"}


def delete_queue(api: Api, call: Invocation) -> str | None:
    """Remove a queue; says how many messages went with it."""
    found = api.ask("GET", _queue(call), missing=CtlError(EXIT_USAGE, "Queue not found"))
    conditions = [
        f"{flag.replace('_', '-')}=true" for flag in ("if_empty", "if_unused") if flag in call.flags
    ]
    query = "?" + "&".join(conditions) if conditions else ""
    try:
        api.ask("DELETE", _queue(call) + query, refused=EXIT_USAGE)
    except CtlError as error:
        for ending, text in _REFUSED.items():
            if error.text.endswith(ending):
                raise CtlError(EXIT_USAGE, text) from error
        raise
    count = found.get("messages_ready", found.get("messages", 0))
    return f"Queue was successfully deleted with {count} ready messages"


def delete_queue_banner(call: Invocation) -> str:
    """With the conditions."""
    texts = {"if_empty": "if queue is empty ", "if_unused": "if queue is unused "}
    conditions = "and ".join(text for flag, text in texts.items() if flag in call.flags)
    return f"Deleting queue '{call.arguments[0]}' on vhost '{call.vhost}' {conditions}..."


def purge_queue(api: Api, call: Invocation) -> str | None:
    """Remove a queue's ready messages."""
    missing = CtlError(EXIT_UNAVAILABLE, "not_found")
    api.ask("DELETE", f"{_queue(call)}/contents", missing=missing)
    return None


def delete_exchange(api: Api, call: Invocation) -> str | None:
    """Remove an exchange."""
    name = call.arguments[0]
    missing = CtlError(EXIT_DATA, f"Exchange '{name}' in vhost '{call.vhost}' not found")
    path = f"/api/exchanges/{segment(call.vhost)}/{segment(name)}"
    api.ask("DELETE", path, missing=missing, refused=EXIT_DATA)
    return None


def node_verb(verb: str) -> Callable[[Api, Invocation], str | None]:
    """A POST to /api/node/VERB."""

    def run(api: Api, _: Invocation) -> str | None:
        _stopped(api, verb, EXIT_DATA)
        return None

    return run


def _stopped(api: Api, verb: str, refused: int, body: object = None) -> Any:
    """Ask for what needs the broker on the node stopped.

    Args:
        api: The node.
        verb: Which.
        refused: The exit code of another refusal.
        body: Of the request.

    Raises:
        CtlError: 64 in rabbitmqctl's words while it runs; else as `Api.ask`.
    """
    try:
        return api.ask("POST", f"/api/node/{verb}", body, refused=refused)
    except CtlError as error:
        if _NOT_STOPPED not in error.text:
            raise
        text = (
            "Error: this command requires the 'rabbit' app to be stopped on the target node. "
            "Stop it with 'warrenmq ctl stop_app'."
        )
        raise CtlError(EXIT_USAGE, text, is_plain=True) from error


def join(api: Api, call: Invocation) -> str | None:
    """Make the node a member of another one's cluster."""
    body = {"node": _full(call.arguments[0])}
    said = _stopped(api, "join_cluster", EXIT_SOFTWARE, body)
    return "The node is already a member of this cluster" if said else None


def forget(api: Api, call: Invocation) -> str | None:
    """Remove a node from the cluster."""
    missing = CtlError(EXIT_UNAVAILABLE, "The node selected is not in the cluster.")
    path = f"/api/cluster/nodes/{segment(_full(call.arguments[0]))}"
    api.ask("DELETE", path, missing=missing, refused=EXIT_DATA)
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


def _full(name: str) -> str:
    return name if "@" in name else f"rabbit@{name}"


def ping(api: Api, _: Invocation) -> str | None:
    """Check that the process answers."""
    if api.status_of("/healthz") != _HTTP_OK:
        raise CtlError(
            EXIT_UNAVAILABLE, f"{api.url} answers, but the node is not healthy: see its log"
        )
    return "Ping succeeded"


def check_running(api: Api, _: Invocation) -> str | None:
    """Check that clients are served."""
    status, answer = api.look("/readyz")
    is_running = isinstance(answer, dict) and answer.get("is_running") is True
    if status != _HTTP_OK and not is_running:  # it runs, too, while an operator lets nobody in
        raise CtlError(
            EXIT_UNAVAILABLE,
            f"{api.url} runs, but it does not serve clients: see cluster_status and its log",
        )
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
    with PollUntilTimeout(call, _AWAIT_STARTUP_S) as poll:
        while True:
            try:
                if api.status_of("/readyz") == _HTTP_OK:
                    return None
            except CtlError:
                pass  # not even listening yet
            poll.show(f"{api.url} does not serve yet")
            poll.wait(f"{api.url} did not serve")


def await_online_nodes(api: Api, call: Invocation) -> str | None:
    """Wait until so many nodes run."""
    wanted = int(call.arguments[0]) if call.arguments[0].isdigit() else 0
    if wanted < 1:
        raise CtlError(EXIT_USAGE, "await_online_nodes needs a number of at least 1")
    with PollUntilTimeout(call, _AWAIT_STARTUP_S) as poll:
        while (found := len(api.get("/api/cluster/status")["running_nodes"])) < wanted:
            poll.show("nodes run", found, wanted)
            poll.wait(f"{wanted} nodes did not run")
    return None


def set_cluster_name(api: Api, call: Invocation) -> str | None:
    """Name the cluster."""
    api.request("PUT", "/api/cluster-name", {"name": call.arguments[0]})
    return None
