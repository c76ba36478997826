"""Commands on vhosts, users, permissions, parameters, policies and the cluster's name.

They come from the management API, which turns a refusal into an HTTP status.
"""

from __future__ import annotations

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
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
from broker.metadata.step import Step, delete_queue


def bootstrap(step: Step, command: commands.Bootstrap) -> Result:
    """Found the cluster; doing so again with the same id changes nothing."""
    catalogue = step.catalogue
    if catalogue.cluster_id:
        if catalogue.cluster_id == command.cluster_id:
            return None
        text = f"this cluster was founded as {catalogue.cluster_id}"
        return Refusal(ReplyCode.PRECONDITION_FAILED, text)
    catalogue.cluster_id = command.cluster_id
    catalogue.cluster_name = command.cluster_name
    for name, address in command.nodes:
        catalogue.put_node(Node(name=name, boot=None, alive=False, address=address))
        step.changes.nodes_changed.append(name)
    if command.vhost:
        catalogue.put_vhost(Vhost(command.vhost))
        predeclare(step, command.vhost)
        step.changes.vhosts_added.append(command.vhost)
    if command.user:
        record = User(command.user, command.password_hash, command.hashing_algorithm, command.tags)
        catalogue.put_user(record)
        if command.vhost:
            permission = Permission(command.user, command.vhost, *command.permissions)
            catalogue.put_permission(permission)
        step.changes.users_changed.append(command.user)
    return None


def add_vhost(step: Step, command: commands.AddVhost) -> Result:
    """Add a vhost, or change what describes it."""
    existing = step.catalogue.vhost(command.name)
    default = command.default_queue_type
    if default in {"", "undefined"}:  # how RabbitMQ's definitions say "none"
        default = None
    if default is not None and default not in MODULES:
        return Refusal(ReplyCode.PRECONDITION_FAILED, f"unsupported queue type '{default}'")
    record = Vhost(command.name, command.description, command.tags, default)
    if existing is not None:
        record = msgspec.structs.replace(record, tracing=existing.tracing)
        step.catalogue.put_vhost(record)
        return False
    step.catalogue.put_vhost(record)
    predeclare(step, command.name)
    step.changes.vhosts_added.append(command.name)
    if command.user and step.catalogue.user(command.user) is not None:
        step.catalogue.put_permission(Permission(command.user, command.name, ".*", ".*", ".*"))
        step.changes.users_changed.append(command.user)
    return True


def delete_vhost(step: Step, command: commands.DeleteVhost) -> Result:
    """Delete a vhost and everything in it."""
    if step.catalogue.vhost(command.name) is None:
        return False
    for queue in step.catalogue.queues(command.name):
        delete_queue(step, queue)
    for store in step.catalogue.all_queues(command.name):  # none but stores is left
        delete_queue(step, store)
    step.catalogue.remove_vhost(command.name)
    step.changes.vhosts_removed.append(command.name)
    step.changes.routing_changed = True
    step.changes.parameters_changed = True
    step.changes.policies_changed = True
    return True


def _missing_user(name: str) -> Refusal:
    return Refusal(ReplyCode.NOT_FOUND, f"no user '{name}'")


def add_user(step: Step, command: commands.AddUser) -> Result:
    """Add a user, or replace password and tags; limits stay."""
    existing = step.catalogue.user(command.name)
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
    _put_user(step, record)
    return existing is None


def change_password(step: Step, command: commands.ChangePassword) -> Result:
    """Replace a user's password."""
    user = step.catalogue.user(command.name)
    if user is None:
        return _missing_user(command.name)
    record = msgspec.structs.replace(
        user,
        password_hash=command.password_hash,
        hashing_algorithm=command.hashing_algorithm,
    )
    _put_user(step, record)
    return None


def set_user_tags(step: Step, command: commands.SetUserTags) -> Result:
    """Replace a user's tags."""
    user = step.catalogue.user(command.name)
    if user is None:
        return _missing_user(command.name)
    _put_user(step, msgspec.structs.replace(user, tags=command.tags))
    return None


def set_user_limits(step: Step, command: commands.SetUserLimits) -> Result:
    """Replace or change a user's limits."""
    user = step.catalogue.user(command.name)
    if user is None:
        return _missing_user(command.name)
    limits = command.limits
    if command.is_update:
        limits = {**user.limits, **limits}
        limits = {name: limits[name] for name in limits if name not in command.removed}
    _put_user(step, msgspec.structs.replace(user, limits=limits))
    return None


def _put_user(step: Step, record: User) -> None:
    step.catalogue.put_user(record)
    step.changes.users_changed.append(record.name)


def delete_user(step: Step, command: commands.DeleteUser) -> Result:
    """Delete a user with its permissions."""
    if step.catalogue.user(command.name) is None:
        return False
    step.catalogue.remove_user(command.name)
    step.changes.users_removed.append(command.name)
    return True


def _grant_refusal(step: Step, user: str, vhost: str) -> Refusal | None:
    """Permissions join a user and a vhost that both exist."""
    if step.catalogue.vhost(vhost) is None:
        return Refusal(ReplyCode.NOT_FOUND, f"no vhost '{vhost}'")
    return None if step.catalogue.user(user) is not None else _missing_user(user)


def set_permissions(step: Step, command: commands.SetPermissions) -> Result:
    """Set a user's permissions in a vhost. An empty expression matches nothing, and stays empty.

    Tools read back what they wrote, and write again where it differs.
    """
    refusal = _grant_refusal(step, command.user, command.vhost)
    if refusal is not None:
        return refusal
    is_new = step.catalogue.permission(command.user, command.vhost) is None
    step.catalogue.put_permission(
        Permission(command.user, command.vhost, command.configure, command.write, command.read)
    )
    step.changes.users_changed.append(command.user)
    return is_new


def clear_permissions(step: Step, command: commands.ClearPermissions) -> Result:
    """Remove a user's permissions in a vhost."""
    if step.catalogue.permission(command.user, command.vhost) is None:
        return False
    step.catalogue.remove_permission(command.user, command.vhost)
    step.changes.users_changed.append(command.user)
    return True


def set_topic_permissions(step: Step, command: commands.SetTopicPermissions) -> Result:
    """Set topic permissions. The exchange need not exist yet, as in RabbitMQ."""
    refusal = _grant_refusal(step, command.user, command.vhost)
    if refusal is not None:
        return refusal
    key = (command.user, command.vhost, command.exchange)
    is_new = step.catalogue.topic_permission(*key) is None
    step.catalogue.put_topic_permission(TopicPermission(*key, command.write, command.read))
    step.changes.users_changed.append(command.user)
    return is_new


def clear_topic_permissions(step: Step, command: commands.ClearTopicPermissions) -> Result:
    """Remove topic permissions of one exchange, or of the whole vhost."""
    found = [
        each
        for each in step.catalogue.topic_permissions()
        if (each.user, each.vhost) == (command.user, command.vhost)
        and command.exchange in {None, each.exchange}
    ]
    for record in found:
        step.catalogue.remove_topic_permission(record)
    if found:
        step.changes.users_changed.append(command.user)
    return bool(found)


def set_parameter(step: Step, command: commands.SetParameter) -> Result:
    """Set a runtime parameter. True if it is new."""
    if command.vhost and step.catalogue.vhost(command.vhost) is None:
        return Refusal(ReplyCode.NOT_FOUND, f"no vhost '{command.vhost}'")
    key = (command.vhost, command.component, command.name)
    is_new = step.catalogue.parameter(*key) is None
    step.catalogue.put_parameter(Parameter(*key, command.value))
    step.changes.parameters_changed = True
    return is_new


def clear_parameter(step: Step, command: commands.ClearParameter) -> Result:
    """Remove a runtime parameter."""
    key = (command.vhost, command.component, command.name)
    if step.catalogue.parameter(*key) is None:
        return False
    step.catalogue.remove_parameter(*key)
    step.changes.parameters_changed = True
    return True


def set_policy(step: Step, command: commands.SetPolicy) -> Result:
    """Set a policy; it applies at once to what is declared already. True if it is new."""
    if step.catalogue.vhost(command.vhost) is None:
        return Refusal(ReplyCode.NOT_FOUND, f"no vhost '{command.vhost}'")
    is_operator = command.operator
    is_new = step.catalogue.policy(command.vhost, command.name, operator=is_operator) is None
    policy = Policy(
        command.vhost,
        command.name,
        command.pattern,
        command.apply_to,
        command.priority,
        command.definition,
    )
    _note_policy(step, step.catalogue.put_policy(policy, operator=is_operator))
    return is_new


def clear_policy(step: Step, command: commands.ClearPolicy) -> Result:
    """Remove a policy."""
    vhost, name, is_operator = command.vhost, command.name, command.operator
    if step.catalogue.policy(vhost, name, operator=is_operator) is None:
        return False
    _note_policy(step, step.catalogue.remove_policy(vhost, name, operator=is_operator))
    return True


def _note_policy(step: Step, queues: list[Queue]) -> None:
    step.changes.policies_changed = True
    step.changes.policy_queues += queues
    step.changes.routing_changed = True  # alternate exchanges


def set_cluster_name(step: Step, command: commands.SetClusterName) -> Result:
    """Rename the cluster."""
    step.catalogue.cluster_name = command.name
    step.changes.parameters_changed = True
    return None
