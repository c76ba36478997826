"""The definitions that a node imports when it starts: `load_definitions` and its kin.

They are read, and found valid in themselves, before a cluster is founded: a new cluster with a
broken file would have no users. They are imported when the cluster is formed and before clients are
let in. Every node of a cluster may do it at the same time: what one has done needs no change of the
others any more.

Source: rabbit_definitions.erl maybe_load_definitions/0; rabbit_definitions_import_local_filesystem.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from broker.audit.actor import Actor
from broker.config import Settings
from broker.configuration.urls import HTTPS, shown
from broker.errors import ReplyCode
from broker.management.control import NodeError
from broker.management.operations.fetching import FetchFailed, fetch
from broker.management.operations.importing import (
    Importer,
    ImportRefused,
    ImportStopped,
    log_imported,
    read_definitions,
)
from broker.management.pace import WorkPacer
from broker.metadata.definitions.document import Definitions

_log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 256 * 1024 * 1024
_RETRY_S: Final = 1.0


class StartDefinitions:
    """The files of definitions of a node's settings.

    Args:
        settings: The node's: files, folders whose *.json are taken in the order of their names,
            and URLs.
        importer: Imports them.

    Attributes:
        is_due: True from the start, or a `stop_app`, until they are imported.
        is_loading: True while they are.
    """

    def __init__(self, settings: Settings, importer: Importer) -> None:
        self._settings = settings
        self._paths = settings.definitions_paths
        self._importer = importer
        self._skip_if_unchanged = settings.definitions_skip_if_unchanged
        self.is_due = bool(self._paths)
        self.is_loading = False

    def again(self) -> None:
        """Import them at the next start of the app."""
        self.is_due = bool(self._paths)

    async def check(self) -> None:
        """Read the files, and refuse what is wrong whatever the cluster has.

        Raises:
            NodeError: A file can't be read, or is not valid.
        """
        if self.is_due:
            for path, data in await self._contents():
                await self._read(path, data)

    async def load(self) -> None:
        """Import the files; waits for a majority of the cluster as long as it takes.

        Raises:
            NodeError: A file can't be read or imported.
        """
        if not self.is_due:
            return
        self.is_loading = True
        try:
            contents = await self._contents()
            digest = ""
            if self._skip_if_unchanged:
                digest = self._importer.digest(*(data for _, data in contents))
            if digest and self._importer.is_unchanged(digest):
                _log.info("definitions.unchanged: %s", ", ".join(map(shown, self._paths)))
            else:
                for number, (path, data) in enumerate(contents, 1):
                    await self._import(path, data, digest if number == len(contents) else "")
        finally:
            self.is_loading = False
        self.is_due = False

    async def _contents(self) -> list[tuple[str, bytes]]:
        try:
            return await _contents(self._settings)
        except (OSError, FetchFailed) as error:
            text = f"definitions can't be read: {error}: correct load_definitions and start again"
            raise NodeError(text) from error

    async def _read(self, path: str, data: bytes) -> Definitions:
        try:
            return await self._importer.read(data)
        except ImportRefused as refused:
            raise _broken(path, refused) from None

    async def _import(self, path: str, data: bytes, digest: str) -> None:
        while True:
            try:
                definitions = await self._read(path, data)
                imported = await self._importer.run(
                    definitions, digest, Actor(via="config", address=str(path))
                )
            except ImportRefused as refused:
                raise _broken(path, refused) from None
            except ImportStopped as stopped:
                if stopped.refusal.code is not ReplyCode.INTERNAL_ERROR:
                    raise NodeError(f"definitions of {path}: {stopped.text}") from None
                _log.warning("definitions.waiting: %s: %s", path, stopped.text)
                await asyncio.sleep(_RETRY_S)
            else:
                log_imported(imported, path)
                return


async def check_files(settings: Settings) -> int:
    """Read the files of definitions that a node with these settings would import.

    Args:
        settings: The node's.

    Returns:
        How many there are.

    Raises:
        NodeError: A file can't be read, or is not valid.
    """
    if not settings.definitions_paths:
        return 0
    hashing, pace = settings.password_hashing, WorkPacer()
    try:
        contents = await _contents(settings)
    except (OSError, FetchFailed) as error:
        raise NodeError(f"definitions can't be read: {error}") from error
    for path, data in contents:
        try:
            await read_definitions(data, None, hashing, pace)
        except ImportRefused as refused:
            raise _broken(path, refused) from None
    return len(contents)


def _broken(path: str, refused: ImportRefused) -> NodeError:
    text = f"definitions of {path} are not valid: {refused.line}: correct the file and start again"
    return NodeError(text)


async def _contents(settings: Settings) -> list[tuple[str, bytes]]:
    """The documents with their names, in order.

    Raises:
        OSError: A file is not there, can't be read, or is too large.
        FetchFailed: A URL can't be read.
    """
    found: list[tuple[str, bytes]] = []
    for path in settings.definitions_paths:
        if path.startswith(HTTPS):
            data = await fetch(path, settings.definitions_tls, FILE_BYTES_MAX)
            found.append((shown(path), data))
        else:
            found += await asyncio.to_thread(_files, Path(path))
    if not found:
        raise FileNotFoundError(f"no *.json in {', '.join(settings.definitions_paths)}")
    return found


def _files(path: Path) -> list[tuple[str, bytes]]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for each in files:
        if each.stat().st_size > FILE_BYTES_MAX:
            raise OSError(f"{each} is larger than {FILE_BYTES_MAX} bytes")
    return [(str(each), each.read_bytes()) for each in files]
