"""The commands on mirrored queues, and those that move queues between nodes and types.

Texts and exit codes are those of rabbitmqctl and rabbitmq-queues 3.10.8; `migrate_queue` is ours.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from broker.cli.ctl import output
from broker.cli.ctl.api import (
    EXIT_DATA,
    EXIT_SOFTWARE,
    EXIT_TEMPORARY,
    EXIT_UNAVAILABLE,
    Api,
    CtlError,
    segment,
)
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import CommandTimeout, PollUntilTimeout

_SEEN_S = 2.0
"""How long it may take to be seen that a synchronisation, or that of the next mirror, has begun."""
_OK = 200
_NOT_FOUND = 404
_COUNTED = {
    "node": "Node name",
    "quorum": "Number of quorum queues",
    "classic": "Number of replicated classic queues",
}
"""What a rebalance tells of each node, and how RabbitMQ heads it."""

_TYPES = ("all", "classic", "quorum", "stream")


def _queue(call: Invocation) -> str:
    return f"/api/queues/{segment(call.vhost)}/{segment(call.arguments[0])}"


def _act(api: Api, call: Invocation, body: dict[str, object]) -> Any:
    """Ask for an action; whatever it is refused for ends with rabbitmqctl's 69."""
    try:
        return api.request("POST", _queue(call) + "/actions", body)
    except CtlError as error:
        if error.exit_code == EXIT_DATA:
            text = "not_found" if error.text == "Not Found" else error.text
            raise CtlError(EXIT_UNAVAILABLE, text) from error
        raise


def sync_queue(api: Api, call: Invocation) -> None:
    """Send a mirrored queue's messages to mirrors that lack them; returns when that has ended.

    A master that the policy does not name leaves as soon as one mirror has everything; the next
    master is then asked to go on.

    Raises:
        CtlError: 75 if mirrors still lack messages then (cancelled, or failed), where rabbitmqctl
            ends with 0: a script that goes on to stop the master must not take that for success.
            75 too when --timeout is over; the synchronisation goes on.
    """
    with PollUntilTimeout(call) as poll:
        _sync(api, call, poll)


def _sync(api: Api, call: Invocation, poll: PollUntilTimeout) -> None:
    _act(api, call, {"action": "sync"})
    last_seen = time.monotonic()
    asked: str | None = None
    while True:
        found = api.get(_queue(call))
        leader = found.get("leader")
        if asked not in {None, leader}:
            with contextlib.suppress(CtlError):  # refused until the next master serves
                _act(api, call, {"action": "sync"})
                asked, last_seen = leader, time.monotonic()
        asked = asked or leader
        lacking = set(found.get("slave_nodes", [])) - set(found.get("synchronised_slave_nodes", []))
        if found.get("state") == "syncing":
            last_seen = time.monotonic()
        elif not lacking:
            return
        elif time.monotonic() - last_seen > _SEEN_S:
            raise CtlError(
                EXIT_TEMPORARY,
                "the synchronisation ended early, mirrors on"
                f" {', '.join(sorted(lacking))} still lack messages: run it again, or see the log"
                f" of {leader or 'its master'}",
            )
        poll.show("messages are at the mirrors", found.get("sync_messages"), found.get("messages"))
        poll.wait(
            "the synchronisation did not end",
            "it goes on; the queue's state in list_queues tells, cancel_sync_queue ends it",
        )


def cancel_sync_queue(api: Api, call: Invocation) -> str | None:
    """End a synchronisation; mirrors that were half filled are emptied."""
    told = _act(api, call, {"action": "cancel_sync"})
    return told.get("status") if isinstance(told, dict) else None


def check_critical(api: Api, _: Invocation) -> str | None:
    """Fail if a mirrored queue's only synchronised copy is on this node."""
    node = api.get("/api/overview").get("node", "")
    status, found = api.look("/api/health/checks/node-is-mirror-sync-critical")
    if status == _OK and found.get("reason") == "single node cluster":
        return (
            f"Node {node} seems to be the only one in a single node cluster, the check does not"
            " apply"
        )
    if status == _OK:
        return (
            f"Node {node} reported no classic mirrored queues without online synchronised mirrors"
        )
    if not isinstance(found, dict) or "queues" not in found:
        raise CtlError(EXIT_UNAVAILABLE, f"the check itself failed with HTTP status {status}")
    lines = [
        f"{queue['readable_name']} would lose its only synchronised replica (master) if node"
        f" {node} is stopped"
        for queue in found["queues"]
    ]
    raise CtlError(EXIT_UNAVAILABLE, "\n".join(lines), is_plain=True)


def check_type(call: Invocation) -> None:
    """Refuse a type of queue that can't be rebalanced."""
    if call.arguments[0] not in _TYPES:
        raise CtlError(
            EXIT_UNAVAILABLE,
            f"type {call.arguments[0]} is not supported. Try one of {', '.join(_TYPES)}.",
        )


def rebalance(api: Api, call: Invocation) -> str | None:
    """Spread masters and leaders over the nodes; returns how many each has then.

    Raises:
        CtlError: 69 it was refused, 75 --timeout is over and the node goes on.
    """
    body = {
        "type": call.arguments[0],
        "vhost_pattern": call.values.get("vhost_pattern", ".*"),
        "queue_pattern": call.values.get("queue_pattern", ".*"),
    }
    try:
        api.request("POST", "/api/rebalance/queues", body)
    except CtlError as error:
        code = EXIT_UNAVAILABLE if error.exit_code == EXIT_DATA else error.exit_code
        raise CtlError(code, error.text) from error
    with PollUntilTimeout(call) as poll:
        while (found := api.get("/api/rebalance/queues"))["running"]:
            poll.show("queues have moved", found.get("moved"))
            poll.wait(
                "the queues were not spread", "it goes on; the log of the node tells how it ended"
            )
    columns = dict(_COUNTED)
    if any(each.get("stream") for each in found["nodes"]):
        columns["stream"] = "Number of streams"
    rows = [{text: each[key] for key, text in columns.items()} for each in found["nodes"]]
    if call.values.get("formatter") == "json":
        return json.dumps({**found, "nodes": rows})
    shown = output.rows("pretty_table", tuple(columns.values()), rows, headers=True)
    text = shown.rstrip("\n")
    if found["kept"]:
        text += f"\nCould not be moved, see the log: {', '.join(found['kept'])}"
    return text


def migrate_queue(api: Api, call: Invocation) -> str | None:
    """Move a classic queue's messages and bindings to a quorum queue.

    Raises:
        CtlError: 70 it failed, 75 it was cancelled: by Ctrl-C, or because --timeout is over.
    """
    target = call.arguments[1]
    body = {
        "action": "migrate",
        "target": target,
        "delete_source": "delete_source" in call.flags,
    }
    _act(api, call, body)
    try:
        with PollUntilTimeout(call) as poll:
            found = _migrated(api, call, poll)
    except KeyboardInterrupt:
        _act(api, call, {"action": "cancel_migrate"})
        raise CtlError(
            EXIT_TEMPORARY, "cancelled; nothing is lost: the same command goes on"
        ) from None
    if found["state"] != "done":
        raise CtlError(EXIT_SOFTWARE, f"{found['text']} ({found['moved']} messages have moved)")
    said = f"Moved {found['moved']} messages and {found['bindings']} bindings to '{target}'"
    return f"{said}\n{found['text']}" if found["text"] else said


def _migrated(api: Api, call: Invocation, poll: PollUntilTimeout) -> Any:
    while True:
        status, found = api.look(_queue(call) + "/migration")
        if status == _NOT_FOUND:
            text = "the node that migrated the queue has gone; nothing is lost: run it again"
            raise CtlError(EXIT_TEMPORARY, text)
        if status == _OK and found["state"] != "running":
            return found
        if isinstance(found, dict):
            poll.show("messages have moved", found.get("moved"))
        try:
            poll.wait(
                "the migration did not end", "cancelled; nothing is lost: run it again to go on"
            )
        except CommandTimeout:
            _act(api, call, {"action": "cancel_migrate"})
            raise
