"""Debian's rabbitmqadmin 3.10.8: every subcommand, and every kind of thing that it knows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes import Node

TOOL = shutil.which("rabbitmqadmin")

pytestmark = pytest.mark.skipif(TOOL is None, reason="rabbitmqadmin is not installed")

LISTS = (
    *("users", "vhosts", "connections", "exchanges", "bindings", "permissions", "channels"),
    *("parameters", "consumers", "queues", "policies", "operator_policies", "nodes"),
    "vhost_limits",
)


def admin(node: Node, *arguments: str) -> str:
    assert TOOL is not None
    port = str(node.management_port)
    command = [sys.executable, TOOL, "-H", "127.0.0.1", "-P", port, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def test_every_subcommand_of_rabbitmqadmin_works(node: Node, tmp_path: Path):
    for kind, *options in (
        ("vhost", "name=adm.v"),
        ("user", "name=adm.u", "password=pw", "tags=monitoring"),
        ("permission", "vhost=adm.v", "user=adm.u", "configure=.*", "write=.*", "read=.*"),
        ("exchange", "name=adm.x", "type=topic"),
        ("queue", "name=adm.q", "durable=true"),
        ("binding", "source=adm.x", "destination=adm.q", "routing_key=a.#"),
        ("policy", "name=adm.p", "pattern=^adm", 'definition={"max-length":9}', "apply-to=queues"),
        ("operator_policy", "name=adm.o", "pattern=^adm", 'definition={"max-length":9}'),
        ("parameter", "component=vhost-limits", "name=limits", 'value={"max-queues":99999}'),
        ("vhost_limit", "vhost=adm.v", "name=max-queues", "value=9"),
    ):
        admin(node, "declare", kind, *options)
    published = admin(node, "publish", "exchange=adm.x", "routing_key=a.b", "payload=hello")
    assert "Message published" in published
    (got,) = json.loads(
        admin(node, "-f", "raw_json", "get", "queue=adm.q", "ackmode=ack_requeue_true")
    )
    assert got["payload"] == "hello"
    admin(node, "purge", "queue", "name=adm.q")
    with node.connect() as connection:
        connection.channel()
        for kind in LISTS:
            assert isinstance(json.loads(admin(node, "-f", "raw_json", "list", kind)), list)
        assert "WarrenMQ" in admin(node, "-f", "raw_json", "show", "overview")
        kept = tmp_path / "definitions.json"
        admin(node, "export", str(kept))
        assert {"adm.q"} <= {each["name"] for each in json.loads(kept.read_text())["queues"]}
        admin(node, "import", str(kept))
    other = node.connect()
    port = other._impl._transport._sock.getsockname()[1]
    (name,) = [
        each["name"] for each in node.api("GET", "/connections") if each["peer_port"] == port
    ]
    admin(node, "close", "connection", f"name={name}")
    with pytest.raises(Exception, match="Closed via management"):
        other.process_data_events(5)
    for kind, *options in (
        ("vhost_limit", "vhost=adm.v", "name=max-queues"),
        ("parameter", "component=vhost-limits", "name=limits"),
        ("operator_policy", "name=adm.o"),
        ("policy", "name=adm.p"),
        (
            "binding",
            "source=adm.x",
            "destination=adm.q",
            "destination_type=queue",
            "properties_key=a.%23",
        ),
        ("queue", "name=adm.q"),
        ("exchange", "name=adm.x"),
        ("permission", "vhost=adm.v", "user=adm.u"),
        ("user", "name=adm.u"),
        ("vhost", "name=adm.v"),
    ):
        admin(node, "delete", kind, *options)
