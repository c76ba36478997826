"""`set_vm_memory_high_watermark` and `set_disk_free_limit`: requests, banners, exit codes."""

from __future__ import annotations

import pytest

from broker.cli.ctl.commands import run
from tests.unit.cli.fake_api import FakeApi

MEMORY = "/api/node/vm_memory_high_watermark"
DISK = "/api/node/disk_free_limit"


@pytest.fixture
def api():
    fake = FakeApi()
    fake.answers["POST", MEMORY] = fake.answers["POST", DISK] = (204, None)
    yield fake
    fake.close()


def ctl(api: FakeApi, *words: str) -> int:
    return run(["--url", api.url, *words], {})


@pytest.mark.parametrize(
    ("words", "path", "body", "banner"),
    [
        ("set_vm_memory_high_watermark 0.4", MEMORY, {"relative": 0.4}, "0.4"),
        ("set_vm_memory_high_watermark 0", MEMORY, {"relative": 0.0}, "0"),
        ("set_vm_memory_high_watermark absolute 1GB", MEMORY, {"absolute": "1GB"}, "1GB bytes"),
        ("set_disk_free_limit 1GB", DISK, {"absolute": "1GB"}, "1GB bytes"),
        (
            "set_disk_free_limit mem_relative 1.0",
            DISK,
            {"mem_relative": 1.0},
            "1.0 times the total RAM",
        ),
        (
            "set_disk_free_limit_mem_relative 1.5",
            DISK,
            {"mem_relative": 1.5},
            "1.5 times the total RAM",
        ),
    ],
)
def test_limits_are_sent(api, capsys, words: str, path: str, body: object, banner: str):
    assert ctl(api, *words.split()) == 0
    assert api.asked == [("POST", path, body)]
    first = "Setting memory threshold on" if path == MEMORY else "Setting disk free limit on"
    out = capsys.readouterr().out
    assert out.startswith(first)
    assert out.endswith(f" to {banner} ...\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("set_vm_memory_high_watermark 1.01", "a fraction between 0.0 and 1.0"),
        ("set_vm_memory_high_watermark much", "a fraction between 0.0 and 1.0"),
        ("set_vm_memory_high_watermark absolute", "not enough arguments"),
        ("set_vm_memory_high_watermark 0.4 1GB", "too many arguments"),
        ("set_disk_free_limit mem_relative", "not enough arguments"),
        ("set_disk_free_limit 1 2", "too many arguments"),
        ("set_disk_free_limit 1XB", "'1XB' is no size"),
        ("set_disk_free_limit_mem_relative one", "'one' is no number such as 1.5"),
    ],
)
def test_what_cannot_be_meant_is_not_sent(api, capsys, words: str, text: str):
    assert ctl(api, *words.split()) == 64
    assert api.asked == []
    assert text in capsys.readouterr().err


def test_what_the_node_refuses_is_said(api, capsys):
    refused = {"error": "bad_request", "reason": "absolute must be a size such as 50mb"}
    api.answers["POST", DISK] = (400, refused)
    assert ctl(api, "set_disk_free_limit", "1iB") == 64
    assert "a size such as 50mb" in capsys.readouterr().err
