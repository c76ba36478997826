"""Samples of the cluster, asked of one node after another until one answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from broker.cli.ctl.api import EXIT_DATA, EXIT_NO_PERMISSION, Api, CtlError
from broker.cli.top.view import View

_OVERVIEW: Final = (
    "/api/overview?columns=message_stats,queue_totals,object_totals,cluster_name,product_version"
)
_NODES: Final = (
    "/api/nodes?columns=name,running,mem_used,mem_limit,mem_alarm,disk_free,disk_free_limit,"
    "disk_free_alarm,sockets_used,fd_used,uptime,event_loop,being_drained"
)
_STATES: Final = "/api/connections?columns=state"
CONNECTIONS_MAX: Final = 5_000
"""Beyond so many connections their states are not counted: that listing would cost the node more
than the rest of a sample."""


class Sample(NamedTuple):
    """What one look found.

    Attributes:
        url: Of the node that was asked.
        overview: `/api/overview`.
        nodes: `/api/nodes`.
        items: The rows of the list that is shown, in its order.
        found: How many rows there are, of which `items` are the first.
        states: How many connections are in each state; empty if there are too many to count.
        problem: Why there is no sample, or no list; "" if all is there.
    """

    url: str = ""
    overview: dict[str, Any] = {}  # noqa: RUF012 - a default of a tuple, never changed
    nodes: list[dict[str, Any]] = []  # noqa: RUF012
    items: list[dict[str, Any]] = []  # noqa: RUF012
    found: int = 0
    states: dict[str, int] = {}  # noqa: RUF012
    problem: str = ""


class Sampler:
    """Asks the nodes of a cluster.

    Args:
        apis: Their HTTP APIs, in the order in which they are tried.
    """

    def __init__(self, apis: Sequence[Api]) -> None:
        self._apis = list(apis)

    def sample(self, view: View, rows: int) -> Sample:
        """Ask the node that answered last; the next ones if it does not answer.

        Args:
            view: What is shown.
            rows: How many rows of a list there is room for.

        Raises:
            CtlError: The user may not see the cluster.
        """
        problem = ""
        for _ in self._apis:
            try:
                return _ask(self._apis[0], view, rows)
            except CtlError as error:
                if error.exit_code == EXIT_NO_PERMISSION:
                    raise
                problem = problem or error.text
                self._apis.append(self._apis.pop(0))
        return Sample(problem=problem)


def _ask(api: Api, view: View, rows: int) -> Sample:
    overview = api.get(_OVERVIEW)
    nodes = api.get(_NODES)
    found = Sample(api.url, overview, nodes)
    if overview.get("object_totals", {}).get("connections", 0) <= CONNECTIONS_MAX:
        states = Counter(str(each.get("state")) for each in api.get(_STATES))
        found = found._replace(states=dict(states))
    try:
        page = api.get(view.path(rows))
    except CtlError as error:
        if error.exit_code != EXIT_DATA:
            raise
        return found._replace(problem=error.text)  # a pattern that is no regular expression
    return found._replace(items=page["items"], found=page["filtered_count"])
