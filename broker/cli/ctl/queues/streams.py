"""Commands of rabbitmq-streams: a stream's replicas, its retention, and what it keeps of clients.

Source: the commands of rabbitmq_cli's streams folder and of the stream plugin (texts, columns);
rabbit_stream_queue.erl (status/2, tracking_status/2, set_retention_policy/3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from broker.cli.ctl.api import EXIT_UNAVAILABLE, Api, CtlError, UsageError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import Change
from broker.cli.ctl.output import Answer, table
from broker.cli.ctl.queues.quorum import check_type, full

_LAST: Final = "last_node"
_COLUMNS: Final = (
    "role",
    "node",
    "epoch",
    "offset",
    "committed_offset",
    "first_offset",
    "readers",
    "segments",
)
_AGE: Final = re.compile(r"0*[1-9][0-9]{0,17}[YMDhms]")
_SPECIAL: Final = re.compile(r"([^\w-])", re.ASCII)
_POLICY: Final = "retention."
"""How the policies begin that `set_stream_retention_policy` makes; then comes the stream's name."""

_NO_STREAM: Final = "The stream does not exist"
_RESET_NEEDS: Final = frozenset(("stream", "reference"))
_REFERENCE_BYTES_MAX: Final = 255


def _path(call: Invocation) -> str:
    return f"/api/streams/{segment(call.vhost)}/{segment(call.arguments[0])}"


def add_replica(api: Api, call: Invocation) -> None:
    """Give a stream a replica on a node."""
    check_type(api, call, "stream", "not_found", "Cannot add replicas to a {}")
    api.ask("POST", f"{_path(call)}/replicas/add", {"node": full(call.arguments[1])})


def delete_replica(api: Api, call: Invocation) -> None:
    """Take a stream's replica away from a node.

    Raises:
        CtlError: 69 for the last one.
    """
    check_type(api, call, "stream", "not_found", "Cannot delete replicas from a {}")
    body = {"node": full(call.arguments[1])}
    try:
        api.ask("DELETE", f"{_path(call)}/replicas/delete", body)
    except CtlError as error:
        if error.text != _LAST:
            raise
        text = "Cannot delete the last member of a stream"
        raise CtlError(EXIT_UNAVAILABLE, text) from error


def stream_status(api: Api, call: Invocation) -> str | Answer:
    """Show the members of a stream, or with --tracking what it keeps of clients."""
    check_type(api, call, "stream", "not_found", "Cannot get stream status of a {}")
    if "tracking" not in call.flags:
        return _table(call, _COLUMNS, api.get(f"{_path(call)}/status"))
    rows = [
        {"type": "offset", "reference": each["name"], "value": each["offset"]}
        for each in api.get(f"{_path(call)}/offsets")
    ]
    rows += [
        {
            "type": "sequence",
            "reference": each["name"],
            "value": f"{{{each['offset']},{each['publishing_id']}}}",
        }
        for each in api.get(f"{_path(call)}/publishers")
    ]
    return _table(call, ("type", "reference", "value"), rows)


def _table(call: Invocation, columns: Sequence[str], rows: list[dict[str, Any]]) -> str | Answer:
    """Rows; in JSON a list of them, as rabbitmq-streams has it."""
    if call.values.get("formatter") == "json":
        return json.dumps(rows)
    return table(columns, rows, "rows", "")


def restart_stream(api: Api, call: Invocation) -> Answer:
    """Have another replica lead, and say which."""
    check_type(api, call, "stream", "not_found", "Cannot restart a {}")
    node = call.values.get("preferred_leader_node", "")
    body = {"preferred_leader_node": full(node)} if node else {}
    leader = str(api.ask("POST", f"{_path(call)}/restart", body)["leader"])
    return Answer(leader, {"leader": leader})


def set_retention_policy(api: Api, call: Invocation) -> str:
    """Set a stream's max-age, by a policy for this stream alone.

    Raises:
        CtlError: 69 where another policy applies to the stream: a queue has one at a time.
    """
    check_type(api, call, "stream", "not_found", "Cannot set the retention policy of a {}")
    stream, age = call.arguments
    if not _AGE.fullmatch(age):
        text = "invalid_max_age: expected a number from 1 and Y, M, D, h, m or s, as 7D"
        raise CtlError(EXIT_UNAVAILABLE, text)
    applied = api.get(f"/api/queues/{segment(call.vhost)}/{segment(stream)}").get("policy")
    own = f"{_POLICY}{stream}"
    if applied not in (None, "", own):
        raise CtlError(
            EXIT_UNAVAILABLE,
            f"policy '{applied}' applies to stream '{stream}', and a queue has one policy at a "
            "time: set max-age in that one, with set_policy",
        )
    path = f"/api/policies/{segment(call.vhost)}/{segment(own)}"
    definition = api.get(path)["definition"] if applied == own else {}
    pattern = f"^{_SPECIAL.sub(_escaped, stream)}$"
    body = {"pattern": pattern, "apply-to": "streams", "definition": {**definition, "max-age": age}}
    api.ask("PUT", path, body)
    return f"Policy '{own}' sets max-age to {age}; clear_policy takes it back"


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[1]}" if found[1].isascii() else found[1]


def check_tracking(call: Invocation) -> None:
    """Refuse options that contradict each other.

    Raises:
        UsageError: In RabbitMQ's words.
    """
    if len(call.flags & {"all", "offset", "writer"}) > 1:
        raise UsageError("Specify only one of --all, --offset, --writer.")


def list_tracking(api: Api, call: Invocation) -> str | Answer:
    """List the offsets of consumers and the last ids of named publishers."""
    path, flags = _known(api, call, call.arguments[0]), call.flags
    column = "offset" if "offset" in flags else "offset (sequence)"
    rows: list[dict[str, Any]] = []
    if "writer" not in flags:
        rows += [
            {"type": "offset", "name": each["name"], column: each["offset"]}
            for each in api.get(f"{path}/offsets")
        ]
    if "offset" not in flags:
        rows += [
            {
                "type": "writer",
                "name": each["name"],
                column: f"{each['offset']} ({each['publishing_id']})",
            }
            for each in api.get(f"{path}/publishers")
        ]
    return _table(call, ("type", "name", column), rows)


def check_reset(call: Invocation) -> None:
    """Refuse a call without a stream or reference.

    Raises:
        UsageError: In RabbitMQ's words.
    """
    if not call.values.keys() >= _RESET_NEEDS:
        raise UsageError("not enough arguments.")
    if len(call.values["reference"].encode()) > _REFERENCE_BYTES_MAX:
        raise UsageError("The reference is too long")


def reset_offset(api: Api, call: Invocation) -> str:
    """Set a stored offset to 0.

    Raises:
        CtlError: 69 where there is none.
    """
    path = _known(api, call, call.values["stream"])
    path = f"{path}/offsets/{segment(call.values['reference'])}"
    text = "There is no stored offset for this reference, no need to reset"
    api.ask("GET", path, missing=CtlError(EXIT_UNAVAILABLE, text))
    api.ask("PUT", path, {"offset": 0})
    return "Done"


def _known(api: Api, call: Invocation, stream: str) -> str:
    """The path of a stream that there is.

    Raises:
        CtlError: 69 for another queue, or none.
    """
    named = call._replace(arguments=(stream,))
    check_type(api, named, "stream", _NO_STREAM, _NO_STREAM)
    return _path(named)


STREAMS: Final[dict[str, Change]] = {
    "add_replica": Change(
        add_replica,
        2,
        2,
        "[--vhost <vhost>] <queue> <node>",
        "Adding a replica for queue {0} on node {1}...",
    ),
    "delete_replica": Change(
        delete_replica,
        2,
        2,
        "[--vhost <vhost>] <queue> <node>",
        "Removing a replica of queue {0} on node {1}...",
    ),
    "stream_status": Change(
        stream_status,
        1,
        1,
        "[--vhost <vhost>] [--tracking] <stream>",
        "Status of stream {0} on node {node} ...",
        is_answer=True,
    ),
    "restart_stream": Change(
        restart_stream,
        1,
        1,
        "[--vhost <vhost>] <stream> [--preferred-leader-node <node>]",
        "Restarting stream {0}...",
        is_answer=True,
    ),
    "set_stream_retention_policy": Change(
        set_retention_policy,
        2,
        2,
        "[--vhost <vhost>] <name> <policy>",
        "Setting retention policy of stream queue {0} to {1} ...",
    ),
    "list_stream_tracking": Change(
        list_tracking,
        1,
        1,
        "<stream> [--all | --offset | --writer] [--vhost <vhost>]",
        "Listing tracking information for stream {0} ...",
        check=check_tracking,
        is_answer=True,
    ),
    "reset_offset": Change(
        reset_offset,
        0,
        0,
        "--stream <stream> --reference <reference> [--vhost <vhost>]",
        "Resetting stored offset ...",
        check=check_reset,
    ),
}
