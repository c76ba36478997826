"""Proofs, versions and objections of the link handshake."""

from __future__ import annotations

import pytest

from broker.cluster.authentication.handshake import (
    Claim,
    LinkEnd,
    Reason,
    Versions,
    common_version,
    is_proof,
    is_well_formed,
    objection,
    proof,
    reason_of,
)

HELLO, CHALLENGE, VERDICT = b"hello", b"challenge", b"verdict"
MINE = Claim("c", "rabbit@a", "b1", b"n" * 32)


def test_same_key_and_words_make_the_same_proof() -> None:
    one = proof(b"k", LinkEnd.DIALLER, HELLO, CHALLENGE)
    assert is_proof(one, proof(b"k", LinkEnd.DIALLER, HELLO, CHALLENGE))


@pytest.mark.parametrize(
    "other",
    [
        proof(b"l", LinkEnd.ACCEPTOR, HELLO, CHALLENGE, VERDICT),
        proof(b"k", LinkEnd.DIALLER, HELLO, CHALLENGE, VERDICT),
        proof(b"k", LinkEnd.ACCEPTOR, CHALLENGE, HELLO, VERDICT),
        proof(b"k", LinkEnd.ACCEPTOR, HELLO, CHALLENGE),
        proof(b"k", LinkEnd.ACCEPTOR, HELLO, CHALLENGE, b"welcome"),
        proof(b"k", LinkEnd.ACCEPTOR, HELLO + CHALLENGE, b"", VERDICT),
        proof(b"k", LinkEnd.ACCEPTOR, HELLO, b"of another stream", VERDICT),
        b"",
    ],
)
def test_anything_else_makes_another(other: bytes) -> None:
    assert not is_proof(other, proof(b"k", LinkEnd.ACCEPTOR, HELLO, CHALLENGE, VERDICT))


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (Versions(2, 2), Versions(2, 2), 2),
        (Versions(2, 4), Versions(3, 9), 4),
        (Versions(3, 9), Versions(2, 4), 4),
        (Versions(2, 9), Versions(4, 5), 5),
        (Versions(2, 2), Versions(1, 1), None),
        (Versions(2, 2), Versions(3, 4), None),
        (Versions(2, 2), Versions(0, 0), None),
        (Versions(2, 2), Versions(2**32 - 1, 2**32 - 1), None),
    ],
)
def test_the_highest_common_version_is_spoken(
    mine: Versions, theirs: Versions, expected: int | None
) -> None:
    assert common_version(mine, theirs) == expected


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (MINE, True),
        (MINE._replace(cluster_id=""), True),
        (MINE._replace(nonce=b"short"), False),
        (MINE._replace(boot=""), False),
        (MINE._replace(node=""), False),
        (MINE._replace(node="n" * 300), False),
        (MINE._replace(cluster_id="c" * 300), False),
    ],
)
def test_a_hello_names_node_boot_and_nonce(claim: Claim, expected: bool) -> None:
    assert is_well_formed(claim) is expected


@pytest.mark.parametrize(
    ("cluster_id", "found", "expected"),
    [
        ("c", "rabbit@a", None),
        ("", "rabbit@a", None),
        ("d", "rabbit@a", Reason.WRONG_CLUSTER),
        ("c", "rabbit@b", Reason.WRONG_TARGET),
    ],
)
def test_objections(cluster_id: str, found: str, expected: Reason | None) -> None:
    assert objection(MINE, cluster_id, "rabbit@a", found) == expected


def test_a_reason_of_a_later_version_is_read_as_malformed() -> None:
    assert reason_of("stale_boot") is Reason.STALE_BOOT
    assert reason_of("of tomorrow") is Reason.MALFORMED
