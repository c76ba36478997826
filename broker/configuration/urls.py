"""URLs as others may see them. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

HTTPS = "https://"


def shown(text: str) -> str:
    """A URL without the user and password, and without the query, which may hold a token.

    Args:
        text: A URL, or any other text, which stays as it is.
    """
    if not text.startswith(HTTPS):
        return text
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "***" if parts.query else "", ""))
