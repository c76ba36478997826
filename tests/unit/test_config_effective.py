"""The settings that act: all of them and no others, where each came from, and no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.config import Listener, Settings
from broker.configuration import effective, sources
from broker.configuration.keys import read_settings


def by_key(settings: Settings, **changed: Any) -> dict[str, effective.Setting]:
    found = effective.effective(settings, changed)
    assert len({each.key for each in found}) == len(found), "no key twice"
    return {each.key: each for each in found}


def shown(text: str) -> dict[str, effective.Setting]:
    return by_key(read_settings(sources.parse(text, "rabbitmq.conf")).settings)


def test_every_field_of_the_settings_is_shown():
    text = "".join(
        f"{prefix}.certfile = /c\n"
        for prefix in ("ssl_options", "management.ssl", "prometheus.ssl")
    )
    text += "listeners.ssl.1 = 5671\nmanagement.csp.policy = x\n"
    every = read_settings(sources.parse(text, "rabbitmq.conf")).settings
    fields = {field for row in effective.rows(every) for field in row.fields}
    assert fields == {each.name for each in msgspec.structs.fields(Settings)} - {"origins"}


def test_each_source_is_told(tmp_path: Path):
    main, more, advanced = (
        tmp_path / name for name in ("rabbitmq.conf", "conf.d/1.conf", "advanced.config")
    )
    more.parent.mkdir()
    main.write_text("heartbeat = 5\nframe_max = 8192\nlisteners.tcp.1 = 1\n")
    more.write_text("frame_max = 9000\nchannel_max = 7\nlisteners.tcp.2 = 127.0.0.1:2\n")
    advanced.write_text("[{rabbit, [\n{connection_max, 9}]}].")
    found = by_key(
        sources.load(
            str(main),
            {"RABBITMQ_NODENAME": "a", "RABBITMQ_DEFAULT_PASS": "hush"},
            ["channel_max=8"],
        ).settings,
        disk=1,
    )
    assert found["heartbeat"][1:] == (5, "file", (f"{main}:1",))
    assert found["frame_max"][1:] == (9000, "conf.d", (f"{more}:1",))
    assert found["channel_max"][1:] == (8, "command line", ("--set",))
    assert found["connection_max"][1:] == (9, "advanced.config", (f"{advanced}:2",))
    assert found["node.name"][1:] == ("rabbit@a", "environment", ("RABBITMQ_NODENAME",))
    assert found["default_pass"][1:] == ("***", "environment", ("RABBITMQ_DEFAULT_PASS",))
    listeners = (["1", "127.0.0.1:2"], "conf.d", (f"{main}:3", f"{more}:3"))
    assert found["listeners.tcp"][1:] == listeners
    assert found["consumer_timeout"][1:] == (1_800_000, "default", ())
    assert found["disk"][1:] == (1, "ctl", ("warrenmq ctl",))


@pytest.mark.parametrize(
    ("text", "shows", "hides"),
    [
        (
            "vm_memory_high_watermark.absolute = 1GB",
            ("vm_memory_high_watermark.absolute", 10**9, 1),
            "vm_memory_high_watermark.relative",
        ),
        (
            "heartbeat = 5",
            ("vm_memory_high_watermark.relative", 0.4, 0),
            "disk_free_limit.relative",
        ),
        (
            "listeners.tcp.1 = 1\nlisteners.tcp = none",
            ("listeners.tcp", [], 2),
            "ssl_options.certfile",
        ),
        (
            "management.ssl.certfile = /c",
            ("management.tcp", None, 1),
            "ssl_options.certfile",
        ),
        ("load_definitions = /d.json", ("load_definitions", ["/d.json"], 1), "default_user"),
        ("log.default.level = debug\nlog.level = error", ("log.level", "error", 2), "log.none"),
        (
            "cluster_partition_handling = ignore",
            ("cluster_partition_handling", "pause_minority", 0),
            "x",
        ),
        ("listeners.tcp.1 = [::1]:7", ("cluster.listen", "[::1]:20007", 0), "x"),
    ],
)
def test_only_what_acts_is_shown(text: str, shows: tuple[str, Any, int], hides: str):
    found = shown(text)
    key, value, line = shows
    assert found[key].value == value
    assert found[key].at == ((f"rabbitmq.conf:{line}",) if line else ())
    assert hides not in found


def test_no_secret_is_shown():
    found = shown(
        "cluster.secret = hush\ndefault_pass = hush\nssl_options.certfile = /c\n"
        "listeners.ssl.1 = 5671\nssl_options.password = hush\nmqtt.default_pass = hush\n"
        "password_hashing_module = rabbit_password_hashing_sha512\n"
    )
    assert "hush" not in str(found)
    hidden = {key for key, each in found.items() if each.value == effective.HIDDEN}
    assert hidden == {"cluster.secret", "default_pass", "ssl_options.password"}
    assert found["password_hashing_module"].value == "rabbit_password_hashing_sha512"


def test_what_a_program_gave_and_what_was_set_since():
    found = by_key(
        Settings(heartbeat_s=9, amqp_listeners=(Listener("127.0.0.1", 0),)),
        **{"vm_memory_high_watermark.absolute": 7},
    )
    assert found["heartbeat"][1:] == (9, "program", ())
    assert found["listeners.tcp"].source == "program"
    assert found["vm_memory_high_watermark.absolute"].source == "ctl"
    assert "vm_memory_high_watermark.relative" not in found
