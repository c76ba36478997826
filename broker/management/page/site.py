"""The page's files as a node serves them: read once, compressed once, named by their content.

    GET PREFIX/                        index.html, asked for again each time (ETag)
    GET PREFIX/static/VERSION/app.js   for a year: VERSION is the digest of all files

`index.html` names its files as they lie beside it. What is served has `static/VERSION/` before each
name, and a `modulepreload` for each module where it has the mark `<!--modules-->`: the browser
fetches all of them at once instead of one import after the other. Another VERSION than this node's
is answered, too, for a cluster may be half upgraded; but not kept.

Nothing in `static/` is a secret: it needs no password.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from broker.config import Settings
from broker.management.answers import not_found
from broker.management.pace import WorkPacer
from broker.management.page import vendor
from broker.management.shared import Shared

_log = logging.getLogger(__name__)

FOLDER: Final = Path(__file__).parent / "static"
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self';"
    " frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": CSP,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What answers of the page have, beside the headers of every answer."""

MODULES_MARK: Final = "<!--modules-->"
_INDEX: Final = "index.html"
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
}
_TEXTS: Final = frozenset({".html", ".js", ".css", ".svg", ".json", ""})
_VERSION_LENGTH: Final = 16
_FOR_GOOD: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"


class File(NamedTuple):
    """A file of the page.

    Attributes:
        content: Its bytes.
        packed: Compressed with gzip; b"" for what is compressed already.
        content_type: For `Content-Type`.
        etag: The digest of the content, in quotes.
    """

    content: bytes
    packed: bytes
    content_type: str
    etag: str


class Files(NamedTuple):
    """All files of the page.

    Attributes:
        version: The digest of all of them.
        by_path: Files by their path below `static/`.
        fault: What is missing, for people; "" if the page works.
    """

    version: str
    by_path: Mapping[str, File]
    fault: str


def read(folder: Path) -> Generator[None, None, Files]:
    """Read and compress the files of a folder, one a step.

    Args:
        folder: Holds `index.html`.
    """
    contents: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            contents[path.relative_to(folder).as_posix()] = path.read_bytes()
            yield
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(b"%d %s %d " % (len(name), name.encode(), len(content)) + content)
    version = digest.hexdigest()[:_VERSION_LENGTH]
    if _INDEX in contents:
        contents[_INDEX] = _versioned(contents, version)
    files = {}
    for name, content in contents.items():
        files[name] = _file(name, content)
        yield
    wanted = (_INDEX, *(f"vendor/{each.name}" for each in vendor.ASSETS))
    lacking = ", ".join(name for name in wanted if name not in files)
    fault = f"the management page lacks {lacking}: {vendor.REMEDY}" if lacking else ""
    return Files(version, files, fault)


def _versioned(contents: Mapping[str, bytes], version: str) -> bytes:
    """`index.html` with the addresses of the files that it names."""
    text = contents[_INDEX].decode()
    below = f"static/{version}/"
    for name in contents:
        for written in (name, f"./{name}", f"static/{name}"):
            text = text.replace(f'="{written}"', f'="{below}{name}"')
    modules = [name for name in contents if name.endswith(".js")]
    preloads = [f'<link rel="modulepreload" href="{below}{name}">' for name in modules]
    return text.replace(MODULES_MARK, "\n".join(preloads)).encode()


def _file(name: str, content: bytes) -> File:
    suffix = Path(name).suffix
    packed = gzip.compress(content, mtime=0) if suffix in _TEXTS else b""
    content_type = _TYPES.get(suffix, "text/plain")
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return File(content, packed if len(packed) < len(content) else b"", content_type, etag)


class Site:
    """Serves the page.

    Args:
        settings: The path prefix, and headers that replace ours.
        pace: Shares the loop's time while files are read.
        folder: Holds `index.html`.
    """

    def __init__(self, settings: Settings, pace: WorkPacer, folder: Path = FOLDER) -> None:
        self._prefix = settings.management_path_prefix
        self._headers = {**HEADERS, **dict(settings.management_headers)}
        self._pace = pace
        self._folder = folder
        self._reading: Shared[Files] = Shared()
        self._files: Files | None = None

    def add_to(self, app: web.Application) -> None:
        """Add the addresses of the page.

        Args:
            app: The node's endpoints.
        """
        if self._prefix:
            app.router.add_get(self._prefix, self._to_index)
        app.router.add_get(self._prefix + "/", self._index)
        app.router.add_get(self._prefix + "/favicon.ico", self._icon)
        app.router.add_get(self._prefix + "/static/{version:[^/]+}/{path:.+}", self._static)

    async def _known(self) -> Files:
        if self._files is None:
            self._files = await self._reading.ask(self._read)
        return self._files

    async def _read(self) -> Files:
        if self._files is not None:  # two requests came before the first had read
            return self._files
        found = await self._pace.run(read(self._folder))
        if found.fault:
            _log.warning("%s", found.fault)
        return found

    async def _to_index(self, _request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"Location": self._prefix + "/"})

    async def _index(self, request: web.Request) -> web.Response:
        files = await self._known()
        if files.fault:
            text = f"{files.fault}.\nThe HTTP API works: {self._prefix}/api/index.html\n"
            return web.Response(status=503, text=text, headers={"Cache-Control": "no-store"})
        return self._answer(request, files.by_path[_INDEX], _ASK_AGAIN)

    async def _icon(self, request: web.Request) -> web.Response:
        """Browsers ask for it whatever the page says; without one 404 would be on their console."""
        icon = (await self._known()).by_path.get("favicon.ico")
        if icon is None:
            return web.Response(status=204, headers={"Cache-Control": _ASK_AGAIN})
        return self._answer(request, icon, _ASK_AGAIN)

    async def _static(self, request: web.Request) -> web.Response:
        files = await self._known()
        found = files.by_path.get(request.match_info["path"])
        if found is None:
            raise not_found()
        is_current = request.match_info["version"] == files.version
        return self._answer(request, found, _FOR_GOOD if is_current else _ASK_AGAIN)

    def _answer(self, request: web.Request, file: File, caching: str) -> web.Response:
        headers = {**self._headers, "Cache-Control": caching, "ETag": file.etag}
        headers["Vary"] = "Accept-Encoding"
        known = request.headers.get("If-None-Match", "")
        if known.strip() == "*" or file.etag in known:
            return web.Response(status=304, headers=headers)
        body = file.content
        if file.packed and _takes_gzip(request.headers.get("Accept-Encoding", "")):
            body = file.packed
            headers["Content-Encoding"] = "gzip"
            headers["ETag"] = f"W/{file.etag}"  # the same page in other bytes
        charset = "utf-8" if file.content_type.startswith("text/") else None
        return web.Response(
            body=body, headers=headers, content_type=file.content_type, charset=charset
        )


def _takes_gzip(accepted: str) -> bool:
    """True if a client takes gzip.

    Args:
        accepted: `Accept-Encoding`.
    """
    for each in accepted.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in {"gzip", "x-gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
