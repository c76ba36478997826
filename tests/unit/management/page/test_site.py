"""The page's files: what they are served as, how long browsers keep them, and what they may do."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from broker.config import Settings
from broker.management.page import vendor
from broker.management.page.site import CSP, FOLDER, Files, read
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import ONE

PLAIN = {"Accept-Encoding": "identity"}


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    """A checkout has them after `make setup`."""
    try:
        vendor.fill()
    except vendor.VendorError as error:
        pytest.skip(str(error))


def made(folder: Path) -> Files:
    """What is read from a folder."""
    steps = read(folder)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def small_page(folder: Path) -> Path:
    """A page of three files of ours, and all libraries."""
    (folder / "vendor").mkdir()
    (folder / "pages").mkdir()
    text = '<link href="style.css"><!--modules--><script type="module" src="./app.js"></script>'
    (folder / "index.html").write_text(text)
    (folder / "app.js").write_text("import './pages/queues.js';\n" * 100)
    (folder / "pages" / "queues.js").write_text("")
    (folder / "style.css").write_text("")
    for asset in vendor.ASSETS:
        (folder / "vendor" / asset.name).write_bytes(b"x")
    return folder


def test_the_version_is_in_every_address_and_follows_every_byte(tmp_path):
    folder = small_page(tmp_path)
    first = made(folder)
    index = first.by_path["index.html"].content.decode()
    assert f'<link href="static/{first.version}/style.css">' in index
    assert f'src="static/{first.version}/app.js"' in index
    assert f'<link rel="modulepreload" href="static/{first.version}/pages/queues.js">' in index
    assert made(folder) == first
    (folder / "style.css").write_text("a{}")
    assert made(folder).version != first.version


def test_a_page_without_its_libraries_says_in_one_line_how_to_get_them(tmp_path):
    folder = small_page(tmp_path)
    assert made(folder).fault == ""
    (folder / "vendor" / "uplot.js").unlink()
    fault = made(folder).fault
    assert "vendor/uplot.js" in fault
    assert "make setup" in fault
    assert "\n" not in fault


def test_a_missing_or_changed_library_is_told_and_fetched_again(tmp_path):
    everything = [*(each.name for each in vendor.ASSETS), "NOTICE"]
    assert vendor.missing(tmp_path) == everything
    assert vendor.fill(tmp_path) == everything
    assert vendor.missing(tmp_path) == []
    (tmp_path / "preact.js").write_text("something else")
    assert vendor.fill(tmp_path) == ["preact.js"]
    assert "export default uPlot" in (tmp_path / "uplot.js").read_text()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.asyncio
@pytest.mark.parametrize("prefix", ["", "/broker"])
async def test_everything_the_index_names_is_there_and_kept_for_a_year(prefix):
    async with Rig(Settings(node_name=ONE, management_path_prefix=prefix)) as rig:
        answer = await rig.ask("GET", prefix + "/", user=None, headers=PLAIN)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-cache"
        named = set(re.findall(r'(?:src|href)="(static/[^"]+)"', answer.text))
        assert any(each.endswith("/vendor/preact.js") for each in named)
        for each in named:
            found = await rig.ask("GET", f"{prefix}/{each}", user=None)
            assert found.status == 200, each
            assert found.headers["Cache-Control"] == "public, max-age=31536000, immutable"
            assert found.headers["Content-Security-Policy"] == CSP


@pytest.mark.asyncio
async def test_a_prefix_without_its_slash_leads_to_the_page_and_nothing_else_is_there():
    async with Rig(Settings(node_name=ONE, management_path_prefix="/broker")) as rig:
        url = f"http://127.0.0.1:{rig.server.port}/broker"
        async with rig.session.get(url, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (301, "/broker/")
        assert (await rig.ask("GET", "/", user=None)).status == 404


@pytest.mark.asyncio
async def test_the_page_runs_nothing_that_is_not_its_own():
    async with Rig() as rig:
        answer = await rig.ask("GET", "/", user=None, headers=PLAIN)
        assert answer.headers["Content-Security-Policy"] == CSP
        assert "unsafe" not in CSP
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "<style" not in answer.text
        assert " style=" not in answer.text
        assert not re.search(r"<script(?![^>]*\bsrc=)", answer.text)
        assert not re.search(r"\bon[a-z]+=", answer.text)
        api = await rig.ask("GET", "/api/whoami")
        assert api.headers["Content-Security-Policy"].startswith("default-src 'none'; frame-")


@pytest.mark.asyncio
async def test_settings_replace_the_policy_of_the_page_as_that_of_the_api():
    own = (("Content-Security-Policy", "default-src 'self'"),)
    async with Rig(Settings(node_name=ONE, management_headers=own)) as rig:
        for path in ("/", "/api/whoami"):
            answer = await rig.ask("GET", path)
            assert answer.headers["Content-Security-Policy"] == "default-src 'self'"


@pytest.mark.asyncio
async def test_what_a_browser_has_is_not_sent_again_and_what_it_lacks_is_compressed():
    async with Rig() as rig:
        path = "/static/x/vendor/uplot.js"
        plain = await rig.ask("GET", path, user=None, headers=PLAIN)
        assert plain.headers["Cache-Control"] == "no-cache"  # x is no version of this node
        etag = plain.headers["ETag"]
        for known in (etag, f'"other", {etag}', f"W/{etag}"):
            again = await rig.ask("GET", path, user=None, headers={"If-None-Match": known})
            assert (again.status, again.text, again.headers["ETag"]) == (304, "", etag)
        url = f"http://127.0.0.1:{rig.server.port}{path}"
        async with rig.session.get(url, headers={"Accept-Encoding": "br, gzip;q=0.5"}) as packed:
            assert packed.headers["Content-Encoding"] == "gzip"
            assert packed.headers["Vary"] == "Accept-Encoding, origin"
            assert int(packed.headers["Content-Length"]) < len(plain.text) / 2
            assert (await packed.text()) == plain.text
        refused = await rig.ask("GET", path, user=None, headers={"Accept-Encoding": "gzip;q=0"})
        assert "Content-Encoding" not in refused.headers


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path",
    ["/static/x/../../site.py", "/static/x/%2e%2e/site.py", "/static/x/nope.js", "/static/x/vendor",
     "/static/x//etc/passwd", "/static/x"],
)  # fmt: skip
async def test_nothing_beside_the_pages_files_is_served(path):
    async with Rig() as rig:
        assert (await rig.ask("GET", path, user=None)).status == 404


@pytest.mark.asyncio
async def test_head_and_the_icon_are_answered():
    async with Rig() as rig:
        assert (await rig.ask("HEAD", "/", user=None)).text == ""
        assert (await rig.ask("GET", "/favicon.ico", user=None)).status in {200, 204}


def test_the_whole_page_weighs_less_than_150_kb():
    files = made(FOLDER).by_path
    sent = {name: each for name, each in files.items() if not name.endswith(("NOTICE", "APACHE"))}
    weight = sum(len(each.packed or each.content) for each in sent.values())
    assert weight < 150_000
    assert all(
        gzip.decompress(each.packed) == each.content for each in sent.values() if each.packed
    )
