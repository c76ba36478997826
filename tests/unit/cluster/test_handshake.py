"""Proofs and objections of the link handshake."""

from __future__ import annotations

import pytest

from broker.cluster.handshake import Claim, Reason, is_proof, objection, proof

DIALLER = Claim(1, "c", "rabbit@a", "b1", b"n" * 32)
ACCEPTOR = Claim(1, "c", "rabbit@b", "b2", b"m" * 32)


def test_same_secret_and_claims_make_the_same_proof() -> None:
    one = proof(b"s", "dialler", 0, DIALLER, ACCEPTOR)
    assert is_proof(one, proof(b"s", "dialler", 0, DIALLER, ACCEPTOR))


@pytest.mark.parametrize(
    "other",
    [
        proof(b"t", "dialler", 0, DIALLER, ACCEPTOR),
        proof(b"s", "acceptor", 0, DIALLER, ACCEPTOR),
        proof(b"s", "dialler", 1, DIALLER, ACCEPTOR),
        proof(b"s", "dialler", 0, ACCEPTOR, DIALLER),
        proof(b"s", "dialler", 0, DIALLER._replace(boot="b3"), ACCEPTOR),
        proof(b"s", "dialler", 0, DIALLER._replace(nonce=b"o" * 32), ACCEPTOR),
        proof(b"s", "dialler", 0, DIALLER._replace(node="rabbit@ab", boot="1"), ACCEPTOR),
        b"",
    ],
)
def test_anything_else_makes_another(other: bytes) -> None:
    assert not is_proof(other, proof(b"s", "dialler", 0, DIALLER, ACCEPTOR))


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (DIALLER, None),
        (DIALLER._replace(cluster_id=""), None),
        (DIALLER._replace(cluster_id="d"), Reason.WRONG_CLUSTER),
        (DIALLER._replace(version=2), Reason.WRONG_VERSION),
        (DIALLER._replace(nonce=b"short"), Reason.MALFORMED),
        (DIALLER._replace(boot=""), Reason.MALFORMED),
        (DIALLER._replace(node="n" * 300), Reason.MALFORMED),
    ],
)
def test_objections(theirs: Claim, expected: Reason | None) -> None:
    assert objection(ACCEPTOR, theirs) == expected
