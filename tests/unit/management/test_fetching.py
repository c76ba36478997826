"""Documents over HTTPS: certificates are checked, size is bounded, secrets are not told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.config import ClientTlsSettings
from broker.configuration import effective, sources
from broker.configuration.keys import ConfigError, read_settings
from broker.management.operations.fetching import REDIRECTS_MAX, FetchFailed, fetch
from tests.certificates import Authority
from tests.https_files import serving


class Server(NamedTuple):
    url: str
    tls: ClientTlsSettings
    foreign: ClientTlsSettings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("https")
    (folder / "other").mkdir()
    authority, other = Authority(folder, "ca"), Authority(folder / "other", "ca")
    answers = {
        "/defs": (200, {}, b"x" * 100),
        "/moved": (301, {"Location": "/defs"}, b""),
        "/circle": (302, {"Location": "/circle"}, b""),
        "/plain": (307, {"Location": "http://localhost/defs"}, b""),
        "/missing?token=hush": (404, {}, b"hush"),
    }
    with serving(authority.pair("server"), answers) as url:
        yield Server(
            url,
            ClientTlsSettings(cacertfile=str(authority.certfile)),
            ClientTlsSettings(cacertfile=str(other.certfile)),
        )


@pytest.mark.parametrize("path", ["/defs", "/moved"])
def test_a_document_is_fetched(server: Server, path: str):
    url = server.url.replace("https://", "https://ann:hush@") + path
    assert asyncio.run(fetch(url, server.tls, 100)) == b"x" * 100


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/circle", f"more than {REDIRECTS_MAX} redirects"),
        ("/plain", "it redirects to a URL that is not https"),
        ("/missing?token=hush", "URL request failed with response code 404"),
    ],
)
def test_what_can_not_be_had_is_told_without_secrets(server: Server, path: str, why: str):
    url = server.url.replace("https://", "https://ann:hush@") + path
    with pytest.raises(FetchFailed) as caught:
        asyncio.run(fetch(url, server.tls, 100))
    shown = server.url + path.partition("?")[0] + ("?***" if "?" in path else "")
    assert str(caught.value) == f"{shown}: {why}"


def test_a_document_that_is_too_large_is_not_read(server: Server):
    with pytest.raises(FetchFailed, match="larger than 99 bytes"):
        asyncio.run(fetch(f"{server.url}/defs", server.tls, 99))


@pytest.mark.parametrize("tls", ["foreign", "system", "missing"])
def test_a_server_that_nobody_vouches_for_is_not_trusted(server: Server, tls: str, tmp_path: Path):
    chosen = {
        "foreign": server.foreign,
        "system": ClientTlsSettings(),
        "missing": ClientTlsSettings(cacertfile=str(tmp_path / "none.pem")),
    }[tls]
    why = "No such file" if tls == "missing" else "CERTIFICATE_VERIFY_FAILED"
    with pytest.raises(FetchFailed, match=why):
        asyncio.run(fetch(f"{server.url}/defs", chosen, 100))


def test_the_host_must_be_the_one_of_the_certificate(server: Server):
    url = server.url.replace("localhost", "127.0.0.2") + "/defs"
    with pytest.raises(FetchFailed):
        asyncio.run(fetch(url, server.tls, 100))


SETTINGS = (
    "definitions.import_backend = https\ndefinitions.https.url = https://ann:hush@host/d?t=hush\n"
    "definitions.tls.cacertfile = /ca\ndefinitions.tls.password = hush\n"
    "definitions.tls.verify = verify_peer\n"
)


def test_the_settings_name_it_and_show_no_secret():
    outcome = read_settings(sources.parse(SETTINGS, "rabbitmq.conf"))
    assert outcome.warnings == []
    assert outcome.settings.definitions_paths == ("https://ann:hush@host/d?t=hush",)
    assert outcome.settings.definitions_tls == ClientTlsSettings(cacertfile="/ca", password="hush")
    found = effective.effective(outcome.settings)
    (shown,) = [each for each in found if each.key == "load_definitions"]
    assert (shown.value, shown.at) == (["https://host/d?***"], ("rabbitmq.conf:2",))
    assert "hush" not in str(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "definitions.import_backend = https",
            "definitions.import_backend is refused: it names no URL; set definitions.https.url",
        ),
        (
            "definitions.import_backend = https\ndefinitions.https.url = http://host/d",
            "definitions.https.url must be an https:// URL",
        ),
        (
            "definitions.https.url = https://host/d",
            "definitions.https.url needs definitions.import_backend = https",
        ),
    ],
)
def test_settings_that_name_no_document_refuse_the_start(text: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        read_settings(sources.parse(text, "rabbitmq.conf"))
    assert len(caught.value.problems) == 1
    assert problem in caught.value.problems[0]
