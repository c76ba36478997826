"""When the certificates of a file run out. Reads files: call it in a thread."""

from __future__ import annotations

import datetime as dt
from pathlib import Path


def running_out(path: str, before: dt.datetime, now: dt.datetime) -> list[str]:
    """Tell which certificates of a file are not valid until a time.

    Args:
        path: A PEM file; keys in it are passed over. "": there is none, and nothing to tell.
        before: UTC.
        now: UTC.

    Returns:
        For each of them when it ends, "2026-12-31 7:59:59" as RabbitMQ writes it; or what is wrong
        with it, or with the file.

    Source:
        rabbit_mgmt_wm_health_check_certificate_expiration.erl, cert_validity/1 and
        seconds_to_bin/1.
    """
    # Some 15 MB and a tenth of a second, which a node that is not asked does not pay.
    from cryptography import x509  # noqa: PLC0415

    if not path:
        return []
    try:
        found = x509.load_pem_x509_certificates(Path(path).read_bytes())
    except OSError as error:
        return [f"The file can't be read: {error.strerror}"]
    except ValueError:
        return ["The certificate file provided does not contain any PEM entry."]
    told = []
    for certificate in found:
        ends = certificate.not_valid_after_utc
        if certificate.not_valid_before_utc > now:
            told.append("Certificate is not yet valid")
        elif ends < before:
            told.append(f"{ends:%Y-%m-%d} {ends.hour}:{ends:%M:%S}")
    return told
