"""Commands on the data folder of a stopped node: force_boot and others.

The folder is that of --data-dir; else of --conf; else of -n NODE in the local cluster of --dir;
else of the settings `warrenmq server` would read. What needs the store is imported when used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from broker.cli.cluster.layout import Layout, LayoutError
from broker.cli.ctl.api import (
    EXIT_DATA,
    EXIT_NO_HOST,
    EXIT_NO_PERMISSION,
    EXIT_SOFTWARE,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    CtlError,
)
from broker.cli.ctl.arguments import Invocation

if TYPE_CHECKING:
    from broker.force_boot import ForcedStart
    from broker.log_aside import LogAside
    from broker.metadata.records import Queue

USAGE = {
    "force_boot": "[--data-dir DIR | -n NODE | --conf FILE] [--dry-run]",
    "set_log_aside": "[-p VHOST] [--data-dir DIR | -n NODE | --conf FILE] [--dry-run] QUEUE",
    "forget_cluster_node": "--offline [--data-dir DIR | -n NODE | --conf FILE] [--dry-run] NODE",
}
_NAMED_MAX = 50
_Result = TypeVar("_Result")


def is_offline(call: Invocation) -> bool:
    """True if a command is one of these."""
    return call.command in ("force_boot", "set_log_aside") or (
        call.command == "forget_cluster_node" and "offline" in call.flags
    )


def run(call: Invocation, environ: Mapping[str, str]) -> str:
    """Do it.

    Args:
        call: The command.
        environ: WARRENMQ_DIR, and the variables `warrenmq server` reads.

    Returns:
        What to print.

    Raises:
        CtlError: 64 usage; 65 it makes no sense; 68 no such node or folder; 69 the node runs;
            70 its data is damaged; 77 not allowed.
    """
    takes = 0 if call.command == "force_boot" else 1
    if len(call.arguments) != takes:
        raise CtlError(EXIT_USAGE, f"usage: warrenmq ctl {call.command} {USAGE[call.command]}")
    folder = data_folder(call, environ)
    if call.command == "set_log_aside":
        return aside_said(_set_aside(call, folder), str(folder))
    lost = None if call.command == "force_boot" else (_full(call.arguments[0]),)
    return said(_force(call, folder, lost), str(folder))


def data_folder(call: Invocation, environ: Mapping[str, str]) -> Path:
    """The data folder that a command is about.

    Raises:
        CtlError: 64 it is not clear which; 68 there is no such node or file.
    """
    name = call.values.get("node")
    if "data_dir" in call.values:
        return Path(call.values["data_dir"])
    if "conf" in call.values:
        return _configured(call.values["conf"], environ)
    layout = Layout(call.values.get("dir") or environ.get("WARRENMQ_DIR") or ".warrenmq")
    if not layout.exists:
        return _configured(None, environ)
    try:
        places = [layout.node(name)] if name else layout.nodes()
    except LayoutError as error:
        raise CtlError(EXIT_NO_HOST, str(error)) from error
    if len(places) > 1:
        known = ", ".join(place.name for place in places)
        raise CtlError(EXIT_USAGE, f"which node of {layout.directory}? -n NODE; there are {known}")
    conf = layout.path(places[0], "node.conf")
    return _configured(str(conf), {}) if conf.exists() else layout.path(places[0], "data")


def _configured(conf: str | None, environ: Mapping[str, str]) -> Path:
    from broker.configuration import sources
    from broker.configuration.keys import ConfigError

    try:
        settings, _ = sources.load(conf, environ)
    except ConfigError as error:
        raise CtlError(EXIT_NO_HOST, str(error)) from error
    return Path(settings.data_dir)


def _force(call: Invocation, folder: Path, lost: Sequence[str] | None) -> ForcedStart:
    from broker.force_boot import force

    is_dry = "dry_run" in call.flags
    return _done(call, folder, lambda: force(folder, lost, dry_run=is_dry))


def _set_aside(call: Invocation, folder: Path) -> LogAside:
    from broker.log_aside import set_aside

    vhost, is_dry = call.values.get("vhost", "/"), "dry_run" in call.flags
    return _done(call, folder, lambda: set_aside(folder, vhost, call.arguments[0], dry_run=is_dry))


def _done(call: Invocation, folder: Path, do: Callable[[], _Result]) -> _Result:
    """Work on a folder as its owner; what goes wrong gets its exit code."""
    from broker.cluster.identity import IdentityDamaged
    from broker.cluster.recovery.forcing import ForcingRefused
    from broker.force_boot import node_of
    from broker.log_aside import AsideRefused
    from broker.storage.offline import StoreMissing
    from broker.storage.store import StoreDamaged, StoreLocked
    from raft.errors import LogCorrupt

    try:
        _become_owner(folder)
        owner = node_of(folder)
        named = call.values.get("node")
        if named is not None and _full(named) != owner:
            raise CtlError(EXIT_DATA, f"{folder} belongs to {owner}, not to {_full(named)}")
        return do()
    except (ForcingRefused, AsideRefused) as error:
        raise CtlError(EXIT_DATA, str(error)) from error
    except (IdentityDamaged, StoreMissing, FileNotFoundError) as error:
        raise CtlError(EXIT_NO_HOST, str(error)) from error
    except StoreLocked as error:
        raise CtlError(EXIT_UNAVAILABLE, str(error)) from error
    except (StoreDamaged, LogCorrupt) as error:
        text = f"{error}; what it says can't be built on: force_boot another node"
        raise CtlError(EXIT_SOFTWARE, text) from error
    except PermissionError as error:
        raise CtlError(EXIT_NO_PERMISSION, str(error)) from error


def _become_owner(folder: Path) -> None:
    """Root works as the node's own user, or the node could not open what root left behind."""
    found = folder.stat()
    if os.geteuid() == 0 and found.st_uid != 0:
        os.setegid(found.st_gid)
        os.seteuid(found.st_uid)


def _full(name: str) -> str:
    return name if "@" in name else f"rabbit@{name}"


def said(forced: ForcedStart, folder: str) -> str:
    """Return the text that says what was done, what is lost, and what to do next."""
    is_dry = not forced.cluster_id
    left, lost = forced.conclusion.survivors, forced.conclusion.lost
    lines = [f"{'Would force' if is_dry else 'Forced'} {forced.node} ({folder}):"]
    if not is_dry:
        lines.append(f"  new cluster id {forced.cluster_id}; nodes with the old one are refused")
    lines.append(f"  given up for good: {', '.join(lost) or 'nobody'}")
    lines.append(f"  the cluster is now: {', '.join(left)}")
    for text, queues in (
        ("are deleted with all messages, their only copies were there", forced.losses.deleted),
        ("begin empty, this node's copy holds nothing", forced.emptied),
        ("may lack confirmed messages, this node's copy had no vote yet", forced.behind),
        ("wait for another survivor, this node has no copy", forced.missing),
        (
            "have a damaged log here, their only copy left; nothing of it is erased: put back what "
            "is missing, or start the node, stop it, and set_log_aside",
            forced.damaged,
        ),
        ("go on; lost is what had not reached this side", _others(forced)),
    ):
        if queues:
            lines += [f"  queues that {text} ({len(queues)}):", *_listed(queues)]
    if len(left) > 1:
        others = ", ".join(node for node in left if node != forced.node)
        lines.append(f"Do the same on {others}, stopped, before any of them starts:")
        lines.append("  nodes that were not told the same refuse each other.")
    if not is_dry:
        lines.append(
            "Start the node. A node that was given up must be wiped before it joins again."
        )
    return "\n".join(lines)


def aside_said(aside: LogAside, folder: str) -> str:
    """Return the text that says what was set aside, and what the queue goes on with."""
    queue, is_dry = aside.queue, not aside.path
    goes_on = "empty"
    if aside.kept:
        goes_on = f"with the first {aside.kept} entries of its log, which stand before the damage"
    return "\n".join(
        [
            f"{'Would set' if is_dry else 'Set'} the log of queue '{queue.name}' in vhost "
            f"'{queue.vhost}' aside ({folder}):",
            f"  what is wrong with it: {aside.why}",
            *([] if is_dry else [f"  all of it is kept in {aside.path}"]),
            f"  the queue {'would go' if is_dry else 'goes'} on {goes_on}",
        ]
    )


def _others(forced: ForcedStart) -> list[Queue]:
    told = {queue.uid for queue in _told(forced)}
    return [queue for queue in forced.losses.shrunk if queue.uid not in told]


def _told(forced: ForcedStart) -> tuple[Queue, ...]:
    return (*forced.emptied, *forced.behind, *forced.missing, *forced.damaged)


def _listed(queues: Sequence[Queue]) -> list[str]:
    lines = [f"    '{queue.name}' in vhost '{queue.vhost}'" for queue in queues[:_NAMED_MAX]]
    return [*lines, *(["    ..."] if len(queues) > _NAMED_MAX else [])]
