"""Keys from the cluster's secret: RFC 5869's vectors, and no key serves two purposes."""

from __future__ import annotations

import pytest

from broker.cluster.authentication.keys import Purpose, derive, hkdf_sha256


@pytest.mark.parametrize(
    ("secret", "salt", "info", "length", "expected"),
    [
        (
            bytes([0x0B]) * 22,
            bytes(range(13)),
            bytes(range(0xF0, 0xFA)),
            42,
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            bytes(range(0x50)),
            bytes(range(0x60, 0xB0)),
            bytes(range(0xB0, 0x100)),
            82,
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c6"
            "5e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
        ),
        (
            bytes([0x0B]) * 22,
            b"",
            b"",
            42,
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ],
)
def test_hkdf_agrees_with_the_vectors_of_rfc_5869(
    secret: bytes, salt: bytes, info: bytes, length: int, expected: str
) -> None:
    assert hkdf_sha256(secret, salt, info, length).hex() == expected


def test_more_than_255_digests_are_refused() -> None:
    with pytest.raises(ValueError, match="8160"):
        hkdf_sha256(b"s", b"", b"", 255 * 32 + 1)


def test_each_purpose_and_each_secret_has_a_key_of_its_own() -> None:
    keys = [derive(secret, purpose) for secret in (b"one", b"two") for purpose in Purpose]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}
