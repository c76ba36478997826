"""Commands of rabbitmq-queues on quorum queues, and queues that do not answer.

Source: the commands of rabbitmq_cli's queues folder (texts, keys); rabbitmq-queues 3.10.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from broker.cli.ctl.api import EXIT_DATA, EXIT_UNAVAILABLE, Api, CtlError, UsageError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import Change
from broker.cli.ctl.output import Answer, table

_OK: Final = "ok"
_KINDS: Final = {"classic": "classic queue", "quorum": "quorum queue", "stream": "stream"}
_ANSWERS: Final = ("running", "flow", "syncing")
"""States of a queue whose node answers for it."""


def full(name: str) -> str:
    """The full name of a node that is given by its short one."""
    return name if "@" in name else f"rabbit@{name}"


def _quorum_path(call: Invocation) -> str:
    return f"/api/queues/quorum/{segment(call.vhost)}/{segment(call.arguments[0])}"


def check_type(api: Api, call: Invocation, wanted: str, missing: str, text: str) -> None:
    """Refuse a queue of another type.

    Args:
        api: The node.
        call: Its first argument is the queue.
        wanted: The type that it must have.
        missing: Text if there is no such queue.
        text: Text if it is of another type, which is put in for "{}".

    Raises:
        CtlError: 69.
    """
    path = f"/api/queues/{segment(call.vhost)}/{segment(call.arguments[0])}"
    queue = api.ask("GET", path, missing=CtlError(EXIT_UNAVAILABLE, missing))
    found = str(queue.get("type"))
    if found != wanted:
        raise CtlError(EXIT_UNAVAILABLE, text.format(_KINDS.get(found, found)))


def delete_member(api: Api, call: Invocation) -> None:
    """Take a replica away from a node."""
    check_type(api, call, "quorum", "not_found", "Cannot add members to a {}")
    body = {"node": full(call.arguments[1])}
    api.ask("DELETE", f"{_quorum_path(call)}/replicas/delete", body)


def check_strategy(call: Invocation) -> None:
    """Refuse a strategy that there is not, in rabbitmq-queues' words."""
    if call.arguments[1] not in ("all", "even"):
        raise UsageError(f"strategy '{call.arguments[1]}' is not recognised.")


def grow(api: Api, call: Invocation) -> Answer:
    """Give quorum queues that match (or those with an even number of replicas) one on a node."""
    node, strategy = full(call.arguments[0]), call.arguments[1]
    body = {
        "strategy": strategy,
        "vhost_pattern": call.values.get("vhost_pattern", ".*"),
        "queue_pattern": call.values.get("queue_pattern", ".*"),
    }
    return _changed(api.ask("POST", f"/api/queues/quorum/replicas/on/{segment(node)}/grow", body))


def shrink(api: Api, call: Invocation) -> Answer:
    """Take the replicas of all quorum queues away from a node."""
    node = full(call.arguments[0])
    found = api.ask("DELETE", f"/api/queues/quorum/replicas/on/{segment(node)}/shrink", {})
    if "errors_only" in call.flags:
        found = [each for each in found if each["result"] != _OK]
    return _changed(found)


def force_shrink(api: Api, call: Invocation) -> str:
    """Have the node's replica go on alone, where the others are damaged or lost."""
    path = f"/api/queues/{segment(call.vhost)}/{segment(call.arguments[0])}/replicas/force_shrink"
    missing = CtlError(EXIT_DATA, f"no queue '{call.arguments[0]}' in vhost '{call.vhost}'")
    body = {"force": "force" in call.flags}
    found = api.ask("POST", path, body, missing=missing, refused=EXIT_DATA)
    return str(found["text"])


def _changed(found: list[dict[str, Any]]) -> Answer:
    return table(("vhost", "name", "size", "result"), found, "queues", "")


def check_position(call: Invocation) -> None:
    """Refuse a position that is no positive number."""
    text = call.arguments[1]
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError("position value must be a positive integer")


def peek(api: Api, call: Invocation) -> Answer:
    """Show a ready message, 1 is the head; it stays where it is."""
    missing = f"Target queue was not found in virtual host '{call.vhost}'"
    check_type(api, call, "quorum", missing, "Cannot peek into a {}")
    path = f"{_quorum_path(call)}/peek/{call.arguments[1]}"
    status, found = api.look(path)
    if status == HTTPStatus.NOT_FOUND:
        raise CtlError(EXIT_UNAVAILABLE, str(found.get("reason", "")))
    message: Mapping[str, Any] = api.judge(status, found)
    rows = [{"keys": key, "values": value} for key, value in message.items()]
    return table(("keys", "values"), rows, "rows", "")._replace(facts={"message": message})


def reclaim_quorum_memory(api: Api, call: Invocation) -> str:
    """Have the node collect garbage; the logs themselves are trimmed as messages leave."""
    missing = f"Target queue was not found in virtual host '{call.vhost}'"
    check_type(api, call, "quorum", missing, "This operation is not applicable to {}s")
    api.request("POST", "/api/node/force_gc")
    return "The log of a quorum queue is trimmed by itself; the node's free memory was given back"


def unresponsive(api: Api, call: Invocation) -> list[Mapping[str, Any]]:
    """The queues of a vhost that nobody answers for.

    The API asks every node for some seconds at most, so that no time for each queue is needed.
    """
    found: list[Mapping[str, Any]] = api.get(f"/api/queues/{segment(call.vhost)}")
    return [queue for queue in found if queue.get("state") not in _ANSWERS]


def finished_sync(api: Api, _: Invocation) -> str:
    """Fail if a replica on the node has no vote yet."""
    name = str(api.get("/api/overview")["node"])
    status, found = api.look("/api/health/checks/quorum-replicas-without-vote")
    if status == HTTPStatus.SERVICE_UNAVAILABLE and isinstance(found, dict):
        lines = [
            f"{each['readable_name']} hasn't finished synchronization with {name}."
            for each in found.get("queues", [])
        ]
        raise CtlError(EXIT_UNAVAILABLE, "\n".join(lines) or str(found.get("reason", "")))
    api.judge(status, found)
    return f"Node {name} reported no queues with promotable replicas"


QUORUM: Final[dict[str, Change]] = {
    "delete_member": Change(
        delete_member,
        2,
        2,
        "[--vhost <vhost>] <queue> <node>",
        "Removing a replica of queue {0} on node {1}...",
    ),
    "grow": Change(
        grow,
        2,
        2,
        "<node> <all | even> [--vhost-pattern <pattern>] [--queue-pattern <pattern>]",
        "Growing {1} quorum queues on {0}...",
        check=check_strategy,
        is_answer=True,
    ),
    "shrink": Change(
        shrink,
        1,
        1,
        "<node> [--errors-only]",
        "Shrinking quorum queues on {0}...",
        is_answer=True,
    ),
    "force_shrink_member_to_current_member": Change(
        force_shrink,
        1,
        1,
        "[--vhost <vhost>] <queue> [--force]",
        "Having the replica of queue {0} on {node} go on alone ...",
        is_answer=True,
    ),
    "peek": Change(
        peek,
        2,
        2,
        "[--vhost <vhost>] <queue> <position>",
        "Peeking at quorum queue {0} at position {1} on node {node} ...",
        check=check_position,
        is_answer=True,
    ),
    "reclaim_quorum_memory": Change(
        reclaim_quorum_memory,
        1,
        1,
        "[--vhost <vhost>] <quorum queue>",
        "Will flush Raft WAL of quorum queue {0} ...",
    ),
    "check_if_new_quorum_queue_replicas_have_finished_initial_sync": Change(
        finished_sync,
        0,
        0,
        "",
        "Checking if node {node} runs promotable replicas of any queues ...",
    ),
}
