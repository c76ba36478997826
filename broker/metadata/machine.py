"""Group 0's replicated machine: requests in, answers out, the catalogue between them.

Deterministic: state and answers follow from the entries alone. A refusal is a value. A command's
handler checks everything before it changes anything, so a refused command has changed nothing.

Who calls it: `raft.group` applies and snapshots; shells read `catalogue` and `take_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.errors import Refusal, ReplyCode
from broker.metadata import commands, snapshot
from broker.metadata.answers import RememberedAnswers
from broker.metadata.apply_context import ApplyContext
from broker.metadata.applying import accounts, exchanges, features, nodes, queues, sharding, taps
from broker.metadata.catalogue import Catalogue
from broker.metadata.mirroring import steps
from broker.metadata.results import Changes, Result

# Any: each handler takes its own command type, which the key guarantees.
_HANDLERS: dict[type[commands.Command], Callable[[ApplyContext, Any], Result]] = {
    commands.Bootstrap: accounts.bootstrap,
    commands.AddVhost: accounts.add_vhost,
    commands.DeleteVhost: accounts.delete_vhost,
    commands.AddUser: accounts.add_user,
    commands.ChangePassword: accounts.change_password,
    commands.SetUserTags: accounts.set_user_tags,
    commands.SetUserLimits: accounts.set_user_limits,
    commands.DeleteUser: accounts.delete_user,
    commands.SetPermissions: accounts.set_permissions,
    commands.ClearPermissions: accounts.clear_permissions,
    commands.SetTopicPermissions: accounts.set_topic_permissions,
    commands.ClearTopicPermissions: accounts.clear_topic_permissions,
    commands.DeclareExchange: exchanges.declare_exchange,
    commands.DeleteExchange: exchanges.delete_exchange_by_name,
    commands.DeclareQueue: queues.declare_queue,
    commands.DeleteQueue: queues.delete_queue_by_uid,
    commands.Bind: exchanges.bind,
    commands.Unbind: exchanges.unbind_by_identity,
    commands.MoveBindings: exchanges.move_bindings,
    commands.EndConnection: queues.end_connection,
    commands.BootNode: nodes.boot_node,
    commands.EndBoot: nodes.end_boot,
    commands.EndMemberships: steps.end_silent,
    commands.JoinNode: nodes.join_node,
    commands.ForgetNode: nodes.forget_node,
    commands.NoteLeader: queues.note_leader,
    commands.SetParameter: accounts.set_parameter,
    commands.ClearParameter: accounts.clear_parameter,
    commands.SetClusterName: accounts.set_cluster_name,
    commands.MoveMembers: queues.move_members,
    commands.SetPolicy: accounts.set_policy,
    commands.ClearPolicy: accounts.clear_policy,
    commands.ChangeRings: steps.change_rings,
    commands.EnableFeatures: features.enable_features,
    commands.SetMaintenance: nodes.set_maintenance,
    commands.DeclareEventExchange: exchanges.declare_event_exchange,
    commands.DeclareLogExchange: exchanges.declare_log_exchange,
    commands.SetTap: taps.set_tap,
    commands.DeleteTap: taps.delete_tap,
}

_REPEATABLE = (commands.Bootstrap, commands.BootNode)
"""Asked before their boot lives; doing them twice is harmless by itself."""


class MetadataMachine:
    """Applies requests to the catalogue; a `raft.ports.Machine`.

    Attributes:
        catalogue: The state, for everyone to read. The object stays the same for ever.
    """

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self._answers = RememberedAnswers()
        self._changes = Changes()

    def apply(self, index: int, data: bytes) -> Result:
        """Apply one entry.

        Args:
            index: Its group 0 index; becomes the uid of a queue it declares.
            data: `commands.encode_request(...)`.

        Returns:
            The command's result, or a `Refusal`: as a value, and the same for a repetition.
        """
        request = commands.decode_request(data)
        self.catalogue.index = index
        command = request.command
        if isinstance(command, _REPEATABLE):
            return self._run(index, command)
        if not self._answers.is_known(request.boot):
            text = f"boot {request.boot} does not live"
            return Refusal(ReplyCode.INTERNAL_ERROR, text)
        known = self._answers.find(request.boot, request.number)
        if known is not None:
            return known[0]
        result = self._run(index, command)
        self._answers.remember(request.boot, request.number, request.lowest, result)
        return result

    def answer(self, boot: str, number: int) -> tuple[Result] | None:
        """The remembered answer to a request, boxed; None if it is not there (yet, or any more).

        For a node whose request was proposed by another: it finds the answer in its own machine
        once that has applied the entry.
        """
        return self._answers.find(boot, number) if self._answers.is_known(boot) else None

    def take_changes(self) -> Changes:
        """Return what has changed since the last call (P6)."""
        changes, self._changes = self._changes, Changes()
        return changes

    def snapshot(self) -> list[bytes]:
        """The whole state in parts of at most 1 MiB; equal states give equal bytes."""
        return snapshot.write(self.catalogue, self._answers)

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        """Replace the whole state by a snapshot taken at `index`.

        Raises:
            ValueError: The parts are no snapshot of a known version.
        """
        answers = RememberedAnswers()
        self.catalogue.clear()
        snapshot.read(parts, self.catalogue, answers)
        self._answers = answers
        self.catalogue.index = index
        self._changes = Changes(restored=True)

    def role_changed(self, *, leader: bool, term: int) -> None:
        """Do nothing: this machine does not depend on who leads."""

    def _run(self, index: int, command: commands.AnyCommand) -> Result:
        ended_before = len(self._changes.boots_ended)
        context = ApplyContext(self.catalogue, self._changes, index)
        is_sharding = isinstance(command, sharding.TRIGGERS)
        sharded = dict(self.catalogue.sharded()) if is_sharding else {}
        result = _HANDLERS[type(command)](context, command)
        if is_sharding and not isinstance(result, Refusal):
            sharding.reconcile(context, sharded, command)
        for _node, boot in self._changes.boots_ended[ended_before:]:
            self._answers.end(boot)
        if isinstance(command, commands.BootNode) and not isinstance(result, Refusal):
            self._answers.begin(command.boot)
        return result
