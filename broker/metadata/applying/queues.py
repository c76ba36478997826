"""Commands on queues: what each does to the catalogue, and what it refuses."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from broker import feature_flags
from broker.errors import Refusal, ReplyCode, quoted
from broker.metadata import arguments, commands
from broker.metadata.apply_context import ApplyContext, delete_queue
from broker.metadata.applying import equivalence
from broker.metadata.mirroring import steps
from broker.metadata.records import Queue, Vhost
from broker.metadata.results import Declared, Result


def owner_boot(owner: str) -> tuple[str, str]:
    """Split "NODE/BOOT/CONNECTION_ID" into node and boot; anything else has no owner."""
    parts = owner.rsplit("/", 2)
    return (parts[0], parts[1]) if len(parts) == 3 else ("", "")  # noqa: PLR2004 - three parts


def missing_vhost(name: str) -> Refusal:
    """The 530 for a vhost that went away under a connection."""
    return Refusal(ReplyCode.NOT_ALLOWED, f"vhost {name} not found")


NAME_BYTES_MAX = 255
"""What a short string holds; the HTTP API could send more, and no frame could carry it."""


def name_refusal(kind: str, name: str, *, is_reserved_ok: bool = False) -> Refusal | None:
    """Check the name of a new queue or exchange: 403 for the server's own, 406 if too long."""
    if name.startswith("amq.") and not is_reserved_ok:
        text = f"{kind} name '{name}' contains reserved prefix 'amq.*'"
        return Refusal(ReplyCode.ACCESS_REFUSED, text)
    if len(name.encode()) > NAME_BYTES_MAX:
        text = f"{kind} name is longer than {NAME_BYTES_MAX} bytes"
        return Refusal(ReplyCode.PRECONDITION_FAILED, text)
    return None


def declare_queue(context: ApplyContext, command: commands.DeclareQueue) -> Result:
    """Create a queue, or find that it is there and means the same."""
    vhost = context.catalogue.vhost(command.vhost)
    if vhost is None:
        return missing_vhost(command.vhost)
    wanted = arguments.with_default_type(
        command.arguments,
        vhost,
        durable=command.durable,
        exclusive=command.exclusive_owner is not None,
        auto_delete=command.auto_delete,
    )
    existing = context.catalogue.queue(command.vhost, command.name)
    if existing is not None:
        refusal = equivalence.queue_refusal(
            existing,
            durable=command.durable,
            auto_delete=command.auto_delete,
            exclusive_owner=command.exclusive_owner,
            arguments=wanted,
        )
        return refusal or Declared(existing, created=False)
    refusal = _creation_refusal(context, vhost, command, wanted)
    if refusal is not None:
        return refusal
    queue_type = arguments.queue_type(wanted)
    queue = Queue(
        vhost=command.vhost,
        name=command.name,
        uid=context.index,
        type=queue_type,
        durable=command.durable and command.exclusive_owner is None,
        auto_delete=command.auto_delete,
        exclusive_owner=command.exclusive_owner,
        arguments=wanted,
        home=command.home,
        members=command.members or (command.home,),
        is_logged=queue_type == "quorum"
        and feature_flags.QUORUM_LOGS in context.catalogue.features,
    )
    queue = steps.with_first_ring(context.catalogue, queue)
    context.catalogue.put_queue(queue)
    context.changes.queues_added.append(queue)
    context.changes.routing_changed = True
    return Declared(queue, created=True)


def _creation_refusal(
    context: ApplyContext, vhost: Vhost, command: commands.DeclareQueue, wanted: dict[str, object]
) -> Refusal | None:
    """Everything that may stand against a new queue, in RabbitMQ's order."""
    refusal = name_refusal("queue", command.name, is_reserved_ok=command.server_named)
    if refusal is None and command.server_named:
        refusal = arguments.server_named_fault(wanted)
    if refusal is not None:
        return refusal
    limit = context.catalogue.vhost_limit(vhost.name, "max-queues")
    if limit is not None and context.catalogue.queue_count(vhost.name) >= limit:
        return Refusal(
            ReplyCode.PRECONDITION_FAILED,
            f"cannot declare queue '{command.name}': "
            f"queue limit in vhost '{vhost.name}' ({limit}) is reached",
        )
    limit = command.queue_limit
    if limit is not None and context.catalogue.queue_count() >= limit:
        return Refusal(
            ReplyCode.PRECONDITION_FAILED,
            f"cannot declare queue '{command.name}': queue limit in cluster ({limit}) is reached",
        )
    features = context.catalogue.features
    return declaration_refusal(command, wanted, features) or _placement_refusal(context, command)


def declaration_refusal(
    command: commands.DeclareQueue, wanted: dict[str, object], features: Collection[str]
) -> Refusal | None:
    """Check arguments and properties of a new queue, whatever else there is.

    Args:
        command: The declare.
        wanted: Its arguments, the vhost's default type filled in.
        features: Names of the feature flags that are enabled.

    Returns:
        RabbitMQ's 406, None if all is well.
    """
    return (
        _dead_letter_refusal(command)
        or arguments.queue_fault(command.vhost, command.name, wanted)
        or arguments.property_fault(
            command.vhost,
            command.name,
            arguments.queue_type(wanted),
            durable=command.durable,
            exclusive=command.exclusive_owner is not None,
            auto_delete=command.auto_delete,
        )
        or _stream_refusal(wanted, features)
    )


def _stream_refusal(wanted: dict[str, object], features: Collection[str]) -> Refusal | None:
    """Check what is asked of streams only; a cluster with older nodes has none."""
    if arguments.queue_type(wanted) != "stream":
        return None
    return arguments.stream_size_fault(wanted) or feature_flags.refusal(
        feature_flags.STREAM_QUEUE, features
    )


def _dead_letter_refusal(command: commands.DeclareQueue) -> Refusal | None:
    """RabbitMQ looks at the type of this argument before all others, in other words."""
    key = "x-dead-letter-exchange"
    value = command.arguments.get(key, "")
    if isinstance(value, str):
        return None
    subject = quoted("queue", command.name, command.vhost)
    return Refusal(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid type '{arguments.type_name(value)}' for arg '{key}' in {subject}",
    )


def _placement_refusal(context: ApplyContext, command: commands.DeclareQueue) -> Refusal | None:
    """Refuse a placement on a node, or an owner's boot, that the log has already ended (P1)."""
    subject = quoted("queue", command.name, command.vhost)
    home = context.catalogue.node(command.home)
    if home is None or not home.alive:
        text = f"cannot declare {subject}: node '{command.home}' is down"
        return Refusal(ReplyCode.INTERNAL_ERROR, text)
    strangers = [name for name in command.members if context.catalogue.node(name) is None]
    if strangers:
        text = f"cannot declare {subject}: node '{strangers[0]}' is no member of this cluster"
        return Refusal(ReplyCode.INTERNAL_ERROR, text)
    if command.exclusive_owner is not None:
        node, boot = owner_boot(command.exclusive_owner)
        if not context.catalogue.is_living(node, boot):
            text = f"cannot declare {subject}: its connection's node has ended"
            return Refusal(ReplyCode.INTERNAL_ERROR, text)
    return None


def delete_queue_by_uid(context: ApplyContext, command: commands.DeleteQueue) -> Result:
    """Delete one incarnation; a namesake is not touched (P3)."""
    queue = context.catalogue.queue_by_uid(command.uid)
    if queue is None:
        return False
    delete_queue(context, queue)
    return True


def end_connection(context: ApplyContext, command: commands.EndConnection) -> Result:
    """Delete the exclusive queues of a connection that is gone."""
    owned = context.catalogue.queues_of(command.owner)
    for queue in owned:
        delete_queue(context, queue)
    return len(owned)


def note_leader(context: ApplyContext, command: commands.NoteLeader) -> Result:
    """Write down who leads; queues that are gone, or gave up that member, are passed over."""
    for uid, node in command.leaders:
        queue = context.catalogue.queue_by_uid(uid)
        if queue is None or queue.ring is not None:
            continue
        if queue.home != node and node in queue.members:
            _replace(context, msgspec.structs.replace(queue, home=node))
    return None


def move_members(context: ApplyContext, command: commands.MoveMembers) -> Result:
    """Write down a queue's new replicas.

    False if the queue is gone or mirrored, if its replicas are not those that the command was made
    from, or if a new one is on a node that was forgotten meanwhile.
    """
    queue = context.catalogue.queue_by_uid(command.uid)
    if queue is None or queue.ring is not None:
        return False
    if command.expected not in {None, queue.members}:
        return False
    if any(context.catalogue.node(name) is None for name in command.members):
        return False
    home = command.home or queue.home
    moved = msgspec.structs.replace(
        queue, members=command.members, home=home, moved_at=context.index
    )
    _replace(context, moved)
    return True


def _replace(context: ApplyContext, queue: Queue) -> None:
    context.catalogue.put_queue(queue)
    context.changes.queues_changed.append(queue)
