"""Definitions on real nodes: at the start, by ctl and by RabbitMQ's own rabbitmqadmin."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from broker.cli.ctl import commands as ctl
from broker.passwords import hash_password
from tests.certificates import Authority
from tests.https_files import serving
from tests.nodes import Node, wait_until
from tests.wire.test_bad_input import PROBE_WITHIN_S, serves

RABBITMQADMIN = Path("/usr/bin/rabbitmqadmin")
"""Debian's."""

TOPOLOGY = {
    "queues": [
        {
            "name": name,
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": kind},
        }
        for name, kind in (("defs.classic", "classic"), ("defs.quorum", "quorum"))
    ],
    "exchanges": [
        {
            "name": "defs.x",
            "vhost": "/",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "bindings": [
        {
            "source": "defs.x",
            "vhost": "/",
            "destination": name,
            "destination_type": "queue",
            "routing_key": "a.#",
            "arguments": {},
        }
        for name in ("defs.classic", "defs.quorum")
    ],
}
USERS = {
    "users": [
        {
            "name": "guest",
            "password_hash": hash_password("guest", b"salt"),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator"],
            "limits": {},
        }
    ],
    "vhosts": [{"name": "/"}],
    "permissions": [
        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    ],
}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Node]:
    one = Node("defs", tmp_path / "node")
    yield one
    one.end()


def write(path: Path, *parts: dict) -> Path:
    path.write_text(json.dumps({key: value for part in parts for key, value in part.items()}))
    return path


def routes(node: Node) -> None:
    """What the topology says happens."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("defs.x", "a.b", b"hello", mandatory=True)
        for queue in ("defs.classic", "defs.quorum"):
            assert channel.basic_get(queue, auto_ack=True)[2] == b"hello"


def test_a_new_node_starts_with_what_its_file_says_and_nothing_else(own: Node, tmp_path: Path):
    others = json.loads(json.dumps(USERS).replace("guest", "ann"))
    path = write(tmp_path / "defs.json", others, TOPOLOGY)
    own.settings = [f"load_definitions={path}"]
    own.start()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        own.api("GET", "/whoami")
    write(path, USERS, TOPOLOGY)  # beside ann, at the next start
    assert own.stop() == 0
    own.start()
    assert [each["name"] for each in own.api("GET", "/users")] == ["ann", "guest"]
    routes(own)
    assert "definitions.imported: 2 added, 0 changed" in own.full_log()


def test_a_broken_file_refuses_the_start_and_founds_nothing(own: Node, tmp_path: Path):
    path = tmp_path / "defs.json"
    own.settings = [
        "definitions.import_backend=local_filesystem",
        f"definitions.local.path={path}",
    ]
    text = json.dumps({**USERS, **TOPOLOGY})
    for content in (text[: len(text) // 2], text.replace("sha256", "rot13"), None):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_text(content)
        own.start(wait=False)
        assert own.process is not None
        assert own.process.wait(30) == 1
        assert own.full_log().count("node.not_started: definitions") == 1, own.log()
        own.log_path.unlink()
    path.write_text(text)
    own.start()
    routes(own)


def test_a_reference_to_nothing_refuses_the_start_until_the_file_is_right(
    own: Node, tmp_path: Path
):
    bad = {**TOPOLOGY, "queues": TOPOLOGY["queues"][:1]}
    path = write(tmp_path / "defs.json", USERS, bad)
    own.settings = [f"management.load_definitions={path}"]
    own.start(wait=False)
    assert own.process is not None
    assert own.process.wait(30) == 1
    assert "bindings[1]: no queue 'defs.quorum' in vhost '/'" in own.full_log()
    write(path, USERS, TOPOLOGY)
    own.start()
    routes(own)


def test_a_folder_is_imported_by_name_and_skipped_while_it_is_unchanged(own: Node, tmp_path: Path):
    folder = tmp_path / "defs"
    folder.mkdir()
    write(folder / "1-users.json", USERS)
    write(folder / "2-topology.json", TOPOLOGY)
    own.settings = [f"load_definitions={folder}", "definitions.skip_if_unchanged=true"]
    own.start()
    routes(own)
    own.api("DELETE", "/queues/%2F/defs.classic")
    assert own.stop() == 0
    own.start()
    assert [each["name"] for each in own.api("GET", "/queues")] == ["defs.quorum"]
    assert "definitions.unchanged" in own.full_log()
    write(folder / "3-more.json", {"global_parameters": [{"name": "n", "value": 1}]})
    assert own.stop() == 0
    own.start()
    routes(own)


def test_ctl_exports_and_imports(node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    environ = {"WARRENMQ_URL": f"http://127.0.0.1:{node.management_port}"}
    path = write(tmp_path / "defs.json", TOPOLOGY)
    try:
        assert ctl.run(["import_definitions", str(path), "--dry-run"], environ) == 0
        assert "+ queue 'defs.quorum' in vhost '/'\n" in capsys.readouterr().out
        assert ctl.run(["import_definitions", str(path)], environ) == 0
        routes(node)
        node.api("PUT", "/queues/%2F/defs.late", {"arguments": {"until": 2**64 - 1}})
        exported = tmp_path / "exported.json"
        assert ctl.run(["export_definitions", str(exported)], environ) == 0
        node.api("DELETE", "/queues/%2F/defs.late")
        assert ctl.run(["import_definitions", str(exported)], environ) == 0
        late = node.api("GET", "/queues/%2F/defs.late")
        assert late["arguments"] == {"until": 2**64 - 1}
        capsys.readouterr()
        assert ctl.run(["import_definitions", str(exported), "--dry-run"], environ) == 0
        assert "0 to add, 0 to change, 0 left" in capsys.readouterr().out
        node.api("DELETE", "/queues/%2F/defs.late")
    finally:
        clear(node)


def test_a_new_node_starts_with_what_a_url_says(own: Node, tmp_path: Path):
    authority = Authority(tmp_path, "ca")
    body = json.dumps({**USERS, **TOPOLOGY}).encode()
    with serving(authority.pair("server"), {"/defs.json": (200, {}, body)}) as url:
        own.settings = [
            "definitions.import_backend=https",
            f"definitions.https.url={url}/defs.json",
            f"definitions.tls.cacertfile={authority.certfile}",
        ]
        own.start()
    routes(own)
    assert f"from {url}/defs.json" in own.full_log()
    assert own.stop() == 0
    own.start(wait=False)  # the server is gone
    assert own.process is not None
    assert own.process.wait(30) == 1
    assert "definitions can't be read" in own.log()


@pytest.mark.long
@pytest.mark.alone
def test_200_mb_of_definitions_are_refused_while_clients_are_served(own: Node):
    """One fault, at the end; over HTTP where the limit was raised for it."""
    size = 200_000_000
    document, count = faulty_at_the_end(size)
    # It is decoded in one go, which takes longer where memory is slow.
    gc.disable()
    began_s = time.monotonic()
    msgspec.json.decode(document)
    within_s = PROBE_WITHIN_S + time.monotonic() - began_s
    gc.enable()
    own.settings = [f"management.http.max_body_size={2 * size}"]
    own.start()
    assert own.process is not None
    process = psutil.Process(own.process.pid)
    before = process.memory_info().rss
    answers: list[tuple[int, bytes]] = []
    sender = threading.Thread(target=lambda: answers.append(posted(own, document)))
    sender.start()
    peak = 0
    while sender.is_alive():
        serves(own, within_s)
        peak = max(peak, process.memory_info().rss - before)
    sender.join()
    ((status, said),) = answers
    assert (status, f"queues[{count}]".encode() in said) == (400, True)
    assert peak < 12 * size

    def is_given_back() -> bool:
        own.api("POST", "/node/force_gc")
        return bool(process.memory_info().rss - before < 3 * size)  # the allocator's holes

    wait_until(is_given_back, "memory is given back", 20)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(20_000_000, marks=pytest.mark.long),
        pytest.param(200_000_000, marks=pytest.mark.soak),  # decoded as the test above has it
    ],
)
def test_large_definitions_with_a_fault_refuse_the_start(own: Node, tmp_path: Path, size: int):
    path = tmp_path / "large.json"
    document, count = faulty_at_the_end(size)
    path.write_bytes(document)
    own.settings = [f"load_definitions={path}"]
    own.start(wait=False)
    assert own.process is not None
    assert own.process.wait(200) == 1
    assert f"queues[{count}]" in own.log()


def faulty_at_the_end(size: int) -> tuple[bytes, int]:
    """Queues in at least so many bytes, and the place of the last one, which has no name."""
    item = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    each = json.dumps(item)[1:]
    count = size // (len(each) + len('{"name":"q-0000000",'))
    queues = ",".join([f'{{"name":"q-{number:07}",{each}' for number in range(count)])
    document = f'{{"queues":[{queues},{{"name":1}}]}}'.encode()
    assert len(document) > size
    return document, count


def posted(node: Node, document: bytes) -> tuple[int, bytes]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.management_port}/api/definitions",
        data=document,
        headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="},
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_pages_form_is_imported(node: Node):
    """As the page of RabbitMQ's management plugin sends it: a form with the field "file"."""
    document = {"vhosts": [{"name": "from-a-form"}]}
    for field, code in (("other", 400), ("file", 204)):
        form = (
            f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="d.json"\r\n'
            f"Content-Type: application/json\r\n\r\n{json.dumps(document)}\r\n--x--\r\n"
        )
        request = urllib.request.Request(
            f"http://127.0.0.1:{node.management_port}/api/definitions",
            data=form.encode(),
            headers={
                "Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=",
                "Content-Type": "multipart/form-data; boundary=x",
            },
        )
        try:
            answered = urllib.request.urlopen(request, timeout=15).status
        except urllib.error.HTTPError as error:
            answered = error.code
        assert answered == code
    node.api("DELETE", "/vhosts/from-a-form")


@pytest.mark.skipif(not RABBITMQADMIN.exists(), reason="Debian's rabbitmq-server is not installed")
def test_rabbitmqadmin_exports_and_imports(node: Node, tmp_path: Path):
    def admin(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(RABBITMQADMIN), "-P", str(node.management_port), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    path = write(tmp_path / "defs.json", TOPOLOGY)
    try:
        assert admin("import", str(path)).returncode == 0
        routes(node)
        for words in ((), ("-V", "/")):
            exported = tmp_path / "exported.json"
            assert admin(*words, "export", str(exported)).returncode == 0
            found = {each["name"] for each in json.loads(exported.read_text())["queues"]}
            assert {"defs.classic", "defs.quorum"} <= found
            assert admin(*words, "import", str(exported)).returncode == 0
        path.write_text(path.read_text()[:100])
        refused = admin("import", str(path))
        assert refused.returncode == 1
        assert "failed_to_parse_json" in refused.stderr
    finally:
        clear(node)


def clear(node: Node) -> None:
    for path in ("queues/%2F/defs.classic", "queues/%2F/defs.quorum", "exchanges/%2F/defs.x"):
        node.api("DELETE", f"/{path}")
    wait_until(lambda: "defs.x" not in str(node.api("GET", "/bindings")), "all is deleted")
