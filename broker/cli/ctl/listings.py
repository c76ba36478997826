"""The `list_*` commands: which endpoint, which columns, what RabbitMQ's columns are called there.

A column is looked up under its own name in the API's object unless `_SOURCES` says otherwise.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from broker.cli.ctl import delays
from broker.cli.ctl.api import Api, CtlError, UsageError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.clients import pid
from broker.cli.ctl.queues import quorum, redrive, taps
from broker.cli.ctl.rights.accounts import no_such_user, no_vhost
from broker.cli.ctl.rights.parameters import shown

Record = Mapping[str, Any]
_NOT_FOUND = 404


class Listing(NamedTuple):
    """One `list_*` command.

    Attributes:
        path: Endpoint; "{vhost}" and "{0}" stand for -p and the first argument.
        columns: Default columns.
        known: Every column that may be asked for.
        banner: What is printed first unless -q; the same placeholders.
        has_columns: Whether arguments choose columns.
        collect: Fetches the records where one GET of `path` is not all.
        missing: What a 404 of the endpoint means; None: that there is nothing to list.
        is_table: Not written row by row as it comes: nothing at all is an empty line then.
        headers: Whether the table ever has a line of column names.
    """

    path: str
    columns: tuple[str, ...]
    known: tuple[str, ...]
    banner: str
    has_columns: bool = True
    collect: Callable[[Api, Invocation], list[Record]] | None = None
    missing: Callable[[Invocation], CtlError] | None = None
    is_table: bool = False
    headers: bool = True


_QUEUE_COLUMNS = (
    "name",
    "durable",
    "auto_delete",
    "arguments",
    "policy",
    "operator_policy",
    "effective_policy_definition",
    "pid",
    "owner_pid",
    "exclusive",
    "exclusive_consumer_pid",
    "exclusive_consumer_tag",
    "messages_ready",
    "messages_unacknowledged",
    "messages",
    "messages_ready_ram",
    "messages_unacknowledged_ram",
    "messages_ram",
    "messages_paged_out",
    "messages_alpha",
    "messages_beta",
    "messages_gamma",
    "messages_delta",
    "messages_persistent",
    "message_bytes",
    "message_bytes_ready",
    "message_bytes_unacknowledged",
    "message_bytes_ram",
    "message_bytes_paged_out",
    "message_bytes_persistent",
    "head_message_timestamp",
    "disk_reads",
    "disk_writes",
    "consumers",
    "consumer_utilisation",
    "consumer_capacity",
    "memory",
    "disk_bytes",
    "backing_queue_status",
    "slave_pids",
    "synchronised_slave_pids",
    "mirror_pids",
    "synchronised_mirror_pids",
    "recoverable_slaves",
    "waits_for",
    "state",
    "type",
    "leader",
    "members",
    "online",
    "target_group_size",
    "missing_members",
    "damaged_members",
    "committed_offset",
    "segments",
    "vhost",
    "node",
)
_CONNECTION_COLUMNS = (
    "pid",
    "name",
    "port",
    "host",
    "peer_port",
    "peer_host",
    "ssl",
    "ssl_protocol",
    "ssl_key_exchange",
    "ssl_cipher",
    "ssl_hash",
    "peer_cert_subject",
    "peer_cert_issuer",
    "peer_cert_validity",
    "state",
    "channels",
    "protocol",
    "auth_mechanism",
    "user",
    "vhost",
    "timeout",
    "frame_max",
    "channel_max",
    "client_properties",
    "recv_oct",
    "recv_cnt",
    "send_oct",
    "send_cnt",
    "send_pend",
    "connected_at",
    "node",
    "user_provided_name",
)
_CHANNEL_COLUMNS = (
    "pid",
    "connection",
    "name",
    "number",
    "user",
    "vhost",
    "transactional",
    "confirm",
    "consumer_count",
    "messages_unacknowledged",
    "messages_uncommitted",
    "acks_uncommitted",
    "messages_unconfirmed",
    "prefetch_count",
    "global_prefetch_count",
    "state",
    "node",
)
_BINDING_COLUMNS = (
    "source_name", "source_kind", "destination_name", "destination_kind", "routing_key",
    "arguments", "vhost",
)  # fmt: skip
_CONSUMER_COLUMNS = (
    "queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active",
    "arguments", "activity_status", "exclusive",
)  # fmt: skip
_PERMISSION_COLUMNS = ("user", "vhost", "configure", "write", "read")
_TOPIC_COLUMNS = ("user", "vhost", "exchange", "write", "read")
_PARAMETER_COLUMNS = ("component", "name", "value")
_POLICY_COLUMNS = ("vhost", "name", "pattern", "apply-to", "definition", "priority")


def _no_vhost(call: Invocation) -> CtlError:
    return no_vhost(call.vhost)


def _no_user(call: Invocation) -> CtlError:
    return no_such_user(call.arguments[0])


def _parameters(api: Api, call: Invocation) -> list[Record]:
    """Those of a vhost, whatever their component."""
    api.ask("GET", f"/api/vhost-limits/{segment(call.vhost)}", missing=no_vhost(call.vhost))
    return [each for each in api.get("/api/parameters") if each["vhost"] == call.vhost]


LISTINGS: dict[str, Listing] = {
    "list_queues": Listing(
        "/api/queues/{vhost}", ("name", "messages"), _QUEUE_COLUMNS,
        "Timeout: 60.0 seconds ...\nListing queues for vhost {vhost} ...",
    ),
    "list_exchanges": Listing(
        "/api/exchanges/{vhost}", ("name", "type"),
        (
            "name", "type", "durable", "auto_delete", "internal", "arguments", "policy", "vhost",
            "messages_delayed",
        ),
        "Listing exchanges for vhost {vhost} ...",
    ),
    "list_bindings": Listing(
        "/api/bindings/{vhost}", _BINDING_COLUMNS[:6], _BINDING_COLUMNS,
        "Listing bindings for vhost {vhost}...",
    ),
    "list_connections": Listing(
        "/api/connections", ("user", "peer_host", "peer_port", "state"), _CONNECTION_COLUMNS,
        "Listing connections ...",
    ),
    "list_channels": Listing(
        "/api/channels", ("pid", "user", "consumer_count", "messages_unacknowledged"),
        _CHANNEL_COLUMNS, "Listing channels ...",
    ),
    "list_consumers": Listing(
        "/api/consumers/{vhost}", _CONSUMER_COLUMNS[:7], _CONSUMER_COLUMNS,
        "Listing consumers in vhost {vhost} ...",
    ),
    "list_vhosts": Listing(
        "/api/vhosts", ("name",),
        ("name", "tracing", "description", "tags", "default_queue_type", "cluster_state"),
        "Listing vhosts ...",
    ),
    "list_users": Listing(
        "/api/users", ("user", "tags"), ("user", "tags"), "Listing users ...", has_columns=False
    ),
    "list_permissions": Listing(
        "/api/vhosts/{vhost}/permissions", ("user", "configure", "write", "read"),
        _PERMISSION_COLUMNS, "Listing permissions for vhost \"{vhost}\" ...", has_columns=False,
        missing=_no_vhost, is_table=True,
    ),
    "list_user_permissions": Listing(
        "/api/users/{0}/permissions", ("vhost", "configure", "write", "read"),
        _PERMISSION_COLUMNS, "Listing permissions for user \"{0}\" ...", has_columns=False,
        missing=_no_user, is_table=True,
    ),
    "list_topic_permissions": Listing(
        "/api/vhosts/{vhost}/topic-permissions", ("user", "exchange", "write", "read"),
        _TOPIC_COLUMNS, "Listing topic permissions for vhost \"{vhost}\" ...", has_columns=False,
        missing=_no_vhost, is_table=True,
    ),
    "list_user_topic_permissions": Listing(
        "/api/users/{0}/topic-permissions", ("vhost", "exchange", "write", "read"),
        _TOPIC_COLUMNS, "Listing topic permissions for user \"{0}\" ...", has_columns=False,
        missing=_no_user, is_table=True, headers=False,
    ),
    "list_parameters": Listing(
        "/api/parameters", _PARAMETER_COLUMNS, _PARAMETER_COLUMNS,
        "Listing runtime parameters for vhost \"{vhost}\" ...", has_columns=False,
        collect=_parameters, missing=_no_vhost, is_table=True,
    ),
    "list_global_parameters": Listing(
        "/api/global-parameters", ("name", "value"), ("name", "value"),
        "Listing global runtime parameters ...", has_columns=False, is_table=True,
    ),
    "list_feature_flags": Listing(
        "/api/feature-flags", ("name", "state"),
        ("name", "state", "stability", "provided_by", "desc", "doc_url"),
        "Listing feature flags ...",
    ),
    "list_policies": Listing(
        "/api/policies/{vhost}", _POLICY_COLUMNS, _POLICY_COLUMNS,
        "Listing policies for vhost \"{vhost}\" ...", has_columns=False,
        missing=_no_vhost, is_table=True,
    ),
    "list_operator_policies": Listing(
        "/api/operator-policies/{vhost}", _POLICY_COLUMNS, _POLICY_COLUMNS,
        "Listing operator policy overrides for vhost \"{vhost}\" ...", has_columns=False,
        missing=_no_vhost, is_table=True,
    ),
    "list_unresponsive_queues": Listing(
        "/api/queues/{vhost}", ("name",),
        ("name", "durable", "auto_delete", "arguments", "pid", "recoverable_slaves", "state"),
        "Listing unresponsive queues for vhost {vhost} ...", collect=quorum.unresponsive,
    ),
    "list_taps": Listing(
        "/api/taps/{vhost}", taps.COLUMNS, ("vhost", *taps.COLUMNS),
        "Listing taps for vhost \"{vhost}\" ...", missing=_no_vhost, is_table=True,
    ),
    "list_dead_letters": Listing(
        "/api/queues/{vhost}/{0}/dead-letters", redrive.COLUMNS, redrive.KNOWN,
        "Listing dead letters of queue '{0}' in vhost '{vhost}' ...",
        collect=redrive.listed,
    ),
    "list_delayed_messages": Listing(
        "/api/exchanges/{vhost}/{0}/delayed", delays.COLUMNS, delays.KNOWN,
        "Listing delayed messages of exchange '{0}' in vhost '{vhost}' ...",
        collect=delays.listed,
    ),
}  # fmt: skip


def _connection_of(channel: Record) -> str:
    details = channel.get("connection_details")
    name = details.get("name") if isinstance(details, dict) else ""
    return pid({"node": channel.get("node"), "name": name})


def _value(record: Record) -> str:
    return shown(record.get("value"))


def _channel_of(consumer: Record) -> str:
    details = consumer.get("channel_details")
    return pid(details) if isinstance(details, dict) else ""


def _path(*keys: str) -> Callable[[Record], Any]:
    def read(record: Record) -> Any:
        value: Any = record
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return read


def _pid(queue: Record, node: str) -> str:
    """A queue's process on a node, in the form that scripts take the node out of.

    Source: `rabbitmqctl list_queues pid`, "<rabbit@node1.1795277251.1046.0>".
    """
    return f"<{node}.1.{queue.get('incarnation', 0)}.0>" if node else ""


def _pids(key: str) -> Callable[[Record], Any]:
    def read(queue: Record) -> Any:
        nodes = queue.get(key)
        return None if nodes is None else [_pid(queue, node) for node in nodes]

    return read


def _queue_state(queue: Record) -> Any:
    """With the messages sent so far while mirrors are synchronised, as rabbitmqctl has it."""
    state = queue.get("state")
    return f"{{syncing,{queue.get('sync_messages', 0)}}}" if state == "syncing" else state


def _definition(record: Record) -> str:
    """As JSON, as rabbitmqctl prints it."""
    return json.dumps(record.get("definition"), ensure_ascii=False, separators=(",", ":"))


_OF_QUEUES = ("list_queues", "list_unresponsive_queues")
"""Listings that take --online, --offline and --local."""

_SOURCES: dict[str, dict[str, Callable[[Record], Any]]] = {
    "list_queues": {
        "pid": lambda q: _pid(q, str(q.get("leader") or q.get("node") or "")),
        "leader": lambda q: q.get("leader") or q.get("node"),
        "slave_pids": _pids("slave_nodes"),
        "mirror_pids": _pids("slave_nodes"),
        "synchronised_slave_pids": _pids("synchronised_slave_nodes"),
        "synchronised_mirror_pids": _pids("synchronised_slave_nodes"),
        "state": _queue_state,
        "owner_pid": _path("owner_pid_details", "name"),
    },
    "list_unresponsive_queues": {
        "pid": lambda q: _pid(q, str(q.get("leader") or q.get("node") or "")),
    },
    "list_bindings": {
        "source_name": _path("source"),
        "source_kind": lambda _: "exchange",
        "destination_name": _path("destination"),
        "destination_kind": _path("destination_type"),
    },
    "list_connections": {"pid": pid},
    "list_channels": {"pid": pid, "connection": _connection_of},
    "list_consumers": {
        "queue_name": _path("queue", "name"),
        "channel_pid": _channel_of,
    },
    "list_users": {"user": _path("name")},
    "list_parameters": {"value": _value},
    "list_global_parameters": {"value": _value},
    "list_policies": {"definition": _definition},
    "list_operator_policies": {"definition": _definition},
}


class ListingPlan(NamedTuple):
    """A `list_*` command, understood but not yet run.

    Attributes:
        listing: Which.
        columns: Those asked for.
        path: The endpoint, filled in.
        banner: Filled in.
    """

    listing: Listing
    columns: tuple[str, ...]
    path: str
    banner: str


def plan(call: Invocation) -> ListingPlan:
    """Understand a `list_*` command.

    Args:
        call: Its arguments are columns, perhaps behind a name.

    Raises:
        CtlError: 64, an unknown column or no name.
    """
    listing = LISTINGS[call.command]
    subject = _subject(call, listing)
    columns = listing.columns
    asked = call.arguments[1:] if "{0}" in listing.path else call.arguments
    if listing.has_columns and asked:
        columns = tuple(word for text in asked for word in text.split() if word)
        _check(columns, listing.known)
    path = listing.path.replace("{vhost}", segment(call.vhost)).replace("{0}", segment(subject))
    banner = listing.banner.replace("{vhost}", call.vhost).replace("{0}", subject)
    return ListingPlan(listing, columns, path, banner)


def fetch(api: Api, call: Invocation, found: ListingPlan) -> list[dict[str, Any]]:
    """Run a `list_*` command.

    Args:
        api: The node.
        call: The command.
        found: What `plan` made of it.

    Returns:
        The rows.

    Raises:
        CtlError: What the listing says of a 404, else as `Api.request`.
    """
    listing = found.listing
    if listing.collect is not None:
        records = listing.collect(api, call)
    elif listing.missing is not None:
        records = api.ask("GET", found.path, missing=listing.missing(call))
    else:
        status, records = api.look(found.path)
        records = [] if status == _NOT_FOUND else api.judge(status, records)
    sources = _SOURCES.get(call.command, {})
    return [
        {name: sources[name](r) if name in sources else r.get(name) for name in found.columns}
        for r in (records if isinstance(records, list) else [])
        if _is_wanted(r, call)
    ]


def _subject(call: Invocation, listing: Listing) -> str:
    names = 1 if "{0}" in listing.path else 0
    if len(call.arguments) < names:
        raise UsageError("not enough arguments.")
    if len(call.arguments) > names and not listing.has_columns:
        raise UsageError("too many arguments.")
    return call.arguments[0] if names else ""


def _is_wanted(record: Record, call: Invocation) -> bool:
    if call.command not in _OF_QUEUES or not call.flags & {"online", "offline", "local"}:
        return True
    if "local" in call.flags:
        node = call.values.get("node", "")
        serves = str(record.get("leader") or record.get("node") or "")
        return serves in (node, f"rabbit@{node}")
    is_online = record.get("state") not in ("down", "stopped")
    return is_online == ("online" in call.flags)


def _check(columns: Sequence[str], known: Sequence[str]) -> None:
    foreign = [name for name in columns if name not in known]
    if foreign:
        near = difflib.get_close_matches(foreign[0], known, n=1, cutoff=0.0)
        text = f"Info key(s) {','.join(foreign)} are not supported; did you mean {near[0]}?"
        raise UsageError(text)
