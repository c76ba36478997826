"""The libraries of the page: taken from PyPI, checked against their SHA-256, never committed.

`static/vendor/` holds them. `setup.py` fills it when a wheel, an sdist or an editable install is
made, `make setup` and `python -m broker.management.page.vendor` do so in a checkout. An sdist has
the files, so what is built from it needs no network. Nothing here imports more than Python has.

    wheel              file in it                   becomes
    datasette-preact   preact-...-htm-....min.js    preact.js         an ES module already
                       licenses/LICENSE             LICENSE-APACHE
    youplot            uplot.iife.min.js            uplot.js          with an export behind it
                       uplot.min.css                uplot.css

pip fetches the wheels, because it knows this machine's index, proxy and certificates.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "static" / "vendor"
REMEDY: Final = "run `make setup`, or `python -m broker.management.page.vendor`, with a network"
_TIMEOUT_S: Final = 300.0
_REASON_CHARACTERS_MAX: Final = 300


class Asset(NamedTuple):
    """A file of the page that comes from a wheel.

    Attributes:
        name: In `static/vendor/`.
        wheel: The project on PyPI.
        path: Inside the wheel.
        sha256: Of the file in `static/vendor/`.
        suffix: Put behind what the wheel has.
    """

    name: str
    wheel: str
    path: str
    sha256: str
    suffix: bytes = b""


WHEELS: Final[Mapping[str, str]] = {
    "datasette-preact": "datasette-preact==0.0.1 --hash=sha256:"
    "6cfe3b4d4651ffa4ec9207e3df40e49ea5e157d9b064ac02fd516d931cd52a58",
    "youplot": "youplot==1.0.0 --hash=sha256:"
    "31fe55753a3a073ba1bf2979708443d87d11bb9e0250a0c1ab23118e1e70fb94",
}
"""Lines of pip's requirement files, by project."""

ASSETS: Final = (
    Asset(
        "preact.js",
        "datasette-preact",
        "datasette_preact/static/preact-10.27.2-htm-3.1.1.min.js",
        "2ad4f06c517e968b6382c26262363ebb89ebd7bcf3f7dc29a8368fe5b542861b",
    ),
    Asset(
        "LICENSE-APACHE",
        "datasette-preact",
        "datasette_preact-0.0.1.dist-info/licenses/LICENSE",
        "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
    ),
    Asset(
        "uplot.js",
        "youplot",
        "youplot/vendor/uplot.iife.min.js",
        "0fbc3f2e72f060a9901b4fabd501b4e6f1c3de67d0d12c844493708efbe2faaa",
        b"\nexport default uPlot;\n",
    ),
    Asset(
        "uplot.css",
        "youplot",
        "youplot/vendor/uplot.min.css",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
)

NOTICE: Final = """\
The management page contains these libraries, unchanged but for the export behind uplot.js.

preact.js    Preact, https://github.com/preactjs/preact, MIT License
             Copyright (c) 2015-present Jason Miller
             htm, https://github.com/developit/htm, Apache License 2.0 (LICENSE-APACHE)
             Copyright 2018 Google Inc.
             as bundled by datasette-preact 0.0.1, Apache License 2.0 (LICENSE-APACHE)
uplot.js     uPlot 1.6.31, https://github.com/leeoniya/uPlot, MIT License
uplot.css    Copyright (c) 2022 Leon Sorokin
             as bundled by youplot 1.0.0, MIT License
             Copyright (c) 2025 youplot contributors

MIT License

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


class VendorError(Exception):
    """A library of the page is missing, and could not be had."""


def missing(folder: Path = FOLDER) -> list[str]:
    """The names of files that are not there, or are not what they should be.

    Args:
        folder: `static/vendor/` of a tree.
    """
    found = [each.name for each in ASSETS if _digest(folder / each.name) != each.sha256]
    notice = folder / "NOTICE"
    if not notice.is_file() or notice.read_text(encoding="utf-8") != NOTICE:
        found.append("NOTICE")
    return found


def fill(folder: Path = FOLDER) -> list[str]:
    """Fetch what is missing.

    Args:
        folder: `static/vendor/` of a tree.

    Returns:
        The names of files that were written.

    Raises:
        VendorError: pip could not fetch a wheel, or a wheel holds other bytes than expected.
    """
    wanted = missing(folder)
    if not wanted:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    assets = [each for each in ASSETS if each.name in wanted]
    if assets:
        with tempfile.TemporaryDirectory() as wheels:
            _download(Path(wheels), sorted({each.wheel for each in assets}))
            for each in assets:
                _write(folder / each.name, _taken(Path(wheels), each))
    _write(folder / "NOTICE", NOTICE.encode())
    return wanted


def _download(folder: Path, projects: list[str]) -> None:
    """Let pip fetch the wheels of some projects into a folder.

    Raises:
        VendorError: It could not.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{WHEELS[each]}\n" for each in projects), encoding="utf-8")
    command = (
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary", ":all:", "--require-hashes"),
        *("--dest", str(folder), "--requirement", str(requirements)),
    )
    try:
        ended = subprocess.run(  # noqa: S603 - our own words, and a path of ours
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VendorError(_failure(projects, str(error))) from error
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.startswith("ERROR:")]
        raise VendorError(_failure(projects, (lines or ended.stderr.splitlines() or ["?"])[-1]))


def _failure(projects: list[str], reason: str) -> str:
    wanted = " and ".join(projects)
    return (
        f"the management page lacks files of the PyPI wheels {wanted}, which pip could not fetch"
        f" ({reason[:_REASON_CHARACTERS_MAX]}): {REMEDY}"
    )


def _taken(wheels: Path, asset: Asset) -> bytes:
    """The bytes of a file, out of its wheel.

    Raises:
        VendorError: They are others than expected.
    """
    found = next(wheels.glob(asset.wheel.replace("-", "_") + "-*.whl"))
    with zipfile.ZipFile(found) as wheel:
        content = wheel.read(asset.path) + asset.suffix
    if hashlib.sha256(content).hexdigest() != asset.sha256:
        raise VendorError(f"{asset.path} of {found.name} has not the SHA-256 that is expected")
    return content


def _write(path: Path, content: bytes) -> None:
    """Write a file so that nobody sees a part of it."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def main() -> int:
    """Fetch what is missing; says in one line what could not be had."""
    try:
        fill()
    except VendorError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command of a checkout
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
