"""Accepted and refused secrets and listeners, and the secret that a node generates."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import msgspec
import pytest

from broker.cluster.authentication.secret import (
    FILE_NAME,
    SecretUnusable,
    effective_listener,
    effective_secret,
    is_loopback,
    objection,
    random_bits,
)
from broker.config import Listener, Peer, Settings

ALONE = Settings(node_name="rabbit@a")
OPEN = msgspec.structs.replace(ALONE, cluster_listener=Listener("", 25672))
PEERS = (Peer("rabbit@a", "a", 25672), Peer("rabbit@b", "b", 25672))
GOOD = "8f1c0a37d5b2e94c6a7d1f20b3e85c94"


def with_secret(secret: str, settings: Settings = OPEN) -> Settings:
    return msgspec.structs.replace(settings, cluster_secret=secret)


def test_drawn_secrets_of_128_bits_are_taken_in_every_usual_spelling() -> None:
    draw = random.Random(1)
    for _ in range(2_000):
        raw = draw.randbytes(16)
        standard, url_safe = base64.b64encode(raw), base64.urlsafe_b64encode(raw)
        for text in (raw.hex(), raw.hex().upper(), standard.decode(), url_safe.decode()):
            assert objection(with_secret(text)) is None, text


@pytest.mark.parametrize(
    ("secret", "bits"),
    [
        ("only-for-this-machine", 126),
        ("ABCDEFGHIJKLMNOPQRST", 0),
        ("QWXJRTZKDPLMVBNCFGHS", 94),  # what Erlang makes: 20 upper-case letters
        (GOOD[:31], 124),
        (GOOD[:16] * 4, 64),
        ("0123456789abcdef" * 4, 0),
        ("a" * 64, 0),
        ("test-secret", 0),
    ],
)
def test_a_weak_secret_is_refused_off_loopback_alone(secret: str, bits: int) -> None:
    assert round(random_bits(secret)) == bits
    said = objection(with_secret(secret))
    assert said is not None
    assert f"at most {bits} random bits" in said
    assert "openssl rand -hex 32" in said
    assert "RABBITMQ_ERLANG_COOKIE_FILE" in said
    assert secret not in said
    local = msgspec.structs.replace(ALONE, cluster_listener=Listener("127.0.0.1", 25672))
    assert objection(with_secret(secret, local)) is None


def test_a_cluster_port_off_loopback_needs_a_secret() -> None:
    said = objection(OPEN)
    assert said is not None
    assert said.startswith("cluster.listen is off loopback")
    assert "cluster.secret_file" in said
    assert "\n" not in said


def test_configured_peers_need_a_secret_on_loopback_too() -> None:
    local = Listener("127.0.0.1", 25672)
    both = msgspec.structs.replace(ALONE, cluster_peers=PEERS, cluster_listener=local)
    assert "rabbit@b is configured as a peer" in (objection(both) or "")
    assert objection(with_secret("s", both)) is None
    itself = msgspec.structs.replace(ALONE, cluster_peers=PEERS[:1])
    assert objection(itself) is None


def test_a_lone_node_listens_for_others_on_loopback_until_it_has_a_secret() -> None:
    assert objection(ALONE) is None
    assert effective_listener(ALONE) == Listener("127.0.0.1", 25672)
    assert effective_listener(with_secret(GOOD, ALONE)) == Listener("", 25672)


def test_a_lone_node_makes_a_secret_once_that_only_it_can_read(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(ALONE, data_dir=str(tmp_path / "data"))
    made = effective_secret(settings)
    path = tmp_path / "data" / FILE_NAME
    assert path.stat().st_mode & 0o777 == 0o400
    assert len(bytes.fromhex(made.decode())) == 32
    assert effective_secret(settings) == made
    elsewhere = msgspec.structs.replace(ALONE, data_dir=str(tmp_path / "other"))
    assert effective_secret(elsewhere) != made
    assert effective_secret(with_secret("set", settings)) == b"set"


def test_a_damaged_secret_of_its_own_stops_the_node(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("half\n")
    with pytest.raises(SecretUnusable, match="remove it"):
        effective_secret(msgspec.structs.replace(ALONE, data_dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("node1", False),
        ("10.0.0.1", False),
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
