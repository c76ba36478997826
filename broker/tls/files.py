"""Certificates in files: read into a TLS context, and read again when the files change.

A handshake uses what was read last; connections keep what they began with. Files are looked at once
a second in a thread. What has changed is read when it has not changed for a second more, because a
certificate and its key are seldom replaced in one step. Files that can't be used change nothing,
and are one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

_log = logging.getLogger(__name__)

_KEY_OF_ANOTHER: Final = "KEY_VALUES_MISMATCH"

_Signature = tuple[tuple[int, int, int] | None, ...]
_Read = TypeVar("_Read")


class TlsUnusable(Exception):
    """Certificates or cipher suites that can't be used; the text says what to do."""


class Reloaded(Generic[_Read]):
    """What was read from files, and is read again when they change.

    Args:
        paths: The files; "" is none.
        read: Reads them all. It runs in a thread after the first time.

    Attributes:
        value: What was read last.

    Raises:
        TlsUnusable: `read` says so.
    """

    def __init__(self, paths: Iterable[str], read: Callable[[], _Read]) -> None:
        self._paths = [Path(each) for each in paths if each]
        self._used = self._seen = _signature(self._paths)
        self._read = read
        self.value = read()

    async def look(self) -> None:
        """Read the files again if they have changed; called every second."""
        found = await asyncio.to_thread(_signature, self._paths)
        is_settled, self._seen = found == self._seen, found
        if found == self._used or not is_settled:
            return
        self._used = found
        try:
            self.value = await asyncio.to_thread(self._read)
        except TlsUnusable as why:
            _log.error("TLS certificates are not reloaded, those read before stay in use: %s", why)
        else:
            _log.info("TLS certificates reloaded: %s", ", ".join(map(str, self._paths)))


def load_own(
    context: ssl.SSLContext, family: str, certfile: str, keyfile: str, password: str
) -> None:
    """Read the certificate that this node shows, and its key.

    Args:
        context: Gets them.
        family: The keys of the configuration that name them: "ssl_options".
        certfile: Path of the certificate, PEM, followed by intermediate ones.
        keyfile: Path of its key, PEM; "": it stands in `certfile`.
        password: Decrypts the key; "": it is not encrypted.

    Raises:
        TlsUnusable: They can't be read, or do not belong together.
    """
    keyfile = keyfile or certfile
    require_readable(f"{family}.certfile", certfile)
    require_readable(f"{family}.keyfile", keyfile)
    try:
        # A password, even an empty one: without any OpenSSL asks the terminal for it.
        context.load_cert_chain(certfile, keyfile, password)
    except ssl.SSLError as error:
        if error.reason == _KEY_OF_ANOTHER:
            raise TlsUnusable(
                f"the key of {keyfile} ({family}.keyfile) does not belong to the certificate of "
                f"{certfile} ({family}.certfile); put both of one pair there"
            ) from error
        raise TlsUnusable(
            f"{certfile} ({family}.certfile) and {keyfile} ({family}.keyfile) can't be "
            f"used ({error.reason or error}); put a certificate and its key there as PEM, and the "
            f"key's password, if it has one, into {family}.password"
        ) from error


def load_authorities(context: ssl.SSLContext, family: str, path: str, of_whom: str) -> None:
    """Read the certificates of the authorities that sign what the other end shows.

    Args:
        context: Gets them.
        family: As for `load_own`.
        path: PEM.
        of_whom: Whose certificates they sign, for the error: "clients'".

    Raises:
        TlsUnusable: They can't be read.
    """
    key = f"{family}.cacertfile"
    require_readable(key, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsUnusable(
            f"{path} ({key}) can't be used ({error.reason or error}); put the certificates of the "
            f"authorities there that sign {of_whom} certificates, as PEM"
        ) from error


def require_readable(key: str, path: str) -> None:
    """Raise TlsUnusable for a file that can't be read.

    Args:
        key: The key of the configuration that names it.
        path: Where it is.
    """
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise TlsUnusable(
            f"{path} ({key}) can't be read: {error.strerror}; let the user the node runs as read it"
        ) from error


def _signature(paths: Sequence[Path]) -> _Signature:
    """What changes when a file does; links are followed. None for a file that is not there."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            stat = path.stat()
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)
