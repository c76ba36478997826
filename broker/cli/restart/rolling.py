"""Restarts a local cluster node by node, while clients are served by the others.

For each node: wait until its stop interrupts nobody, drain it, stop it, start it, wait until it has
caught up. A node that can't be drained, for its version or another's knows no maintenance mode, is
told stop_app in place of that: it hands over what it leads as well, and nothing of it is waited for
when its process ends.

What was done is noted in DIR/rolling.json until all is done: the process of each node that has been
restarted. After an interruption the next run leaves those alone, starts what is stopped and
drains again what was drained.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from broker.cli.cluster.layout import HOST, Layout, NodePlace
from broker.cli.cluster.local import START_TIMEOUT_S, ClusterError
from broker.cli.ctl.api import EXIT_DATA, EXIT_NO_PERMISSION, Api, CtlError, segment
from broker.cli.ctl.upgrades import Reason, reasons, tolerated
from broker.cli.restart.telling import Teller

NODES_MIN: Final = 3
LOOK_S: Final = 0.5
API_TIMEOUT_S: Final = 60.0
STATE_FILE: Final = "rolling.json"
LASTING: Final = "classic"
"""The kind of reason that does not go away by itself."""

_OLDER_CHECKS: Final = {
    "node-is-quorum-critical": Reason("quorum", "quorum queues would lose their quorum"),
    "node-is-mirror-sync-critical": Reason("mirror", "mirrored queues have no other copy"),
}
"""What a node of 0.2.0 can say of itself."""


class Processes(Protocol):
    """The nodes' processes (`broker.cli.cluster.local.Cluster`)."""

    layout: Layout

    def pid(self, place: NodePlace) -> int | None:
        """A node's process, None when it does not run."""
        ...

    def stop(self, names: Sequence[str] = ()) -> list[str]:
        """Stop nodes in good order; return those that had to be killed."""
        ...

    def start_node(self, name: str, timeout_s: float) -> NodePlace:
        """Start a node and wait until it serves."""
        ...


class Checks(Protocol):
    """What the cluster says of its nodes."""

    def leader(self) -> str:
        """Full name of the node that leads group 0; "" if nobody says."""
        ...

    def against_stop(self, place: NodePlace) -> list[Reason]:
        """What stands against a stop of a node now."""
        ...

    def lacks(self, place: NodePlace) -> list[Reason]:
        """What a node that has started does not have yet."""
        ...

    def drain(self, place: NodePlace) -> str:
        """Put a node into maintenance mode; return why that can't be, "" if it was done."""
        ...

    def stop_serving(self, place: NodePlace) -> None:
        """Have a node hand over what it leads, and serve nobody (stop_app)."""
        ...

    def revive(self, place: NodePlace) -> None:
        """End a node's maintenance mode if it is in it."""
        ...


class RollingRestart:
    """One restart of all nodes.

    Args:
        processes: Of the cluster.
        checks: What its nodes say.
        tell: Whom to tell.
        timeout_s: How long a node may take until its stop is safe, and until it has caught up.
        pause: Called with seconds between two looks.
    """

    def __init__(
        self,
        processes: Processes,
        checks: Checks,
        tell: Teller,
        *,
        timeout_s: float,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._processes = processes
        self._checks = checks
        self._tell = tell
        self._looks = max(1, int(timeout_s / LOOK_S))
        self._timeout_s = timeout_s
        self._pause = pause

    def run(self) -> None:
        """Restart what has not been restarted yet.

        Raises:
            ClusterError: A stop is not safe, or a node did not start or catch up in time; the text
                says why, and the nodes that run go on.
            LayoutError: There is no cluster in the directory.
        """
        places = self._processes.layout.nodes()
        if len(places) < NODES_MIN:
            raise ClusterError(
                f"a cluster of {len(places)} nodes can't be restarted without an interruption: the "
                "others are no majority. Use `warrenmq cluster stop`, then `start`"
            )
        state = StateFile(self._processes.layout.directory / STATE_FILE)
        before = state.read()
        for place in self._order(places):
            pid = self._processes.pid(place)
            if pid is not None and before.get(place.name) == pid:
                self._checks.revive(place)
                self._tell.done(f"{place.full_name}: was restarted before")
                continue
            self._restart(place, is_running=pid is not None)
            before[place.name] = self._processes.pid(place) or 0
            state.write(before)
        state.remove()
        self._tell.done("all nodes were restarted; `ctl post_upgrade` spreads leaders again")

    def _order(self, places: list[NodePlace]) -> list[NodePlace]:
        """Stopped nodes first, then the leader of group 0 last: it moves once."""
        leader = self._checks.leader()
        return sorted(
            places,
            key=lambda place: (
                self._processes.pid(place) is not None,
                place.full_name == leader,
            ),
        )

    def _restart(self, place: NodePlace, *, is_running: bool) -> None:
        name, tell = place.full_name, self._tell
        if is_running:
            self._wait_safe(place)
            why_not = self._checks.drain(place)
            tell.done(f"{name}: not drained, {why_not}" if why_not else f"{name}: drained")
            if why_not:
                self._checks.stop_serving(place)
            tell.waits(f"{name}: stops")
            late = self._processes.stop((place.name,))
            tell.done(f"{name}: killed, it did not stop in time" if late else f"{name}: stopped")
        tell.waits(f"{name}: starts")
        self._processes.start_node(place.name, START_TIMEOUT_S)
        self._wait(
            lambda: self._checks.lacks(place),
            f"{name}: catches up",
            f"{name} runs and has not caught up in {self._timeout_s:g} s; run the command again to "
            "go on",
        )
        self._checks.revive(place)
        tell.done(f"{name}: serves, has caught up")

    def _wait_safe(self, place: NodePlace) -> None:
        self._wait(
            lambda: self._checks.against_stop(place),
            f"{place.full_name}: waits until its stop is safe",
            f"it is not safe to stop {place.full_name}, which goes on",
        )

    def _wait(self, ask: Callable[[], list[Reason]], what: str, failed: str) -> None:
        """Ask until there is no reason left.

        Raises:
            ClusterError: There still are some when the time is over, or one that stays.
        """
        for look in range(self._looks):
            found = ask()
            if not found:
                return
            is_over = look + 1 == self._looks
            if is_over or any(reason.kind == LASTING for reason in found):
                lines = "".join(f"\n  {reason.text}" for reason in found)
                raise ClusterError(f"{failed}:{lines}")
            self._tell.waits(f"{what}: {found[0].text}")
            self._pause(LOOK_S)


class StateFile:
    """The processes of the nodes that were restarted, while the restart is not over.

    Args:
        path: Where.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, int]:
        """By node; {} where no restart was interrupted, or the file can't be read."""
        try:
            found = json.loads(self._path.read_text())["restarted"]
            return {str(name): int(pid) for name, pid in found.items()}
        except (OSError, ValueError, KeyError, AttributeError):
            return {}

    def write(self, restarted: dict[str, int]) -> None:
        """Note the processes."""
        self._path.write_text(json.dumps({"version": 1, "restarted": restarted}) + "\n")

    def remove(self) -> None:
        """Note that the restart is over."""
        self._path.unlink(missing_ok=True)


class ApiChecks(Checks):
    """`Checks` by the HTTP API of the nodes.

    Args:
        layout: Of the cluster.
        user: An administrator.
        password: The user's.
        tolerate: Kinds of reasons against a stop that do not count, "classic,alarm".

    Raises:
        ClusterError: `tolerate` names a kind that does not exist.
    """

    def __init__(self, layout: Layout, user: str, password: str, tolerate: str = "") -> None:
        self._layout = layout
        self._user, self._password = user, password
        try:
            self._accepted = tolerated(tolerate)
        except CtlError as error:
            raise ClusterError(error.text) from None

    def _api(self, place: NodePlace) -> Api:
        url = f"http://{HOST}:{place.management_port}"
        return Api(url, self._user, self._password, API_TIMEOUT_S)

    @override
    def leader(self) -> str:
        for place in self._layout.nodes():
            try:
                return str(self._api(place).get("/api/cluster/status")["metadata_leader"])
            except CtlError:
                continue
        return ""

    @override
    def against_stop(self, place: NodePlace) -> list[Reason]:
        # Others first, then the node itself; one of 0.2.0 knows the older checks alone.
        others = [each for each in self._layout.nodes() if each != place]
        for asked in (*others, place):
            found = self._ask(asked, "safe-to-stop", place)
            if found is not None:
                return found
        api = self._api(place)
        return [
            reason
            for check, reason in _OLDER_CHECKS.items()
            if api.status_of(f"/api/health/checks/{check}") != HTTPStatus.OK
            and reason.kind not in self._accepted
        ]

    @override
    def lacks(self, place: NodePlace) -> list[Reason]:
        found = self._ask(place, "caught-up", place)
        return [Reason("", "it does not answer yet")] if found is None else found

    def _ask(self, asked: NodePlace, check: str, place: NodePlace) -> list[Reason] | None:
        """A node's answer; None where it does not run or does not know the check."""
        try:
            return reasons(self._api(asked), check, place.full_name, self._accepted)
        except CtlError as error:
            if error.exit_code == EXIT_NO_PERMISSION:
                raise ClusterError(f"{asked.full_name}: {error.text}") from None
            return None

    @override
    def drain(self, place: NodePlace) -> str:
        status, answer = self._api(place).look("/api/node/drain", "POST")
        if status == HTTPStatus.NOT_FOUND:
            return "its version knows no maintenance mode"
        if status == HTTPStatus.BAD_REQUEST:
            return str(answer.get("reason", "")) if isinstance(answer, dict) else str(answer)
        try:
            self._api(place).judge(status, answer)
        except CtlError as error:
            raise ClusterError(f"{place.full_name}: drain failed: {error.text}") from None
        return ""

    @override
    def stop_serving(self, place: NodePlace) -> None:
        try:
            self._api(place).request("POST", "/api/node/stop_app")
        except CtlError as error:
            raise ClusterError(f"{place.full_name}: stop_app failed: {error.text}") from None

    @override
    def revive(self, place: NodePlace) -> None:
        api = self._api(place)
        try:
            node = api.get(f"/api/nodes/{segment(place.full_name)}")
            if node.get("being_drained"):
                api.ask("POST", "/api/node/revive", refused=EXIT_DATA)
        except CtlError as error:
            raise ClusterError(f"{place.full_name}: revive failed: {error.text}") from None
