"""Imports definitions: a document is planned whole, then proposed to group 0 change by change.

    bytes -> parsed in a thread -> read, planned in slices of 1 ms -> proposed, some at a time

Nothing is proposed before the whole document is found valid. What another client changes between
the plan and a proposal may still have one refused: the import stops there and says how far it came;
imported again it goes on, for what is there needs no change any more.

Clients are served meanwhile: few proposals are under way at a time, and each waits for its commit.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from broker.audit import trail
from broker.audit.actor import SETTINGS, Actor
from broker.errors import Refusal, ReplyCode
from broker.interpreter import uncollected
from broker.management import request_body
from broker.management.answers import ApiError
from broker.management.control import NodeControl
from broker.management.operations.seeding import Seeding
from broker.management.pace import WorkPacer
from broker.metadata.arguments import queue_type, with_default_type
from broker.metadata.commands import (
    AddVhost,
    AnyCommand,
    DeclareExchange,
    DeclareQueue,
    SetParameter,
)
from broker.metadata.definitions import planning, reading
from broker.metadata.definitions.document import (
    IMPORTED_HASH,
    Definitions,
    Faults,
    Placed,
    UserDefinition,
)
from broker.metadata.definitions.planning import Change, Plan, Stage
from broker.metadata.records import STORE_PREFIX
from broker.passwords import (
    HASHINGS,
    REFUSED_PASSWORD,
    hash_password,
    is_password,
    may_have_password,
)
from broker.routing.delays import TYPE as DELAYED
from broker.server.serving import Serving

_log = logging.getLogger(__name__)

UNDER_WAY_MAX: Final = 32
"""Proposals at a time; of short stages fewer, so that placement sees where the last queues went."""

_STEP: Final = 64
_STAGE_SHARE: Final = 16
_TRIES: Final = 3
_RETRY_S: Final = 0.5
_LEFT_LOGGED_MAX: Final = 20
_AUDITED_MAX: Final = 100
_INEQUIVALENT: Final = ("inequivalent arg", "cannot obtain exclusive access")

R = TypeVar("R")


class ImportRefused(Exception):
    """A document that can't be imported; nothing was changed.

    Args:
        line: What is wrong first, and how much more is.
        texts: Each fault, the first hundred.
    """

    def __init__(self, line: str, texts: list[str]) -> None:
        super().__init__(line)
        self.line = line
        self.texts = texts


class ImportStopped(Exception):
    """An import that came to its end before all was done.

    Args:
        refusal: Of the change that failed.
        text: Which it was, how far the import came, and what to do.
    """

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal
        self.text = text


class Imported(NamedTuple):
    """What an import has done.

    Attributes:
        added: New objects.
        changed: Changed ones.
        left: What is there, differs and stays, and why.
        unchanged: Objects that were there as the document says.
    """

    added: int
    changed: int
    left: tuple[str, ...]
    unchanged: int


class _Progress:
    """How far a plan is done.

    Attributes:
        done: Changes.
        left: Queues and exchanges that others have declared otherwise meanwhile.
        stopped: The change that failed, and why; nothing more is begun.
    """

    def __init__(self) -> None:
        self.done = 0
        self.left: list[str] = []
        self.stopped: tuple[Change, Refusal] | None = None


async def read_definitions(
    data: bytes, vhost: str | None, hashing: str, pace: WorkPacer
) -> Definitions:
    """Read a document, in slices.

    Args:
        data: JSON.
        vhost: See `reading.read`.
        hashing: See `reading.read`.
        pace: Divides the loop's time.

    Raises:
        ImportRefused: It is not valid.
    """
    with uncollected():
        try:
            document = await asyncio.to_thread(request_body.parse, data)
        except ApiError as error:
            text = f"failed_to_parse_json: {error.reason.removeprefix('not_json: ')}"
            raise ImportRefused(text, [text]) from None
        found = await pace.run(reading.read(document, vhost, hashing))
        await pace.run(_taken_apart(document))
    return _valid(found)


def _taken_apart(document: object) -> Generator[None, None, None]:
    """Free a document in steps: all at once its objects would hold up the loop."""
    for section in document.values() if isinstance(document, dict) else ():
        while isinstance(section, list) and section:
            del section[-_STEP:]
            yield


class Importer:
    """Imports definitions into this node's cluster, one document at a time.

    Args:
        control: The node.
        pace: Divides the loop's time.
        seeding: Gives new vhosts what the settings say.
    """

    def __init__(self, control: NodeControl, pace: WorkPacer, seeding: Seeding) -> None:
        self._control = control
        self._seeding = seeding
        self._pace = pace
        self._lock = asyncio.Lock()
        self._by = SETTINGS  # on whose behalf the import that runs is done

    @property
    def is_busy(self) -> bool:
        """True while an import runs here."""
        return self._lock.locked()

    async def read(self, data: bytes, vhost: str | None = None) -> Definitions:
        """Read a document, without the catalogue.

        Args:
            data: JSON.
            vhost: See `reading.read`.

        Raises:
            ImportRefused: It is not valid.
        """
        hashing = self._control.settings.password_hashing
        return await read_definitions(data, vhost, hashing, self._pace)

    async def plan(self, definitions: Definitions) -> Plan:
        """Say what an import would do now.

        Args:
            definitions: Of `read`; passwords in clear are hashed in them.

        Raises:
            ImportRefused: Something does not fit what is there; nothing was changed.
            ImportStopped: The broker on this node is stopped.
        """
        catalogue = self._serving().catalogue
        for number, placed in enumerate(definitions.users):
            if placed.record.password is not None:
                self._check_password(placed)
                hashed = await self._hashed(placed.record)
                definitions.users[number] = Placed(placed.where, hashed)
        settings = self._control.settings
        limits = planning.Limits(
            settings.cluster_queue_limit, settings.cluster_exchange_limit, settings.vhost_max
        )
        return _valid(await self._pace.run(planning.plan(definitions, catalogue, limits)))

    async def run(
        self, definitions: Definitions, remember: str = "", by: Actor = SETTINGS
    ) -> Imported:
        """Import a document.

        Args:
            definitions: Of `read`.
            remember: `digest` of what is imported, to be known by `is_unchanged`; "" for nothing.
            by: Who asks for it, for events and the audit log.

        Returns:
            What was done.

        Raises:
            ImportRefused: Nothing was changed.
            ImportStopped: A change was refused, or nobody could decide in time.
        """
        async with self._lock:
            self._by = replace(by, part_of="definitions.import")
            plan = await self.plan(definitions)
            progress = _Progress()
            for stage in plan.stages:
                await self._do(stage, progress)
                if progress.stopped is not None:
                    stopped = _stopped(*progress.stopped, progress.done, len(plan.changes))
                    self._audit(by, plan, progress, stopped.text)
                    raise stopped
            if remember:
                refusal = await self._propose(SetParameter("", "", IMPORTED_HASH, remember))
                if refusal is not None:
                    raise ImportStopped(refusal, f"all is imported, but its hash: {refusal.text}")
            added = sum(change.is_new for change in plan.changes) - len(progress.left)
            changed = sum(not change.is_new for change in plan.changes)
            left = (*plan.left, *progress.left)
            self._audit(by, plan, progress)
            return Imported(added, changed, left, plan.unchanged)

    def _audit(self, by: Actor, plan: Plan, progress: _Progress, stopped: str = "") -> None:
        """Sum an import up for the audit log: one line, whatever it has changed."""
        if not plan.changes or not trail.is_kept():
            return
        named = [f"{each.what}: {each.detail or 'new'}" for each in plan.changes[:_AUDITED_MAX]]
        told: dict[str, object] = {
            "changes": len(plan.changes),
            "done": progress.done,
            "unchanged": plan.unchanged,
            "left": len(plan.left) + len(progress.left),
            "first": named,
        }
        outcome = "refused" if stopped else "done"
        trail.note(self._control.name, by, "definitions.import", told, outcome, stopped)

    def digest(self, *documents: bytes) -> str:
        """The hash by which documents are known again.

        Args:
            documents: All that are imported together.
        """
        algorithm = self._control.settings.definitions_hashing
        found = hashlib.new(algorithm, usedforsecurity=False)
        for document in documents:
            found.update(document)
        return f"{algorithm}:{found.hexdigest()}"

    def is_unchanged(self, digest: str) -> bool:
        """True if the import that was remembered last was of this.

        Args:
            digest: See `digest`.

        Raises:
            ImportStopped: The broker on this node is stopped.
        """
        stored = self._serving().catalogue.parameter("", "", IMPORTED_HASH)
        return stored is not None and stored.value == digest

    def _serving(self) -> Serving:
        serving = self._control.serving
        if serving is None:
            raise _app_is_stopped()
        return serving

    def _check_password(self, user: Placed[UserDefinition]) -> None:
        """Refuse a password in clear that `credential_validator` does.

        Raises:
            ImportRefused: It does.
        """
        rule = self._control.settings.password_policy()
        if not may_have_password(user.record.password, rule):
            text = f"{user.where}: {REFUSED_PASSWORD}"
            raise ImportRefused(text, [text])

    async def _hashed(self, user: UserDefinition) -> UserDefinition:
        """Hash a password in clear; one that is the user's already keeps its stored hash."""
        password, algorithm = user.password or "", user.hashing_algorithm
        known = self._serving().catalogue.user(user.name)
        if known is not None and known.hashing_algorithm == algorithm:
            stored = known.password_hash
            if await asyncio.to_thread(is_password, password, stored, algorithm):
                return user._replace(password=None, password_hash=stored)
        salt = secrets.token_bytes(HASHINGS[algorithm].salt_bytes)
        hashed = await asyncio.to_thread(hash_password, password, salt, algorithm)
        return user._replace(password=None, password_hash=hashed)

    async def _do(self, stage: Stage, progress: _Progress) -> None:
        changes = iter(stage)
        count = min(UNDER_WAY_MAX, 1 + len(stage) // _STAGE_SHARE)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(self._do_some(changes, progress))

    async def _do_some(self, changes: Iterator[Change], progress: _Progress) -> None:
        """Take one change after the other, beside others that do the same."""
        for change in changes:
            refusal = await self._propose(change.command)
            if progress.stopped is not None:
                return
            if refusal is None:
                progress.done += 1
                if change.is_new and isinstance(change.command, AddVhost):
                    catalogue = self._serving().catalogue
                    await self._seeding.plant(change.command.name, catalogue, self._propose)
            elif _is_there(change.command, refusal):
                progress.done += 1
                progress.left.append(refusal.text)
            else:
                progress.stopped = change, refusal
                return

    async def _propose(self, command: AnyCommand) -> Refusal | None:
        """Propose a change, again where nobody could decide or a node went away just then."""
        refusal = None
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_RETRY_S)
            events = self._serving().context.events
            result = await events.propose(self._placed(command), self._by)
            if not isinstance(result, Refusal):
                return None
            refusal = result
            if refusal.code is not ReplyCode.INTERNAL_ERROR:
                break
        return refusal

    def _placed(self, command: AnyCommand) -> AnyCommand:
        """Choose the nodes of a new queue, or of the store of an x-delayed-message exchange."""
        place = self._serving().context.place
        if isinstance(command, DeclareQueue):
            kind = queue_type(self._with_default_type(command))
            home, members = place(command.vhost, command.name, kind, command.arguments)
            return replace(command, home=home, members=members)
        if isinstance(command, DeclareExchange) and command.type == DELAYED:
            home, members = place(command.vhost, STORE_PREFIX + command.name, "quorum", {})
            return replace(command, home=home, members=members)
        return command

    def _with_default_type(self, command: DeclareQueue) -> dict[str, object]:
        vhost = self._serving().catalogue.vhost(command.vhost)
        if vhost is None:
            return command.arguments
        return with_default_type(
            command.arguments,
            vhost,
            durable=command.durable,
            exclusive=False,
            auto_delete=command.auto_delete,
        )


def _valid(found: R | Faults) -> R:
    """What was found, unless that is faults.

    Raises:
        ImportRefused: It is.
    """
    if isinstance(found, Faults):
        raise ImportRefused(found.line, found.texts)
    return found


def _is_there(command: AnyCommand, refusal: Refusal) -> bool:
    """True where somebody has declared the same name otherwise since the plan was made."""
    is_declare = isinstance(command, DeclareQueue | DeclareExchange)
    return is_declare and refusal.text.startswith(_INEQUIVALENT)


def _app_is_stopped() -> ImportStopped:
    text = "the broker on this node is stopped: start it with start_app"
    return ImportStopped(Refusal(ReplyCode.INTERNAL_ERROR, text), text)


def _stopped(change: Change, refusal: Refusal, done: int, total: int) -> ImportStopped:
    text = (
        f"stopped after {done} of {total} changes at {change.what}: {refusal.text}; "
        "import again: what is done needs no change any more"
    )
    return ImportStopped(refusal, text)


def log_imported(imported: Imported, source: str) -> None:
    """Write into the log what an import has done, and what it has left as it was.

    Args:
        imported: What.
        source: Where the document came from.
    """
    for text in imported.left[:_LEFT_LOGGED_MAX]:
        _log.warning("definitions.left: %s: it is there and stays as it is", text)
    _log.info(
        "definitions.imported: %d added, %d changed, %d left as they are, %d unchanged, from %s",
        imported.added,
        imported.changed,
        len(imported.left),
        imported.unchanged,
        source,
    )
