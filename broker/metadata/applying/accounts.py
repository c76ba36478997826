"""Commands on vhosts, users, permissions, parameters, policies and the cluster's name.

They come from the management API, which turns a refusal into an HTTP status.
"""

from __future__ import annotations

import msgspec

from broker import feature_flags
from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
from broker.metadata.apply_context import ApplyContext, delete_queue
from broker.metadata.applying import features
from broker.metadata.applying.exchanges import predeclare
from broker.metadata.arguments import MODULES
from broker.metadata.policies import Policy
from broker.metadata.records import (
    Node,
    Parameter,
    Permission,
    Queue,
    TopicPermission,
    User,
    Vhost,
)
from broker.metadata.results import Result


def bootstrap(context: ApplyContext, command: commands.Bootstrap) -> Result:
    """Found the cluster; doing so again with the same id changes nothing."""
    catalogue = context.catalogue
    if catalogue.cluster_id:
        if catalogue.cluster_id == command.cluster_id:
            return None
        text = f"this cluster was founded as {catalogue.cluster_id}"
        return Refusal(ReplyCode.PRECONDITION_FAILED, text)
    catalogue.cluster_id = command.cluster_id
    catalogue.cluster_name = command.cluster_name
    for name, address in command.nodes:
        catalogue.put_node(Node(name=name, boot=None, alive=False, address=address))
        context.changes.nodes_changed.append(name)
    if command.vhost:
        catalogue.put_vhost(Vhost(command.vhost))
        predeclare(context, command.vhost)
        context.changes.vhosts_added.append(command.vhost)
    if command.user:
        record = User(command.user, command.password_hash, command.hashing_algorithm, command.tags)
        catalogue.put_user(record)
        if command.vhost:
            permission = Permission(command.user, command.vhost, *command.permissions)
            catalogue.put_permission(permission)
        context.changes.users_changed.append(command.user)
    features.enable(context, command.features)
    return None


def add_vhost(context: ApplyContext, command: commands.AddVhost) -> Result:
    """Add a vhost, or change what describes it."""
    existing = context.catalogue.vhost(command.name)
    default = command.default_queue_type
    if default in {"", "undefined"}:  # how RabbitMQ's definitions say "none"
        default = None
    if default is not None and default not in MODULES:
        return Refusal(ReplyCode.PRECONDITION_FAILED, f"unsupported queue type '{default}'")
    if default == "stream":
        refusal = feature_flags.refusal(feature_flags.STREAM_QUEUE, context.catalogue.features)
        if refusal is not None:
            return refusal
    record = Vhost(command.name, command.description, command.tags, default)
    if existing is not None:
        record = msgspec.structs.replace(record, tracing=existing.tracing)
        context.catalogue.put_vhost(record)
        return False
    context.catalogue.put_vhost(record)
    predeclare(context, command.name)
    context.changes.vhosts_added.append(command.name)
    if command.user and context.catalogue.user(command.user) is not None:
        context.catalogue.put_permission(Permission(command.user, command.name, ".*", ".*", ".*"))
        context.changes.users_changed.append(command.user)
    return True


def delete_vhost(context: ApplyContext, command: commands.DeleteVhost) -> Result:
    """Delete a vhost and everything in it."""
    if context.catalogue.vhost(command.name) is None:
        return False
    for queue in context.catalogue.queues(command.name):
        delete_queue(context, queue)
    for store in context.catalogue.all_queues(command.name):  # none but stores is left
        delete_queue(context, store)
    context.catalogue.remove_vhost(command.name)
    context.changes.vhosts_removed.append(command.name)
    context.changes.routing_changed = True
    context.changes.parameters_changed = True
    context.changes.policies_changed = True
    return True


def _missing_user(name: str) -> Refusal:
    return Refusal(ReplyCode.NOT_FOUND, f"no user '{name}'")


def add_user(context: ApplyContext, command: commands.AddUser) -> Result:
    """Add a user, or replace password and tags; limits stay."""
    existing = context.catalogue.user(command.name)
    if existing is not None and not command.may_exist:
        text = f"user '{command.name}' already exists"
        return Refusal(ReplyCode.PRECONDITION_FAILED, text)
    record = User(
        command.name,
        command.password_hash,
        command.hashing_algorithm,
        command.tags,
        {} if existing is None else existing.limits,
    )
    _put_user(context, record)
    return existing is None


def change_password(context: ApplyContext, command: commands.ChangePassword) -> Result:
    """Replace a user's password."""
    user = context.catalogue.user(command.name)
    if user is None:
        return _missing_user(command.name)
    record = msgspec.structs.replace(
        user,
        password_hash=command.password_hash,
        hashing_algorithm=command.hashing_algorithm,
    )
    _put_user(context, record)
    return None


def set_user_tags(context: ApplyContext, command: commands.SetUserTags) -> Result:
    """Replace a user's tags."""
    user = context.catalogue.user(command.name)
    if user is None:
        return _missing_user(command.name)
    _put_user(context, msgspec.structs.replace(user, tags=command.tags))
    return None


def set_user_limits(context: ApplyContext, command: commands.SetUserLimits) -> Result:
    """Replace or change a user's limits."""
    user = context.catalogue.user(command.name)
    if user is None:
        return _missing_user(command.name)
    limits = command.limits
    if command.is_update:
        limits = {**user.limits, **limits}
        limits = {name: limits[name] for name in limits if name not in command.removed}
    _put_user(context, msgspec.structs.replace(user, limits=limits))
    return None


def _put_user(context: ApplyContext, record: User) -> None:
    context.catalogue.put_user(record)
    context.changes.users_changed.append(record.name)


def delete_user(context: ApplyContext, command: commands.DeleteUser) -> Result:
    """Delete a user with its permissions."""
    if context.catalogue.user(command.name) is None:
        return False
    context.catalogue.remove_user(command.name)
    context.changes.users_removed.append(command.name)
    return True


def _grant_refusal(context: ApplyContext, user: str, vhost: str) -> Refusal | None:
    """Permissions join a user and a vhost that both exist."""
    if context.catalogue.vhost(vhost) is None:
        return Refusal(ReplyCode.NOT_FOUND, f"no vhost '{vhost}'")
    return None if context.catalogue.user(user) is not None else _missing_user(user)


def set_permissions(context: ApplyContext, command: commands.SetPermissions) -> Result:
    """Set a user's permissions in a vhost. An empty expression matches nothing, and stays empty.

    Tools read back what they wrote, and write again where it differs.
    """
    refusal = _grant_refusal(context, command.user, command.vhost)
    if refusal is not None:
        return refusal
    is_new = context.catalogue.permission(command.user, command.vhost) is None
    context.catalogue.put_permission(
        Permission(command.user, command.vhost, command.configure, command.write, command.read)
    )
    context.changes.users_changed.append(command.user)
    return is_new


def clear_permissions(context: ApplyContext, command: commands.ClearPermissions) -> Result:
    """Remove a user's permissions in a vhost."""
    if context.catalogue.permission(command.user, command.vhost) is None:
        return False
    context.catalogue.remove_permission(command.user, command.vhost)
    context.changes.users_changed.append(command.user)
    return True


def set_topic_permissions(context: ApplyContext, command: commands.SetTopicPermissions) -> Result:
    """Set topic permissions. The exchange need not exist yet, as in RabbitMQ."""
    refusal = _grant_refusal(context, command.user, command.vhost)
    if refusal is not None:
        return refusal
    key = (command.user, command.vhost, command.exchange)
    is_new = context.catalogue.topic_permission(*key) is None
    context.catalogue.put_topic_permission(TopicPermission(*key, command.write, command.read))
    context.changes.users_changed.append(command.user)
    return is_new


def clear_topic_permissions(
    context: ApplyContext, command: commands.ClearTopicPermissions
) -> Result:
    """Remove topic permissions of one exchange, or of the whole vhost."""
    found = [
        each
        for each in context.catalogue.topic_permissions()
        if (each.user, each.vhost) == (command.user, command.vhost)
        and command.exchange in {None, each.exchange}
    ]
    for record in found:
        context.catalogue.remove_topic_permission(record)
    if found:
        context.changes.users_changed.append(command.user)
    return bool(found)


def set_parameter(context: ApplyContext, command: commands.SetParameter) -> Result:
    """Set a runtime parameter. True if it is new."""
    if command.vhost and context.catalogue.vhost(command.vhost) is None:
        return Refusal(ReplyCode.NOT_FOUND, f"no vhost '{command.vhost}'")
    key = (command.vhost, command.component, command.name)
    is_new = context.catalogue.parameter(*key) is None
    context.catalogue.put_parameter(Parameter(*key, command.value))
    context.changes.parameters_changed = True
    return is_new


def clear_parameter(context: ApplyContext, command: commands.ClearParameter) -> Result:
    """Remove a runtime parameter."""
    key = (command.vhost, command.component, command.name)
    if context.catalogue.parameter(*key) is None:
        return False
    context.catalogue.remove_parameter(*key)
    context.changes.parameters_changed = True
    return True


def set_policy(context: ApplyContext, command: commands.SetPolicy) -> Result:
    """Set a policy; it applies at once to what is declared already. True if it is new."""
    if context.catalogue.vhost(command.vhost) is None:
        return Refusal(ReplyCode.NOT_FOUND, f"no vhost '{command.vhost}'")
    is_operator = command.operator
    is_new = context.catalogue.policy(command.vhost, command.name, operator=is_operator) is None
    policy = Policy(
        command.vhost,
        command.name,
        command.pattern,
        command.apply_to,
        command.priority,
        command.definition,
    )
    _note_policy(context, context.catalogue.put_policy(policy, operator=is_operator))
    return is_new


def clear_policy(context: ApplyContext, command: commands.ClearPolicy) -> Result:
    """Remove a policy."""
    vhost, name, is_operator = command.vhost, command.name, command.operator
    if context.catalogue.policy(vhost, name, operator=is_operator) is None:
        return False
    _note_policy(context, context.catalogue.remove_policy(vhost, name, operator=is_operator))
    return True


def _note_policy(context: ApplyContext, queues: list[Queue]) -> None:
    context.changes.policies_changed = True
    context.changes.policy_queues += queues
    context.changes.routing_changed = True  # alternate exchanges


def set_cluster_name(context: ApplyContext, command: commands.SetClusterName) -> Result:
    """Rename the cluster."""
    context.catalogue.cluster_name = command.name
    context.changes.parameters_changed = True
    return None
