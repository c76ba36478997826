"""Commands of rabbitmq-streams at a real node."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.cli.ctl.commands import run
from tests.nodes import Node
from tests.wire.test_streams import STREAM, publish, stream

__all__ = ["stream"]

Said = pytest.CaptureFixture[str]


def ctl(node: Node, said: Said, *words: str) -> tuple[int, str]:
    code = run(["--url", f"http://127.0.0.1:{node.management_port}", "-q", *words], {})
    return code, "".join(said.readouterr())


def listed(node: Node, said: Said, *words: str) -> Any:
    code, text = ctl(node, said, *words, "--formatter", "json")
    assert code == 0
    return json.loads(text)


def test_list_queues_has_the_columns_of_streams(
    node: Node, channel: BlockingChannel, stream: str, capsys: Said
) -> None:
    publish(channel, stream, 0, 4)
    here = node.api("GET", "/overview")["node"]
    columns = ["name", "type", "messages", "leader", "members", "online"]
    columns += ["committed_offset", "segments"]
    found = [row for row in listed(node, capsys, "list_queues", *columns) if row["name"] == stream]
    assert [[*row.values()] for row in found] == [
        [stream, "stream", 4, here, [here], [here], 3, 1],
    ]


def test_status_and_restart(
    node: Node, channel: BlockingChannel, stream: str, capsys: Said
) -> None:
    publish(channel, stream, 0, 4)
    here = node.api("GET", "/overview")["node"]
    text = ctl(node, capsys, "stream_status", stream)[1]
    head, row = text.splitlines()
    assert head == "role\tnode\tepoch\toffset\tcommitted_offset\tfirst_offset\treaders\tsegments"
    assert (row.split("\t")[:2], row.split("\t")[3:]) == (
        ["writer", here],
        ["3", "3", "0", "0", "1"],
    )
    assert listed(node, capsys, "stream_status", stream)[0]["committed_offset"] == 3
    assert ctl(node, capsys, "restart_stream", stream) == (0, f"{here}\n")
    words = ("restart_stream", stream, "--preferred-leader-node", "nowhere@host")
    assert ctl(node, capsys, *words) == (
        69,
        "Error:\nnode nowhere@host has no replica that can lead\n",
    )


def test_tracking_is_listed_and_reset(
    node: Node, channel: BlockingChannel, stream: str, capsys: Said
) -> None:
    headers = {"x-warren-publisher": "w", "x-warren-publishing-id": 7}
    channel.basic_publish("", stream, b"", pika.BasicProperties(headers=headers))
    node.api("PUT", f"/streams/%2F/{stream}/offsets/c", {"offset": 5})
    offset = {"type": "offset", "name": "c"}
    writer = {"type": "writer", "name": "w", "offset (sequence)": "0 (7)"}
    words = ("list_stream_tracking", stream)
    assert listed(node, capsys, *words) == [{**offset, "offset (sequence)": 5}, writer]
    assert listed(node, capsys, *words, "--offset") == [{**offset, "offset": 5}]
    assert listed(node, capsys, *words, "--writer") == [writer]
    assert listed(node, capsys, "stream_status", "--tracking", stream) == [
        {"type": "offset", "reference": "c", "value": 5},
        {"type": "sequence", "reference": "w", "value": "{0,7}"},
    ]
    reset = ("reset_offset", "--stream", stream, "--reference")
    assert ctl(node, capsys, *reset, "c") == (0, "")
    assert listed(node, capsys, *words, "--offset") == [{**offset, "offset": 0}]
    assert ctl(node, capsys, *reset, "d") == (
        69,
        "Error:\nThere is no stored offset for this reference, no need to reset\n",
    )
    assert ctl(node, capsys, *reset, "x" * 256)[0] == 64


def test_retention_is_set_by_a_policy_of_the_streams_own(
    node: Node, channel: BlockingChannel, name: str, capsys: Said
) -> None:
    odd = f"{name} a.b/c$d{{é}}[1]"
    path = f"/queues/%2F/{urllib.parse.quote(odd, safe='')}"
    channel.queue_declare(odd, durable=True, arguments={**STREAM, "x-max-length-bytes": 10**9})
    channel.queue_declare(f"{name}2", durable=True, arguments=STREAM)
    policy = f"retention.{odd}"
    try:
        assert ctl(node, capsys, "set_stream_retention_policy", odd, "7D")[0] == 0
        found = node.api("GET", path)
        assert (found["policy"], found["effective_policy_definition"]) == (
            policy,
            {"max-age": "7D"},
        )
        assert node.api("GET", f"/queues/%2F/{name}2")["policy"] is None
        changed = {"pattern": f"^{name} ", "definition": {"max-age": "1h", "max-length-bytes": 5}}
        node.api("PUT", f"/policies/%2F/{urllib.parse.quote(policy, safe='')}", changed)
        assert ctl(node, capsys, "set_stream_retention_policy", odd, "8D")[0] == 0
        expected = {"max-age": "8D", "max-length-bytes": 5}
        assert node.api("GET", path)["effective_policy_definition"] == expected
    finally:
        assert ctl(node, capsys, "clear_policy", policy)[0] == 0
        channel.queue_delete(odd)
        channel.queue_delete(f"{name}2")


def test_retention_leaves_other_policies_alone(
    node: Node, channel: BlockingChannel, stream: str, capsys: Said
) -> None:
    body = {"pattern": f"^{stream}$", "definition": {"max-length-bytes": 10**6}}
    node.api("PUT", "/policies/%2F/theirs", body)
    try:
        code, text = ctl(node, capsys, "set_stream_retention_policy", stream, "7D")
        assert (code, f"policy 'theirs' applies to stream '{stream}'" in text) == (69, True)
        assert node.api("GET", f"/queues/%2F/{stream}")["policy"] == "theirs"
    finally:
        node.api("DELETE", "/policies/%2F/theirs")
