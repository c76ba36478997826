"""The description of the API: `/api/index.html`, made of its endpoints and their docstrings. Pure.

RabbitMQ has a page of its own there, and redirects from `/api`, `/stats` and `/doc/stats.html`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final

from broker.management.call import Endpoint

REDIRECTED: Final = ("/api", "/api/", "/stats", "/doc/stats.html")
"""Paths that lead to it (rabbit_mgmt_dispatcher.erl, build_redirect_route/2)."""

PATH: Final = "/api/index.html"
_HEAD: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>HTTP API</title></head>'
    "<body><h1>WarrenMQ HTTP API</h1><p>Basic authentication; JSON. Names in paths are"
    " percent-encoded: the vhost / is %2F. The tag is what a user needs at least.</p><table>"
    "<tr><th>Method<th>Path<th>Tag<th>What it does"
)


def page(endpoints: Iterable[Endpoint], prefix: str) -> bytes:
    """The page.

    Args:
        endpoints: All of the API's.
        prefix: Before each path, "" or "/prefix".
    """
    rows = [
        f"<tr><td>{each.method}<td>{html.escape(prefix + each.path)}<td>{each.tag}"
        f"<td>{html.escape(_said(each))}"
        for each in sorted(endpoints, key=lambda each: (each.path, each.method))
    ]
    return "\n".join((_HEAD, *rows, "</table></body></html>")).encode()


def _said(endpoint: Endpoint) -> str:
    """What the first line of a handler's docstring says beside method and path."""
    line = (endpoint.run.__doc__ or "").partition("\n")[0]
    _, colon, said = line.partition(": ")
    return said if colon else ""
